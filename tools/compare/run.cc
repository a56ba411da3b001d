// One measured run: forks a child that launches it with its output in a log, waits for the child's
// end, the time limit or an interruption, which end it by a signal first, and reads what the
// clients wrote.
#include "tools/compare/run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <sstream>

#include "base/input_file.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

// A launch ends its program within 5 s of a signal and its daemons within two grace periods; after
// this much more it is killed, and all that it started with it.
constexpr std::chrono::seconds kEndGrace(10);
constexpr size_t kLastLines = 6;

sigset_t Interrupting() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// What a program printed last, without what its daemons said.
std::string LastLines(const std::string& path) {
  constexpr uint64_t kEnd = 64 << 10;
  const Result<InputFile> log = InputFile::Open("log", path);
  if (!log.ok()) return log.status().message();
  std::string end(std::min(kEnd, log->size()), '\0');
  if (const Status read = log->Read(log->size() - end.size(), end.size(), end.data()); !read.ok())
    return read.message();
  std::istringstream in(end);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || (line[0] == '[' && !line.starts_with("[client/"))) continue;
    lines.push_back(line);
    if (lines.size() > kLastLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text.empty() ? "it printed nothing" : text;
}

[[noreturn]] void RunChild(const LaunchOptions& options, const std::string& log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0) _exit(127);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  const Result<int> code = Launch(options);
  if (!code.ok()) std::fprintf(stderr, "%s\n", code.status().ToString().c_str());
  std::fflush(nullptr);
  _exit(code.ok() ? code.value() : 126);
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t signals = Interrupting();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  descriptor_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

Interrupts::~Interrupts() {
  const sigset_t signals = Interrupting();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

Status RunLaunched(const LaunchOptions& options, const std::string& log,
                   std::chrono::duration<double> limit, Interrupts* interrupts) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) RunChild(options, log, parent);

  const auto seconds = [](double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
  };
  const auto end_grace = kEndGrace + seconds(2 * options.grace_seconds);
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  bool late = false;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    pollfd fds[] = {{process.get(), POLLIN, 0}, {interrupts->descriptor_.get(), POLLIN, 0}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000)));
    signalfd_siginfo info{};
    if (read(interrupts->descriptor_.get(), &info, sizeof info) ==
        static_cast<ssize_t>(sizeof info)) {
      interrupts->signal_ = static_cast<int>(info.ssi_signo);
      kill(pid, interrupts->signal_);
      deadline = Clock::now() + end_grace;
    }
    if (Clock::now() < deadline) continue;
    kill(pid, late || interrupts->signal_ != 0 ? SIGKILL : SIGTERM);
    if (interrupts->signal_ == 0) late = true;
    deadline = Clock::now() + end_grace;
  }
  if (interrupts->signal_ != 0)
    return Cancelled(std::string("interrupted by ") + strsignal(interrupts->signal_));
  if (late)
    return DeadlineExceeded("the run took longer than " +
                            std::to_string(static_cast<int>(limit.count())) +
                            " s; it printed last:\n" + LastLines(log));
  if (WIFSIGNALED(status))
    return Status(Code::kUnknown, std::string("ended by ") + strsignal(WTERMSIG(status)) +
                                      "; it printed last:\n" + LastLines(log));
  if (WEXITSTATUS(status) != 0)
    return Status(Code::kUnknown, "exit code " + std::to_string(WEXITSTATUS(status)) +
                                      "; it printed last:\n" + LastLines(log));
  return Status();
}

Result<std::vector<RunResult>> ReadResults(const std::string& path) {
  std::vector<RunResult> clients;
  for (int client = 0; client == 0 || client < clients[0].clients; ++client) {
    Result<RunResult> result = ReadRunResult(ResultPath(path, client));
    if (result.status().code() == Code::kNotFound)
      return NotFound("the program ended with 0 but client " + std::to_string(client) +
                      " left no results; it must know --result_file");
    MG_RETURN_IF_ERROR(result.status());
    if (result->batch_size <= 0)
      return FailedPrecondition("client " + std::to_string(client) + " reported no batch size");
    clients.push_back(std::move(result).value());
  }
  // Where each trains at its own pace, one may have left nothing for another.
  const bool any = std::any_of(clients.begin(), clients.end(),
                               [](const RunResult& client) { return !client.steps.empty(); });
  if (!any) return FailedPrecondition("no client reported a step");
  return clients;
}

}  // namespace monograph
