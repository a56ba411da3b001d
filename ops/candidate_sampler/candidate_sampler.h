// Candidate samplers: classes drawn for a loss that does not look at all of them, as those of
// tf.nn.sampled_softmax_loss and nce_loss. UniformCandidateSampler, LogUniformCandidateSampler,
// LearnedUnigramCandidateSampler and ThreadUnsafeUnigramCandidateSampler (by how often a class was
// true so far), FixedUnigramCandidateSampler (by given weights), AllCandidateSampler (each once),
// and ComputeAccidentalHits: which sampled classes are true ones.
//
// With a seed they draw TensorFlow's classes: the node's first run begins the stream of its seeds,
// and each run goes on where the one before has ended. With seeds of 0 they draw by node and step,
// as the ops of ops/random do. Where a stream stands, and what was learned, belongs to a prepared
// step: a step with other feeds, fetches or targets begins anew.
#pragma once

#include "graph/scope.h"

namespace monograph {

// How often each class is expected among the sampled ones stands beside the classes.
struct CandidateSamples {
  Output sampled;                 // int64 [num_sampled]
  Output true_expected_count;     // float, of true_classes' shape
  Output sampled_expected_count;  // float [num_sampled]
};
struct CandidateSamplerOptions {
  int64_t num_sampled = 1;
  int64_t range_max = 1;  // classes are below
  bool unique = true;     // each at most once
  int64_t seed = 0;       // the op's; the scope's (Scope::WithSeed) is the other half
};

// `true_classes`: int64 [batch, num_true].
CandidateSamples UniformCandidateSampler(const Scope& scope, const Output& true_classes,
                                         int64_t num_true, const CandidateSamplerOptions& options);
// Class k by log((k + 2) / (k + 1)): for classes that are sorted by how frequent they are.
CandidateSamples LogUniformCandidateSampler(const Scope& scope, const Output& true_classes,
                                            int64_t num_true,
                                            const CandidateSamplerOptions& options);

// For each sampled class that is one of its row's true ones: the row, its place among the sampled
// ones, and a weight of -FLT_MAX that takes it out of a softmax when it is added.
struct AccidentalHits {
  Output indices, ids, weights;  // int32, int64, float: [hits]
};
AccidentalHits ComputeAccidentalHits(const Scope& scope, const Output& true_classes,
                                     const Output& sampled, int64_t num_true);

}  // namespace monograph
