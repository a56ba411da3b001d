// Convolutions as products of transforms, in AVX-512, for own_conv_cpu.cc. As ops/avx512.h: nothing
// here may be called unless Supported(). All pointers are to floats; channels are adjacent (NHWC),
// and their number is a multiple of kLanes.
#pragma once

#include "ops/avx512.h"

namespace monograph::ops::avx512 {

// ---- Winograd's minimal filtering
// ---------------------------------------------------------------------------------
//
// [Winograd 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015],
// F(m x m, r x r) with m + r = 7, so that every tile is 6 x 6:
//
//   y = A^T [ (G f G^T) * (B^T d B) ] A      d: 6x6 of the image, f: r x r filter, y: m x m outputs
//
// at the points 0, +-5/8, +-3/2 and infinity, which lose less precision than 0, +-1, +-2. What
// stands between the brackets is an element-wise product, summed over channels: 36 matrix products.
// The filter's gradient is the same with f an m x m tile of dy, and y the r x r filter.

inline constexpr int64_t kSide = 6, kPoints = kSide * kSide;

// Where images lie in memory.
struct Image {
  int64_t height, width, channels;
  int64_t floats() const { return height * width * channels; }
};

// Where a row of tiles goes: point p, tile t, channel c at [p * stride + t * channels + c].
struct Tiles {
  float* data;
  int64_t stride, count;
};

// B^T d B of a row of tiles, `step` pixels apart, the first with its corner at (top, left); what
// lies outside of the image is 0.
void Spread(const Image& shape, const float* image, int64_t top, int64_t left, int64_t step,
            const Tiles& to);
// G f G^T of adjacent size x size tiles whose first row is `top`. Size is 2 or 4.
void ExpandTiles(int size, const Image& shape, const float* image, int64_t top, const Tiles& to);
// A^T m A to adjacent size x size tiles of the image; what lies outside is dropped. Returns whether
// all numbers were finite (before the ReLU). Size is 2 or 4.
bool ContractTiles(int size, const Tiles& from, const float* bias, bool relu, const Image& shape,
                   float* image, int64_t top);

// The same of `count` filters that lie side by side: element e of filter number i at [e * count +
// i]. Size is 3 or 5.
void ExpandFilter(int size, const float* filter, int64_t count, float* points);
bool ContractFilter(int size, const float* points, int64_t count, float* filter);

// ---- Fourier's transform
// ------------------------------------------------------------------------------------------
//
// A convolution is a product of transforms: with images of up to 16 x 16, zeros around them
// included, and F their transform with that period,
//
//   F(y) = sum over channels of F(x) conj(F(f))      F(dx) = F(dy) F(f)      F(df) = F(x) conj(F(dy))
//
// where filter element (r, s) stands at (r - pad, s - pad), modulo 16: the zeros before an image
// are those behind it. The transform of real numbers has as many real numbers again: kPlanes of
// them, which are real and imaginary parts of kComplexPoints numbers, alternating, and 4 real ones.

inline constexpr int64_t kPeriod = 16, kPlanes = kPeriod * kPeriod, kComplexPoints = 126;

// c = a conj(b) or c += a conj(b), summed over `depth` terms, as in Product; imaginary parts lie so
// far behind the real ones.
struct ComplexProduct {
  int64_t rows, columns, depth;
  const float* a;
  int64_t a_imaginary, a_row, a_step;
  const float* b;
  int64_t b_imaginary, b_step;
  float* c;
  int64_t c_imaginary, c_row;
  bool accumulate = false;
};
void MultiplyByConjugate(const ComplexProduct& p);

// Plane p of channel c of an image at [p * stride + c].
void ToFourier(const Image& shape, const float* image, float* planes, int64_t stride);
// Its way back: scale * x + bias. Returns whether all numbers were finite (before the ReLU).
bool FromFourier(const float* planes, int64_t stride, float scale, const float* bias, bool relu,
                 const Image& shape, float* image);

struct Filter {
  int64_t rows, columns, before_rows, before_columns;  // and the padding before the image
};
// The same of `count` filters that lie side by side; plane p of number i at [p * count + i].
void FilterToFourier(const Filter& shape, const float* filter, bool conjugate, int64_t count,
                     float* planes);
bool FilterFromFourier(const Filter& shape, const float* planes, float scale, int64_t count,
                       float* filter);

}  // namespace monograph::ops::avx512
