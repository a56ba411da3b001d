#include "client/launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "client/cluster.h"
#include "client/host.h"
#include "executor/cuda_devices.h"
#include "transport/control/key.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Child {
  std::string label;  // "worker/1", "client/1"; empty: the only client, whose output is not touched
  bool client = false;
  pid_t pid = -1;
  Descriptor output;   // both streams
  Descriptor input;    // kept open: its end tells a daemon on another machine to stop
  std::string line;    // begun, not ended
  bool ready = false;  // a daemon that said so
  std::deque<std::string> last_lines;  // of a daemon
  std::vector<std::string> argv;       // of a daemon
  int restarts = 0;                    // how often it was started anew
  bool running = false;
  int status = 0;
};

constexpr size_t kLastLines = 4;

// Starts `argv`. Output goes to a pipe if `label` is set, input comes from a pipe if `input` is not
// null (and its text is written first).
Result<Child> Spawn(std::string label, const std::vector<std::string>& argv,
                    const std::vector<std::pair<std::string, std::string>>& environment,
                    const std::string* input) {
  Child child;
  child.label = std::move(label);
  int out[2] = {-1, -1}, in[2] = {-1, -1};
  if (!child.label.empty() && pipe2(out, O_CLOEXEC) != 0)
    return Internal(std::string("pipe: ") + std::strerror(errno));
  if (input != nullptr && pipe2(in, O_CLOEXEC) != 0)
    return Internal(std::string("pipe: ") + std::strerror(errno));
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (!child.label.empty()) {
      setpgid(0, 0);  // Ctrl-C reaches the program first; daemons are ended by us, after it
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
    }
    if (input != nullptr) dup2(in[0], STDIN_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(words[0], words.data());
    const std::string message = "cannot run '" + argv[0] + "': " + std::strerror(errno) + "\n";
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, message.data(), message.size());
    _exit(127);
  }
  child.pid = pid;
  child.running = true;
  if (out[1] >= 0) close(out[1]);
  if (in[0] >= 0) close(in[0]);
  child.output = Descriptor(out[0]);
  child.input = Descriptor(in[1]);
  if (input != nullptr) {
    [[maybe_unused]] ssize_t written = write(in[1], input->data(), input->size());
  }
  return child;
}

// A line that a child printed: text with its label for our own output, or nothing.
std::string TakeLine(Child& child, const std::string& line) {
  if (!child.client && line == kDaemonReady) {
    child.ready = true;
    return "";
  }
  if (!child.client) {
    child.last_lines.push_back(line);
    if (child.last_lines.size() > kLastLines) child.last_lines.pop_front();
  }
  return "[" + child.label + "] " + line + "\n";
}

// Copies what there is of the child's output to ours, line by line with its label. False at its
// end.
bool Forward(Child& child) {
  char buffer[4096];
  const ssize_t count = read(child.output.get(), buffer, sizeof buffer);
  if (count <= 0) {
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (!child.line.empty()) child.line += '\n';
  } else {
    child.line.append(buffer, static_cast<size_t>(count));
  }
  std::string text;
  size_t begin = 0;
  for (size_t end = child.line.find('\n'); end != std::string::npos;
       end = child.line.find('\n', begin)) {
    text += TakeLine(child, child.line.substr(begin, end - begin));
    begin = end + 1;
  }
  child.line.erase(0, begin);
  [[maybe_unused]] ssize_t written =
      write(child.client ? STDOUT_FILENO : STDERR_FILENO, text.data(), text.size());
  return count > 0;
}

