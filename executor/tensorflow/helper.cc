// The process and what is said to it, over a socket that is its standard input and output.
//
// It begins with four answers: the library's path, its version, its ops, its kernels. Each question
// is then a GraphDef, each answer the shapes of the outputs of its node "node": how many outputs,
// and for each its rank (-1: unknown) and dimensions. All numbers are little-endian, 4 bytes for
// counts and ranks, 8 for dimensions. A question is its length and its bytes; an answer begins with
// one byte: '+', or '!' before what is wrong with the question, or '-' before another failure.
//
// A process of its own, because the library takes 800 MB of address space and a second to open,
// which a client that only builds and cuts graphs shall not pay; and because two libraries of
// protocol buffers in a process need care (executor/tensorflow/library.cc).
#include "executor/tensorflow/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "executor/tensorflow/helper_script.h"  // helper.py as kScript

namespace monograph::tensorflow {
namespace {

// The library is 800 MB, and may have to be read from a slow disk.
constexpr int kStartMs = 120'000;
constexpr int kAnswerMs = 20'000;
constexpr uint32_t kMostBytes = uint32_t{1} << 30;

constexpr char kVariable[] = "MONOGRAPH_TENSORFLOW";

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// This process's environment, but that the interpreter shall be quiet and take no GPU.
std::vector<std::string> ChildEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("TF_CPP_MIN_LOG_LEVEL=") || text.starts_with("CUDA_VISIBLE_DEVICES="))
      continue;
    variables.emplace_back(text);
  }
  variables.emplace_back("TF_CPP_MIN_LOG_LEVEL=3");
  variables.emplace_back("CUDA_VISIBLE_DEVICES=-1");
  return variables;
}

template <typename T>
bool Take(std::string_view* bytes, T* value) {
  if (bytes->size() < sizeof *value) return false;
  std::memcpy(value, bytes->data(), sizeof *value);
  bytes->remove_prefix(sizeof *value);
  return true;
}

Result<std::vector<PartialShape>> ReadShapes(std::string_view bytes) {
  const Status malformed = Internal("TensorFlow's answer about shapes is malformed");
  int32_t count = 0;
  if (!Take(&bytes, &count)) return malformed;
  std::vector<PartialShape> shapes;
  for (int32_t i = 0; i < count; ++i) {
    int32_t rank = 0;
    if (!Take(&bytes, &rank)) return malformed;
    PartialShape shape = rank < 0 || rank > kMaxRank ? PartialShape() : PartialShape::Scalar();
    for (int32_t k = 0; k < rank; ++k) {
      int64_t dim = 0;
      if (!Take(&bytes, &dim)) return malformed;
      if (shape.known_rank()) shape.AddDim(dim < 0 ? -1 : dim);
    }
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

Helper& Helper::Get() {
  static auto* const helper = new Helper;
  return *helper;
}

void Helper::SetInterpreter(std::string interpreter) {
  MutexLock lock(mutex_);
  interpreter_ = std::move(interpreter);
}

Result<const Helper::Package*> Helper::package() {
  MutexLock lock(mutex_);
  if (!std::exchange(asked_, true)) {
    why_not_ = Start();
    if (why_not_.ok())
      LogInfo("TensorFlow " + package_.version + " lends ops: " + package_.library);
  }
  if (!why_not_.ok()) return why_not_;
  return &package_;
}

Result<std::vector<PartialShape>> Helper::InferShapes(const std::string& graph_def) {
  MG_RETURN_IF_ERROR(package().status());
  MutexLock lock(mutex_);
  // A process that was idle has ended meanwhile.
  if (socket_ < 0 || !Send(graph_def).ok()) {
    MG_RETURN_IF_ERROR(Start());
    MG_RETURN_IF_ERROR(Send(graph_def));
  }
  MG_ASSIGN_OR_RETURN(const std::string answer, Receive(kAnswerMs));
  return ReadShapes(answer);
}

Status Helper::Start() {
  Stop();
  if (interpreter_.empty()) {
    const char* named = std::getenv(kVariable);
    if (named != nullptr) interpreter_ = named;
  }
  if (interpreter_.empty() || interpreter_ == "none") {
    return FailedPrecondition(std::string(kVariable) +
                              " can name a Python interpreter whose TensorFlow lends ops that are "
                              "lacking here");
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Internal(std::string("socketpair: ") + std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string arguments[] = {interpreter_, "-c", kScript};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment = ChildEnvironment();
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  pid_t process = -1;
  const int error =
      posix_spawnp(&process, argv[0], &actions, nullptr, argv.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  process_ = error == 0 ? process : -1;
  const std::string named =
      "the Python interpreter '" + interpreter_ + "' (" + kVariable + ") lends no TensorFlow: ";
  if (error != 0) {
    Stop();
    return FailedPrecondition(named + std::strerror(error));
  }
  Package package;
  for (std::string* part : {&package.library, &package.version, &package.ops, &package.kernels}) {
    Result<std::string> answer = Receive(kStartMs);
    if (!answer.ok()) {
      Stop();
      return FailedPrecondition(named + answer.status().message());
    }
    *part = *std::move(answer);
  }
  // Others hold what was learned first, and it does not change.
  if (package_.library.empty()) package_ = std::move(package);
  return Status();
}

void Helper::Stop() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (process_ < 0) return;
  // It has nothing to save, and may be stuck.
  kill(process_, SIGKILL);
  waitpid(std::exchange(process_, -1), nullptr, 0);
}

Status Helper::Send(const std::string& question) {
  const auto size = static_cast<uint32_t>(question.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += question;
  const int64_t until = NowMs() + kAnswerMs;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n =
        send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wait{socket_, POLLOUT, 0};
      const int64_t left = until - NowMs();
      const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
      if (ready > 0 || (ready < 0 && errno == EINTR)) continue;
      return DeadlineExceeded("the process that asks TensorFlow read nothing for " +
                              std::to_string(kAnswerMs / 1000) + " s");
    }
    if (n <= 0) return Unavailable("the process that asks TensorFlow has ended");
    sent += static_cast<size_t>(n);
  }
  return Status();
}

Result<std::string> Helper::Receive(int deadline_ms) {
  const int64_t until = NowMs() + deadline_ms;
  const auto read_all = [&](char* out, size_t size) MG_REQUIRES(mutex_) -> Status {
    while (size > 0) {
      pollfd wait{socket_, POLLIN, 0};
      const int64_t left = until - NowMs();
      const int ready = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) {
        Stop();
        return DeadlineExceeded("it did not answer within " + std::to_string(deadline_ms / 1000) +
                                " s");
      }
      const ssize_t n = recv(socket_, out, size, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        Stop();
        return Unavailable("it ended without an answer");
      }
      out += n;
      size -= static_cast<size_t>(n);
    }
    return Status();
  };
  char head[5];
  MG_RETURN_IF_ERROR(read_all(head, sizeof head));
  uint32_t size;
  std::memcpy(&size, head + 1, sizeof size);
  if (size > kMostBytes) {
    Stop();
    return Internal("it gave a malformed answer");
  }
  std::string answer(size, '\0');
  MG_RETURN_IF_ERROR(read_all(answer.data(), answer.size()));
  if (head[0] == '+') return answer;
  return head[0] == '!' ? InvalidArgument(answer) : Unavailable(answer);
}

}  // namespace monograph::tensorflow
