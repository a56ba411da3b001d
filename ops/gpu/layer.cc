#include "ops/gpu/layer.h"

#include <algorithm>
#include <limits>

namespace monograph::ops {
namespace {

struct Facts {
  Layer layer;
  const char* name;
  const char* family;
  std::string_view untimed;
};
// By Layer. `untimed` is what a measurement on a card may change (scripts/bench gpu shows both).
constexpr Facts kFacts[] = {
    {Layer::kMaxPool, "MaxPool", "pool", kOwnWay},
    {Layer::kMaxPoolGrad, "MaxPoolGrad", "pool", kOwnWay},
    {Layer::kAvgPool, "AvgPool", "pool", kOwnWay},
    {Layer::kAvgPoolGrad, "AvgPoolGrad", "pool", kOwnWay},
    {Layer::kSoftmax, "Softmax", "softmax", kOwnWay},
    {Layer::kLogSoftmax, "LogSoftmax", "softmax", kOwnWay},
    {Layer::kBatchNorm, "BatchNorm", "norm", kOwnWay},
    {Layer::kBatchNormGrad, "BatchNormGrad", "norm", kOwnWay},
};
const Facts& FactsOf(Layer layer) { return kFacts[static_cast<size_t>(layer)]; }

// cuDNN counts in int.
bool FitsInt(const LayerCall& call) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t elements = 1;
  for (const int64_t size : call.image) {
    if (size < 1 || size > kMost || elements > kMost / size) return false;
    elements *= size;
  }
  return true;
}

// cuDNN pads alike on both sides, and then has as many windows as fit. TensorFlow's padding may be
// one more behind the image, for one window more.
bool PadsAsCudnn(const Window& w) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return w.dilation == 1 && w.size <= kMost && w.stride <= kMost && w.pad_before < w.size &&
         w.in + 2 * w.pad_before >= w.size &&
         w.out == (w.in + 2 * w.pad_before - w.size) / w.stride + 1 &&
         (w.out - 1) * w.stride - w.pad_before < w.in;  // the last window has something to see
}

}  // namespace

LayerCall::Key LayerCall::key() const {
  Key key{static_cast<int64_t>(layer), dtype, nchw, aligned()};
  std::copy(image.begin(), image.end(), key.begin() + 4);
  size_t at = 8;
  for (const Window* w : {&rows, &columns}) {
    for (const int64_t value : {w->size, w->stride, w->pad_before, w->out}) key[at++] = value;
  }
  return key;
}

bool LayerCall::aligned() const {
  const auto good = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return std::all_of(in.begin(), in.end(), good) && std::all_of(out.begin(), out.end(), good);
}

std::vector<std::string_view> LibraryWays(const LayerCall& call, bool deterministic) {
  if (call.dtype != DT_FLOAT && call.dtype != DT_HALF && call.dtype != DT_BFLOAT16) return {};
  if (!FitsInt(call) || !call.aligned()) return {};
  switch (call.layer) {
    case Layer::kMaxPool:
    case Layer::kMaxPoolGrad:
    case Layer::kAvgPool:
    case Layer::kAvgPoolGrad:
      if (!PadsAsCudnn(call.rows) || !PadsAsCudnn(call.columns)) return {};
      if (call.layer == Layer::kMaxPoolGrad && !deterministic) return {"cudnn", "cudnn-atomic"};
      return {"cudnn"};
    case Layer::kSoftmax:
    case Layer::kLogSoftmax:
      return {"cudnn", "cudnn-channel"};
    case Layer::kBatchNorm:
    case Layer::kBatchNormGrad:
      // The variance of one value is 0 and nothing else: no two ways need to agree on its inverse.
      if (call.image[0] * call.image[2] * call.image[3] < 2) return {};
      // Channels first, its "persistent" way may overflow where numbers are large.
      if (call.nchw) return {"cudnn"};
      return {"cudnn", "cudnn-persistent"};
  }
  return {};
}

std::string_view UntimedWay(Layer layer) { return FactsOf(layer).untimed; }

std::string FamilyOf(Layer layer) { return FactsOf(layer).family; }

std::string ShapeText(const LayerCall& call) {
  std::string text = FactsOf(call.layer).name;
  const LayerCall::Key key = call.key();
  for (size_t i = 1; i < key.size(); ++i) text += " " + std::to_string(key[i]);
  return text;
}

}  // namespace monograph::ops
