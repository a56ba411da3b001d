#include "bench/gpu_training.h"

#include <utility>

#include "bench/harness.h"
#include "client/registries.h"
#include "executor/worker/task_status.h"
#include "graph/prune.h"
#include "ops/constant/constant.h"
#include "train/collections.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph::bench {

void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}

SessionOptions OnGpu(const GpuMode& mode) {
  SessionOptions options;
  options.gpu.allow_tf32 = mode.allow_tf32;
  options.gpu.deterministic = mode.deterministic;
  options.gpu.programmatic_dependent_launch = mode.programmatic;
  options.gpu.allow_growth = true;  // the reference and torch need memory, too
  return options;
}

Training::Training(const ModelFn& model, const Shape& images, const GpuMode& mode, bool warm)
    : graph_(NewGraph()), batch_(images[0]) {
  Scope root = Scope(&graph_).WithSeed(1).WithDevice(kGpu0);
  Collections collections;
  std::vector<Operation> initializers;
  std::vector<ModelVariable> saved;
  const auto held = [&](const char* name, Tensor value) {
    saved.push_back(MakeVariable(root, name, Const(root, std::move(value))));
    initializers.push_back(saved.back().initializer);
    return saved.back().value;
  };
  Tensor labels = Check(Tensor::Allocate(DT_INT32, Shape{batch_}));
  for (int64_t i = 0; i < batch_; ++i) labels.data<int32_t>()[i] = static_cast<int32_t>(i % 10);
  Tensor pixels = Check(Tensor::Allocate(DT_FLOAT, images));
  for (int64_t i = 0; i < pixels.elements(); ++i)
    pixels.data<float>()[i] = static_cast<float>((i * 2654435761u) % 1024) / 1024.f;
  const Outputs batch{held("images", std::move(pixels)), held("labels", std::move(labels))};
  ScopedModelVariables variables(VariableScope(root, &collections));
  const Outputs results = Check(model(root, batch, variables));
  const std::vector<ModelVariable> trained = TrainableVariables(collections);
  for (const ModelVariable& variable : trained) initializers.push_back(variable.initializer);
  const Operation train =
      Check(Momentum(0.01, 0.9).Minimize(root, results[0], trained, &initializers));
  if (!warm) {
    saved.insert(saved.end(), trained.begin(), trained.end());
    saver_.emplace(root, saved);
  }
  Check(root.status());
  session_ = Check(Session::Local(graph_, OnGpu(mode)));
  Check(session_->Run({}, {}, initializers).status());
  call_ = Check(session_->MakeCallable({}, {results[0]}, {train}));
  loss_ = results[0].endpoint;
  train_ = train.id;
  if (warm) Steps(3);
}

Graph Training::Step() const {
  return Check(Prune(graph_, {}, {&loss_, 1}, {&train_, 1}, nullptr));
}

void Training::Steps(int count) {
  Check(session_->RunCallable(call_, {}, {.steps = count}).status());
}

TaskStatus Training::Counts() const { return Check(session_->Tasks()).front(); }

std::string Training::Trace() {
  RunMetadata metadata;
  Check(session_->RunCallable(call_, {}, {.trace = true}, &metadata).status());
  return std::move(metadata.trace_json);
}

float Training::Loss() { return Check(session_->RunCallable(call_, {})).front().scalar<float>(); }

void Training::Save(const std::string& path) { Check(saver_->Save(session_.get(), path).status()); }

}  // namespace monograph::bench
