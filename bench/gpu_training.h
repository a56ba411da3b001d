// A model that trains on a batch that lies on the GPU: what gpu_bench's cases run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu_steps.h"
#include "client/session.h"
#include "train/saver.h"

namespace monograph::bench {

inline constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";

// Ends the program with the error.
void Check(const Status& status);
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

SessionOptions OnGpu(const GpuMode& mode);

// Not thread-safe. Errors end the program.
class Training {
 public:
  // Images are float, of numbers in [0, 1), labels int32. `warm`: has run some steps, so that the
  // next ones are replayed.
  Training(const ModelFn& model, const Shape& images, const GpuMode& mode, bool warm = true);

  const Graph& graph() const { return graph_; }
  // What of it a step needs.
  Graph Step() const;
  int64_t batch() const { return batch_; }
  void Steps(int count);
  // What was captured, replayed and launched one by one since the session began.
  TaskStatus Counts() const;
  std::string Trace();  // of one step (RunMetadata::trace_json)
  float Loss();         // of one step, before its update
  // Writes the trained variables, and the batch as "images" and "labels", into `path`.safetensors.
  // REQUIRES: not warm.
  void Save(const std::string& path);

 private:
  Graph graph_;
  const int64_t batch_;
  std::unique_ptr<Session> session_;
  std::optional<Saver> saver_;
  Callable call_;
  Endpoint loss_;
  NodeId train_ = -1;
};

}  // namespace monograph::bench
