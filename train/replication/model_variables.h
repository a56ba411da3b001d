// The variables that a model asks for: found by building it once, made on devices, and handed to
// towers by name.
#pragma once

#include <string>
#include <vector>

#include "train/replication.h"

namespace monograph::replication {

// What the model asked for.
struct Declaration {
  std::string name;
  Shape shape;
  Initial initial;
  DType dtype = DT_FLOAT;
  int64_t parts = 1;       // cut along the first dimension into so many variables
  bool read = false;       // the model asks for all of it
  bool looked_up = false;  // the model asks for rows of it
};

// A variable, or a part of one, as a replica sees it.
struct VariableView {
  Output value;   // invalid if no replica reads all of it
  Output handle;  // invalid if no replica looks rows up
  Shape shape;
  std::string device;  // where its rows are read; empty: where the replica is
};

// Builds the model once, in a graph of no further use. InvalidArgument for a model that returns no
// scalars.
Result<std::vector<Declaration>> Declare(const Scope& scope, const Outputs& batch,
                                         const ModelFn& model);

// Makes the variables of each declaration, on the devices that the options name or, if there are
// none, on `fallback`; parts follow each other.
Result<std::vector<ModelVariable>> MakeVariables(const Scope& scope,
                                                 std::vector<Declaration>* declarations,
                                                 const ReplicateOptions& options,
                                                 const std::string& fallback);

// A copy of `variables` on `device`, named "<name>/replica_<number>", that begins with their
// values: its initializers run after theirs.
Result<std::vector<ModelVariable>> MirrorVariables(const Scope& scope,
                                                   const std::vector<ModelVariable>& variables,
                                                   const std::string& device, int number);

// The model in `scope`, with `views` as its variables: one per declaration and part, in order.
Result<Outputs> BuildModel(Scope& scope, std::span<const Output> batch, const ModelFn& model,
                           const std::vector<Declaration>& declarations,
                           std::span<const VariableView> views);

// Where the variables are.
std::vector<std::string> VariableHomes(const ReplicateOptions& options,
                                       const std::string& fallback);

}  // namespace monograph::replication
