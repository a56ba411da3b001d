// ClipByValue, Cross and ApproximateEqual: their kernels ask more of shapes than the others do.
#include <algorithm>
#include <cmath>

#include "ops/elementwise/rows.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::elementwise {
namespace {

Status CheckBound(const Tensor& bound, const Shape& shape, const char* name) {
  if (bound.shape().rank() == 0 || bound.shape() == shape) return Status();
  return InvalidArgument(std::string(name) + " has shape " + bound.shape().ToString() +
                         "; it must be a scalar or have the shape of t, " + shape.ToString());
}

template <typename T>
class ClipKernel : public Kernel {
 public:
  explicit ClipKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    MG_RETURN_IF_ERROR(CheckBound(c.input(1), shape, "clip_value_min"));
    MG_RETURN_IF_ERROR(CheckBound(c.input(2), shape, "clip_value_max"));
    const T *low = c.input(1).data<T>(), *high = c.input(2).data<T>();
    const int64_t low_step = c.input(1).shape().rank() == 0 ? 0 : 1,
                  high_step = c.input(2).shape().rank() == 0 ? 0 : 1;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    const T* t = c.input(0).data<T>();
    T* to = out->data<T>();
    c.ParallelFor(shape.elements(), 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T floor = low[i * low_step], ceiling = high[i * high_step], x = t[i];
        const T lowered = x > ceiling ? ceiling : x;
        to[i] = lowered < floor ? floor : lowered;
      }
    });
    return Status();
  }
};

template <typename T>
class CrossKernel : public Kernel {
 public:
  explicit CrossKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    if (!(shape == c.input(1).shape()) || shape.rank() == 0 || shape[shape.rank() - 1] != 3) {
      return InvalidArgument(
          "a vector product needs two tensors of one shape, the last dimension "
          "with 3 elements; got " +
          shape.ToString() + " and " + c.input(1).shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const T *a = c.input(0).data<T>(), *b = c.input(1).data<T>();
    T* to = out->data<T>();
    c.ParallelFor(shape.elements() / 3, 5, [=](int64_t begin, int64_t end) {
      for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
        to[i] = Minor(a + i, b + i, 1, 2);
        to[i + 1] = Minor(a + i, b + i, 2, 0);
        to[i + 2] = Minor(a + i, b + i, 0, 1);
      }
    });
    return Status();
  }

 private:
  static T Minor(const T* a, const T* b, int i, int j) {
    using A = Accumulator<T>;
    return T(static_cast<A>(static_cast<A>(a[i]) * static_cast<A>(b[j])) -
             static_cast<A>(static_cast<A>(a[j]) * static_cast<A>(b[i])));
  }
};

template <typename T>
class ApproximateEqualKernel : public Kernel {
 public:
  explicit ApproximateEqualKernel(const KernelConstruction& k)
      : tolerance_(static_cast<T>(k.attr<float>("tolerance"))) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    if (!(shape == c.input(1).shape())) {
      return InvalidArgument("x " + shape.ToString() + " and y " + c.input(1).shape().ToString() +
                             " must have one shape");
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const T *x = c.input(0).data<T>(), *y = c.input(1).data<T>();
    bool* to = out->data<bool>();
    c.ParallelFor(shape.elements(), 1,
                  [x, y, to, tolerance = tolerance_](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) to[i] = std::abs(x[i] - y[i]) < tolerance;
                  });
    return Status();
  }

 private:
  const T tolerance_;
};

}  // namespace

void RegisterClipAndCross(KernelRegistry* r) {
#define MG_ADD(T)                                                              \
  r->Add<ClipKernel<T>>({.op = "ClipByValue", .types = {{"T", kDTypeOf<T>}}}); \
  r->Add<CrossKernel<T>>({.op = "Cross", .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(MG_ADD)
  MG_ADD(int8_t)
  MG_ADD(int16_t)
  MG_ADD(uint8_t)
  MG_ADD(uint16_t)
  MG_ADD(uint32_t)
  MG_ADD(uint64_t)
#undef MG_ADD
  r->Add<ApproximateEqualKernel<float>>({.op = "ApproximateEqual", .types = {{"T", DT_FLOAT}}});
  r->Add<ApproximateEqualKernel<double>>({.op = "ApproximateEqual", .types = {{"T", DT_DOUBLE}}});
}

}  // namespace monograph::ops::elementwise
