// The flags of cnn_benchmarks and what they stand for: a model, an optimizer, and a way of
// replication. Flags of tf_cnn_benchmarks that have no meaning here are not accepted, so that
// nobody compares with a run that did something else.
#include "examples/cnn_benchmarks/settings.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "examples/models/mnist_cnn.h"
#include "examples/models/resnet.h"
#include "examples/models/trivial.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"

namespace monograph::examples {
namespace {

struct Depth {
  std::vector<int> blocks;
  bool bottleneck;
};

const std::map<std::string, Depth>& ResNets() {
  static const std::map<std::string, Depth> depths = {{"resnet18", {{2, 2, 2, 2}, false}},
                                                      {"resnet34", {{3, 4, 6, 3}, false}},
                                                      {"resnet50", {{3, 4, 6, 3}, true}},
                                                      {"resnet101", {{3, 4, 23, 3}, true}},
                                                      {"resnet152", {{3, 8, 36, 3}, true}}};
  return depths;
}

using LogitsFn =
    std::function<Output(const Scope& scope, const Output& images, ModelVariables& variables)>;

// As a function of images.
template <typename Net>
LogitsFn LogitsOf(const Net& net) {
  return [net](const Scope& scope, const Output& images, ModelVariables& variables) {
    return net.Logits(scope, images, variables);
  };
}

LogitsFn Network(const CnnSettings& settings) {
  const DType compute = settings.use_fp16 ? DT_BFLOAT16 : DT_FLOAT;
  if (settings.model == "trivial") {
    return LogitsOf(TrivialModel{
        .side = settings.image_size, .classes = CnnSettings::kClasses, .compute = compute});
  }
  const Depth& depth = ResNets().at(settings.model);
  return LogitsOf(ResNet{.side = settings.image_size,
                         .classes = CnnSettings::kClasses,
                         .blocks = depth.blocks,
                         .bottleneck = depth.bottleneck,
                         .compute = compute,
                         .channels_first = settings.data_format == "NCHW"});
}

// The share of rows whose label is among the 5 highest logits.
Output TopFive(const Scope& scope, const Output& logits, const Output& labels) {
  // As LossAndAccuracy, which compares int64 on the GPU.
  const Output hits =
      InTopK(scope, logits, Cast(scope, labels, DT_INT64), Const(scope, int64_t{5}));
  return ReduceMean(scope.WithOpName("mean"), Cast(scope, hits, DT_FLOAT));
}

// Another's variables; knows those that were asked for.
class KnownVariables : public ModelVariables {
 public:
  explicit KnownVariables(ModelVariables& all) : all_(all) {}

  Output Get(const std::string& name, const Shape& shape, const Initial& initial,
             DType dtype) override {
    Output value = all_.Get(name, shape, initial, dtype);
    if (names_.insert(name).second) values_.push_back(value);
    return value;
  }
  Output Lookup(const std::string& name, const Shape& shape, const Initial& initial,
                const Output& ids, DType dtype) override {
    return all_.Lookup(name, shape, initial, ids, dtype);
  }
  const Outputs& values() const { return values_; }

