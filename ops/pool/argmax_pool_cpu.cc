// MaxPoolWithArgmax and its gradients. A place is (y * width + x) * channels + channel of the
// image, and with include_batch_in_index of the whole batch.
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::pool {

void RegisterArgmax(KernelRegistry* registry);

namespace {

// The places of a tensor, int32 or int64.
class Places {
 public:
  explicit Places(const Tensor& tensor)
      : narrow_(tensor.dtype() == DT_INT32 ? tensor.data<int32_t>() : nullptr),
        wide_(narrow_ == nullptr ? tensor.data<int64_t>() : nullptr) {}
  int64_t operator[](int64_t i) const { return narrow_ != nullptr ? narrow_[i] : wide_[i]; }

 private:
  const int32_t* const narrow_;
  const int64_t* const wide_;
};

template <typename T>
class ArgmaxKernel : public Kernel {
 public:
  explicit ArgmaxKernel(const KernelConstruction& k)
      : attrs_(k.attrs()), whole_batch_(k.attr<bool>("include_batch_in_index")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Geometry g, Place(attrs_, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, g.pooled_shape));
    MG_ASSIGN_OR_RETURN(Tensor * places, c.AllocateOutput(1, g.pooled_shape));
    if (out->elements() == 0) return Status();
    const T* x = c.input(0).data<T>();
    T* y = out->data<T>();
    int32_t* const narrow = places->dtype() == DT_INT32 ? places->data<int32_t>() : nullptr;
    int64_t* const wide = narrow == nullptr ? places->data<int64_t>() : nullptr;
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t n = unit / g.rows.out, oh = unit % g.rows.out;
        const Inside rows(g.rows, oh);
        for (int64_t ow = 0; ow < g.columns.out; ++ow) {
          const Inside columns(g.columns, ow);
          if (!looks.GoOn(1 + rows.size() * columns.size() * g.image.c)) return;
          for (int64_t k = 0; k < g.image.c; ++k) {
            const int64_t image = n * g.image.sn;
            int64_t best = rows.begin * g.image.sh + columns.begin * g.image.sw + k;
            for (int64_t h = rows.begin; h < rows.end; ++h) {
              for (int64_t w = columns.begin; w < columns.end; ++w) {
                const int64_t at = h * g.image.sh + w * g.image.sw + k;
                if (x[image + at] > x[image + best]) best = at;
              }
            }
            const int64_t to = n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw + k;
            y[to] = x[image + best];
            const int64_t place = whole_batch_ ? image + best : best;
            if (narrow != nullptr) {
              narrow[to] = static_cast<int32_t>(place);
            } else {
              wide[to] = place;
            }
          }
        }
      }
    };
    c.ParallelFor(g.image.n * g.rows.out, 1 + g.reads_of_row(), std::ref(body));
    return Status();
  }

 private:
  const Attrs attrs_;
  const bool whole_batch_;
};

// Either way between an image and the places of its maxima: kGather reads from each place what
// MaxPoolGradGradWithArgmax gives, and T is any type of its size; else the gradient is added to
// each place.
template <typename T, bool kGather>
class ArgmaxGradKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit ArgmaxGradKernel(const KernelConstruction& k)
      : attrs_(k.attrs()), whole_batch_(k.attr<bool>("include_batch_in_index")) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const Geometry g, Place(attrs_, shape));
    const Tensor &grad = c.input(1), &argmax = c.input(2);
    MG_RETURN_IF_ERROR(RequireShape(grad, kGather ? shape : g.pooled_shape, "grad"));
    MG_RETURN_IF_ERROR(RequireShape(argmax, g.pooled_shape, "argmax"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, kGather ? g.pooled_shape : shape));
    if (out->elements() == 0) return Status();
    const Places places(argmax);
    const int64_t per_image = g.pooled.sn, elements = shape.elements();
    for (int64_t i = 0; i < argmax.elements(); ++i) {
      const int64_t low = i / per_image * g.image.sn, at = PlaceOf(places, i, low);
      if (at < low || at >= low + g.image.sn) {
        return InvalidArgument("argmax[" + std::to_string(i) + "] is " + std::to_string(places[i]) +
                               ", outside of the image");
      }
    }
    const T* from = static_cast<const T*>(grad.raw());
    T* to = static_cast<T*>(out->raw());
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(kDTypeOf<A>, Shape{kGather ? 0 : elements}));
    A* const sum = sums.data<A>();
    const auto images = [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if constexpr (!kGather) std::fill_n(sum + n * g.image.sn, g.image.sn, A(0));
        for (int64_t i = n * per_image; i < (n + 1) * per_image; ++i) {
          const int64_t at = PlaceOf(places, i, n * g.image.sn);
          if constexpr (kGather) {
            to[i] = from[at];
          } else {
            sum[at] += static_cast<A>(from[i]);
          }
        }
        if constexpr (!kGather) {
          for (int64_t i = n * g.image.sn; i < (n + 1) * g.image.sn; ++i) to[i] = T(sum[i]);
        }
      }
    };
    c.ParallelFor(g.image.n, 1 + g.image.sn, std::ref(images));
    return Status();
  }

 private:
  int64_t PlaceOf(const Places& places, int64_t i, int64_t image) const {
    return places[i] + (whole_batch_ ? 0 : image);
  }
  const Attrs attrs_;
  const bool whole_batch_;
};

// An unsigned integer of the size of T.
template <typename T>
using Bits =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <typename T>
void Add(KernelRegistry* registry) {
  for (const DType index : {DT_INT32, DT_INT64}) {
    const std::vector<std::pair<std::string, DType>> types = {{"T", kDTypeOf<T>},
                                                              {"Targmax", index}};
    registry->Add<ArgmaxKernel<T>>({.op = "MaxPoolWithArgmax", .types = types});
    registry->Add<ArgmaxGradKernel<T, false>>({.op = "MaxPoolGradWithArgmax", .types = types});
    registry->Add<ArgmaxGradKernel<Bits<T>, true>>(
        {.op = "MaxPoolGradGradWithArgmax", .types = types});
  }
}

}  // namespace

void RegisterArgmax(KernelRegistry* registry) {
#define MG_ADD(T) Add<T>(registry);
  MG_NUMBER_TYPES(MG_ADD)
  MG_ADD(int8_t) MG_ADD(int16_t) MG_ADD(uint8_t) MG_ADD(uint16_t)
#undef MG_ADD
}

}  // namespace monograph::ops::pool
