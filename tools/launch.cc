// The launcher's loop: starts what the plan says, shows what it prints, starts daemons that crash
// anew, and ends everything once the clients have ended, the user interrupts, or a daemon ends
// before all were up. One thread; signals arrive by a descriptor, and the kernel ends the children
// of a launcher that is killed.
#include "tools/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "executor/gpu/plugin.h"
#include "tools/launch/child.h"
#include "tools/launch/plan.h"
#include "tools/launch/temporary_file.h"
#include "transport/control/key.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

void Tell(const std::string& line) {
  std::fprintf(stderr, "monograph launch: %s\n", Printable(line).c_str());
}

std::string InterruptedBy(int signal) {
  return (signal == SIGINT ? std::string("Ctrl-C") : strsignal(signal)) +
         ": ending the program and its daemons";
}

// Where to read what the daemon said, if it was not shown.
std::string SeeLog(const Child& daemon) {
  return daemon.command.log.empty() ? "" : "; see " + daemon.command.log;
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() { EndAll(); }
  Result<int> Run();

 private:
  Status Start();
  // A log for each command, open before any is started; closed descriptors without --log_dir.
  Result<std::vector<Descriptor>> OpenLogs(const std::vector<ChildCommand>& commands) const;
  // Waits for output, signals and ended children, at most until `until`.
  void Pump(Clock::time_point until);
  void Reap();
  void ReapClient(const Child& child);
  void ReapDaemon(Child& child);
  bool StartAnew(Child& child);
  void EndAll();
  void Quieten() {
    for (Child& child : children_) child.quiet = true;
  }
  bool AnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running; });
  }
  bool ClientsRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.command.client && child.running; });
  }
  // Every daemon was ready at some time: the program can have reached them all.
  bool Complete() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.command.client || child.ready; });
  }
  void SignalClients(int signal);

  const LaunchOptions& options_;
  TemporaryFile cluster_file_, key_file_;
  std::string key_line_;         // what daemons on other machines read
  std::vector<Child> children_;  // the daemons, then the clients
  int code_ = 0;                 // of the clients
  Descriptor signals_;
  int interrupted_ = 0;
  bool ending_ = false;
  Status never_complete_;  // which daemon ended before the cluster was there, and why
};

Status Launcher::Start() {
  MG_ASSIGN_OR_RETURN(const LaunchPlan plan, LaunchPlan::Make(options_));
  MG_RETURN_IF_ERROR(cluster_file_.Write(plan.cluster().ToJson() + "\n"));
  MG_ASSIGN_OR_RETURN(const control::Key key, control::GenerateKey());
  key_line_ = control::FormatKey(key) + "\n";
  MG_RETURN_IF_ERROR(key_file_.Write(key_line_));
  std::vector<ChildCommand> commands = plan.Commands(
      {.cluster = cluster_file_.path(), .key = key_file_.path(), .key_line = &key_line_});
  MG_ASSIGN_OR_RETURN(std::vector<Descriptor> logs, OpenLogs(commands));
  if (const std::string choices = plan.Choices(); !choices.empty()) Tell(choices);
  if (!options_.log_dir.empty()) Tell("logs are in " + options_.log_dir + ", a file per process");
  for (size_t i = 0; i < commands.size(); ++i) {
    MG_ASSIGN_OR_RETURN(Child child, Spawn(std::move(commands[i]), std::move(logs[i])));
    children_.push_back(std::move(child));
  }
  return Status();
}

Result<std::vector<Descriptor>> Launcher::OpenLogs(
    const std::vector<ChildCommand>& commands) const {
  if (!options_.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options_.log_dir, error);
    if (error)
      return FailedPrecondition("--log_dir: cannot make the folder '" + options_.log_dir +
                                "': " + error.message());
  }
  std::vector<Descriptor> logs;
  for (const ChildCommand& command : commands) {
    Result<Descriptor> log = OpenLog(command);
    if (!log.ok()) return log.status().WithContext("--log_dir");
    logs.push_back(std::move(log).value());
  }
  return logs;
}

void Launcher::SignalClients(int signal) {
  for (const Child& child : children_) {
    if (child.command.client && child.running) kill(child.pid, signal);
  }
}

void Launcher::ReapClient(const Child& child) {
  const int code =
      WIFSIGNALED(child.status) ? 128 + WTERMSIG(child.status) : WEXITSTATUS(child.status);
  if (code_ == 0) code_ = code;
  const bool one_of_many = child.command.output == ChildOutput::kLines;
  if (code != 0 && one_of_many && !ending_ && interrupted_ == 0 && never_complete_.ok())
    LogError(child.command.label + " ended: " + DescribeExit(child));
}

