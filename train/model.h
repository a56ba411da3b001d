// Model: what a user writes once, for one replica: a function that builds it and asks for its
// variables by name. Every way of replication (train/replication.h) builds from it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>

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
  // Mean 0; values beyond two deviations are drawn again. Depends on the scope's seed, the
  // variable's name, and the number of the step that initialises.
  static Initial TruncatedNormal(double deviation) {
    return {Kind::kTruncatedNormal, deviation, {}};
  }
  static Initial Value(Tensor value) { return {Kind::kValue, 0, std::move(value)}; }
};

// The model's variables, as a replica sees them: by name, the same in every replica.
class ModelVariables {
 public:
  virtual ~ModelVariables() = default;
  // The value in this step. Asked twice for one name it is the same tensor; FailedPrecondition in
  // the scope if the shapes differ.
  virtual Output Get(const std::string& name, const Shape& shape, const Initial& initial,
                     DType dtype = DT_FLOAT) = 0;
  // Rows of the variable: those that `ids` name (int32 or int64, of any shape, which takes the
  // place of the first dimension). They are read where the variable is, so that only rows travel;
  // the gradient is rows, too. An id out of range fails the step with InvalidArgument.
  virtual Output Lookup(const std::string& name, const Shape& shape, const Initial& initial,
                        const Output& ids, DType dtype = DT_FLOAT) = 0;
};

// Builds one replica from its part of the batch. Result 0 is the loss, a scalar that is a mean over
// the examples; any others are scalar means, too (accuracy, ...).
using ModelFn = std::function<Result<Outputs>(Scope& tower, std::span<const Output> batch,
                                              ModelVariables& variables)>;

}  // namespace monograph
