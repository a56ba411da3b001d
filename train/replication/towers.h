// The one place where a replica of the training step is built: forward, backward, and its weight in
// the mean. Every way of replication takes its gradients from here, so that their bits are the
// same.
#pragma once

#include <string>
#include <vector>

#include "graph/gradients.h"
#include "train/replication/model_variables.h"

namespace monograph::replication {

struct Towers {
  std::vector<Operation> calls;  // by replica
  std::vector<Outputs> results;  // [result][replica]
  // [variable][replica], weighted: to be added up. All replicas' gradients of a variable are rows,
  // or none; each row comes once.
  std::vector<std::vector<Gradient>> gradients;
};

// A replica per device, numbered from `first_replica`. `views[r]` are the variables as replica r
// sees them, `weights[r]` is its share in the mean: it scales the gradient of the loss, which costs
// one scalar product. Gradients of rows that a model looks up, and reads in no other way, stay
// rows. `gradient_dtype`: of ReplicateOptions.
Result<Towers> BuildTowers(const Scope& scope, const std::string& name,
                           const std::vector<std::string>& devices, int first_replica,
                           const std::vector<Outputs>& shards, const Outputs& weights,
                           const std::vector<std::vector<VariableView>>& views,
                           const std::vector<Declaration>& declarations, const ModelFn& model,
                           DType gradient_dtype);

}  // namespace monograph::replication