// True if the daemon had been up, did not end because somebody asked it to, and runs again.
bool Launcher::StartAnew(Child& child) {
  const bool asked = WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0;
  if (!child.ready || asked || child.restarts >= options_.restarts) return false;
  const bool gpu_lost = WIFEXITED(child.status) && WEXITSTATUS(child.status) == kGpuLostExit;
  const std::string how =
      gpu_lost ? "ended with status " + std::to_string(kGpuLostExit) + ", a GPU's context is lost"
               : "ended: " + DescribeExit(child);
  const std::string name = "daemon " + child.command.label;
  Result<Child> anew = Spawn(child.command, std::move(child.log));
  if (!anew.ok()) {
    LogError(name + " cannot be started anew: " + anew.status().message());
    return false;
  }
  anew->ready = child.ready;
  anew->restarts = child.restarts + 1;
  child = std::move(*anew);
  LogWarning(name + " " + how + "; it is started anew (" + std::to_string(child.restarts) + " of " +
             std::to_string(options_.restarts) + ")" + SeeLog(child));
  return true;
}

void Launcher::ReapDaemon(Child& child) {
  Drain(child);
  if (ending_ || interrupted_ != 0 || StartAnew(child)) return;
  std::string how = DescribeExit(child);
  if (child.restarts > 0) {
    how += ", after " + std::to_string(child.restarts) +
           (child.restarts == 1 ? " restart" : " restarts") + " (--restarts)";
  }
  const std::string name = "daemon " + child.command.label;
  LogError(name + " ended before the program: " + how + SeeLog(child));
  if (Complete() || !never_complete_.ok()) return;
  std::string why = name + " ended before every daemon was up: " + how;
  if (!child.last_lines.empty()) why += "; it said last:";
  for (const std::string& line : child.last_lines) why += "\n  " + line;
  if (const std::string advice = AdviceFor(child, options_); !advice.empty()) why += "\n" + advice;
  never_complete_ = Unavailable(why);
}

void Launcher::Reap() {
  for (Child& child : children_) {
    if (!child.running || waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
    child.running = false;
    child.input.Close();
    if (child.command.client) {
      ReapClient(child);
    } else {
      ReapDaemon(child);
    }
  }
}

void Launcher::Pump(Clock::time_point until) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<std::pair<Child*, ChildStream*>> readers;
  for (Child& child : children_) {
    for (ChildStream& stream : child.streams) {
      if (stream.pipe.get() < 0) continue;
      fds.push_back({stream.pipe.get(), POLLIN, 0});
      readers.emplace_back(&child, &stream);
    }
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  if (poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000))) > 0) {
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      if (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info) &&
          info.ssi_signo != SIGCHLD) {
        interrupted_ = static_cast<int>(info.ssi_signo);
        Quieten();
      }
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      const auto& [child, stream] = readers[i];
      if (fds[i + 1].revents != 0 && !Forward(*child, *stream)) stream->pipe.Close();
    }
  }
  Reap();
}

void Launcher::EndAll() {
  ending_ = true;
  Quieten();
  const auto grace = std::chrono::milliseconds(static_cast<int64_t>(options_.grace_seconds * 1000));
  for (int signal : {SIGTERM, SIGKILL}) {
    for (Child& child : children_) {
      if (!child.running) continue;
      child.input.Close();
      kill(child.pid, signal);
    }
    const auto until = Clock::now() + grace;
    while (AnyRunning() && Clock::now() < until) Pump(until);
  }
  // What daemons said last.
  for (Child& child : children_) Drain(child);
}

Result<int> Launcher::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, signal);
  // nohup has SIGHUP ignored; a blocked signal would come all the same.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  MG_RETURN_IF_ERROR(Start());
  bool told = false;
  auto kill_at = Clock::time_point::max();
  while (ClientsRunning()) {
    Pump(Clock::now() + std::chrono::seconds(1));
    if ((interrupted_ != 0 || !never_complete_.ok()) && !std::exchange(told, true)) {
      // Ctrl-C has reached an only client from the terminal already; a second signal of the same
      // kind does no harm. A program would wait in vain for a cluster that never comes up.
      if (interrupted_ != 0) Tell(InterruptedBy(interrupted_));
      SignalClients(interrupted_ != 0 ? interrupted_ : SIGTERM);
      kill_at = Clock::now() + std::chrono::seconds(5);
    }
    if (Clock::now() > kill_at) SignalClients(SIGKILL);
  }
  EndAll();
  if (!never_complete_.ok() && interrupted_ == 0) return never_complete_;
  return code_;
}

}  // namespace

Result<int> Launch(const LaunchOptions& options) { return Launcher(options).Run(); }

}  // namespace monograph
