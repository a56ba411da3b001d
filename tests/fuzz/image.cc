// Image files: JPEG, PNG and BMP, by the kernels that read them. A header that promises more pixels
// than a small image has is not believed here: such a file would only take time.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernel.h"
#include "executor/step/kernel_runner.h"
#include "graph/graph.h"
#include "graph/structural_ops.h"
#include "tests/fuzz/targets.h"

namespace monograph::ops::image_codec {
void Define(OpRegistry* registry);
void RegisterCpu(KernelRegistry* registry);
}  // namespace monograph::ops::image_codec

namespace monograph::fuzz {
namespace {

constexpr int64_t kMostPixels = 1 << 16;

struct Registries {
  OpRegistry ops;
  KernelRegistry kernels;

  Registries() {
    ops::image_codec::Define(&ops);
    ops::image_codec::RegisterCpu(&kernels);
  }
};

// An op with its inputs' values.
class Op {
 public:
  Op(const char* name, const std::vector<DType>& inputs, Attrs attrs = {})
      : graph_(&Known().ops), runner_(&Known().kernels) {
    std::vector<Endpoint> sources;
    for (const DType dtype : inputs) {
      const auto number = static_cast<int64_t>(sources.size());
      auto of_input = std::make_shared<const Attrs>(Attrs{{"T", dtype}, {"index", number}});
      const std::string input = "input_" + std::to_string(number);
      sources.push_back({Add({.name = input, .op = kArgOp, .attrs = of_input}), 0});
    }
    auto shared = std::make_shared<const Attrs>(std::move(attrs));
    node_ = Add({.name = "node", .op = name, .inputs = sources, .attrs = shared});
  }

  Result<Tensor> Run(std::vector<Tensor> inputs) {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                        runner_.Run(graph_, node_, std::move(inputs)));
    return outputs[0];
  }

 private:
  static const Registries& Known() {
    static const Registries registries;
    return registries;
  }
  NodeId Add(const NodeSpec& node) {
    const Result<NodeId> id = graph_.AddNode(node);
    MG_CHECK(id.ok());
    return *id;
  }

  Graph graph_;
  KernelRunner runner_;
  NodeId node_;
};

// Whether the header promises an image of few pixels, or none; a BMP file has the bytes for its
// own.
bool IsSmall(std::string_view bytes) {
  static Op shape_of("ExtractJpegShape", {DT_STRING}, {{"output_type", DT_INT64}});
  const Result<Tensor> shape = shape_of.Run({Tensor::String(std::string(bytes))});
  if (shape.ok()) return shape->data<int64_t>()[0] * shape->data<int64_t>()[1] <= kMostPixels;
  if (!bytes.starts_with("\x89PNG") || bytes.size() < 24) return true;
  uint64_t pixels = 1;
  for (const size_t at : {size_t{16}, size_t{20}}) {  // width and height, the largest byte first
    uint64_t side = 0;
    for (size_t i = 0; i < 4; ++i) side = side << 8 | static_cast<unsigned char>(bytes[at + i]);
    pixels = side > kMostPixels ? side : pixels * side;
  }
  return pixels <= kMostPixels;
}

}  // namespace

void image(std::string_view bytes) {
  if (!IsSmall(bytes)) return;
  const Tensor file = Tensor::String(std::string(bytes));
  static Op decode("DecodeImage", {DT_STRING}),
      floats("DecodeImage", {DT_STRING}, {{"dtype", DT_FLOAT}, {"channels", int64_t{3}}}),
      recovered("DecodeJpeg", {DT_STRING},
                {{"try_recover_truncated", true}, {"ratio", int64_t{2}}, {"channels", int64_t{1}}}),
      wide("DecodePng", {DT_STRING}, {{"dtype", DT_UINT16}, {"channels", int64_t{4}}}),
      cropped("DecodeAndCropJpeg", {DT_STRING, DT_INT32});
  const Result<Tensor> image = decode.Run({file});
  const Result<Tensor> as_floats = floats.Run({file}), grey = recovered.Run({file});
  const Result<Tensor> with_alpha = wide.Run({file});
  if (grey.ok()) MG_CHECK(grey->shape()[2] == 1);
  if (with_alpha.ok()) MG_CHECK(with_alpha->shape()[2] == 4);
  if (!image.ok()) return;
  const Shape& shape = image->shape();
  MG_CHECK(shape.rank() == 3 && shape.elements() > 0);
  for (const float sample : as_floats.ok() ? as_floats->values<float>() : std::span<const float>())
    MG_CHECK(sample >= 0 && sample <= 1);
  // The pixel in the middle of a JPEG file.
  const auto height = static_cast<int32_t>(shape[0]), width = static_cast<int32_t>(shape[1]);
  const Tensor window = Tensor::Vector<int32_t>({height / 2, width / 2, 1, 1});
  const Result<Tensor> crop = cropped.Run({file, window});
  if (crop.ok()) MG_CHECK(crop->shape() == (Shape{1, 1, shape[2]}));
}

}  // namespace monograph::fuzz
