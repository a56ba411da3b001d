// SampleDistortedBoundingBox: draws crops of an image until one covers enough of one of the boxes,
// and takes the whole image where none does. Given seeds, each run of a kernel draws the words that
// TensorFlow draws in the same run of its own, and computes in floats as it does; without seeds the
// stream is one of the node and the step, as those of the other random ops.
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/image/image_cpu.h"
#include "ops/random/philox_stream.h"

namespace monograph::ops::image {
namespace {

constexpr int64_t kMostSide = std::numeric_limits<int32_t>::max();  // not reached
constexpr float kFar = 0x1p31f;  // more pixels of one dimension than any image has

// Pixels [x0, x1) of the rows [y0, y1).
struct Box {
  int64_t x0 = 0, y0 = 0, x1 = 0, y1 = 0;

  float Area() const { return static_cast<float>((x1 - x0) * (y1 - y0)); }
  float AreaWith(const Box& o) const {
    const Box both{std::max(x0, o.x0), std::max(y0, o.y0), std::min(x1, o.x1), std::min(y1, o.y1)};
    return both.x0 > both.x1 || both.y0 > both.y1 ? 0 : both.Area();
  }
};

// To the nearest whole number, of two to the even one; no number is 0.
int64_t Rounded(float x) { return std::isnan(x) ? 0 : std::lrint(std::clamp(x, -kFar, kFar)); }

float UnitFloat(random::PhiloxWords* words) { return random::UnitValue<float>(words->Next(), 0); }

// In [0, n), without a skew: words that would make one are drawn again.
int64_t Below(random::PhiloxWords* words, int64_t n) {
  const auto limit = static_cast<uint32_t>(n);
  if ((limit & (limit - 1)) == 0) return words->Next() & (limit - 1);
  const uint32_t rest = std::numeric_limits<uint32_t>::max() % limit + 1;
  uint32_t drawn;
  do drawn = words->Next();
  while (drawn < rest);
  return drawn % limit;
}

struct Ranges {
  float least_area = 0, most_area = 0;  // shares of the image's
  float least_aspect = 0, most_aspect = 0;
};

// A crop of an image of `whole` whose width is `aspect` times its height; false: none was found.
bool DrawCrop(const Box& whole, const Ranges& ranges, float aspect, random::PhiloxWords* words,
              Box* crop) {
  const int64_t most_width = whole.x1, most_height = whole.y1;
  if (!(aspect > 0) || most_width <= 0 || most_height <= 0 ||
      ranges.least_area > ranges.most_area) {
    return false;
  }
  const auto image_width = static_cast<float>(most_width),
             image_height = static_cast<float>(most_height);
  const float least_area = ranges.least_area * image_width * image_height,
              most_area = ranges.most_area * image_width * image_height;
  const auto width_of = [aspect](int64_t height) {
    return Rounded(static_cast<float>(height) * aspect);
  };
  int64_t height = Rounded(std::sqrt(least_area / aspect)),
          highest = Rounded(std::sqrt(most_area / aspect));
  if (width_of(highest) > most_width) {
    const double fits =
        (static_cast<double>(most_width) + 0.5 - double{0.0000001f}) / static_cast<double>(aspect);
    highest = static_cast<int64_t>(std::min(fits, double{kFar}));
    if (width_of(highest) > most_width) --highest;
  }
  highest = std::min(highest, most_height);
  height = std::min(height, highest);
  if (height < highest) height += Below(words, highest - height + 1);
  int64_t width = width_of(height);
  const auto area = [&] { return static_cast<float>(width * height); };
  if (area() < least_area) width = width_of(++height);
  if (area() > most_area) width = width_of(--height);
  if (area() < least_area || area() > most_area || width > most_width || height > most_height ||
      width <= 0 || height <= 0) {
    return false;
  }
  const int64_t y = height < most_height ? Below(words, most_height - height) : 0,
                x = width < most_width ? Below(words, most_width - width) : 0;
  *crop = {x, y, x + width, y + height};
  return true;
}

// Boxes [y0, x0, y1, x1], in shares of the image.
struct Objects {
  std::span<const float> corners;
  Box whole;  // of the image; the one object where there are no others

