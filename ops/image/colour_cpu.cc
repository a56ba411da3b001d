// Ops on colours: contrast, hue, saturation, and conversions, by TensorFlow's formulas.
#include <cmath>
#include <vector>

#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/image/image_cpu.h"

namespace monograph::ops::image {
namespace {

template <typename A>
struct Colour {
  A r, g, b;  // or hue, saturation and value
};

template <typename A>
Colour<A> ToHsv(const Colour<A>& c) {
  const A value = std::max(std::max(c.r, c.g), c.b), range = value - std::min({c.r, c.g, c.b});
  const A norm = A(1) / (A(6) * range);
  A hue = c.r == value   ? norm * (c.g - c.b)
          : c.g == value ? norm * (c.b - c.r) + A(2) / A(6)
                         : norm * (c.r - c.g) + A(4) / A(6);
  if (!(range > 0)) hue = 0;
  return {hue < 0 ? hue + 1 : hue, value > 0 ? range / value : A(0), value};
}

template <typename A>
Colour<A> ToRgb(const Colour<A>& hsv) {
  const A h = hsv.r * 6, s = hsv.g, v = hsv.b;
  const auto part = [&](A share) {
    return (A(1) - s + s * std::min(A(1), std::max(A(0), share))) * v;
  };
  return {part(std::abs(h - 3) - 1), part(A(2) - std::abs(h - 2)), part(A(2) - std::abs(h - 4))};
}

// The hue is turned where it stands between the largest and the smallest of the three, in sixths of
// a turn.
Colour<float> Turned(const Colour<float>& c, float delta) {
  const float most = std::max({c.r, c.g, c.b}), least = std::min({c.r, c.g, c.b});
  float hue = 0;
  if (most > least) {
    const float span = most - least;
    const auto place = [&](int sixth, float middle) {
      const float share = (middle - least) / span;
      return static_cast<float>(sixth) + (sixth % 2 == 0 ? share : 1 - share);
    };
    if (c.r < c.g) {
      hue = c.b < c.r ? place(1, c.r) : c.b > c.g ? place(3, c.g) : place(2, c.b);
    } else {
      hue = c.b < c.g ? place(0, c.g) : c.b > c.r ? place(4, c.r) : place(5, c.b);
    }
  }
  hue = std::fmod(hue + delta * 6, 6.0f);
  if (hue < 0) hue += 6;
  if (std::isnan(hue)) return {hue, hue, hue};
  const int sixth = std::min(static_cast<int>(hue), 6) % 6;  // 6: just below 0, rounded
  const float share = hue - std::floor(hue);
  const float middle = least + (sixth % 2 == 0 ? share : 1 - share) * (most - least);
  switch (sixth) {
    case 0:
      return {most, middle, least};
    case 1:
      return {middle, most, least};
    case 2:
      return {least, most, middle};
    case 3:
      return {least, middle, most};
    case 4:
      return {middle, least, most};
    default:
      return {most, least, middle};
  }
}

Colour<float> Saturated(const Colour<float>& c, float scale) {
  Colour<float> hsv = ToHsv(c);
  hsv.g = std::min(1.0f, std::max(0.0f, hsv.g * scale));
  return ToRgb(hsv);
}

Status CheckColours(const Shape& shape, int least_rank) {
  if (shape.rank() < least_rank) {
    return InvalidArgument("input must be at least " + std::to_string(least_rank) +
                           "-D, got shape " + shape.ToString());
  }
  if (shape[shape.rank() - 1] != 3) {
    return InvalidArgument("input must have 3 channels but instead has " +
                           std::to_string(shape[shape.rank() - 1]) + " channels.");
  }
  return Status();
}

// fn(colour) for each colour of input 0.
template <typename T, typename Fn>
Status ForColours(KernelContext& c, const Fn& fn) {
  using A = Accumulator<T>;
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
  const T* const from = c.input(0).data<T>();
  T* const to = out->data<T>();
  c.ParallelFor(out->elements() / 3, 20, [=, &fn](int64_t begin, int64_t end) {
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
      const Colour<A> made = fn(Colour<A>{static_cast<A>(from[i]), static_cast<A>(from[i + 1]),
                                          static_cast<A>(from[i + 2])});
      to[i] = T(made.r), to[i + 1] = T(made.g), to[i + 2] = T(made.b);
    }
  });
  return Status();
}

template <typename T, bool kBack>
class ConvertColoursKernel : public Kernel {
 public:
  explicit ConvertColoursKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(CheckColours(c.input(0).shape(), 1));
    using A = Accumulator<T>;
    return ForColours<T>(
        c, [](const Colour<A>& colour) { return kBack ? ToRgb(colour) : ToHsv(colour); });
  }
};