// What has been printed and not read yet.
void Drain(Child& child) {
  while (child.output.get() >= 0) {
    pollfd fd{child.output.get(), POLLIN, 0};
    if (poll(&fd, 1, 0) <= 0) return;
    if (!Forward(child)) child.output.Close();
  }
}

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) return std::string("signal ") + strsignal(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

struct Placement {
  std::string job;
  int task;
  std::string host;  // empty: this machine
};

// Which task runs on which host.
Result<std::vector<Placement>> PlaceTasks(const LaunchOptions& options) {
  std::vector<Placement> tasks;
  std::string first_host;
  if (options.hosts.empty()) {
    for (int i = 0; i < options.workers; ++i) tasks.push_back({"worker", i, ""});
  } else {
    std::istringstream list(options.hosts);
    std::string entry;
    while (std::getline(list, entry, ',')) {
      const size_t colon = entry.find(':');
      const std::string count = colon == std::string::npos ? "1" : entry.substr(colon + 1);
      if (entry.empty() || colon == 0 || count.empty() || count.size() > 4 ||
          count.find_first_not_of("0123456789") != std::string::npos || count == "0") {
        return InvalidArgument("-H: '" + entry + "' is not HOST or HOST:COUNT");
      }
      const std::string host = entry.substr(0, colon);
      if (first_host.empty()) first_host = host;
      for (int i = 0; i < std::stoi(count); ++i)
        tasks.push_back({"worker", static_cast<int>(tasks.size()), host});
    }
    if (tasks.empty()) return InvalidArgument("-H names no host");
  }
  for (int i = 0; i < options.ps; ++i) tasks.push_back({"ps", i, first_host});
  return tasks;
}

// A file that only this user may read, removed with the object.
class TemporaryFile {
 public:
  Status Write(const std::string& text) {
    char name[] = "/tmp/monograph-XXXXXX";
    Descriptor file(mkstemp(name));  // mode 0600
    if (file.get() < 0)
      return Internal(std::string("cannot make a temporary file: ") + std::strerror(errno));
    path_ = name;
    if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      return ResourceExhausted("cannot write " + path_ + ": " + std::strerror(errno));
    }
    return Status();
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What the last `flag` among the words says, as FLAG=X or FLAG X; empty if there is none.
std::string FlagIn(const std::vector<std::string>& words, const std::string& flag) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind(flag + "=", 0) == 0) value = words[i].substr(flag.size() + 1);
    if (words[i] == flag && i + 1 < words.size()) value = words[i + 1];
  }
  return value;
}

bool SaysClientPerWorker(const std::vector<std::string>& words) {
  const std::string replication = FlagIn(words, "--replication");
  return replication == "between_graph" || replication == "hybrid";
}

// Several replicas of one worker have a CPU device each. Empty: as many as a daemon makes anyway,
// or as the user says.
std::string CpuDevicesFlag(const LaunchOptions& options) {
  constexpr char kFlag[] = "--cpu_devices";
  for (const std::string& word : options.executor_flags) {
    if (word.rfind(kFlag, 0) == 0) return "";
  }
  if (FlagIn(options.command, "--replication") != "hybrid") return "";
  const std::string replicas = FlagIn(options.command, "--replicas_per_worker");
  return std::string(kFlag) + "=" + (replicas.empty() ? "2" : replicas);
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() { EndAll(); }
  Result<int> Run();

 private:
  Status Start();
  // Waits for output, signals and ended children, at most until `until`.
  void Pump(Clock::time_point until);
  void Reap();
  void ReapClient(const Child& child);
  void ReapDaemon(Child& child);
  bool StartAnew(Child& child);
  void EndAll();
  Status StartClients(const ClusterSpec& cluster, const std::string& json);
  bool AnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running; });
  }
  bool ClientsRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.client && child.running; });
  }
  // Every daemon was ready at some time: the program can have reached them all.
  bool Complete() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.client || child.ready; });
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
  MG_ASSIGN_OR_RETURN(const std::vector<Placement> tasks, PlaceTasks(options_));
  const bool remote = !options_.hosts.empty();
  ClusterSpec cluster;
  std::vector<int> ports;
  if (!remote) {
    MG_ASSIGN_OR_RETURN(ports, FreePorts(static_cast<int>(tasks.size())));
  }
  std::map<std::string, int> next_port;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Placement& task = tasks[i];
    const std::string address =
        remote ? task.host + ":" + std::to_string(options_.base_port + next_port[task.host]++)
               : "127.0.0.1:" + std::to_string(ports[i]);
    MG_RETURN_IF_ERROR(cluster.AddTask(task.job, task.task, address));
  }
  const std::string json = cluster.ToJson();
  MG_RETURN_IF_ERROR(cluster_file_.Write(json + "\n"));
  if (remote) {
    MG_ASSIGN_OR_RETURN(const control::Key key, control::GenerateKey());
    key_line_ = control::FormatKey(key) + "\n";
    MG_RETURN_IF_ERROR(key_file_.Write(key_line_));
  }
  const std::string cpu_devices = CpuDevicesFlag(options_);
  for (const Placement& task : tasks) {
    std::vector<std::string> argv;
    if (remote) {
      // The key goes over standard input; that input's end stops the daemon, also if this program
      // is killed.
      argv = {"ssh",
              "-o",
              "BatchMode=yes",
              task.host,
              "exec",
              "monograph-executor",
              "--key_stdin",
              "--exit_on_stdin_end",
              "'--cluster=" + json + "'"};
    } else {
      argv = {options_.executor, "--exit_with_parent", "--cluster=" + cluster_file_.path()};
    }
    argv.push_back("--say_ready");
    argv.push_back("--job=" + task.job);
    argv.push_back("--task=" + std::to_string(task.task));
    // Who holds parameters leaves GPUs and their memory to who computes, unless the user says more.
    if (task.job == "ps") argv.push_back("--gpu_devices=0");
    if (task.job == "worker" && !cpu_devices.empty()) argv.push_back(cpu_devices);
    if (options_.restarts > 0) argv.push_back("--exit_when_gpu_lost");
    argv.insert(argv.end(), options_.executor_flags.begin(), options_.executor_flags.end());
    MG_ASSIGN_OR_RETURN(Child child, Spawn(task.job + "/" + std::to_string(task.task), argv, {},
                                           remote ? &key_line_ : nullptr));
    child.argv = std::move(argv);
    children_.push_back(std::move(child));
  }
  return StartClients(cluster, json);
}

