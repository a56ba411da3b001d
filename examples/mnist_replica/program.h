// The graph of mnist_replica, and the data that it trains on.
#pragma once

#include <memory>
#include <vector>

#include "examples/mnist_replica/settings.h"
#include "graph/graph.h"
#include "ops/input/input.h"
#include "train/replication.h"

namespace monograph::examples {

struct Program {
  explicit Program(Graph g) : graph(std::move(g)) {}
  Graph graph;
  ReplicatedStep step;
  // By loop: {images, labels} or, with --input=executor, {index of the batch}.
  std::vector<Outputs> feeds;
  Output eval_images, eval_labels;
  Outputs evaluation;  // loss, accuracy
};

// Examples of one step of one loop of this client.
int64_t RowsOfStep(const Settings& settings, const Layout& layout);

// `shares`: the cut of the batch; empty: even.
Result<std::unique_ptr<Program>> BuildProgram(const Settings& settings, const Layout& layout,
                                              int64_t pixels, const std::vector<int64_t>& shares);

// What is fed: batches of this client's part of the training set, by loop. Batch k of all clients
// together is cut the same way in every mode.
class TrainingData {
 public:
  static Result<std::unique_ptr<TrainingData>> Load(const Settings& settings, const Layout& layout,
                                                    const Dataset& like);
  Result<std::vector<Tensor>> Feeds(int loop, int64_t batch) const;

 private:
  std::vector<std::unique_ptr<BatchStream>> streams_;  // empty with --input=executor
};

}  // namespace monograph::examples
