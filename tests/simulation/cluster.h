// A simulated cluster, what can happen to its machines and links while a scenario uses it, and what
// must hold of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/session.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sim_cluster.h"

namespace monograph::simulation {

class DisturbedCluster {
 public:
  // `workers` tasks of the job worker and one ps, the last one. All run when it returns.
  explicit DisturbedCluster(int workers);
  // Fails the schedule if a daemon still has a session, a step or a message of one some seconds
  // after its last client has gone, or tensors that are no variables. REQUIRES: all sessions were
  // closed.
  ~DisturbedCluster();
  DisturbedCluster(const DisturbedCluster&) = delete;
  DisturbedCluster& operator=(const DisturbedCluster&) = delete;

  const ClusterSpec& spec() const { return cluster_.spec(); }
  // What clients need: in some schedules the control plane speaks TLS.
  const std::optional<control::KeyRing>& key() const { return cluster_.key(); }
  Network& network() { return network_; }
  int tasks() const { return static_cast<int>(tasks_.size()); }
  int ps() const { return tasks() - 1; }
  // "/job:worker/task:0"
  const std::string& device(int task) const { return of(task).device; }
  int host(int task) const { return cluster_.HostOf(of(task).name); }
  Server* server(int task) const { return cluster_.server(of(task).name); }
  // Variables of so many bytes stay when their sessions have gone.
  void Keeps(int64_t bytes) { bytes_kept_ = bytes; }
  // How often the task has been started.
  int life(int task) const { return of(task).life; }

  // The process ends, seen by its peers at once (`told`), or its machine does, which they do not
  // see. What it had is lost.
  void Kill(int task, bool told);
  void Restart(int task);
  // Heals all links and restarts what was killed.
  void Repair();
  // One of the kinds above, or a link that is cut or slowed, in one direction or both, drawn from
  // the seed.
  void Disturb();

 private:
  struct Task {
    std::string name, device;
    int life = 1;
  };
  const Task& of(int task) const { return tasks_[static_cast<size_t>(task)]; }
  void CheckIdle(int task) const;

  const bool has_key_;
  Network network_;
  const LeftOut below_{&network_, sizeof network_};
  SimCluster cluster_;
  std::vector<Task> tasks_;
  int64_t bytes_before_ = 0;  // of tensors, when it had started
  int64_t bytes_kept_ = 0;    // of its variables
};

// A thread that disturbs the cluster once or twice, soon or late, and may heal its links then.
class Trouble {
 public:
  explicit Trouble(DisturbedCluster* cluster);
  ~Trouble() { thread_.join(); }
  Trouble(const Trouble&) = delete;
  Trouble& operator=(const Trouble&) = delete;

 private:
  std::thread thread_;
};

// As Session::Connect, which must succeed within `limit`.
std::unique_ptr<Session> MustConnect(const DisturbedCluster& cluster, const Graph& graph,
                                     std::chrono::seconds limit,
                                     const SessionOptions& options = {});

// A time between nothing and 2^`bits` us, mostly a short one.
std::chrono::microseconds SomeTime(int bits);

// How long Run may take where something is lost: 3 s to notice it by heartbeats or over the data
// plane, once more where that only tells which of several was lost, and what answers and aborts
// take on the slowest links.
inline constexpr std::chrono::milliseconds kRunEnds{12'000};
// Close waits for steps, for tasks that do not answer, and for transports.
inline constexpr std::chrono::milliseconds kCloseEnds{30'000};

// Fails the schedule if more than `limit` of simulated time has passed since it was made.
class Within {
 public:
  Within(std::chrono::milliseconds limit, std::string what)
      : began_(Clock::now()), limit_(limit), what_(std::move(what)) {}
  ~Within();
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  const Clock::time_point began_;
  const std::chrono::milliseconds limit_;
  const std::string what_;
};

}  // namespace monograph::simulation