Status Launcher::StartClients(const ClusterSpec& cluster, const std::string& json) {
  std::vector<std::string> argv = options_.command;
  argv.push_back("--cluster=" + cluster_file_.path());
  std::vector<std::pair<std::string, std::string>> environment = {{"MONOGRAPH_CLUSTER", json}};
  if (!options_.hosts.empty()) {
    argv.push_back("--key_file=" + key_file_.path());
    environment.emplace_back("MONOGRAPH_KEY_FILE", key_file_.path());
  }
  const bool per_worker =
      options_.clients == LaunchClients::kPerWorker ||
      (options_.clients == LaunchClients::kAuto && SaysClientPerWorker(options_.command));
  const int clients = per_worker ? cluster.num_tasks("worker") : 1;
  for (int i = 0; i < clients; ++i) {
    std::vector<std::string> words = argv;
    std::string label;
    if (per_worker) {
      words.insert(words.end(), {"--job_name=worker", "--task_index=" + std::to_string(i)});
      label = "client/" + std::to_string(i);
    }
    MG_ASSIGN_OR_RETURN(Child child, Spawn(label, words, environment, nullptr));
    child.client = true;
    children_.push_back(std::move(child));
  }
  return Status();
}

void Launcher::SignalClients(int signal) {
  for (const Child& child : children_) {
    if (child.client && child.running) kill(child.pid, signal);
  }
}

void Launcher::ReapClient(const Child& child) {
  const int code =
      WIFSIGNALED(child.status) ? 128 + WTERMSIG(child.status) : WEXITSTATUS(child.status);
  if (code_ == 0) code_ = code;
  if (code != 0 && !child.label.empty() && !ending_ && never_complete_.ok())
    LogError(child.label + " ended: " + DescribeExit(child.status));
}

// True if the daemon had been up, did not end because somebody asked it to, and runs again.
bool Launcher::StartAnew(Child& child) {
  const bool asked = WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0;
  if (!child.ready || asked || child.restarts >= options_.restarts) return false;
  const bool gpu_lost = WIFEXITED(child.status) && WEXITSTATUS(child.status) == kGpuLostExit;
  const std::string how =
      gpu_lost ? "ended with status " + std::to_string(kGpuLostExit) + ", a GPU's context is lost"
               : "ended: " + DescribeExit(child.status);
  Result<Child> anew =
      Spawn(child.label, child.argv, {}, options_.hosts.empty() ? nullptr : &key_line_);
  if (!anew.ok()) {
    LogError("daemon " + child.label + " cannot be started anew: " + anew.status().message());
    return false;
  }
  anew->argv = std::move(child.argv);
  anew->ready = child.ready;
  anew->restarts = child.restarts + 1;
  child = std::move(*anew);
  LogWarning("daemon " + child.label + " " + how + "; it is started anew (" +
             std::to_string(child.restarts) + " of " + std::to_string(options_.restarts) + ")");
  return true;
}

