// Summing gradients over replicas without a parameter server: in buckets, each of which leaves as
// soon as its gradients exist, so that the network works while the backward pass goes on.
//
// In graph, one client that sees all replicas:
//
//   AllReduceOptions options{.group = {.size = 2, .members = devices}};
//   // sums[replica][variable]
//   MG_ASSIGN_OR_RETURN(sums, AllReduceReplicas(root, {gradients0, gradients1}, options));
//
// Between graphs, a client per replica, each with its own gradients; the clients' graphs must agree
// in order, types and shapes. So, too, in the body of a replica's function, which is built once and
// called on each of the members:
//
//   AllReduceOptions options{.group = {.size = 2}};
//   // sums[variable]
//   MG_ASSIGN_OR_RETURN(sums, AllReduceGradients(root, gradients, options));
//   MG_ASSIGN_OR_RETURN(initial,
//                       BroadcastFromFirst(root, is_first, values, options.group, 1000));
//
// Every sum is made in rank order: its bits are those of AddN of the replicas' gradients in rank
// order. A gradient of rows stays rows: all replicas' rows and indices are gathered, and rows of
// one index are added in rank order, so that what travels follows the batch and not the variable.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "graph/gradients.h"
#include "graph/scope.h"
#include "ops/collective/collective.h"

namespace monograph {

struct AllReduceOptions {
  CollectiveGroup group;
  int first_instance_key = 1;  // of the first bucket; the others follow
  // A bucket is full when the next gradient would exceed this many bytes; a larger gradient has one
  // of its own. A bucket leaves when the last of its gradients is there, so that small ones overlap
  // more of the backward pass; each costs some 20 us. The first one is smaller still.
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{4} << 20;
  bool mean = false;  // sums divided by the number of replicas
};

// Which gradients travel together: indices, in order of leaving. Gradients of one bucket have one
// type. The order is that in which the backward pass makes them: nodes that were built later come
// later; of one node the last output comes first. InvalidArgument for a gradient that is invalid or
// whose shape is not known while building.
Result<std::vector<std::vector<size_t>>> BucketsOf(const Outputs& gradients,
                                                   const AllReduceOptions& options);

// The sums of this replica's and the other members' gradients, in the order of `gradients`.
Result<Outputs> AllReduceGradients(const Scope& scope, const Outputs& gradients,
                                   const AllReduceOptions& options);

// The same for all replicas of one graph: gradients[replica][variable], by rank; sums are on the
// members' devices. REQUIRES: options.group.members are the replicas' devices.
Result<std::vector<Outputs>> AllReduceReplicas(const Scope& scope,
                                               const std::vector<Outputs>& gradients,
                                               const AllReduceOptions& options);

// The same of gradients of which some are rows: whole ones go in buckets as above, rows by two
// gathers each, whose instance keys follow those of the buckets. The sums of rows are rows, each
// index once. REQUIRES: a gradient that is rows on one replica is rows on all.
Result<std::vector<Gradient>> AllReduceGradients(const Scope& scope,
                                                 const std::vector<Gradient>& gradients,
                                                 const AllReduceOptions& options);
Result<std::vector<std::vector<Gradient>>> AllReduceReplicas(
    const Scope& scope, const std::vector<std::vector<Gradient>>& gradients,
    const AllReduceOptions& options);

// For a client per replica: the first one's `values`, at the first one and at all others, whose own
// are only looked at for types and shapes. Value i uses instance key first_instance_key + i.
Result<Outputs> BroadcastFromFirst(const Scope& scope, bool is_first, const Outputs& values,
                                   const CollectiveGroup& group, int first_instance_key);

}  // namespace monograph
