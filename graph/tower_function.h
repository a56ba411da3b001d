// A tower, the part of a step that each replica computes, as one function: it is built once, in the
// function's body, and called once per replica, so that the graph stays small however many replicas
// there are, and they cannot differ.
//
//   MG_ASSIGN_OR_RETURN(TowerFunction tower, TowerFunction::Make(scope, "tower", devices, args));
//   const Result<Outputs> results = BuildModel(tower.body(), tower.args());
//   MG_ASSIGN_OR_RETURN(TowerCalls calls, tower.Call(results));
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct TowerCalls {
  std::vector<Operation> calls;  // by replica
  std::vector<Outputs> results;  // [result][replica]
};

class TowerFunction {
 public:
  // A replica per device, with the arguments per_replica_args[i]. An argument whose shape differs
  // between replicas is known in the body as far as the replicas agree. InvalidArgument for
  // arguments that do not fit together.
  static Result<TowerFunction> Make(const Scope& scope, const std::string& name,
                                    std::span<const std::string> devices,
                                    std::span<const Outputs> per_replica_args);

  // Where the tower is built, from the arguments as tensors of the body. Gradients may be taken of
  // them (AddGradients): weights that a gradient is wanted for enter as arguments. Tensors of the
  // outer graph cannot be read inside: pass them.
  Scope& body() { return body_scope_; }
  const Outputs& args() const { return args_; }

  // Ends the body with its results, tensors of the body, or with the reason why it has none, and
  // adds one call per replica, named "<name>_0", "<name>_1", ..., on its device; each has the
  // attribute `_replica`. Counting starts at `first_replica`: a client that builds some of a job's
  // replicas gives them the numbers, and so the names and random values, that one client of all
  // would. Stateless bodies are called by PartitionedCall, others by StatefulPartitionedCall. To be
  // called once.
  Result<TowerCalls> Call(const Result<Outputs>& results, int first_replica = 0);

 private:
  TowerFunction(const Scope& scope, const std::string& name, std::span<const std::string> devices,
                std::span<const Outputs> per_replica_args);
  Status AddResults(const Outputs& results);

  Scope scope_;
  std::string name_;
  std::vector<std::string> devices_;
  std::vector<Outputs> per_replica_args_;
  std::shared_ptr<Graph> body_;
  Scope body_scope_;
  Outputs args_;
};

}  // namespace monograph
