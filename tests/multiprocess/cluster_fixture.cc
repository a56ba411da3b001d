// Child processes whose output threads of their own read, and clusters of daemons made of them;
// everything that is waited for has a limit, and a test that ends kills what still runs.
#include "tests/multiprocess/cluster_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "tools/free_ports.h"

namespace monograph {

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const Environment& environment) {
  int out[2], error[2];
  MG_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(error, O_CLOEXEC) == 0);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // Made before the fork: nothing may allocate between fork and exec in a program with threads.
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string variable = text.substr(0, text.find('='));
    if (std::none_of(environment.begin(), environment.end(),
                     [&](const auto& set) { return set.first == variable; }))
      entries.push_back(text);
  }
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> variables;
  for (std::string& entry : entries) variables.push_back(entry.data());
  variables.push_back(nullptr);

  pid_ = fork();
  MG_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    execvpe(words[0], words.data(), variables.data());
    _exit(127);
  }
  close(out[1]);
  close(error[1]);
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  MG_CHECK(pidfd_ >= 0);
  reader_ = std::thread([this, out = out[0], error = error[0]] { Read(out, error); });
}

ChildProcess::~ChildProcess() {
  if (!exit_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  reader_.join();
  close(pidfd_);
}

void ChildProcess::Read(int out, int error) {
  pollfd fds[2] = {{out, POLLIN, 0}, {error, POLLIN, 0}};
  std::string* const texts[2] = {&output_, &error_};
  // A grandchild may hold the pipes longer than the child lives; then the child's end counts.
  pollfd all[3] = {fds[0], fds[1], {pidfd_, POLLIN, 0}};
  while (all[0].fd >= 0 || all[1].fd >= 0) {
    if (poll(all, 3, -1) < 0) continue;
    bool any = false;
    for (int i = 0; i < 2; ++i) {
      if (all[i].fd < 0 || all[i].revents == 0) continue;
      any = true;
      char buffer[4096];
      const ssize_t count = read(all[i].fd, buffer, sizeof buffer);
      if (count <= 0) {
        close(std::exchange(all[i].fd, -1));
        continue;
      }
      std::lock_guard lock(mutex_);
      texts[i]->append(buffer, static_cast<size_t>(count));
      changed_.notify_all();
    }
    if (!any && all[2].revents != 0) break;
  }
  for (int i = 0; i < 2; ++i) {
    if (all[i].fd >= 0) close(all[i].fd);
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ChildProcess::Signal(int signal) const {
  if (exit_) return;
  kill(pid_, signal);
  // The threads stop one by one, each when it is scheduled: until then they answer as before.
  siginfo_t stopped;
  if (signal == SIGSTOP)
    waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<Exit> ChildProcess::Wait(std::chrono::milliseconds limit) {
  if (exit_) return exit_;
  pollfd fd{pidfd_, POLLIN, 0};
  const auto until = Clock::now() + limit;
  int ready;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ready = poll(&fd, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return std::nullopt;
  int status = 0;
  MG_CHECK(waitpid(pid_, &status, 0) == pid_);
  exit_ = WIFSIGNALED(status) ? Exit{true, WTERMSIG(status)} : Exit{false, WEXITSTATUS(status)};
  // What it said last is complete when its pipes end.
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, 5s, [this] { return ended_; });
  return exit_;
}

std::string ChildProcess::output() const {
  std::lock_guard lock(mutex_);
  return output_;
}
std::string ChildProcess::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

std::optional<Clock::time_point> ChildProcess::LoggedAt(const std::string& text) const {
  const std::string said = error();
  const size_t at = said.rfind(text);
  if (at == std::string::npos) return std::nullopt;
  const size_t line = said.rfind('\n', at) + 1;  // "W 15:04:05.678 what happened"
  int hours = 0, minutes = 0, seconds = 0, milliseconds = 0;
  if (std::sscanf(said.c_str() + line, "%*c %d:%d:%d.%d ", &hours, &minutes, &seconds,
                  &milliseconds) != 4)
    return std::nullopt;
  timeval now{};
  gettimeofday(&now, nullptr);
  const auto here = Clock::now();
  tm today{};
  localtime_r(&now.tv_sec, &today);
  const auto since_midnight = [](int h, int m, int s, int64_t ms) {
    return std::chrono::milliseconds(((h * 60 + m) * 60 + s) * int64_t{1000} + ms);
  };
  auto ago = since_midnight(today.tm_hour, today.tm_min, today.tm_sec, now.tv_usec / 1000) -
             since_midnight(hours, minutes, seconds, milliseconds);
  if (ago < 0ms) ago += 24h;
  return here - ago;
}

bool ChildProcess::WaitForText(const std::string& stream, const std::string& text,
                               std::chrono::milliseconds limit, size_t from) const {
  std::unique_lock lock(mutex_);
  auto there = [&] { return stream.find(text, from) != std::string::npos; };
  changed_.wait_for(lock, limit, [&] { return ended_ || there(); });
  return there();
}
bool ChildProcess::WaitForError(const std::string& text, std::chrono::milliseconds limit) const {
  return WaitForText(error_, text, limit);
}
bool ChildProcess::WaitForOutput(const std::string& text, std::chrono::milliseconds limit) const {
  return WaitForText(output_, text, limit);
}
bool ChildProcess::WaitForMoreOutput(const std::string& text,
                                     std::chrono::milliseconds limit) const {
  return WaitForText(output_, text, limit, output().size());
}

TestCluster::TestCluster(ClusterOptions options) : options_(std::move(options)) {
  const std::vector<int> ports = FreePorts(options_.ps + options_.workers).value();
  for (int i = 0; i < options_.ps + options_.workers; ++i) {
    const bool ps = i < options_.ps;
    const Status added =
        spec_.AddTask(ps ? "ps" : "worker", ps ? i : i - options_.ps,
                      "127.0.0.1:" + std::to_string(ports[static_cast<size_t>(i)]));
    MG_CHECK(added.ok());
  }
  if (!options_.key_file.empty()) key_ = control::KeyRing::FromFile(options_.key_file).value();
  if (!options_.start) return;
  for (const auto& [job, tasks] : spec_.jobs()) {
    for (const auto& [task, address] : tasks) Start(job, task);
  }
}

void TestCluster::Start(const std::string& job, int task) {
  std::vector<std::string> argv = {ExecutorPath(), "--cluster=" + json(), "--job=" + job,
                                   "--task=" + std::to_string(task)};
  if (!options_.key_file.empty()) argv.push_back("--key_file=" + options_.key_file);
  argv.insert(argv.end(), options_.flags.begin(), options_.flags.end());
  probes_.erase({job, task});
  daemons_[{job, task}] = std::make_unique<ChildProcess>(argv);
}

std::unique_ptr<Session> TestCluster::Connect(const Graph& graph, SessionOptions options) {
  if (!options.key) options.key = key_;
  Result<std::unique_ptr<Session>> session = Session::Connect(spec_, graph, std::move(options));
  if (!session.ok()) {
    std::string said;
    for (const auto& [task, daemon] : daemons_)
      said += task.first + "/" + std::to_string(task.second) + ":\n" + daemon->error();
    ADD_FAILURE() << session.status() << "\n" << said;
    std::abort();
  }
  return std::move(session).value();
}

wire::StatusResponse TestCluster::StatusOf(const std::string& job, int task) {
  std::unique_ptr<control::Channel>& probe = probes_[{job, task}];
  if (probe == nullptr || !probe->status().ok()) {
    control::ChannelOptions options;
    options.key = key_;
    options.hello.task_name = "/job:test/replica:0/task:0";
    options.timeout = 20s;
    options.on_waiting = [](const std::string&) {};
    Result<std::unique_ptr<control::Channel>> channel =
        control::Channel::Connect(address(job, task), std::move(options));
    EXPECT_TRUE(channel.ok()) << channel.status();
    if (!channel.ok()) return {};
    probe = std::move(channel).value();
  }
  wire::StatusResponse response;
  Result<std::string> bytes = probe->Call("Status", "", 20s);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(bytes.ok() && response.ParseFromString(bytes.value()));
  return response;
}

bool TestCluster::WaitForStatus(const std::string& job, int task,
                                const std::function<bool(const wire::StatusResponse&)>& wanted,
                                std::chrono::milliseconds limit) {
  // Each question is a round trip, during which the daemon gets on.
  for (const auto until = Clock::now() + limit; Clock::now() < until;) {
    if (wanted(StatusOf(job, task))) return true;
    if (::testing::Test::HasFailure()) return false;
    std::this_thread::yield();
  }
  return false;
}

std::chrono::milliseconds CpuTimeOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string word;
  long user = 0, system = 0;
  for (int field = 3; rest >> word; ++field) {
    if (field == 14) user = std::stol(word);
    if (field == 15) system = std::stol(word);
  }
  return std::chrono::milliseconds((user + system) * 1000 / sysconf(_SC_CLK_TCK));
}

void ExpectError(const Status& status, Code code, std::initializer_list<std::string> parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "no '" << part << "' in: " << status;
  }
}

bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() == DT_STRING)
    return std::equal(a.strings(), a.strings() + a.elements(), b.strings());
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

LongKernel::LongKernel(const Scope& scope, const std::string& device) {
  side = Placeholder(scope.WithOpName("side"), DT_INT32, {});
  const Scope there = scope.WithDevice(device);
  const Output square = Fill(there, Pack(there, {side, side}), Const(there, int64_t{1}));
  const Output product = MatMul(there.WithOpName("long_product"), square, square);
  sum = Sum(there.WithOpName("long_sum"), product, {0, 1});
}

std::string ExecutorPath() { return MG_EXECUTOR; }
std::string MonographPath() { return MG_MONOGRAPH; }

}  // namespace monograph
