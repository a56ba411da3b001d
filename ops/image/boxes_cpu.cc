// DrawBoundingBoxes, and NonMaxSuppression in its five forms. The latter takes boxes by falling
// scores from a heap, and compares each once with every box that was selected before; only the
// fifth form lowers the score of a box, which then goes back into the heap. Boxes may stand at any
// numbers, and at none.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/image/image_cpu.h"

namespace monograph::ops::image {
namespace {

// yellow, blue, red, lime, purple, olive, maroon, navy blue, aqua, fuchsia
constexpr float kColours[][4] = {
    {1, 1, 0, 1},       {0, 0, 1, 1},    {1, 0, 0, 1},    {0, 1, 0, 1}, {0.5f, 0, 0.5f, 1},
    {0.5f, 0.5f, 0, 1}, {0.5f, 0, 0, 1}, {0, 0, 0.5f, 1}, {0, 1, 1, 1}, {1, 0, 1, 1}};

// Towards zero; what no int64 holds is the least one, as of x86's conversions.
int64_t Truncated(float x) {
  return x >= -0x1p63f && x < 0x1p63f ? static_cast<int64_t>(x)
                                      : std::numeric_limits<int64_t>::min();
}

// The pixels of a box's side, some of which may lie outside of the image.
struct Span {
  int64_t begin, last, size;

  Span(float from, float to, int64_t pixels)
      : begin(Truncated(from * static_cast<float>(pixels - 1))),
        last(Truncated(to * static_cast<float>(pixels - 1))),
        size(pixels) {}
  bool visible() const { return begin <= last && begin < size && last >= 0; }
  int64_t first_visible() const { return std::max<int64_t>(begin, 0); }
  int64_t last_visible() const { return std::min(last, size - 1); }
};

// One image, drawn into.
template <typename T>
struct Canvas {
  T* pixels;
  int64_t height, width, depth;

  // `count` pixels from (y, x) on, each `step` pixels behind the one before.
  void Line(int64_t y, int64_t x, int64_t step, int64_t count, const T* colour,
            Looks* looks) const {
    T* pixel = pixels + (y * width + x) * depth;
    for (int64_t i = 0; i < count && looks->GoOn(2); ++i) {
      std::copy(colour, colour + depth, pixel + i * step * depth);
    }
  }
  void Draw(const float* box, const T* colour, Looks* looks) const {
    const Span rows(box[0], box[2], height), columns(box[1], box[3], width);
    if (!rows.visible() || !columns.visible()) return;
    const int64_t top = rows.first_visible(), left = columns.first_visible();
    const int64_t high = rows.last_visible() - top + 1, wide = columns.last_visible() - left + 1;
    if (rows.begin >= 0) Line(rows.begin, left, 1, wide, colour, looks);
    if (rows.last < height) Line(rows.last, left, 1, wide, colour, looks);
    if (columns.begin >= 0) Line(top, columns.begin, width, high, colour, looks);
    if (columns.last < width) Line(top, columns.last, width, high, colour, looks);
  }
};

template <typename T>
class DrawBoxesKernel : public Kernel {
 public:
  explicit DrawBoxesKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Shape &images = c.input(0).shape(), &boxes = c.input(1).shape();
    if (images.rank() != 4) {
      return InvalidArgument("The rank of the images should be 4, got shape " + images.ToString());
    }
    if (boxes.rank() != 3 || boxes[2] != 4 || boxes[0] != images[0]) {
      return InvalidArgument("boxes must have shape [" + std::to_string(images[0]) +
                             ", any, 4], got " + boxes.ToString());
    }
    const int64_t depth = images[3];
    if (depth != 1 && depth != 3 && depth != 4) {
      return InvalidArgument("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA), got " +
                             std::to_string(depth));
    }
    // Of `stride` numbers each, of which the first `depth` count.
    const float* colours = kColours[0];
    int64_t count = std::size(kColours), stride = 4;
    if (c.num_inputs() == 3) {
      const Shape& given = c.input(2).shape();
      if (given.rank() != 2 || given[1] < depth) {
        return InvalidArgument("colors must be a matrix of " + std::to_string(depth) +
                               " columns or more, got shape " + given.ToString());
      }
      if (given.elements() > 0)
        colours = c.input(2).data<float>(), count = given[0], stride = given[1];
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, images));
    const T* const from = c.input(0).data<T>();
    T* const to = out->data<T>();
    const int64_t height = images[1], width = images[2], pixels = height * width;
    const bool grey = depth == 1 && stride == 4 && colours == kColours[0];
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      for (int64_t n = begin; n < end; ++n) {
        const int64_t at = n * pixels * depth;
        const auto copy = [&](int64_t first, int64_t last) {
          std::copy(from + at + first, from + at + last, to + at + first);
        };
        if (from != to && !InPieces(c, pixels * depth, copy)) return;
        const Canvas<T> canvas{to + at, height, width, depth};
        for (int64_t i = 0; i < boxes[1] && looks.GoOn(20); ++i) {
          T colour[4];
          for (int64_t k = 0; k < depth; ++k)
            colour[k] = grey ? T(1.0f) : T(colours[i % count * stride + k]);
          canvas.Draw(c.input(1).data<float>() + 4 * (n * boxes[1] + i), colour, &looks);
        }
      }
    };
    if (images.elements() > 0) c.ParallelFor(images[0], pixels + 50 * boxes[1], std::ref(body));
    return Status();
  }
};

