// Opening TensorFlow's library. It brings protocol buffers of its own, under the names of ours: it
// is opened so that it sees its own first (RTLD_DEEPBIND), and nobody else sees any of them
// (RTLD_LOCAL). AddressSanitizer cannot work with the former.
//
// A crash in it: the handler says on standard error what was computed, and gives the thread
// mg-crash half a second to tell it to those who wait for the process (CrashListener). In a handler
// nothing can be sent; the thread that crashed stays in it meanwhile.
#include "executor/tensorflow/library.h"

#include <dlfcn.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "base/thread.h"
#include "executor/borrowed.h"
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

// What the first crash was in: written by the handler before the semaphore is raised.
char computed[512];
sem_t crashed;
std::atomic<bool> crashes{false}, told{false};  // default order: a crash is rare
std::atomic<pid_t> telling_thread{0};

void TellWhenItCrashes() {
  telling_thread = gettid();
  while (sem_wait(&crashed) != 0) {
  }
  TellOfCrash(computed);
  told = true;
}

void Nap() {
  const timespec five_ms{0, 5'000'000};
  nanosleep(&five_ms, nullptr);
}

// Says what was computed, on standard error and to who listens, and leaves the rest to who was
// there before. The thread's own node counts; where the library crashes on a thread of its own, all
// that run are named. Calls only what a handler may call.
void OnCrash(int number, siginfo_t*, void*) {
  constexpr int kTellNaps = 100, kLeaveNaps = 20;  // half a second; a tenth for what is sent
  const std::atomic<const char*>* mine = MyPlace();
  const bool own = mine != nullptr && mine->load() != nullptr;
  const bool first = !crashes.exchange(true);
  bool any = false;
  for (const std::atomic<const char*>& place : running) {
    const char* what = place.load();
    if (what == nullptr || (own && &place != mine)) continue;
    any = true;
    Write("monograph: the process crashes while TensorFlow's library computes ");
    Write(what);
    Write("\n");
    if (!first) continue;
    const size_t length = std::strlen(computed);
    if (length > 0) std::strncat(computed, ", ", sizeof computed - length - 1);
    std::strncat(computed, what, sizeof computed - std::strlen(computed) - 1);
  }
  if (any && telling_thread.load() != 0 && telling_thread.load() != gettid()) {
    if (first) sem_post(&crashed);
    for (int i = 0; i < kTellNaps && !told; ++i) Nap();
    for (int i = 0; i < kLeaveNaps; ++i) Nap();
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
  sem_init(&crashed, 0, 0);
  StartThread("mg-crash", TellWhenItCrashes).detach();
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
