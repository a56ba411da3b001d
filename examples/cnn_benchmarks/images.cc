// Input by the graph. Each task that has replicas has two queues: names of files, in a new random
// order for each pass through the data, and images that are ready. A step of one client's thread
// reads, decodes and enqueues kImagesPerStep images at every task, and two such steps run at a
// time: so the client sends few messages, holds few of the session's slots however many tasks there
// are, and each task decodes on as many cores as it has.
//
// Names are put where they run short, by a thread that looks now and then. Their queues have no
// bound, so that no task ever waits for another one's files: tasks may have as many as they like.
#include "examples/cnn_benchmarks/images.h"

#include <chrono>
#include <map>

#include "base/device_name.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/example/example.h"
#include "ops/image/image.h"
#include "ops/image_codec/image_codec.h"
#include "ops/queue/queue.h"
#include "ops/random/random.h"
#include "ops/reader/reader.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/stateless_random/stateless_random.h"
#include "ops/transpose/transpose.h"
#include "ops/variable/variable.h"

namespace monograph::examples {
namespace {

constexpr int kImagesPerStep = 16;
constexpr int32_t kFewNames = 256;  // files that no thread could read before the next look
constexpr std::chrono::milliseconds kLook{100};

// {image [side, side, 3], label} of a serialized example, distorted as for training.
Outputs Decode(const Scope& scope, const Output& serialized, int64_t side) {
  const Output no_text = Const(scope, Tensor::Allocate(DT_STRING, Shape{0}).value());
  const Output no_label = Const(scope, Tensor::Allocate(DT_INT64, Shape{0}).value());
  const Outputs features = ParseExample(scope, Reshape(scope, serialized, {1}),
                                        {{"image/encoded", PartialShape::Scalar(), no_text},
                                         {"image/class/label", PartialShape::Scalar(), no_label}});
  if (features.empty()) return {};
  const Output contents = Reshape(scope, features[0], {});
  const Output whole = Const<float>(scope, Shape{1, 1, 4}, {0, 0, 1, 1});
  const RandomBox box =
      SampleDistortedBoundingBox(scope, ExtractJpegShape(scope, contents), whole,
                                 Const(scope, 0.1f), {.use_image_if_no_bounding_boxes = true});
  const Output window =
      Concat(scope, {Slice(scope, box.begin, {0}, {2}), Slice(scope, box.size, {0}, {2})}, 0);
  const Output cropped = ExpandDims(scope, DecodeAndCropJpeg(scope, contents, window, 3), 0);
  const Output resized = ResizeBilinear(scope, cropped, IntsConst(scope, {side, side}));
  const Output image = Reshape(scope, Cast(scope, resized, DT_UINT8), {side, side, 3});
  const Output heads = Less(scope, RandomUniform(scope, IntsConst(scope, {})), Const(scope, 0.5f));
  const Output flipped = Reverse(scope, image, IntsConst(scope, {1}));
  return {Select(scope, heads, flipped, image),
          Reshape(scope, Cast(scope, features[1], DT_INT32), {})};
}

}  // namespace

Images::Images(const Scope& root, const CnnSettings& settings, const Layout& layout)
    : container_("cnn_benchmarks_input_" + std::to_string(layout.rank)),
      scope_name_("input_" + std::to_string(layout.rank)),
      pattern_(settings.data_dir + "/train-*-of-*") {
  std::map<std::string, int64_t> replicas;  // by the CPU of their task
  std::map<std::string, Output> queues;
  const auto cpu_of = [](const std::string& device) {
    return DeviceName::Parse(device).value().TaskName() + "/device:CPU:0";
  };
  for (const std::string& device : layout.replicas) ++replicas[cpu_of(device)];
  for (const std::string& device : layout.replicas) {
    if (settings.data_dir.empty()) {
      shards_.push_back(MakeUp(root, settings, device));
      continue;
    }
    const std::string cpu = cpu_of(device);
    Output& queue = queues[cpu];
    if (!queue.valid()) queue = Read(root, settings, cpu, replicas[cpu]);
    shards_.push_back(QueueDequeueMany(root.SubScope(scope_name_).WithDevice(cpu), queue,
                                       static_cast<int>(settings.batch_size)));
  }
  const Scope here = root.SubScope(scope_name_).WithDevice(layout.client);
  all_made_up_ = Group(here, make_up_);
  all_put_images_ = Group(here, put_images_);
  all_close_ = Group(here, close_);
  all_cancel_ = Group(here, cancel_);
}

Outputs Images::MakeUp(const Scope& root, const CnnSettings& settings, const std::string& device) {
  const Scope scope = root.SubScope(scope_name_);
  const auto keep = [&](const Scope& where, const std::string& name, const Output& value) {
    const Output variable =
        VarHandle(where.WithOpName(name), value.dtype(), value.shape(), container_);
    make_up_.push_back(AssignVariable(where, variable, value));
    return ReadVariable(where, variable);
  };
  const Scope there = scope.WithDevice(device), beside = scope.WithDevice(CpuBeside(device));
  const int64_t side = settings.image_size;
  const Output images =
      TruncatedNormal(there, IntsConst(there, {settings.batch_size, side, side, 3}));
  const Output labels =
      RandomUniformInt(beside, IntsConst(beside, {settings.batch_size}), Const(beside, int32_t{0}),
                       Const(beside, static_cast<int32_t>(settings.kClasses)));
  return {keep(there, "images", images), keep(beside, "labels", labels)};
}

Output Images::Read(const Scope& root, const CnnSettings& settings, const std::string& cpu,
                    int64_t replicas) {
  const Scope scope = root.SubScope(scope_name_).WithDevice(cpu);
  const Output files = MatchingFiles(scope, Const(scope, pattern_));
  const Output names = FIFOQueue(scope.WithOpName("names"), {DT_STRING},
                                 {.shapes = {PartialShape::Scalar()}, .container = container_});
  const int64_t side = settings.image_size;
  const Output queue = FIFOQueue(scope.WithOpName("images"), {DT_UINT8, DT_INT32},
                                 {.capacity = 2 * settings.batch_size * replicas + kImagesPerStep,
                                  .shapes = {{side, side, 3}, PartialShape::Scalar()},
                                  .container = container_});
  // In the container, too: else it would go on in a file that an earlier run has begun.
  const Output reader =
      OpBuilder(scope, "TFRecordReaderV2").Attr("container", container_).BuildOutput();
  Outputs images, labels;
  for (int i = 0; i < kImagesPerStep; ++i) {
    const Scope one = scope.SubScope("image");
    const Outputs decoded = Decode(one, ReaderRead(one, reader, names).value, side);
    if (decoded.empty()) return {};
    images.push_back(decoded[0]);
    labels.push_back(decoded[1]);
  }
  readings_.push_back({.task = DeviceName::Parse(cpu).value().TaskName(),
                       .file_count = Size(scope, files),
                       .names_left = QueueSize(scope, names),
                       .put_names = QueueEnqueueMany(scope, names, {RandomShuffle(scope, files)})});
  put_images_.push_back(QueueEnqueueMany(scope, queue, {Pack(scope, images), Pack(scope, labels)}));
  for (const Output& each : {names, queue}) {
    close_.push_back(QueueClose(scope, each));
    cancel_.push_back(QueueClose(scope, each, /*cancel_pending_enqueues=*/true));
  }
  return queue;
}

Status Images::KeepNames(Session* session, const Coordinator& coordinator) const {
  Outputs left;
  for (const Reading& reading : readings_) left.push_back(reading.names_left);
  do {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> counts, session->Run({}, left));
    std::vector<Operation> put;
    for (size_t i = 0; i < readings_.size(); ++i) {
      if (counts[i].scalar<int32_t>() < kFewNames) put.push_back(readings_[i].put_names);
    }
    if (!put.empty()) MG_RETURN_IF_ERROR(session->Run({}, {}, put).status());
  } while (!coordinator.WaitForStop(kLook));
  return Status();
}

Status Images::Start(Session* session, Coordinator* coordinator) const {
  MG_RETURN_IF_ERROR(session->Reset({container_}));
  if (readings_.empty()) return session->Run({}, {}, {all_made_up_}).status();
  Outputs fetches;
  for (const Reading& reading : readings_) fetches.push_back(reading.file_count);
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> counts, session->Run({}, fetches));
  for (size_t i = 0; i < readings_.size(); ++i) {
    if (counts[i].scalar<int32_t>() > 0) continue;
    return NotFound("--data_dir: " + readings_[i].task + " sees no file '" + pattern_ + "'");
  }
  coordinator->Start("names of files", [this, session, coordinator]() -> Status {
    const Status status = KeepNames(session, *coordinator);
    // The queues are closed when the coordinator stops.
    return coordinator->ShouldStop() ? Status() : status;
  });
  QueueRunner({all_put_images_, all_put_images_}, all_close_, all_cancel_)
      .Start(session, coordinator);
  return Status();
}

}  // namespace monograph::examples