// The corners of a box in any order, in order.
struct Corners {
  float y0, x0, y1, x1;

  template <typename T>
  static Corners Of(const T* box) {
    const auto number = [box](int i) { return static_cast<float>(box[i]); };
    return {Least(number(0), number(2)), Least(number(1), number(3)), Most(number(0), number(2)),
            Most(number(1), number(3))};
  }
  float Area() const { return (y1 - y0) * (x1 - x0); }
  // How much of what the two cover both cover.
  float Overlap(const Corners& o) const {
    const float area = Area(), other = o.Area();
    if (area <= 0 || other <= 0) return 0;
    const float both =
        Most(Least(y1, o.y1) - Most(y0, o.y0), 0) * Most(Least(x1, o.x1) - Most(x0, o.x0), 0);
    return both / (area + other - both);
  }

 private:
  // Of which the first is taken where one is no number.
  static float Least(float a, float b) { return b < a ? b : a; }
  static float Most(float a, float b) { return a < b ? b : a; }
};

// A box that was not looked at yet, or whose score was lowered since.
template <typename T>
struct Candidate {
  int32_t box, compared;  // with so many of the selected ones
  T score;

  bool operator<(const Candidate& o) const {
    return score < o.score || (score == o.score && box > o.box);
  }
};

template <typename T>
struct Limits {
  int64_t most = 0;  // boxes to select
  T overlap{0.0f},
      score{std::is_same_v<T, half> ? -65504.0f : std::numeric_limits<float>::lowest()},
      sigma{0.0f};
};

template <typename T>
struct Selection {
  std::vector<int32_t> boxes;
  std::vector<T> scores;
};

// The arithmetic is of type T, each operation rounded.
template <typename T>
Selection<T> Select(const KernelContext& c, const T* boxes, std::span<const T> scores,
                    const Limits<T>& limits) {
  const auto wide = [](T x) { return static_cast<Accumulator<T>>(x); };
  const bool soft = wide(limits.sigma) > 0;
  const T scale = soft ? T(-0.5f / wide(limits.sigma)) : T(0.0f);
  std::vector<Candidate<T>> heap;
  Selection<T> selected;
  Looks looks(c);
  for (size_t i = 0; i < scores.size() && looks.GoOn(5); ++i) {
    if (wide(scores[i]) > wide(limits.score))
      heap.push_back({static_cast<int32_t>(i), 0, scores[i]});
  }
  InPieces(c, static_cast<int64_t>(heap.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::push_heap(heap.begin(), heap.begin() + i + 1);
  });
  while (static_cast<int64_t>(selected.boxes.size()) < limits.most && !heap.empty() &&
         looks.GoOn(100)) {
    std::pop_heap(heap.begin(), heap.end());
    Candidate<T> next = heap.back();
    heap.pop_back();
    const T before = next.score;
    const Corners corners = Corners::Of(boxes + 4 * int64_t{next.box});
    bool dropped = false;
    for (size_t k = selected.boxes.size(); k-- > static_cast<size_t>(next.compared);) {
      if (!looks.GoOn(10)) return selected;
      const T overlap(corners.Overlap(Corners::Of(boxes + 4 * int64_t{selected.boxes[k]})));
      dropped = !soft && wide(overlap) > wide(limits.overlap);
      if (dropped) break;
      const T power = T(wide(T(wide(scale) * wide(overlap))) * wide(overlap));
      const T weight =
          soft || wide(overlap) <= wide(limits.overlap) ? T(std::exp(wide(power))) : T(0.0f);
      next.score = T(wide(next.score) * wide(weight));
      if (wide(next.score) <= wide(limits.score)) break;
    }
    next.compared = static_cast<int32_t>(selected.boxes.size());
    if (dropped) continue;
    if (wide(next.score) == wide(before)) {
      selected.boxes.push_back(next.box);
      selected.scores.push_back(next.score);
    } else if (wide(next.score) > wide(limits.score)) {
      heap.push_back(next);
      std::push_heap(heap.begin(), heap.end());
    }
  }
  return selected;
}

