// Opening TensorFlow's library. It brings protocol buffers of its own, under the names of ours: it
// is opened so that it sees its own first (RTLD_DEEPBIND), and nobody else sees any of them
// (RTLD_LOCAL). AddressSanitizer cannot work with the former.
#include "executor/tensorflow/library.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>

#include "executor/tensorflow/helper.h"

namespace monograph::tensorflow {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A ConfigProto: device_count {"GPU": 0}. GPUs are ours.
constexpr std::string_view kConfig("\x0a\x05\x0a\x03GPU", 7);

// What threads compute. A thread takes a place at its first borrowed op, and keeps it; threads
// beyond the last place are not named. Stores are relaxed, see Running; the handler loads in the
// default order, since a crash is rare.
constexpr size_t kPlaces = 256;
std::atomic<const char*> running[kPlaces];
std::atomic<size_t> places_taken{0};

std::atomic<const char*>* MyPlace() {
  // relaxed: only the number counts
  thread_local const size_t place = places_taken.fetch_add(1, std::memory_order_relaxed);
  return place < kPlaces ? &running[place] : nullptr;
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction before[NSIG];

void Write(const char* text) {
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text, std::strlen(text));
}

// Says what was computed, and leaves the rest to who was there before.
void OnCrash(int number, siginfo_t*, void*) {
  for (const std::atomic<const char*>& place : running) {
    const char* what = place.load();
    if (what == nullptr) continue;
    Write("monograph: the process crashes while TensorFlow's library computes ");
    Write(what);
    Write("\n");
  }
  sigaction(number, &before[number], nullptr);
  raise(number);
}

}  // namespace

Running::Running(const char* what) {
  // relaxed: read by a handler on this thread, or by that of a process that ends
  if (auto* place = MyPlace()) place->store(what, std::memory_order_relaxed);
}

Running::~Running() {
  if (auto* place = MyPlace()) place->store(nullptr, std::memory_order_relaxed);
}

void NameRunningInCrashes() {
  for (const int number : kSignals) {
    struct sigaction action = {};
    action.sa_sigaction = OnCrash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(number, &action, &before[number]);
  }
}

Status Library::StatusOf(const TF_Status* status) const {
  const int code = api_.TF_GetCode(status);
  if (code == 0) return Status();
  // "{{function_node ...}} what [Op:Lgamma] name: "
  std::string_view message = api_.TF_Message(status);
  if (message.starts_with("{{")) {
    if (const size_t end = message.find("}} "); end != std::string_view::npos)
      message.remove_prefix(end + 3);
  }
  if (const size_t end = message.rfind(" [Op:"); end != std::string_view::npos)
    message = message.substr(0, end);
  return Status(static_cast<Code>(code), std::string(message));
}

Status Library::Load() {
  if (kSanitized)
    return FailedPrecondition("TensorFlow's library cannot be opened beside AddressSanitizer");
  MG_ASSIGN_OR_RETURN(const Helper::Package* package, Helper::Get().package());
  void* const library = dlopen(package->library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr)
    return FailedPrecondition(package->library + " cannot be opened: " + dlerror());
#define MG_FIND(name, result, parameters)                                    \
  api_.name = reinterpret_cast<result(*) parameters>(dlsym(library, #name)); \
  if (api_.name == nullptr)                                                  \
    return FailedPrecondition(package->library + " (" + package->version + ") has no " #name);
  MG_TENSORFLOW_API(MG_FIND)
#undef MG_FIND
  NameRunningInCrashes();
  TF_Status* const status = api_.TF_NewStatus();
  TFE_ContextOptions* const options = api_.TFE_NewContextOptions();
  api_.TFE_ContextOptionsSetConfig(options, kConfig.data(), kConfig.size(), status);
  context_ = api_.TFE_NewContext(options, status);
  api_.TFE_DeleteContextOptions(options);
  return StatusOf(status).WithContext("TensorFlow's library");
}

Result<const Library*> Library::Open() {
  struct Opened {
    Library library;
    Status status;
  };
  static const Opened* const opened = [] {
    auto* made = new Opened;
    made->status = made->library.Load();
    return made;
  }();
  if (!opened->status.ok()) return opened->status;
  return &opened->library;
}

}  // namespace monograph::tensorflow