void Launcher::ReapDaemon(Child& child) {
  Drain(child);
  if (ending_ || StartAnew(child)) return;
  std::string how = DescribeExit(child.status);
  if (child.restarts > 0) {
    how += ", after " + std::to_string(child.restarts) +
           (child.restarts == 1 ? " restart" : " restarts") + " (--restarts)";
  }
  LogError("daemon " + child.label + " ended before the program: " + how);
  if (Complete() || !never_complete_.ok()) return;
  std::string why = "daemon " + child.label + " ended before every daemon was up: " + how;
  if (!child.last_lines.empty()) why += "; it said last:";
  for (const std::string& line : child.last_lines) why += "\n  " + line;
  never_complete_ = Unavailable(why);
}

void Launcher::Reap() {
  for (Child& child : children_) {
    if (!child.running || waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
    child.running = false;
    child.input.Close();
    if (child.client) {
      ReapClient(child);
    } else {
      ReapDaemon(child);
    }
  }
}

void Launcher::Pump(Clock::time_point until) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<Child*> readers;
  for (Child& child : children_) {
    if (child.output.get() < 0) continue;
    fds.push_back({child.output.get(), POLLIN, 0});
    readers.push_back(&child);
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  if (poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000))) > 0) {
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      if (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info) &&
          info.ssi_signo != SIGCHLD) {
        interrupted_ = static_cast<int>(info.ssi_signo);
      }
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      if (fds[i + 1].revents != 0 && !Forward(*readers[i])) readers[i]->output.Close();
    }
  }
  Reap();
}

void Launcher::EndAll() {
  ending_ = true;
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
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
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
      SignalClients(interrupted_ != 0 ? interrupted_ : SIGTERM);
      kill_at = Clock::now() + std::chrono::seconds(5);
    }
    if (Clock::now() > kill_at) SignalClients(SIGKILL);
  }
  EndAll();
  if (!never_complete_.ok() && interrupted_ == 0) return never_complete_;
  return code_;
}

// The bounds of a range of ports from which the kernel gives none to sockets that ask for any: a
// port that is free now stays free until a daemon listens on it. UCX listens on ports that it is
// given, and one of them could be the one that another daemon was told. {0, 0}, any port, if the
// kernel gives them all.
std::pair<int, int> PortsNobodyIsGiven() {
  constexpr int kLowest = 10000, kHighest = 65535, kEnough = 2000;
  int first = 0, last = 0;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  if (!(range >> first >> last)) return {0, 0};
  if (first - kLowest >= kEnough) return {kLowest, first - 1};
  if (kHighest - last >= kEnough) return {last + 1, kHighest};
  return {0, 0};
}

// Takes a name that only one socket can have where the port is (abstract names belong to the
// network namespace, as ports do), until this process ends: between being found free and being
// listened on by a daemon, a port is no other caller's, in this process or another. False if it is
// taken.
bool Reserve(int port) {
  static std::mutex mutex;
  static auto* kept = new std::vector<Descriptor>();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "monograph-port-" + std::to_string(port);  // after a zero: abstract
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return false;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(socket));
  return true;
}

}  // namespace

Result<std::vector<int>> FreePorts(int count) {
  const auto [low, high] = PortsNobodyIsGiven();
  std::minstd_rand random(std::random_device{}());
  // All sockets are held until the last has its port, so that no port is given twice.
  std::vector<Descriptor> sockets;
  std::vector<int> ports;
  constexpr int kTries = 1000;
  for (int tries = 0; static_cast<int>(ports.size()) < count; ++tries) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::uniform_int_distribution(low, high)(random)));
    socklen_t size = sizeof address;
    if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      if (errno == EADDRINUSE && tries < kTries) continue;
      return Internal(std::string("no free port: ") + std::strerror(errno));
    }
    const int port = ntohs(address.sin_port);
    if (!Reserve(port)) {
      if (tries < kTries) continue;
      return ResourceExhausted("no free port that nobody has reserved");
    }
    sockets.push_back(std::move(socket));
    ports.push_back(port);
  }
  return ports;
}

Result<int> Launch(const LaunchOptions& options) {
  if (options.command.empty()) return InvalidArgument("no program to run; give it after --");
  if (options.restarts < 0) return InvalidArgument("--restarts must be 0 or more");
  if (options.workers < 0 || options.ps < 0 ||
      (options.hosts.empty() && options.workers + options.ps == 0)) {
    return InvalidArgument("at least one worker or ps is needed");
  }
  return Launcher(options).Run();
}

}  // namespace monograph
