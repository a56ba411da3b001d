// Replicate: in-graph replication of a training step. The model is written once, for one replica; the step holds a replica per device, splits the big
// batch among them, averages loss and gradients over the whole batch, and updates the variables once.
//
//   ReplicatedStep train = Replicate(root, cluster.Tasks("worker"), {images, labels},
//       [](Scope& tower, std::span<const Output> batch, ModelVariables& variables) -> Result<Outputs> {
//         Output w = variables.Get("w", {784, 10}, Initial::TruncatedNormal(0.1));
//         ...
//         return Outputs{loss, accuracy};
//       },
//       Adam(1e-4), {.variable_devices = cluster.Tasks("ps")}).value();
//   session->Run({}, {}, {train.init});
//   session->Run({{images, x}, {labels, y}}, {train.results[0]}, {train.train});
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/optimizer.h"
#include "graph/scope.h"

namespace monograph {

// How a variable begins.
struct Initial {
  enum class Kind { kConstant, kTruncatedNormal, kValue };
  Kind kind = Kind::kConstant;
  double parameter = 0;  // the constant, or the standard deviation
  Tensor value;

  static Initial Constant(double value) { return {Kind::kConstant, value, {}}; }
  static Initial Zeros() { return Constant(0); }
  // Mean 0; values beyond two deviations are drawn again. Depends on the scope's seed and the variable's name.
  static Initial TruncatedNormal(double deviation) { return {Kind::kTruncatedNormal, deviation, {}}; }
  static Initial Value(Tensor value) { return {Kind::kValue, 0, std::move(value)}; }
};

// The model's variables, as a tower sees them: by name, the same in every replica.
class ModelVariables {
 public:
  virtual ~ModelVariables() = default;
  // The value in this step. Asked twice for one name it is the same tensor; FailedPrecondition in the scope if the shapes differ.
  virtual Output Get(const std::string& name, const Shape& shape, const Initial& initial, DType dtype = DT_FLOAT) = 0;
};

// Builds one replica from its part of the batch. Result 0 is the loss, a scalar that is a mean over the examples; any others are scalar means, too
// (accuracy, ...).
using ModelFn = std::function<Result<Outputs>(Scope& tower, std::span<const Output> batch, ModelVariables& variables)>;

struct ReplicateOptions {
  // Devices that hold the variables. Empty: the first replica's.
  std::vector<std::string> variable_devices = {};
  // How variables are dealt out to them: in turn, or each to the device with the fewest bytes.
  enum class Strategy { kRoundRobin, kGreedyByBytes } strategy = Strategy::kGreedyByBytes;
  std::string tower_name = "tower";
};

struct ReplicatedStep {
  std::vector<ModelVariable> variables;
  Outputs results;         // means over the whole batch: loss, then what else the model returned
  Operation init;          // initialises variables, slots and global_step
  Operation train;         // one update
  ModelVariable global_step;
  Outputs tower_results;   // result 0 of each replica, for a look at single towers
};

// Any number of devices, one too. The batch need not divide evenly: shard i of N has floor(B(i+1)/N) - floor(B i/N) examples, and means stay exact means
// over the batch. For a given number of replicas the result does not depend on where they run.
Result<ReplicatedStep> Replicate(const Scope& scope, const std::vector<std::string>& devices, const Outputs& batch,
                                 const ModelFn& model, const Optimizer& optimizer, const ReplicateOptions& options = {});

// The same for a batch that comes in parts, each made beside its replica (input on the executors): shards[i] are the inputs of replica i. Their numbers of
// examples must be known while building; they may differ.
Result<ReplicatedStep> ReplicateShards(const Scope& scope, const std::vector<std::string>& devices,
                                       const std::vector<Outputs>& shards, const ModelFn& model,
                                       const Optimizer& optimizer, const ReplicateOptions& options = {});

// The same model for evaluation: no gradients; reads the variables of `step`, on `device`.
Result<Outputs> BuildEvaluation(const Scope& scope, const std::string& device, const Outputs& batch, const ModelFn& model,
                                const ReplicatedStep& step);

}  // namespace monograph
