// The training curve: the losses of a small CNN on synthetic data, step by step. The same code for
// one device, several replicas in one process, and a cluster, so that their curves can be compared.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/cluster.h"
#include "client/session.h"

namespace monograph::testing {

struct CurveOptions {
  std::vector<std::string> replicas = {"/device:CPU:0"};  // a device each
  std::vector<std::string> variable_devices = {};         // empty: the first replica's
  std::optional<ClusterSpec> cluster =
      {};  // empty: in this process, with as many CPU devices as replicas
  SessionOptions session = {};
  int steps = 20;
  int64_t row = 1;  // times that each of them runs, with the same batch; the last loss counts
  int64_t batch_size = 24;
  double dropout = 0;
  bool executor_input = false;  // each replica reads its own part of the batch
  int64_t seed = 11;
};

struct Curve {
  std::vector<float> losses, accuracies;  // by step
  std::vector<Tensor> variables;          // at the end
};

// Builds, connects, trains, and resets the variables' container.
Result<Curve> TrainingCurve(const CurveOptions& options);

// Whether two curves have the same bits everywhere; else says where they part.
std::string Difference(const Curve& a, const Curve& b);

}  // namespace monograph::testing
