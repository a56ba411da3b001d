// Executor daemons on this machine for the time of a benchmark.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/harness.h"
#include "client/cluster.h"

namespace monograph::bench {

// Starts words[0] with the others as its arguments; `in_child` runs there first. Does not return
// there; ends the benchmark if there can be no child.
pid_t Spawn(std::vector<std::string> words, const std::function<void()>& in_child);

class Daemons {
 public:
  // A cluster of `count` workers, and `ps` parameter servers, on free loopback ports; nothing runs
  // yet.
  explicit Daemons(int count, int ps = 0);
  ~Daemons();  // ends them
  // Starts one monograph-executor per task; `pinned`: worker k on core k, parameter servers on any.
  void Start(const std::vector<std::string>& flags = {}, bool pinned = false);
  void Stop();

  const ClusterSpec& cluster() const { return cluster_; }
  std::string device(int task) const { return "/job:worker/task:" + std::to_string(task); }

 private:
  void StartTask(const std::string& job, int task, const std::vector<std::string>& flags, int core);

  ClusterSpec cluster_;
  std::vector<pid_t> running_;
};

// Our own failures end a benchmark.
inline void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

}  // namespace monograph::bench
