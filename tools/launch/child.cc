// Starting a process of a launch, and showing what it prints. Daemons and the clients of workers
// are read line by line, so that their lines can be labelled and do not mix; the only client of a
// program prints to our own streams, or is copied byte by byte where it is logged, so that its
// progress shows at once.
#include "tools/launch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/system_memory.h"
#include "client/host.h"

namespace monograph {
namespace {

constexpr size_t kLastLines = 4;
constexpr std::string_view kInformation = "I ";  // how such lines begin (base/log.h)

struct Pipe {
  Descriptor read, write;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Internal(std::string("pipe: ") + std::strerror(errno));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

void Write(int fd, std::string_view text) {
  while (fd >= 0 && !text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // who reads it has gone, or the disk is full: the child goes on
    text.remove_prefix(static_cast<size_t>(count));
  }
}

[[noreturn]] void RunChild(const ChildCommand& command, pid_t parent, int input, int out,
                           int error) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Ctrl-C reaches an only client first; the others are ended by us, daemons after clients.
  if (command.output == ChildOutput::kLines) setpgid(0, 0);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  if (error >= 0) dup2(error, STDERR_FILENO);
  if (input >= 0) dup2(input, STDIN_FILENO);
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : command.argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  Write(STDERR_FILENO, kCannotRun + command.argv[0] + "': " + std::strerror(errno) + "\n");
  _exit(127);
}

// Whether a line is for our own output.
bool IsShown(Child& child, const std::string& line) {
  if (child.command.client) return true;
  if (line == kDaemonReady) {
    child.ready = true;
    return false;
  }
  child.last_lines.push_back(line);
  if (child.last_lines.size() > kLastLines) child.last_lines.pop_front();
  // It has lost its clients, and drains: that is no news where all is being ended.
  if (child.quiet && line.starts_with(kInformation)) return false;
  return child.log.get() < 0;
}

// The lines of `text`, all ended.
void TakeLines(Child& child, const ChildStream& stream, std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string line(text.substr(0, end));
    if (IsShown(child, line)) shown += "[" + child.command.label + "] " + line + "\n";
    text.remove_prefix(end + 1);
  }
  Write(stream.shown_on, shown);
}

}  // namespace

Result<Descriptor> OpenLog(const ChildCommand& command) {
  if (command.log.empty()) return Descriptor();
  Descriptor log(open(command.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (log.get() < 0)
    return FailedPrecondition("cannot write '" + command.log + "': " + std::strerror(errno));
  return log;
}

Result<Child> Spawn(ChildCommand command, Descriptor log) {
  Child child;
  Pipe out, error, in;
  if (command.output != ChildOutput::kInherited) {
    MG_ASSIGN_OR_RETURN(out, MakePipe());
  }
  if (command.output == ChildOutput::kCopied) {
    MG_ASSIGN_OR_RETURN(error, MakePipe());
  }
  if (command.input != nullptr) {
    MG_ASSIGN_OR_RETURN(in, MakePipe());
  }
  child.kills_before = OutOfMemoryKills();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    const bool one_stream = command.output == ChildOutput::kLines;
    RunChild(command, parent, in.read.get(), out.write.get(),
             one_stream ? out.write.get() : error.write.get());
  }
  if (command.input != nullptr) Write(in.write.get(), *command.input);
  const bool to_error = !command.client;  // a daemon's lines
  for (auto& [pipe, shown_on] : {std::pair(&out, to_error ? STDERR_FILENO : STDOUT_FILENO),
                                 std::pair(&error, STDERR_FILENO)}) {
    if (pipe->read.get() >= 0) child.streams.push_back({std::move(pipe->read), shown_on, ""});
  }
  child.command = std::move(command);
  child.pid = pid;
  child.running = true;
  child.input = std::move(in.write);
  child.log = std::move(log);
  return child;
}

bool Forward(Child& child, ChildStream& stream) {
  char buffer[4096];
  const ssize_t count = read(stream.pipe.get(), buffer, sizeof buffer);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  const std::string_view text(buffer, count > 0 ? static_cast<size_t>(count) : 0);
  Write(child.log.get(), text);
  if (child.command.output == ChildOutput::kCopied) {
    Write(stream.shown_on, text);
    return count > 0;
  }
  stream.line.append(text);
  if (count <= 0 && !stream.line.empty()) stream.line += '\n';
  const size_t ended = stream.line.rfind('\n') + 1;  // 0 if there is none
  TakeLines(child, stream, std::string_view(stream.line).substr(0, ended));
  stream.line.erase(0, ended);
  return count > 0;
}

void Drain(Child& child) {
  for (ChildStream& stream : child.streams) {
    while (stream.pipe.get() >= 0) {
      pollfd fd{stream.pipe.get(), POLLIN, 0};
      if (poll(&fd, 1, 0) <= 0) break;
      if (!Forward(child, stream)) stream.pipe.Close();
    }
  }
}

std::string DescribeExit(const Child& child) {
  const int status = child.status;
  if (!WIFSIGNALED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGKILL) {
    const std::optional<int64_t> kills = OutOfMemoryKills();
    if (!kills || !child.kills_before)
      return "killed by SIGKILL (perhaps for lack of memory: see dmesg)";
    if (*kills > *child.kills_before) return "killed by the system for lack of memory";
  }
  return std::string("signal ") + strsignal(WTERMSIG(status));
}

}  // namespace monograph
