// Hosting a task of a cluster in this process: what monograph-executor does, for any program (a
// program of job ps that serves and joins, as TensorFlow's do).
//
//   EndSignals signals;                      // before other threads start
//   MG_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, HostTask(cluster, "ps", 0, {}));
//   LogInfo(signals.Wait());
//   server->Stop(10s);
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"
#include "client/cluster.h"
#include "executor/gpu_options.h"
#include "executor/worker/server.h"
#include "transport/control/key_ring.h"
#include "transport/transports.h"

namespace monograph {

// The line that monograph-executor prints on standard output with --say_ready, once it listens.
inline constexpr char kDaemonReady[] = "monograph-executor is ready";

struct HostOptions {
  // Address to listen on. Empty: the one by which the cluster names the task.
  std::string bind = {};
  std::optional<control::KeyRing> key = {};
  int cpu_devices = 1;
  GpuOptions gpu = {};
  int inter_op_parallelism_threads = 0;  // 0: one per core
  int intra_op_parallelism_threads = 0;
  // Data plane.
  TransportOptions transport = {};
};

// NotFound if the cluster has no such task; else as Server::Start. Raises this process's limit of
// descriptors (RLIMIT_NOFILE) as far as it may, to 2^20 at most.
Result<std::unique_ptr<Server>> HostTask(const ClusterSpec& cluster, const std::string& job,
                                         int task, const HostOptions& options);

// SIGTERM and Ctrl-C as something to wait for. They are blocked in the thread that makes this and
// in all threads that it starts later.
class EndSignals {
 public:
  EndSignals();

  // Waits for a signal, with `or_stdin_end` also for the end of standard input. Says which.
  std::string Wait(bool or_stdin_end = false);

 private:
  Descriptor signals_;
};

}  // namespace monograph
