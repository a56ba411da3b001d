// Collectives for gradients. Gradients are sorted by the order in which the backward pass makes
// them and packed into buckets; each bucket is one MonographAllReduce, so that few calls are needed
// and the first buckets travel while later gradients are still computed. Sparse gradients cannot be
// packed, as their sizes are known only in the step: their values and indices are gathered, and
// rows of one index are added up on every replica.
#include "train/all_reduce.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"

namespace monograph {
namespace {

Result<Shape> KnownShape(const Output& value, size_t index, const char* what) {
  if (!value.valid())
    return InvalidArgument(std::string(what) + " " + std::to_string(index) + " is invalid");
  if (!value.shape().fully_known()) {
    return InvalidArgument(std::string(what) + " " + std::to_string(index) + " ('" + value.name() +
                           "') has the shape " + value.shape().ToString() +
                           ", which must be known while building");
  }
  return value.shape().AsShape();
}

Outputs Picked(const Outputs& from, const std::vector<size_t>& indices) {
  Outputs picked;
  for (const size_t i : indices) picked.push_back(from[i]);
  return picked;
}

// Adds the collectives of one replica.
Outputs ReduceBuckets(const Scope& scope, const Outputs& gradients,
                      const std::vector<std::vector<size_t>>& buckets,
                      const AllReduceOptions& options) {
  Outputs sums(gradients.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Outputs bucket = MonographAllReduce(scope.WithOpName("bucket_" + std::to_string(b)),
                                              Picked(gradients, buckets[b]), options.group,
                                              options.first_instance_key + static_cast<int>(b),
                                              "Add", options.mean ? "Div" : "Id");
    for (size_t i = 0; i < bucket.size(); ++i) sums[buckets[b][i]] = bucket[i];
  }
  return sums;
}

}  // namespace

Result<std::vector<std::vector<size_t>>> BucketsOf(const Outputs& gradients,
                                                   const AllReduceOptions& options) {
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < gradients.size(); ++i) {
    MG_ASSIGN_OR_RETURN(const Shape shape, KnownShape(gradients[i], i, "gradient"));
    bytes.push_back(shape.elements() * static_cast<int64_t>(DTypeSize(gradients[i].dtype())));
  }
  std::vector<size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Endpoint x = gradients[a].endpoint, y = gradients[b].endpoint;
    return x.node != y.node ? x.node < y.node : x.index > y.index;
  });
  std::vector<std::vector<size_t>> buckets;
  int64_t filled = 0;
  for (const size_t i : order) {
    const int64_t limit = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    const bool fits = !buckets.empty() && filled + bytes[i] <= limit &&
                      gradients[buckets.back().front()].dtype() == gradients[i].dtype();
    if (!fits) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += bytes[i];
  }
  return buckets;
}

namespace {

Outputs WholeOnes(const std::vector<Gradient>& gradients) {
  Outputs whole;
  for (const Gradient& gradient : gradients) {
    if (!gradient.sparse()) whole.push_back(gradient.values);
  }
  return whole;
}

// The rows of all members, those of one index added up in rank order.
Gradient SumRows(const Scope& scope, const Gradient& rows, const AllReduceOptions& options,
                 int instance_key) {
  const Gradient all{CollectiveGather(scope, rows.values, options.group, instance_key),
                     CollectiveGather(scope, rows.indices, options.group, instance_key + 1)};
  if (!scope.ok()) return {};
  Gradient sum = SumRepeatedRows(scope, all);
  if (options.mean && scope.ok()) {
    sum.values =
        RealDiv(scope, sum.values,
                ScalarConst(scope, static_cast<double>(options.group.size), sum.values.dtype()));
  }
  return sum;
}

// Adds the collectives of one replica. `buckets` are indices into its dense gradients.
std::vector<Gradient> ReduceAll(const Scope& scope, const std::vector<Gradient>& gradients,
                                const std::vector<std::vector<size_t>>& buckets,
                                const AllReduceOptions& options) {
  const Outputs whole = ReduceBuckets(scope, WholeOnes(gradients), buckets, options);
  int key = options.first_instance_key + static_cast<int>(buckets.size());
  std::vector<Gradient> sums;
  size_t next = 0, rows = 0;
  for (const Gradient& gradient : gradients) {
    if (!gradient.sparse()) {
      sums.push_back({whole[next++]});
      continue;
    }
    const Scope inner = scope.SubScope("rows_" + std::to_string(rows++));
    sums.push_back(scope.ok() ? SumRows(inner, gradient, options, key) : Gradient());
    key += 2;
  }
  return sums;
}

std::vector<Gradient> AsGradients(const Outputs& values) {
  std::vector<Gradient> gradients;
  for (const Output& value : values) gradients.push_back({value});
  return gradients;
}

}  // namespace

