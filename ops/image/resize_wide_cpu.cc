// Resizes of which a pixel comes from many: ResizeBicubic, of four by four, and ResizeArea, of all
// that it covers. The weights are computed in floats, those of the cubics from a table of 1024
// steps, as TensorFlow does.
#include <array>

#include "ops/cpu/element_types_cpu.h"
#include "ops/image/resize_cpu.h"

namespace monograph::ops::image {
namespace {

// Four pixels of a line and their weights.
struct Taps {
  std::array<int64_t, 4> at;
  std::array<float, 4> weight;
};

// The convolution kernel of Keys (1981) with parameter a, at the distances i / kSteps and 1 + i /
// kSteps.
class CubicTable {
 public:
  static constexpr int64_t kSteps = 1 << 10;

  explicit CubicTable(double a) {
    for (size_t i = 0; i <= kSteps; ++i) {
      auto x = static_cast<double>(static_cast<float>(static_cast<double>(i) / kSteps));
      near_[i] = static_cast<float>(((a + 2) * x - (a + 3)) * x * x + 1);
      x = static_cast<double>(static_cast<float>(x + 1));
      far_[i] = static_cast<float>(((a * x - 5 * a) * x + 8 * a) * x - 4 * a);
    }
  }

  // For a place between the second and the third of four pixels, in steps behind the second.
  std::array<float, 4> Weights(int64_t step) const {
    const auto i = static_cast<size_t>(std::clamp<int64_t>(step, 0, kSteps)), left = kSteps - i;
    return {far_[i], near_[i], near_[left], far_[left]};
  }

 private:
  std::array<float, kSteps + 1> near_, far_;
};

// With half_pixel_centers, pixels outside of the image count for nothing; else those of the border
// stand for them.
Taps CubicTaps(const Line& line, int64_t i) {
  static const CubicTable keys(-0.5), other(-0.75);
  const bool half = line.centers.half_pixel;
  const float place = line.Place(i), floor = std::floor(place);
  const auto before = static_cast<int64_t>(floor);
  Taps taps;
  taps.weight =
      (half ? keys : other).Weights(std::lrint((place - floor) * float{CubicTable::kSteps}));
  float sum = 0;
  for (size_t k = 0; k < 4; ++k) {
    const int64_t at = before - 1 + static_cast<int64_t>(k);
    taps.at[k] = std::clamp<int64_t>(at, 0, line.in - 1);
    if (half && taps.at[k] != at) taps.weight[k] = 0;
    sum += taps.weight[k];
  }
  if (half && std::abs(sum) >= 1000.0f * std::numeric_limits<float>::min()) {
    for (float& weight : taps.weight) weight *= 1.0f / sum;
  }
  return taps;
}

template <typename T>
Status Bicubic(KernelContext& c, const Centers& centers) {
  const Shape& in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(Tensor * out, Resized(c));
  const Line rows(in[1], out->shape()[1], centers), columns(in[2], out->shape()[2], centers);
  const T* const images = c.input(0).data<T>();
  float* const to = out->data<float>();
  const int64_t channels = in[3];
  ForPixels(c, out->shape(), 25, [=](const PixelPart& p) {
    const Taps y = CubicTaps(rows, p.y), x = CubicTaps(columns, p.x);
    const T* row[4];
    for (size_t i = 0; i < 4; ++i)
      row[i] = images + (p.n * rows.in + y.at[i]) * columns.in * channels;
    for (int64_t k = p.begin; k < p.end; ++k) {
      float column[4];
      for (size_t i = 0; i < 4; ++i) {
        const int64_t at = x.at[i] * channels + k;
        column[i] = static_cast<float>(row[0][at]) * y.weight[0] +
                    static_cast<float>(row[1][at]) * y.weight[1] +
                    static_cast<float>(row[2][at]) * y.weight[2] +
                    static_cast<float>(row[3][at]) * y.weight[3];
      }
      to[p.at + k - p.begin] = column[0] * x.weight[0] + column[1] * x.weight[1] +
                               column[2] * x.weight[2] + column[3] * x.weight[3];
    }
  });
  return Status();
}

template <typename T>
Status BicubicGrad(KernelContext& c, const Centers& centers) {
  MG_ASSIGN_OR_RETURN(Tensor * out, ResizedFrom(c));
  const Shape &grads = c.input(0).shape(), &images = out->shape();
  MG_RETURN_IF_ERROR((ZeroSums<T, T>(c, *out)).status());
  const Line rows(images[1], grads[1], centers), columns(images[2], grads[2], centers);
  const float* const from = c.input(0).data<float>();
  T* const to = out->data<T>();
  const int64_t channels = images[3];
  ForImages(c, images[0], rows, columns, channels,
            [&](int64_t n, int64_t y, int64_t x, int64_t at) {
              const Taps v = CubicTaps(rows, y), h = CubicTaps(columns, x);
              for (size_t tap = 0; tap < 16; ++tap) {
                const int64_t row = n * rows.in + v.at[tap / 4];
                T* const pixel = to + (row * columns.in + h.at[tap % 4]) * channels;
                const float by_row = v.weight[tap / 4], by_column = h.weight[tap % 4];
                InPieces(c, channels, [&](int64_t begin, int64_t end) {
                  for (int64_t k = begin; k < end; ++k)
                    pixel[k] += static_cast<T>(from[at + k]) * by_row * by_column;
                });
              }
            });
  return Status();
}

// What a pixel of the result covers in one dimension.
struct Cover {
  int64_t begin, end;  // may lie outside of the image by a pixel
  float from, to, scale;

