// What the kernels on images share.
#pragma once

#include <algorithm>
#include <functional>

#include "executor/kernel.h"
#include "ops/cpu/pieces_cpu.h"

namespace monograph::ops::image {

void RegisterResizes(KernelRegistry* registry);      // resize_cpu.cc
void RegisterWideResizes(KernelRegistry* registry);  // resize_wide_cpu.cc
void RegisterCrops(KernelRegistry* registry);        // crop_cpu.cc
void RegisterColours(KernelRegistry* registry);      // colour_cpu.cc
void RegisterBoxes(KernelRegistry* registry);        // boxes_cpu.cc
void RegisterRandomBoxes(KernelRegistry* registry);  // random_box_cpu.cc

// The channels [begin, end) of the pixel at (n, y, x); element `at` of the tensor is the first.
struct PixelPart {
  int64_t n = 0, y = 0, x = 0, begin = 0, end = 0, at = 0;
};

// Calls fn(part) for all pixels of images of `shape`, [n, height, width, channels], on all threads;
// a pixel of very many channels comes in parts. cost_ns: of one element.
template <typename Fn>
void ForPixels(KernelContext& c, const Shape& shape, int64_t cost_ns, const Fn& fn) {
  const auto body = [&shape, &fn](int64_t begin, int64_t end) {
    const int64_t height = shape[1], width = shape[2], channels = shape[3];
    const int64_t pixel = begin / channels, row = pixel / width;
    PixelPart part{.n = row / height, .y = row % height, .x = pixel % width};
    part.begin = begin % channels;
    for (part.at = begin; part.at < end; part.at += part.end - part.begin, part.begin = 0) {
      if (part.at > begin && part.begin == 0 && ++part.x == width) {
        part.x = 0;
        if (++part.y == height) part.y = 0, ++part.n;
      }
      part.end = std::min(channels, part.begin + end - part.at);
      fn(part);
    }
  };
  if (shape.elements() > 0) c.ParallelFor(shape.elements(), cost_ns, std::ref(body));
}

// Zeros to which a kernel adds what becomes `to`: `to` itself, unless sums of its type are kept in
// another.
template <typename T, typename Sum>
Result<Tensor> ZeroSums(KernelContext& c, const Tensor& to) {
  Tensor sums = to;
  if constexpr (!std::is_same_v<T, Sum>) {
    MG_ASSIGN_OR_RETURN(sums, c.AllocateTemp(kDTypeOf<Sum>, to.shape()));
  }
  Sum* const sum = sums.data<Sum>();
  InPieces(c, sums.elements(),
           [=](int64_t begin, int64_t end) { std::fill(sum + begin, sum + end, Sum(0)); });
  return sums;
}
template <typename T, typename Sum>
void StoreSums(const KernelContext& c, const Tensor& sums, Tensor* to) {
  if constexpr (!std::is_same_v<T, Sum>) {
    const Sum* from = sums.data<Sum>();
    T* const values = to->data<T>();
    InPieces(c, sums.elements(), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = T(from[i]);
    });
  }
}

}  // namespace monograph::ops::image
