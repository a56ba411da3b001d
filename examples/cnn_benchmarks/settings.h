// What the user of cnn_benchmarks asks for, by the names of tf_cnn_benchmarks' flags.
#pragma once

#include <cstdint>
#include <string>

#include "examples/replicas/replicas.h"
#include "train/model.h"
#include "train/optimizer.h"

namespace monograph::examples {

struct CnnSettings : ReplicaFlags {
  static constexpr int64_t kClasses = 1001;  // ImageNet's and, as 0, none of them

  std::string model = "resnet50", device = "auto", data_format = "NHWC", optimizer = "sgd";
  std::string data_name = "imagenet", data_dir;  // empty: images are made up
  int64_t batch_size = 32, image_size = 0;       // 0: the model's own, once flags are parsed
  int num_batches = 100, num_warmup_batches = 10, display_every = 10;
  double init_learning_rate = 0.01, momentum = 0.9, weight_decay = 0.00004;
  bool use_fp16 = false, cross_replica_sync = true, print_training_accuracy = false;
  bool forward_only = false;
  int64_t tf_random_seed = 1234;
  std::string train_dir;  // empty: nothing is saved
  int save_model_steps = 0, summary_verbosity = 0, save_summaries_steps = 0;  // 0: no

  // As Settings::AddTo of mnist_replica.
  void AddTo(Flags* flags);

  // Takes images as float, or as uint8, which it brings to [-1, 1]. The loss has weight_decay times
  // L2Loss of each variable added. Results are the loss, top_1_accuracy and, with
  // prints_accuracy(), top_5_accuracy.
  ModelFn Model() const;
  Optimizer MakeOptimizer() const;
  bool prints_accuracy() const { return print_training_accuracy || forward_only; }
  bool writes_summaries() const { return summary_verbosity > 0 && save_summaries_steps > 0; }
  // Images of one update.
  int64_t GlobalBatch(const Layout& layout) const;
  // Training loops of all clients, each of which makes updates of its own.
  int Loops(const Layout& layout) const;

 private:
  // What follows from other flags takes its place; InvalidArgument names the flag.
  Status Resolve();
};

}  // namespace monograph::examples