Result<std::vector<Gradient>> AllReduceGradients(const Scope& scope,
                                                 const std::vector<Gradient>& gradients,
                                                 const AllReduceOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_ASSIGN_OR_RETURN(const auto buckets, BucketsOf(WholeOnes(gradients), options));
  std::vector<Gradient> sums = ReduceAll(scope.SubScope("all_reduce"), gradients, buckets, options);
  MG_RETURN_IF_ERROR(scope.status());
  return sums;
}

Result<std::vector<std::vector<Gradient>>> AllReduceReplicas(
    const Scope& scope, const std::vector<std::vector<Gradient>>& gradients,
    const AllReduceOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  const std::vector<std::string>& devices = options.group.members;
  if (gradients.empty() || devices.size() != gradients.size()) {
    return InvalidArgument("gradients of " + std::to_string(gradients.size()) + " replicas, but " +
                           std::to_string(devices.size()) + " members in the collective group");
  }
  MG_ASSIGN_OR_RETURN(const auto buckets, BucketsOf(WholeOnes(gradients[0]), options));
  std::vector<std::vector<Gradient>> sums;
  for (size_t replica = 0; replica < gradients.size(); ++replica) {
    const std::vector<Gradient>& own = gradients[replica];
    if (own.size() != gradients[0].size()) {
      return InvalidArgument("replica " + std::to_string(replica) + " has " +
                             std::to_string(own.size()) + " gradients, replica 0 has " +
                             std::to_string(gradients[0].size()));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].sparse() != gradients[0][i].sparse()) {
        return InvalidArgument("gradient " + std::to_string(i) + " is " +
                               (own[i].sparse() ? "rows" : "whole") + " on replica " +
                               std::to_string(replica) + ", but not on replica 0");
      }
    }
    const Scope place =
        scope.SubScope("all_reduce_" + std::to_string(replica)).WithDevice(devices[replica]);
    sums.push_back(ReduceAll(place, own, buckets, options));
  }
  MG_RETURN_IF_ERROR(scope.status());
  return sums;
}

Result<Outputs> AllReduceGradients(const Scope& scope, const Outputs& gradients,
                                   const AllReduceOptions& options) {
  MG_ASSIGN_OR_RETURN(const std::vector<Gradient> sums,
                      AllReduceGradients(scope, AsGradients(gradients), options));
  return WholeOnes(sums);
}

Result<std::vector<Outputs>> AllReduceReplicas(const Scope& scope,
                                               const std::vector<Outputs>& gradients,
                                               const AllReduceOptions& options) {
  std::vector<std::vector<Gradient>> replicas;
  for (const Outputs& replica : gradients) replicas.push_back(AsGradients(replica));
  MG_ASSIGN_OR_RETURN(const auto reduced, AllReduceReplicas(scope, replicas, options));
  std::vector<Outputs> sums;
  for (const std::vector<Gradient>& replica : reduced) sums.push_back(WholeOnes(replica));
  return sums;
}

Result<Outputs> BroadcastFromFirst(const Scope& scope, bool is_first, const Outputs& values,
                                   const CollectiveGroup& group, int first_instance_key) {
  Outputs received;
  const Scope inner = scope.SubScope("broadcast");
  for (size_t i = 0; i < values.size(); ++i) {
    MG_ASSIGN_OR_RETURN(const Shape shape, KnownShape(values[i], i, "value"));
    const int instance = first_instance_key + static_cast<int>(i);
    received.push_back(
        is_first ? CollectiveBroadcastSend(inner, values[i], group, instance)
                 : CollectiveBroadcastRecv(inner, values[i].dtype(), shape, group, instance));
  }
  MG_RETURN_IF_ERROR(scope.status());
  return received;
}

}  // namespace monograph
