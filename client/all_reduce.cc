#include "client/all_reduce.h"

#include <algorithm>
#include <numeric>
#include <string>

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

Result<Outputs> AllReduceGradients(const Scope& scope, const Outputs& gradients,
                                   const AllReduceOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_ASSIGN_OR_RETURN(const auto buckets, BucketsOf(gradients, options));
  Outputs sums = ReduceBuckets(scope.SubScope("all_reduce"), gradients, buckets, options);
  MG_RETURN_IF_ERROR(scope.status());
  return sums;
}

Result<std::vector<Outputs>> AllReduceReplicas(const Scope& scope,
                                               const std::vector<Outputs>& gradients,
                                               const AllReduceOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  const std::vector<std::string>& devices = options.group.members;
  if (gradients.empty() || devices.size() != gradients.size()) {
    return InvalidArgument("gradients of " + std::to_string(gradients.size()) + " replicas, but " +
                           std::to_string(devices.size()) + " members in the collective group");
  }
  MG_ASSIGN_OR_RETURN(const auto buckets, BucketsOf(gradients[0], options));
  std::vector<Outputs> sums;
  for (size_t replica = 0; replica < gradients.size(); ++replica) {
    if (gradients[replica].size() != gradients[0].size()) {
      return InvalidArgument("replica " + std::to_string(replica) + " has " +
                             std::to_string(gradients[replica].size()) +
                             " gradients, replica 0 has " + std::to_string(gradients[0].size()));
    }
    const Scope place =
        scope.SubScope("all_reduce_" + std::to_string(replica)).WithDevice(devices[replica]);
    sums.push_back(ReduceBuckets(place, gradients[replica], buckets, options));
  }
  MG_RETURN_IF_ERROR(scope.status());
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
