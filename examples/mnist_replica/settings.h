// What the user of mnist_replica asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/models/mnist_cnn.h"
#include "examples/replicas/replicas.h"

namespace monograph::examples {

struct Settings : ReplicaFlags {
  std::string split = "even";

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

 private:
  // InvalidArgument names the flag.
  Status Check() const;
  // The same for what the cluster lacks, or what does not fit the number of replicas.
  Status CheckPlace() const;
};

// What --dtype and --loss_scale ask for. InvalidArgument names the flag.
Result<std::optional<LossScaleOptions>> LossScaleOf(const Settings& settings);

// The cut that --split asks for; empty: even, or not known before replicas are measured.
Result<std::vector<int64_t>> SharesOf(const Settings& settings, size_t replicas);

}  // namespace monograph::examples