  Box At(size_t i) const {
    if (corners.empty()) return whole;
    const float* const box = corners.data() + 4 * i;
    const auto pixels = [](float share, int64_t side) {
      return static_cast<int64_t>(share * static_cast<float>(side));
    };
    return {pixels(box[1], whole.x1), pixels(box[0], whole.y1), pixels(box[3], whole.x1),
            pixels(box[2], whole.y1)};
  }

  // One of them lies in `crop` by a share of at least `least`.
  bool Covered(const Box& crop, float least, Looks* looks) const {
    if (crop.Area() < 1) return false;
    const size_t count = corners.empty() ? 1 : corners.size() / 4;
    for (size_t i = 0; i < count && looks->GoOn(10); ++i) {
      const Box object = At(i);
      const float area = object.Area();
      if (area >= 1 && crop.AreaWith(object) / area >= least) return true;
    }
    return false;
  }
};

Status CheckRange(const std::vector<float>& range, const char* what) {
  if (range.size() != 2) {
    return InvalidArgument(std::string(what) + " must have two numbers, got " +
                           std::to_string(range.size()));
  }
  if (range[0] > 0 && range[1] > 0) return Status();
  return InvalidArgument(std::string(what) + " must be above 0, got [" + std::to_string(range[0]) +
                         ", " + std::to_string(range[1]) + "]");
}

Status CheckCovered(float least) {
  if (least >= 0) return Status();
  return InvalidArgument("Min object covered must be non-negative: " + std::to_string(least));
}

class RandomBoxKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    std::unique_ptr<RandomBoxKernel> kernel(new RandomBoxKernel(k));
    const auto &aspects = k.attr<std::vector<float>>("aspect_ratio_range"),
               &areas = k.attr<std::vector<float>>("area_range");
    MG_RETURN_IF_ERROR(CheckRange(aspects, "aspect_ratio_range"));
    MG_RETURN_IF_ERROR(CheckRange(areas, "area_range"));
    if (!(areas[0] <= 1 && areas[1] <= 1)) {
      return InvalidArgument("area_range must be at most 1, got [" + std::to_string(areas[0]) +
                             ", " + std::to_string(areas[1]) + "]");
    }
    kernel->ranges_ = {areas[0], areas[1], aspects[0], aspects[1]};
    if (kernel->attempts_ <= 0 || kernel->attempts_ > kMostSide) {
      return InvalidArgument("max_attempts must be above 0 and below 2^31, got " +
                             std::to_string(kernel->attempts_));
    }
    if (k.num_inputs() == 2) {
      kernel->least_covered_ = k.attr<float>("min_object_covered");
      MG_RETURN_IF_ERROR(CheckCovered(kernel->least_covered_));
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    float least = least_covered_;
    if (c.num_inputs() == 3) {
      if (c.input(2).shape().rank() != 0) {
        return InvalidArgument("min_object_covered must be 0-D, got shape " +
                               c.input(2).shape().ToString());
      }
      least = c.input(2).scalar<float>();
      MG_RETURN_IF_ERROR(CheckCovered(least));
    }
    return WithRealType(c.input(0).dtype(), [&](auto t) { return Sample<decltype(t)>(c, least); });
  }

 private:
  explicit RandomBoxKernel(const KernelConstruction& k)
      : seed_(static_cast<uint64_t>(k.attr<int64_t>("seed"))),
        seed2_(static_cast<uint64_t>(k.attr<int64_t>("seed2"))),
        of_node_(0, 0, k.node_name(), 0),
        attempts_(k.attr<int64_t>("max_attempts")),
        whole_if_none_(k.attr<bool>("use_image_if_no_bounding_boxes")) {}

