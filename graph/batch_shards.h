// A batch cut along its first dimension, a part for each replica, and means over the replicas that
// are means over the batch.
#pragma once

#include <span>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct BatchShards {
  std::vector<Outputs> shards;  // [replica][input]
  // Rows of a shard over rows of the batch, float scalars by replica, so that the weighted mean
  // over replicas is the mean over the batch. Empty if all shards are known to be of equal size.
  Outputs weights;
};

// Splits each input along its first dimension, in proportion: replica i gets rows floor(B*s/S) up
// to floor(B*(s+shares[i])/S) of a batch of B, where s is the sum of the shares before it and S
// that of all. All inputs must have the same B. Equal shares take a B that is not known while
// building, too. InvalidArgument, when building if B is known and else in the step, if B is less
// than the number of replicas: "The batch of 3 examples is smaller than its 4 replicas"; for a
// share below 1, and for a replica that gets no row. The nodes go where `scope` says: on the
// client's device, only shards of a fed batch travel.
Result<BatchShards> SplitBatch(const Scope& scope, std::span<const Output> inputs,
                               std::span<const int64_t> shares);
// The numbers of rows in those parts.
std::vector<int64_t> RowsByShares(int64_t batch, std::span<const int64_t> shares);

// sum_i weights[i] * values[i], in order of i; with no weights the plain mean. Products stay on the
// devices of their values. For gradients it is cheaper to give each tower its weight as an argument
// and AddGradients that weight as grad_ys: then their plain sum is the mean over the batch.
Result<Output> WeightedMean(const Scope& scope, std::span<const Output> values,
                            std::span<const Output> weights);

}  // namespace monograph
