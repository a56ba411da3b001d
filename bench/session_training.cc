#include "bench/session_training.h"

#include <ctime>

#include "bench/daemons.h"
#include "bench/onednn_cnn.h"
#include "client/registries.h"
#include "examples/models/mnist_cnn.h"
#include "ops/constant/constant.h"

namespace monograph::bench {
namespace {

constexpr int64_t kBatches = 4;

double ProcessorNow() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TrainedModel MnistTraining(int64_t batch, DType compute) {
  const examples::MnistCnn model{.fc = 1024, .dropout = 0, .compute = compute};
  return {model.Training(), Shape{batch, 28 * 28}, 10, Adam(1e-4)};
}

SessionTraining::SessionTraining(const TrainedModel& trained,
                                 const std::vector<std::string>& devices,
                                 const ClusterSpec* cluster, int threads)
    : graph_(NewGraph()), batch_(trained.images.dim(0)) {
  const Scope root(&graph_);
  const Scope client = cluster == nullptr ? root : root.WithDevice("/job:client/task:0");
  images_ = Placeholder(client.WithOpName("images"), DT_FLOAT, trained.images);
  labels_ = Placeholder(client.WithOpName("labels"), DT_INT32, {batch_});
  step_ = Check(Replicate(root, devices, {images_, labels_}, trained.model, trained.optimizer));
  Check(root.status());
  SessionOptions options;
  options.inter_op_parallelism_threads = 1;
  options.intra_op_parallelism_threads = threads;
  session_ = Check(cluster == nullptr ? Session::Local(graph_, options)
                                      : Session::Connect(*cluster, graph_, options));
  Check(session_->Run({}, {}, {step_.init}).status());
  call_ = Check(session_->MakeCallable({images_, labels_}, {step_.results[0]}, {step_.train}));
  for (int64_t k = 0; k < kBatches; ++k) {
    Tensor x = Check(Tensor::Allocate(DT_FLOAT, trained.images)),
           y = Check(Tensor::Allocate(DT_INT32, {batch_}));
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = CnnPattern(static_cast<size_t>(i + k), 1);
    for (int64_t i = 0; i < batch_; ++i)
      y.data<int32_t>()[i] = static_cast<int32_t>((i + k) % trained.classes);
    batches_.push_back({x, y});
  }
}

void SessionTraining::Step() {
  const auto k = static_cast<size_t>(next_++ % kBatches);
  Check(session_->RunCallable(call_, batches_[k]).status());
}

std::string SessionTraining::Trace() {
  RunMetadata metadata;
  Check(session_->RunCallable(call_, batches_[0], {.trace = true}, &metadata).status());
  return metadata.trace_json;
}

Rates RatesOf(const std::function<void()>& step, int64_t batch, double seconds) {
  const double start = Now(), processor = ProcessorNow();
  int64_t images = 0;
  double now;
  do {
    step();
    images += batch;
    now = Now();
  } while (now - start < seconds);
  const auto count = static_cast<double>(images);
  return {count / (now - start), count / (ProcessorNow() - processor)};
}

}  // namespace monograph::bench