Result<float> ScalarOf(const Tensor& tensor, const char* name) {
  if (tensor.shape().rank() != 0) {
    return InvalidArgument(std::string(name) + " must be scalar: " + tensor.shape().ToString());
  }
  return tensor.scalar<float>();
}

template <typename T, bool kHue>
class AdjustColoursKernel : public Kernel {
 public:
  explicit AdjustColoursKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(CheckColours(c.input(0).shape(), 3));
    MG_ASSIGN_OR_RETURN(const float by, ScalarOf(c.input(1), kHue ? "delta" : "scale"));
    return ForColours<T>(c, [by](const Colour<float>& colour) {
      return kHue ? Turned(colour, by) : Saturated(colour, by);
    });
  }
};

template <typename T>
class ContrastKernel : public Kernel {
 public:
  explicit ContrastKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    const int rank = shape.rank();
    if (rank < 3) {
      return InvalidArgument("input must be at least 3-D, got shape " + shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(const float factor, ScalarOf(c.input(1), "contrast_factor"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const int64_t channels = shape[rank - 1], pixels = shape[rank - 3] * shape[rank - 2];
    const int64_t batch = shape.elements() / channels / pixels;
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{batch, channels}));
    const T* const from = c.input(0).data<T>();
    T* const to = out->data<T>();
    double* const sum = sums.data<double>();
    const auto add_up = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      for (int64_t n = begin; n < end; ++n) {
        double* const image = sum + n * channels;
        for (int64_t p = 0; p < pixels && looks.GoOn(1 + channels); ++p) {
          const T* const pixel = from + (n * pixels + p) * channels;
          InPieces(c, channels, [=](int64_t first, int64_t last) {
            for (int64_t k = first; k < last; ++k)
              image[k] = (p == 0 ? 0 : image[k]) + static_cast<double>(Widen(pixel[k]));
          });
        }
      }
    };
    c.ParallelFor(batch, 1 + pixels * channels, std::ref(add_up));
    const Shape images{batch, 1, pixels, channels};
    ForPixels(c, images, 2, [=](const PixelPart& p) {
      const double* const image = sum + p.n * channels;
      for (int64_t k = p.begin, at = p.at; k < p.end; ++k, ++at) {
        const auto mean = static_cast<float>(image[k] / static_cast<double>(pixels));
        to[at] = T((Widen(from[at]) - mean) * factor + mean);
      }
    });
    return Status();
  }
};

}  // namespace

void RegisterColours(KernelRegistry* registry) {
#define MG_ADD(T)                                         \
  registry->Add<ConvertColoursKernel<T, false>>(          \
      {.op = "RGBToHSV", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<ConvertColoursKernel<T, true>>({.op = "HSVToRGB", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
#define MG_ADD(T)                                                                                  \
  registry->Add<AdjustColoursKernel<T, true>>({.op = "AdjustHue", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<AdjustColoursKernel<T, false>>(                                                    \
      {.op = "AdjustSaturation", .types = {{"T", kDTypeOf<T>}}});                                  \
  registry->Add<ContrastKernel<T>>({.op = "AdjustContrastv2", .types = {{"T", kDTypeOf<T>}}});
  MG_ADD(float)
  MG_ADD(half)
#undef MG_ADD
}

}  // namespace monograph::ops::image
