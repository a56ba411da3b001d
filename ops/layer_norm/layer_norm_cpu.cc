// Layer normalisation and its gradient, row by row, in float; sums of a row over kLanes partial
// sums. With n = (x - mean) * inverse and g = gradient * scale:
//
//   dx = inverse * (g - mean(g) - n * mean(g * n))   dscale = sum of gradient * n over rows
//                                                    doffset = sum of gradient over rows
//
// The last two are sums of blocks of kBlock rows, added in order: the number of threads does not
// matter.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "executor/kernel.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/layer_norm/rows.h"

namespace monograph::ops::layer_norm {
namespace {

constexpr int64_t kLanes = 16, kBlock = 64;

// The sum of fn(k) for each k in [0, width).
template <typename Fn>
float RowSum(const KernelContext& c, int64_t width, const Fn& fn) {
  double total = 0;
  InPieces(c, width, [&](int64_t begin, int64_t end) {
    std::array<float, kLanes> sums{};
    int64_t k = begin;
    for (; k + kLanes <= end; k += kLanes)
      for (int64_t i = 0; i < kLanes; ++i) sums[static_cast<size_t>(i)] += fn(k + i);
    for (; k < end; ++k) sums[0] += fn(k);
    for (const float sum : sums) total += static_cast<double>(sum);
  });
  return static_cast<float>(total);
}
template <typename Fn>
void ForRow(const KernelContext& c, int64_t width, const Fn& fn) {
  InPieces(c, width, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) fn(k);
  });
}

template <typename T>
class LayerNormKernel : public Kernel {
 public:
  explicit LayerNormKernel(const KernelConstruction& k) : epsilon_(k.attr<float>("epsilon")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Rows r, RowsOf(c, 0, false));
    MG_ASSIGN_OR_RETURN(Tensor * y_out, c.AllocateOutput(0, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * mean_out, c.AllocateOutput(1, r.of_rows));
    MG_ASSIGN_OR_RETURN(Tensor * inverse_out, c.AllocateOutput(2, r.of_rows));
    const T* const x = c.input(0).data<T>();
    const float *const scale = c.input(1).data<float>(), *const offset = c.input(2).data<float>();
    T* const y = y_out->data<T>();
    float *const means = mean_out->data<float>(), *const inverses = inverse_out->data<float>();
    const auto count = static_cast<float>(std::max<int64_t>(r.width, 1));
    const auto rows = [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end && !c.cancelled(); ++row) {
        const T* const in = x + row * r.width;
        T* const out = y + row * r.width;
        const auto value = [&](int64_t k) { return static_cast<float>(in[k]); };
        const float mean = RowSum(c, r.width, value) / count;
        const float variance =
            RowSum(c, r.width, [&](int64_t k) { return (value(k) - mean) * (value(k) - mean); }) /
            count;
        const float inverse = 1 / std::sqrt(variance + epsilon_);
        ForRow(c, r.width,
               [&](int64_t k) { out[k] = T((value(k) - mean) * inverse * scale[k] + offset[k]); });
        means[row] = mean;
        inverses[row] = inverse;
      }
    };
    c.ParallelFor(r.rows, 10 + 2 * r.width, std::ref(rows));
    return Status();
  }

 private:
  const float epsilon_;
};

template <typename T>
class LayerNormGradKernel : public Kernel {
 public:
  explicit LayerNormGradKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Rows r, RowsOf(c, 1, true));
    MG_ASSIGN_OR_RETURN(Tensor * dx_out, c.AllocateOutput(0, c.input(1).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * dscale_out, c.AllocateOutput(1, Shape{r.width}));
    MG_ASSIGN_OR_RETURN(Tensor * doffset_out, c.AllocateOutput(2, Shape{r.width}));
    const T *const dy = c.input(0).data<T>(), *const x = c.input(1).data<T>();
    const float *const scale = c.input(2).data<float>(), *const mean = c.input(3).data<float>(),
                       *const inverse = c.input(4).data<float>();
    T* const dx = dx_out->data<T>();
    // Of each block of rows the sums for scale, then those for offset.
    const int64_t blocks = (r.rows + kBlock - 1) / kBlock;
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_FLOAT, Shape{blocks, 2, r.width}));
    float* const partial = sums.data<float>();
    const auto count = static_cast<float>(std::max<int64_t>(r.width, 1));
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        float *const of_scale = partial + block * 2 * r.width, *const of_offset =
                                                                   of_scale + r.width;
        ForRow(c, 2 * r.width, [&](int64_t k) { of_scale[k] = 0; });
        const int64_t last = std::min(r.rows, (block + 1) * kBlock);
        for (int64_t row = block * kBlock; row < last && !c.cancelled(); ++row) {
          const T *const in = x + row * r.width, *const from = dy + row * r.width;
          T* const out = dx + row * r.width;
          const float middle = mean[row], factor = inverse[row];
          const auto normal = [&](int64_t k) {
            return (static_cast<float>(in[k]) - middle) * factor;
          };
          const auto scaled = [&](int64_t k) { return static_cast<float>(from[k]) * scale[k]; };
          const float first = RowSum(c, r.width, scaled) / count;
          const float second =
              RowSum(c, r.width, [&](int64_t k) { return scaled(k) * normal(k); }) / count;
          ForRow(c, r.width, [&](int64_t k) {
            const auto gradient = static_cast<float>(from[k]);
            const float n = normal(k);
            of_scale[k] += gradient * n;
            of_offset[k] += gradient;
            out[k] = T(factor * (scaled(k) - first - n * second));
          });
        }
      }
    };
    c.ParallelFor(blocks, kBlock * (10 + 4 * r.width), std::ref(run));
    float *const dscale = dscale_out->data<float>(), *const doffset = doffset_out->data<float>();
    const auto add = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        double of_scale = 0, of_offset = 0;
        for (int64_t block = 0; block < blocks; ++block) {
          of_scale += static_cast<double>(partial[block * 2 * r.width + k]);
          of_offset += static_cast<double>(partial[(block * 2 + 1) * r.width + k]);
        }
        dscale[k] = static_cast<float>(of_scale);
        doffset[k] = static_cast<float>(of_offset);
      }
    };
    c.ParallelFor(r.width, 2 * blocks + 1, std::ref(add));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                                 \
  registry->Add<LayerNormKernel<T>>({.op = "_FusedLayerNorm", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<LayerNormGradKernel<T>>(                                                       \
      {.op = "_FusedLayerNormGrad", .types = {{"T", kDTypeOf<T>}}});
  ADD(half)
  ADD(bfloat16)
  ADD(float)
#undef ADD
}

}  // namespace monograph::ops::layer_norm