  Cover(const Line& line, int64_t i)
      : from(static_cast<float>(i) * line.scale),
        to(static_cast<float>(i + 1) * line.scale),
        scale(line.scale) {
    begin = static_cast<int64_t>(std::floor(from)), end = static_cast<int64_t>(std::ceil(to));
  }

  // How much of pixel `at`.
  float Share(int64_t at) const {
    const auto first = static_cast<float>(at), last = static_cast<float>(at + 1);
    if (first < from) return last > to ? scale : last - from;
    return last > to ? to - first : 1.0f;
  }
};

template <typename T>
Status Area(KernelContext& c, const Centers& centers) {
  const Shape& in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(Tensor * out, Resized(c));
  const Line rows(in[1], out->shape()[1], centers), columns(in[2], out->shape()[2], centers);
  const T* const images = c.input(0).data<T>();
  float* const to = out->data<float>();
  const int64_t channels = in[3];
  const auto scale = static_cast<float>(1.0 / static_cast<double>(rows.scale * columns.scale));
  const double covered =
      (static_cast<double>(rows.scale) + 1) * (static_cast<double>(columns.scale) + 1);
  const auto cost = static_cast<int64_t>(std::min(3 * covered, 1e12));
  ForPixels(c, out->shape(), cost, [=, &c](const PixelPart& p) {
    constexpr int64_t kAtOnce = 1024;  // pixels between two looks
    const Cover y(rows, p.y), x(columns, p.x);
    Looks looks(c);
    for (int64_t k = p.begin; k < p.end; ++k) {
      float sum = 0;
      for (int64_t v = y.begin; v < y.end; ++v) {
        const int64_t row = p.n * rows.in + std::clamp<int64_t>(v, 0, rows.in - 1);
        const T* const pixels = images + row * columns.in * channels + k;
        float of_row = 0;
        for (int64_t begin = x.begin; begin < x.end; begin += kAtOnce) {
          const int64_t end = std::min(x.end, begin + kAtOnce);
          if (!looks.GoOn(3 * (end - begin))) return;
          for (int64_t h = begin; h < end; ++h) {
            const int64_t at = std::clamp<int64_t>(h, 0, columns.in - 1) * channels;
            of_row += static_cast<float>(pixels[at]) * x.Share(h);
          }
        }
        sum += of_row * y.Share(v);
      }
      to[p.at + k - p.begin] = sum * scale;
    }
  });
  return Status();
}

}  // namespace

void RegisterWideResizes(KernelRegistry* registry) {
#define MG_ADD(T, name, function) \
  registry->Add<ResizeKernel<&function<T>>>({.op = name, .types = {{"T", kDTypeOf<T>}}});
#define MG_ADD_RESIZES(T)             \
  MG_ADD(T, "ResizeBicubic", Bicubic) \
  MG_ADD(T, "ResizeArea", Area)
  MG_NUMBER_TYPES(MG_ADD_RESIZES)
  MG_ADD_RESIZES(uint8_t)
  MG_ADD_RESIZES(int8_t)
  MG_ADD_RESIZES(int16_t)
  MG_ADD_RESIZES(uint16_t)
  MG_ADD(float, "ResizeBicubicGrad", BicubicGrad)
  MG_ADD(double, "ResizeBicubicGrad", BicubicGrad)
#undef MG_ADD_RESIZES
#undef MG_ADD
}

}  // namespace monograph::ops::image