// Number `i` of the inputs, a scalar of either type of floats.
template <typename T>
Result<T> FloatOf(const KernelContext& c, int i, const char* what) {
  const Tensor& tensor = c.input(i);
  if (tensor.shape().rank() != 0) {
    return InvalidArgument(std::string(what) + " must be 0-D, got shape " +
                           tensor.shape().ToString());
  }
  return tensor.dtype() == DT_HALF ? T(static_cast<float>(tensor.scalar<half>()))
                                   : T(tensor.scalar<float>());
}

template <typename T>
class SuppressKernel : public Kernel {
 public:
  explicit SuppressKernel(const KernelConstruction& k)
      : overlap_(k.attrs().Find("iou_threshold") != nullptr ? k.attr<float>("iou_threshold") : 0),
        pad_(k.attrs().Find("pad_to_max_output_size") != nullptr &&
             k.attr<bool>("pad_to_max_output_size")) {}

  Status Compute(KernelContext& c) override {
    const Shape &boxes = c.input(0).shape(), &scores = c.input(1).shape();
    MG_ASSIGN_OR_RETURN(const Limits<T> limits, LimitsOf(c));
    if (boxes.rank() != 2 || boxes[1] != 4) {
      return InvalidArgument("boxes must be 2-D with 4 columns, got shape " + boxes.ToString());
    }
    if (boxes[0] > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("there must be fewer than 2^31 boxes, got " +
                             std::to_string(boxes[0]));
    }
    if (scores.rank() != 1 || scores[0] != boxes[0]) {
      return InvalidArgument("scores must be 1-D with one for each of " + std::to_string(boxes[0]) +
                             " boxes, got shape " + scores.ToString());
    }
    const Selection<T> selected = Select(c, c.input(0).data<T>(), c.input(1).values<T>(), limits);
    const auto count = static_cast<int64_t>(selected.boxes.size());
    const Shape shape{pad_ ? limits.most : count};
    MG_RETURN_IF_ERROR(Store(c, 0, shape, selected.boxes));
    if (c.num_outputs() == 3) MG_RETURN_IF_ERROR(Store(c, 1, shape, selected.scores));
    if (c.num_outputs() > 1) {
      MG_ASSIGN_OR_RETURN(Tensor * valid, c.AllocateOutput(c.num_outputs() - 1, Shape()));
      *valid->data<int32_t>() = static_cast<int32_t>(count);
    }
    return Status();
  }

 private:
  Result<Limits<T>> LimitsOf(const KernelContext& c) const {
    if (c.input(2).shape().rank() != 0) {
      return InvalidArgument("max_output_size must be 0-D, got shape " +
                             c.input(2).shape().ToString());
    }
    Limits<T> limits{.most = c.input(2).scalar<int32_t>(), .overlap = T(overlap_)};
    if (c.num_inputs() > 3) {
      MG_ASSIGN_OR_RETURN(limits.overlap, FloatOf<T>(c, 3, "iou_threshold"));
    }
    if (c.num_inputs() > 4) {
      MG_ASSIGN_OR_RETURN(limits.score, FloatOf<T>(c, 4, "score_threshold"));
    }
    if (c.num_inputs() > 5) {
      MG_ASSIGN_OR_RETURN(limits.sigma, FloatOf<T>(c, 5, "soft_nms_sigma"));
    }
    if (!(static_cast<float>(limits.overlap) >= 0 && static_cast<float>(limits.overlap) <= 1)) {
      return InvalidArgument("iou_threshold must be in [0, 1], got " +
                             std::to_string(static_cast<float>(limits.overlap)));
    }
    if (!(static_cast<float>(limits.sigma) >= 0)) {
      return InvalidArgument("soft_nms_sigma must be >= 0, got " +
                             std::to_string(static_cast<float>(limits.sigma)));
    }
    if (limits.most < 0) {
      return InvalidArgument("output size must be non-negative, got " +
                             std::to_string(limits.most));
    }
    return limits;
  }

  // With zeros behind the values.
  template <typename V>
  static Status Store(KernelContext& c, int output, const Shape& shape,
                      const std::vector<V>& values) {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(output, shape));
    V* const to = out->data<V>();
    const auto count = static_cast<int64_t>(values.size());
    std::copy(values.begin(), values.end(), to);
    InPieces(c, shape.elements() - count, [=](int64_t begin, int64_t end) {
      std::fill(to + count + begin, to + count + end, V(0));
    });
    return Status();
  }

  const float overlap_;
  const bool pad_;
};

}  // namespace

void RegisterBoxes(KernelRegistry* registry) {
#define MG_ADD(T)                                                                             \
  for (const char* op : {"DrawBoundingBoxes", "DrawBoundingBoxesV2"})                         \
    registry->Add<DrawBoxesKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}}});             \
  for (const char* op : {"NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", \
                         "NonMaxSuppressionV5"})                                              \
    registry->Add<SuppressKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}}});
  MG_ADD(float)
  MG_ADD(half)
#undef MG_ADD
  registry->Add<SuppressKernel<float>>({.op = "NonMaxSuppression"});
}

}  // namespace monograph::ops::image
