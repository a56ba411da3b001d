// Replication in one graph: a tower is traced once, into one function, and called once per replica;
// the batch is split among the replicas, and what they return is averaged. Which optimizer follows
// is no matter of this file.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct ReplicatedTower {
  std::vector<Operation> calls;  // by replica
  std::vector<Outputs> results;  // [result][replica]
};

// Builds one replica in `tower`, whose graph is the function's body, from `args` (tensors of the
// body), and returns the results. It may take gradients (AddGradients) of its args: weights that a
// gradient is wanted for enter as args. Tensors of the outer graph cannot be read inside: pass
// them.
using TowerFn = std::function<Result<Outputs>(Scope& tower, std::span<const Output> args)>;

// Calls `tower` once and adds one call per device, named "<name>_0", "<name>_1", ..., on devices[i]
// with per_replica_args[i]; each call has the attribute `_replica`. Counting starts at
// `first_replica`: a client that builds some of a job's replicas gives them the numbers, and so the
// names and random values, that one client of all would. An argument whose shape differs between
// replicas is known in the body as far as the replicas agree. Stateless bodies are called by
// PartitionedCall, others by StatefulPartitionedCall. InvalidArgument for arguments that do not fit
// together.
Result<ReplicatedTower> ReplicateTower(const Scope& scope, const std::string& name,
                                       std::span<const std::string> devices,
                                       std::span<const std::vector<Output>> per_replica_args,
                                       const TowerFn& tower, int first_replica = 0);

// A batch in parts of its first dimension.
struct BatchShards {
  std::vector<Outputs> shards;  // [replica][input]
  // Rows of a shard over rows of the batch, float scalars by replica, so that the weighted mean
  // over replicas is the mean over the batch. Empty if all shards are known to be of equal size.
  Outputs weights;
};

// Splits each input along its first dimension: replica i of N gets rows floor(B*i/N) up to
// floor(B*(i+1)/N) of a batch of B. All inputs must have the same B. InvalidArgument, when building
// if B is known and else in the step, if B < N: "The batch of 3 examples is smaller than its 4
// replicas". The nodes go where `scope` says: on the client's device, only shards of a fed batch
// travel.
Result<BatchShards> SplitBatch(const Scope& scope, std::span<const Output> inputs, int replicas);
// The same, cut in proportion: replica i gets rows floor(B*s/S) up to floor(B*(s+shares[i])/S),
// where s is the sum of the shares before it and S that of all. B must be known while building.
// InvalidArgument for a share below 1, and for a replica that gets no row.
Result<BatchShards> SplitBatchByShares(const Scope& scope, std::span<const Output> inputs,
                                       std::span<const int64_t> shares);
// The numbers of rows in those parts.
std::vector<int64_t> RowsByShares(int64_t batch, std::span<const int64_t> shares);

// sum_i weights[i] * values[i], in order of i; with no weights the plain mean. Products stay on the
// devices of their values. For gradients it is cheaper to give each tower its weight as an argument
// and AddGradients that weight as grad_ys: then their plain sum is the mean over the batch.
Result<Output> WeightedMean(const Scope& scope, std::span<const Output> values,
                            std::span<const Output> weights);

}  // namespace monograph