  // The next run's.
  random::PhiloxWords Words(const KernelContext& c) {
    const uint64_t run = runs_.fetch_add(1), blocks = run * static_cast<uint64_t>(attempts_);
    const bool seeded = seed_ != 0 || seed2_ != 0;
    const random::PhiloxStream stream(seeded ? seed_ : of_node_.key, 0,
                                      seeded ? seed2_ : c.step_id());
    return random::PhiloxWords(stream.After(blocks));
  }

  template <typename T>
  Status Sample(KernelContext& c, float least) {
    const Tensor &size = c.input(0), &boxes = c.input(1);
    if (size.shape().rank() != 1 || size.elements() != 3) {
      return InvalidArgument("image_size must have three elements, got shape " +
                             size.shape().ToString());
    }
    const auto height = static_cast<int64_t>(size.data<T>()[0]),
               width = static_cast<int64_t>(size.data<T>()[1]);
    if (height < 0 || width < 0 || height >= kMostSide || width >= kMostSide) {
      return InvalidArgument("image height and width cannot be negative or >= int32 max, got " +
                             std::to_string(height) + " x " + std::to_string(width));
    }
    if (boxes.shape().rank() != 3 || boxes.shape()[2] != 4) {
      return InvalidArgument("bounding boxes must have shape [batch, boxes, 4], got " +
                             boxes.shape().ToString());
    }
    if (boxes.elements() == 0 && !whole_if_none_) {
      return InvalidArgument(
          "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if "
          "you wish to not provide any bounding boxes.");
    }
    const Objects objects{boxes.values<float>(), {0, 0, width, height}};
    Looks looks(c);
    for (const float corner : objects.corners) {
      if (!looks.GoOn(1)) return StepAborted();
      if (!(corner >= 0 && corner <= 1)) {
        return InvalidArgument("All bounding box coordinates must be in [0.0, 1.0]: " +
                               std::to_string(corner));
      }
    }
    random::PhiloxWords words = Words(c);
    Box crop;
    bool found = false;
    for (int64_t i = 0; i < attempts_ && !found; ++i) {
      if (!looks.GoOn(100)) return StepAborted();
      const float aspect =
          UnitFloat(&words) * (ranges_.most_aspect - ranges_.least_aspect) + ranges_.least_aspect;
      found = DrawCrop(objects.whole, ranges_, aspect, &words, &crop) &&
              objects.Covered(crop, least, &looks);
    }
    if (!found) crop = objects.whole;
    MG_ASSIGN_OR_RETURN(Tensor * begin, c.AllocateOutput(0, Shape{3}));
    MG_ASSIGN_OR_RETURN(Tensor * extent, c.AllocateOutput(1, Shape{3}));
    MG_ASSIGN_OR_RETURN(Tensor * box, c.AllocateOutput(2, Shape{1, 1, 4}));
    const int64_t begins[] = {crop.y0, crop.x0, 0},
                  extents[] = {crop.y1 - crop.y0, crop.x1 - crop.x0, -1};
    for (int i = 0; i < 3; ++i) {
      begin->data<T>()[i] = static_cast<T>(begins[i]);
      extent->data<T>()[i] = static_cast<T>(extents[i]);
    }
    const auto share = [](int64_t pixels, int64_t side) {
      return static_cast<float>(pixels) / static_cast<float>(side);
    };
    float* const corners = box->data<float>();
    corners[0] = share(crop.y0, height), corners[1] = share(crop.x0, width);
    corners[2] = share(crop.y1, height), corners[3] = share(crop.x1, width);
    return Status();
  }

  const uint64_t seed_, seed2_;
  const random::RandomStream of_node_;
  const int64_t attempts_;
  const bool whole_if_none_;
  Ranges ranges_;
  float least_covered_ = 0;
  std::atomic<uint64_t> runs_{0};
};

}  // namespace

void RegisterRandomBoxes(KernelRegistry* registry) {
  constexpr DType kSizes[] = {DT_UINT8, DT_INT8, DT_INT16, DT_INT32, DT_INT64};
  for (const char* op : {"SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"})
    AddForTypes<RandomBoxKernel>(registry, {.op = op}, "T", kSizes);
}

}  // namespace monograph::ops::image
