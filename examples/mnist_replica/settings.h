// What the user of mnist_replica asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/models/mnist_cnn.h"
#include "tools/flags.h"
#include "tools/session_flags.h"
#include "train/replication.h"

namespace monograph::examples {

struct Settings {
  SessionFlags session;

  // Replication.
  std::string replication = "in_graph", variable_update = "parameter_server";
  std::string central_device = "worker";
  bool async = false, sync = false;
  std::string job_name = "worker";
  std::optional<int> task_index;  // none: the environment may say it (tools/own_task.h)
  int num_replicas = 0, replicas_per_worker = 2, replicas_to_aggregate = 0;
  int num_gpus = 0;
  std::string ps_strategy = "greedy", split = "even", container;
  int64_t max_variable_bytes = 0;
  double worker_timeout = 60;  // seconds
  std::string gradient_dtype = "float";

  // Training.
  int64_t batch_size = 100, eval_batch_size = 500;
  int num_batches = 2000, num_warmup_batches = 10, display_every = 100, steps_in_flight = 1,
      steps_per_run = 1;
  double learning_rate = 1e-4;
  int64_t seed = 0;
  int save_steps = 1000, save_summaries_steps = 100, max_recoveries = 5;
  double recovery_timeout = 300;  // seconds
  bool sharded_checkpoints = false, refuse_damaged_checkpoint = false;
  std::string train_dir, trace_file, result_file;
  std::string dtype = "float", loss_scale = "auto";
  MnistCnn model;

  // Data.
  std::string data_name = "fashion_mnist", data_dir, input = "client", image_type = "float";

  // Parsing fails if flags do not fit together, or the cluster lacks what they need. REQUIRES:
  // outlives the parsing.
  void AddTo(Flags* flags);

  DType compute() const {
    return dtype == "half" ? DT_HALF : dtype == "bfloat16" ? DT_BFLOAT16 : DT_FLOAT;
  }
  DType images() const { return image_type == "uint8" ? DT_UINT8 : DT_FLOAT; }
  bool in_graph() const { return replication == "in_graph"; }
  // Replicas or workers apply their gradients each by itself: asked for in one graph, the default
  // between graphs.
  bool asynchronous() const {
    return in_graph() ? async : !sync && variable_update != "replicated";
  }

 private:
  // InvalidArgument names the flag.
  Status Check() const;
};

// True: a client of a worker that --num_replicas leaves out; it has nothing to do.
bool TakesNoPart(const Settings& settings, const std::optional<ClusterSpec>& cluster);

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

Result<Layout> MakeLayout(const Settings& settings, const std::optional<ClusterSpec>& cluster);

// What --dtype and --loss_scale ask for. InvalidArgument names the flag.
Result<std::optional<LossScaleOptions>> LossScaleOf(const Settings& settings);

// The cut that --split asks for; empty: even, or not known before replicas are measured.
Result<std::vector<int64_t>> SharesOf(const Settings& settings, size_t replicas);

}  // namespace monograph::examples