 private:
  ModelVariables& all_;
  std::set<std::string> names_;
  Outputs values_;
};

}  // namespace

void CnnSettings::AddTo(Flags* flags) {
  std::vector<std::string> models = {"trivial"};
  for (const auto& [name, depth] : ResNets()) models.push_back(name);
  flags->Section("Training");
  flags->AddChoice("model", &model, models, "network to train");
  flags->Add("batch_size", &batch_size, "images of one update on each device", 1,
             Flags::kMostExamples);
  flags->Add("num_batches", &num_batches, "updates that are timed, of each client", 1);
  flags->Add("num_warmup_batches", &num_warmup_batches, "updates before those, not timed", 0);
  flags->Add("display_every", &display_every, "updates between lines of speed", 1);
  flags->AddChoice("optimizer", &optimizer, {"sgd", "momentum", "rmsprop", "adam"},
                   "how gradients change the variables");
  flags->Add("init_learning_rate", &init_learning_rate, "it stays as it is");
  flags->Add("momentum", &momentum, "of --optimizer=momentum");
  flags->Add("weight_decay", &weight_decay,
             "half the sum of the squares of all variables, times this, is added to the loss");
  flags->Add(
      "use_fp16", &use_fp16,
      "compute in 16 bits: bfloat16, with float variables, updates, statistics and loss; its "
      "range is float's, so that the loss is not scaled");
  flags->AddChoice("data_format", &data_format, {"NHWC", "NCHW"},
                   "layout between the layers of a ResNet, on GPUs and CPUs");
  flags->Add("print_training_accuracy", &print_training_accuracy,
             "lines of speed also have the shares of the batch whose label is the first, and one "
             "of the first five, of what the network thinks likely");
  flags->Add("forward_only", &forward_only,
             "compute logits and accuracy only: no gradients, no update, nothing is saved");
  flags->Add("tf_random_seed", &tf_random_seed, "of weights, made-up images and distortions");
  flags->Section("Data");
  flags->AddChoice("data_name", &data_name, {"imagenet"}, "data set");
  flags->Add("data_dir", &data_dir,
             "folder of ImageNet's TFRecords, train-00000-of-01024 and so on, which each worker "
             "reads by itself; default: images are made up once, and stay on the devices");
  flags->Add("image_size", &image_size,
             "rows and columns of images; 0: 224, or 227 for --model=trivial", 0, 4096);
  flags->Section("Files");
  flags->AddOutputFolder("train_dir", &train_dir,
                         "folder of the chief's checkpoints, from the latest of which training "
                         "goes on, and of summaries; one is saved at the end");
  flags->Add("save_model_steps", &save_model_steps,
             "--train_dir: updates between checkpoints; 0: only the one at the end", 0);
  flags->Add("summary_verbosity", &summary_verbosity,
             "--train_dir: 1: with --save_summaries_steps what the lines of speed tell is written "
             "for TensorBoard, too; 0: nothing",
             0, 1);
  flags->Add("save_summaries_steps", &save_summaries_steps,
             "--train_dir: updates between summaries; 0: none", 0);
  flags->Section("Replication");
  flags->AddChoice("device", &device, {"auto", "cpu", "gpu"},
                   "where replicas compute; auto: on GPUs if --num_gpus is given, else on CPUs");
  flags->Add("num_gpus", &num_gpus,
             "devices of each worker, or of this process without a cluster, that hold a replica; "
             "with --device=cpu they are CPU devices. 0: one",
             0, kMostReplicas);
  flags->Add("cross_replica_sync", &cross_replica_sync,
             "all replicas, or all workers, make one update together");
  AddReplicasTo(flags);
  session.AddTo(flags);
  flags->AddCheck([this]() -> Status {
    MG_RETURN_IF_ERROR(Resolve());
    return FindPlace(*this).status();
  });
}

Status CnnSettings::Resolve() {
  if (!(init_learning_rate > 0))
    return InvalidArgument("--init_learning_rate must be greater than 0");
  if (!(momentum >= 0 && momentum < 1)) return InvalidArgument("--momentum must be in [0, 1)");
  if (!(weight_decay >= 0)) return InvalidArgument("--weight_decay must be 0 or greater");
  if (forward_only && (save_model_steps > 0 || writes_summaries())) {
    return InvalidArgument(
        "--forward_only saves nothing: leave out " +
        std::string(save_model_steps > 0 ? "--save_model_steps" : "--save_summaries_steps"));
  }
  if (train_dir.empty() && (save_model_steps > 0 || writes_summaries())) {
    return InvalidArgument(
        std::string(save_model_steps > 0 ? "--save_model_steps" : "--save_summaries_steps") +
        " writes to a folder: give --train_dir");
  }
  if (image_size != 0 && image_size < 32) {
    return InvalidArgument("--image_size must be 0 or at least 32, not " +
                           std::to_string(image_size));
  }
  if (image_size == 0) image_size = model == "trivial" ? 227 : 224;
  const bool on_gpus = device == "gpu" || (device == "auto" && num_gpus > 0);
  gpu_device = on_gpus ? "GPU" : "CPU";
  if (num_gpus == 0) num_gpus = !on_gpus && replication == "hybrid" ? replicas_per_worker : 1;
  if (!cross_replica_sync && variable_update == "replicated") {
    return InvalidArgument(
        "--variable_update=replicated keeps in step: leave out --nocross_replica_sync");
  }
  // Who updates nothing has nothing to wait for.
  async = in_graph() && !cross_replica_sync && !forward_only;
  sync = replication == "between_graph" && cross_replica_sync && !forward_only;
  return CheckReplicas();
}

ModelFn CnnSettings::Model() const {
  return [network = Network(*this), decay = weight_decay, top_five = prints_accuracy()](
             Scope& tower, std::span<const Output> batch,
             ModelVariables& variables) -> Result<Outputs> {
    Outputs inputs(batch.begin(), batch.end());
    if (inputs[0].dtype() == DT_UINT8) {
      const Scope scope = tower.SubScope("input");
      const Output pixels = Cast(scope, inputs[0], DT_FLOAT);
      inputs[0] = Sub(scope, Mul(scope, pixels, Const(scope, 1.0f / 127.5f)), Const(scope, 1.0f));
    }
    KnownVariables known(variables);
    const Output logits = network(tower, inputs[0], known);
    Outputs results = LossAndAccuracy(tower, logits, inputs[1]);
    if (results.empty()) return results;
    if (top_five) results.push_back(TopFive(tower.SubScope("top_5_accuracy"), logits, inputs[1]));
    if (decay == 0) return results;
    const Scope scope = tower.SubScope("l2_loss");
    Outputs losses;
    for (const Output& value : known.values()) losses.push_back(L2Loss(scope, value));
    const Output all = Mul(scope, AddN(scope, losses), Const(scope, static_cast<float>(decay)));
    results[0] = Add(scope, results[0], all);
    return results;
  };
}

Optimizer CnnSettings::MakeOptimizer() const {
  if (optimizer == "momentum") return Momentum(init_learning_rate, momentum);
  if (optimizer == "rmsprop") return RMSProp(init_learning_rate, 0.9, 0.9, 1.0);
  if (optimizer == "adam") return Adam(init_learning_rate);
  return GradientDescent(init_learning_rate);
}

int64_t CnnSettings::GlobalBatch(const Layout& layout) const {
  const auto here = static_cast<int64_t>(layout.replicas.size());
  if (!asynchronous()) return batch_size * layout.replicas_of_all();
  return batch_size * (in_graph() ? 1 : here);
}

int CnnSettings::Loops(const Layout& layout) const {
  if (!asynchronous()) return 1;
  return in_graph() ? static_cast<int>(layout.replicas.size()) : layout.workers;
}

}  // namespace monograph::examples
