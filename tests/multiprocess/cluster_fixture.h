// What tests with real processes share: child processes whose output is kept, and clusters of
// executor daemons on free loopback ports. Everything that a test starts is killed and reaped with
// the object that started it, and by the kernel if the test itself is killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cluster.h"
#include "client/session.h"
#include "executor/worker/worker.pb.h"
#include "tests/temporary_folder.h"
#include "transport/control/channel.h"

namespace monograph {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Requested devices: tasks.
inline constexpr char kPs[] = "/job:ps/task:0", kWorker0[] = "/job:worker/task:0",
                      kWorker1[] = "/job:worker/task:1";

// How one process ended.
struct Exit {
  bool signalled = false;
  int code = 0;  // exit code, or the signal
};

// A started program. Its standard output and error are read by a thread and kept. Methods may be
// called from any thread; the kernel kills the child if the thread that made it ends.
class ChildProcess {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  explicit ChildProcess(const std::vector<std::string>& argv, const Environment& environment = {});
  ~ChildProcess();  // SIGKILL, and reaps
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;  // SIGSTOP: returns when all its threads have stopped
  // Nothing if it still runs after `limit`.
  std::optional<Exit> Wait(std::chrono::milliseconds limit);
  // What it has printed so far.
  std::string output() const;  // standard output
  std::string error() const;   // standard error
  // When the last line of its log that holds `text` was written, by that line, to a millisecond;
  // nothing if there is none.
  std::optional<Clock::time_point> LoggedAt(const std::string& text) const;
  // Waits until standard error holds `text`; false if it has not come after `limit` or will not
  // come.
  bool WaitForError(const std::string& text, std::chrono::milliseconds limit = 20s) const;
  bool WaitForOutput(const std::string& text, std::chrono::milliseconds limit = 20s) const;
  // The same for text that it prints from now on.
  bool WaitForMoreOutput(const std::string& text, std::chrono::milliseconds limit = 20s) const;

 private:
  bool WaitForText(const std::string& stream, const std::string& text,
                   std::chrono::milliseconds limit, size_t from = 0) const;
  void Read(int out, int error);

  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<Exit> exit_;  // once reaped; used by the owner only
  std::thread reader_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string output_, error_;  // guarded by mutex_
  bool ended_ = false;          // no more output comes; guarded by mutex_
};

struct ClusterOptions {
  int ps = 1;
  int workers = 2;
  std::vector<std::string> flags;  // of every daemon
  std::string key_file;
  bool start = true;
};

// Daemons of jobs ps and worker on this machine.
class TestCluster {
 public:
  explicit TestCluster(ClusterOptions options = {});

  const ClusterSpec& spec() const { return spec_; }
  std::string json() const { return spec_.ToJson(); }
  std::string address(const std::string& job, int task) const {
    return spec_.Address(job, task).value();
  }
  void Start(const std::string& job, int task);  // also again, after it ended
  ChildProcess& daemon(const std::string& job, int task) { return *daemons_.at({job, task}); }

  // A session that must come about.
  std::unique_ptr<Session> Connect(const Graph& graph, SessionOptions options = {});
  // What the daemon says of itself, over a control connection of its own.
  wire::StatusResponse StatusOf(const std::string& job, int task);
  // Asks for its status until `wanted` holds; false after `limit`.
  bool WaitForStatus(const std::string& job, int task,
                     const std::function<bool(const wire::StatusResponse&)>& wanted,
                     std::chrono::milliseconds limit = 20s);

 private:
  const ClusterOptions options_;
  ClusterSpec spec_;
  std::optional<control::KeyRing> key_;
  std::map<std::pair<std::string, int>, std::unique_ptr<control::Channel>> probes_;
  std::map<std::pair<std::string, int>, std::unique_ptr<ChildProcess>> daemons_;
};

// CPU time that the process has used, all threads together.
std::chrono::milliseconds CpuTimeOf(pid_t pid);

// Fails the test unless `status` has this code and its message every one of the parts.
void ExpectError(const Status& status, Code code, std::initializer_list<std::string> parts);
// True if the two hold the same bytes.
bool SameBits(const Tensor& a, const Tensor& b);

// `attempt` (void(Clock::duration* took)) takes less than `limit`, twice out of at most three
// times. One late attempt says nothing on a machine with few cores, where another program may have
// held it up; what is late every other time or more often would pass by luck if one in time were
// enough. Most of what is wrong shows in the first two; what is right ends with these.
template <typename Attempt>
void ExpectWithin(Clock::duration limit, Attempt attempt) {
  constexpr int kEnough = 2;  // in time, to pass; late, to fail
  std::string late;
  for (int in_time = 0, too_late = 0; in_time < kEnough && too_late < kEnough;) {
    Clock::duration took{};
    attempt(&took);
    if (::testing::Test::HasFailure()) return;
    if (took < limit) {
      ++in_time;
      continue;
    }
    ++too_late;
    late += (late.empty() ? "" : " and ") +
            std::to_string(std::chrono::duration<double>(took).count()) + " s";
    if (too_late == kEnough) {
      ADD_FAILURE() << "it took " << late << " instead of "
                    << std::chrono::duration<double>(limit).count() << " s";
    }
  }
}

// A step that takes long, on `device`: one product of integer matrices, a single kernel, whose side
// is fed.
struct LongKernel {
  LongKernel(const Scope& scope, const std::string& device);
  Output side, sum;
};

inline constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

std::string ExecutorPath();
std::string MonographPath();

}  // namespace monograph
