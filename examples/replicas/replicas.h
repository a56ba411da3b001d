// The flags by which a user says how an example is replicated, and what follows from them for one
// client: which task it is, the devices of its replicas and variables, the options of Replicate.
// The settings of mnist_replica and cnn_benchmarks derive from ReplicaFlags.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/flags.h"
#include "tools/own_task.h"
#include "tools/session_flags.h"
#include "train/replication.h"

namespace monograph::examples {

constexpr int64_t kMostReplicas = Flags::kMostThreads;

struct ReplicaFlags {
  SessionFlags session;
  std::string replication = "in_graph", variable_update = "parameter_server";
  std::string central_device = "worker";
  bool async = false, sync = false;
  std::string job_name = "worker";
  std::optional<int> task_index;  // none: the environment may say it (tools/own_task.h)
  int num_replicas = 0, replicas_per_worker = 2, replicas_to_aggregate = 0;
  int num_gpus = 0;
  std::string gpu_device = "GPU";  // type of the num_gpus devices
  std::string ps_strategy = "greedy", container;
  int64_t max_variable_bytes = 0;
  double worker_timeout = 60;  // seconds
  std::string gradient_dtype = "float";

  // Those that every example has; what is not declared keeps its value. REQUIRES: outlives the
  // parsing.
  void AddReplicasTo(Flags* flags);
  bool in_graph() const { return replication == "in_graph"; }
  // Replicas or workers apply their gradients each by itself: asked for in one graph, the default
  // between graphs.
  bool asynchronous() const {
    return in_graph() ? async : !sync && variable_update != "replicated";
  }

 protected:
  // InvalidArgument, with the names of flags, for what contradicts each other.
  Status CheckReplicas() const;
};

// Where the parts of the program go, for this client.
struct Layout {
  std::vector<std::string> replicas;      // of this client: a device each
  std::vector<std::string> variables;     // devices; empty: the first replica's
  std::string client;                     // the device of this process
  int workers = 1;                        // clients: 1 in one graph
  int rank = 0;                           // this client
  std::vector<std::string> worker_names;  // by rank; empty in one graph

  int replicas_of_all() const { return workers * static_cast<int>(replicas.size()); }
};

// The client of worker `own`; the only one in one graph. InvalidArgument names the flag, or what
// the cluster lacks.
Result<Layout> MakeLayout(const ReplicaFlags& flags, const std::optional<ClusterSpec>& cluster,
                          int own);

// What this process is.
struct Place {
  std::optional<ClusterSpec> cluster;
  OwnTask own;                   // its task, where it is one of several clients or a ps
  std::optional<Layout> layout;  // none: it is a ps, or --num_replicas leaves its worker out
};

// As MakeLayout.
Result<Place> FindPlace(const ReplicaFlags& flags);

// What a program does once its flags are parsed: serves as a ps until SIGTERM or Ctrl-C, says that
// the client takes no part, or trains.
Status RunReplicas(const ReplicaFlags& flags,
                   const std::function<Status(const std::optional<ClusterSpec>& cluster,
                                              const Layout& layout)>& train);

// The flags of this client's session: it knows the tasks that it has to do with, and writes files
// of its own.
SessionFlags SessionOf(const ReplicaFlags& flags, const Layout& layout);

// All but global_batch_size, shares and loss_scale.
ReplicateOptions OptionsOf(const ReplicaFlags& flags, const Layout& layout);

// The CPU of the task that has the device.
std::string CpuBeside(const std::string& device);

}  // namespace monograph::examples
