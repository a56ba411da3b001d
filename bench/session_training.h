// Training through a session on batches that were made before, as benchmarks measure it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "client/cluster.h"
#include "client/session.h"
#include "graph/graph.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/replication.h"

namespace monograph::bench {

struct TrainedModel {
  ModelFn model;
  Shape images;  // of the whole batch: its first dimension is the batch's size
  int64_t classes;
  Optimizer optimizer;
};

// mnist_replica's model without dropout and with fc 1024, by Adam.
TrainedModel MnistTraining(int64_t batch, DType compute = DT_FLOAT);

// A session with one replica on each of `devices`, between which each batch is split. Made and
// called on one thread. What fails ends the benchmark.
class SessionTraining {
 public:
  // `cluster`: nullptr for a local session, with so many threads.
  SessionTraining(const TrainedModel& trained, const std::vector<std::string>& devices,
                  const ClusterSpec* cluster, int threads = 1);
  void Step();
  std::string Trace();  // of one step
  int64_t batch() const { return batch_; }

 private:
  Graph graph_;
  const int64_t batch_;
  Output images_, labels_;
  ReplicatedStep step_;
  std::unique_ptr<Session> session_;
  Callable call_;
  std::vector<std::vector<Tensor>> batches_;
  int64_t next_ = 0;
};

// The device of a local session.
inline constexpr const char* kLocalCpu = "/job:localhost/replica:0/task:0/device:CPU:0";

// What a window of steps came to.
struct Rates {
  double wall = 0;       // images per second
  double processor = 0;  // images per second of this process's processor time, all threads together
};
// Calls `step`, which trains on a batch of so many images, for a while, at least once.
Rates RatesOf(const std::function<void()>& step, int64_t batch, double seconds);

}  // namespace monograph::bench
