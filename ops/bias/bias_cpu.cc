#include <algorithm>
#include <functional>
#include <vector>

#include "executor/kernel.h"
#include "ops/channels.h"
#include "ops/cpu/float_view_cpu.h"

namespace monograph::ops::bias {
namespace {

template <typename T>
class BiasAddKernel : public Kernel {
 public:
  explicit BiasAddKernel(const KernelConstruction& k)
      : nchw_(k.attrs().GetOr<std::string>("data_format", "NHWC") == "NCHW") {}

  Status Compute(KernelContext& c) override {
    const Tensor& bias = c.input(1);
    MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(c.input(0).shape(), nchw_));
    MG_RETURN_IF_ERROR(CheckBias(bias.shape(), l, c.input(0).shape()));
    const T* x = c.input(0).data<T>();
    const T* b = bias.data<T>();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    if (out->elements() == 0) return Status();  // of any number of rows
    T* y = out->data<T>();
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (l.inner == 1) {
          const T* from = x + i * l.channels;
          T* to = y + i * l.channels;
          for (int64_t k = 0; k < l.channels; ++k) to[k] = T(from[k] + b[k]);
          continue;
        }
        for (int64_t k = 0; k < l.channels; ++k) {
          const T* from = x + (i * l.channels + k) * l.inner;
          T* to = y + (i * l.channels + k) * l.inner;
          const T add = b[k];
          for (int64_t j = 0; j < l.inner; ++j) to[j] = T(from[j] + add);
        }
      }
    };
    c.ParallelFor(l.outer, 1 + l.channels * l.inner / 4, std::ref(body));
    return Status();
  }

 private:
  const bool nchw_;
};

// Sums in blocks of rows that the shape alone fixes, then the blocks in order: the same bits on any
// number of threads.
template <typename T>
class BiasAddGradKernel : public Kernel {
 public:
  explicit BiasAddGradKernel(const KernelConstruction& k)
      : nchw_(k.attr<std::string>("data_format") == "NCHW") {}

  Status Compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(in.shape(), nchw_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{l.channels}));
    if (in.elements() == 0) {  // of any number of rows
      std::fill_n(out->data<T>(), l.channels, T(0));
      return Status();
    }
    using A = Accumulator<T>;
    const int64_t rows_per_block =
        std::clamp<int64_t>(l.outer / 64, 1, 1 << 20) + (l.inner == 1 ? 255 : 0);
    const int64_t blocks = std::max<int64_t>(1, (l.outer + rows_per_block - 1) / rows_per_block);
    MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(kDTypeOf<A>, Shape{blocks, l.channels}));
    const T* x = in.data<T>();
    A* sums = partial.template data<A>();
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        A* sum = sums + block * l.channels;
        std::fill_n(sum, l.channels, A(0));
        const int64_t first = block * rows_per_block,
                      last = std::min(l.outer, first + rows_per_block);
        if (l.inner == 1) {
          SumRows(x, l.channels, first, last, sum);
        } else {
          for (int64_t i = first; i < last; ++i) {
            for (int64_t k = 0; k < l.channels; ++k) {
              const T* from = x + (i * l.channels + k) * l.inner;
              A total = 0;
              for (int64_t j = 0; j < l.inner; ++j) total += static_cast<A>(from[j]);
              sum[k] += total;
            }
          }
        }
      }
    };
    c.ParallelFor(blocks, 1 + rows_per_block * l.channels * l.inner / 8, std::ref(body));
    T* y = out->data<T>();
    for (int64_t block = 1; block < blocks; ++block) {
      for (int64_t k = 0; k < l.channels; ++k) sums[k] += sums[block * l.channels + k];
    }
    for (int64_t k = 0; k < l.channels; ++k) y[k] = T(sums[k]);
    return Status();
  }

 private:
  template <typename A>
  static void SumRows(const T* x, int64_t n, int64_t first, int64_t last, A* __restrict sum) {
    int64_t i = first;
    for (; i + 4 <= last; i += 4) {
      const T *r0 = x + i * n, *r1 = r0 + n, *r2 = r1 + n, *r3 = r2 + n;
      for (int64_t k = 0; k < n; ++k) {
        sum[k] += (static_cast<A>(r0[k]) + static_cast<A>(r1[k])) +
                  (static_cast<A>(r2[k]) + static_cast<A>(r3[k]));
      }
    }
    for (; i < last; ++i) {
      for (int64_t k = 0; k < n; ++k) sum[k] += static_cast<A>(x[i * n + k]);
    }
  }

  const bool nchw_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                  \
  for (const char* op : {"BiasAdd", "BiasAddV1"})                               \
    registry->Add<BiasAddKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<BiasAddGradKernel<T>>({.op = "BiasAddGrad", .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::bias
