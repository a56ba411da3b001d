// Dilation by plain loops. The gradients find each window's first largest sum again, and add what
// flows in to the element, of the input or of the filter, that it came from. Images are shared out;
// the filter's gradient, which all of them add to, is computed by one thread.
#include <algorithm>
#include <functional>

#include "executor/kernel.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/dilation/geometry.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::dilation {
namespace {

enum class Mode { kForward, kBackpropInput, kBackpropFilter };

struct Geometry {
  Window rows, columns;
  int64_t n = 0, c = 0;
  Shape output;
};

Result<Geometry> GeometryOf(const Attrs& attrs, const Shape& input, const Shape& filter) {
  if (input.rank() != 4 || filter.rank() != 3 || input[3] != filter[2]) {
    return InvalidArgument(
        "a dilation needs an input of 4 dimensions and a filter of 3, of as "
        "many channels; got " +
        input.ToString() + " and " + filter.ToString());
  }
  Geometry g;
  MG_RETURN_IF_ERROR(Place(attrs, input[1], input[2], filter[0], filter[1], &g.rows, &g.columns));
  g.n = input[0], g.c = input[3];
  g.output = Shape{g.n, g.rows.out, g.columns.out, g.c};
  return g;
}

template <typename T, Mode kMode>
class DilationKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit DilationKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    const Shape input = c.input(0).shape(), filter = c.input(1).shape();
    MG_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(attrs_, input, filter));
    if (kMode != Mode::kForward && !(c.input(2).shape() == g.output)) {
      return InvalidArgument("out_backprop has shape " + c.input(2).shape().ToString() +
                             "; the windows give " + g.output.ToString());
    }
    const Shape& shape = kMode == Mode::kForward         ? g.output
                         : kMode == Mode::kBackpropInput ? input
                                                         : filter;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const T *x = c.input(0).data<T>(), *w = c.input(1).data<T>();
    T* to = out->data<T>();
    if constexpr (kMode == Mode::kForward) {
      ForImages(
          c, g, [=](int64_t at, const T& value, int64_t, int64_t) { to[at] = value; }, x, w);
      return Status();
    } else {
      MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(kDTypeOf<A>, shape));
      A* const sum = sums.data<A>();
      InPieces(c, sums.elements(),
               [=](int64_t begin, int64_t end) { std::fill(sum + begin, sum + end, A(0)); });
      const T* dy = c.input(2).data<T>();
      ForImages(
          c, g,
          [=](int64_t at, const T&, int64_t from_x, int64_t from_w) {
            const int64_t from = kMode == Mode::kBackpropInput ? from_x : from_w;
            if (from >= 0) sum[from] = A(sum[from] + static_cast<A>(dy[at]));
          },
          x, w);
      InPieces(c, sums.elements(), [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = T(sum[i]);
      });
      return Status();
    }
  }

 private:
  // fn(place in the output, largest sum, its places in the input and in the filter: -1 without
  // one).
  template <typename Fn>
  static void ForImages(KernelContext& c, const Geometry& g, const Fn& fn, const T* x, const T* w) {
    if (g.output.elements() == 0) return;  // of any number of pixels
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      const int64_t window = 2 * g.rows.size * g.columns.size;
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t y = 0; y < g.rows.out && looks.GoOn(1); ++y) {
          for (int64_t z = 0; z < g.columns.out; ++z) {
            for (int64_t k = 0; k < g.c && looks.GoOn(window); ++k) One(g, fn, x, w, n, y, z, k);
          }
        }
      }
    };
    const int64_t cost = g.rows.out * g.columns.out * g.c * g.rows.size * g.columns.size;
    kMode == Mode::kBackpropFilter ? body(0, g.n) : c.ParallelFor(g.n, 1 + cost, std::ref(body));
  }

  template <typename Fn>
  static void One(const Geometry& g, const Fn& fn, const T* x, const T* w, int64_t n, int64_t y,
                  int64_t z, int64_t k) {
    T best{};
    int64_t from_x = -1, from_w = -1;
    for (int64_t r = 0; r < g.rows.size; ++r) {
      const int64_t h = y * g.rows.stride - g.rows.pad_before + r * g.rows.dilation;
      if (h < 0 || h >= g.rows.in) continue;
      for (int64_t s = 0; s < g.columns.size; ++s) {
        const int64_t v = z * g.columns.stride - g.columns.pad_before + s * g.columns.dilation;
        if (v < 0 || v >= g.columns.in) continue;
        const int64_t at_x = ((n * g.rows.in + h) * g.columns.in + v) * g.c + k,
                      at_w = (r * g.columns.size + s) * g.c + k;
        const T sum = T(static_cast<A>(x[at_x]) + static_cast<A>(w[at_w]));
        if (from_x >= 0 && !(static_cast<A>(sum) > static_cast<A>(best))) continue;
        best = sum, from_x = at_x, from_w = at_w;
      }
    }
    fn(((n * g.rows.out + y) * g.columns.out + z) * g.c + k, best, from_x, from_w);
  }

  const Attrs attrs_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T)                                                        \
  registry->Add<DilationKernel<T, Mode::kForward>>(                      \
      {.op = "Dilation2D", .types = {{"T", kDTypeOf<T>}}});              \
  registry->Add<DilationKernel<T, Mode::kBackpropInput>>(                \
      {.op = "Dilation2DBackpropInput", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<DilationKernel<T, Mode::kBackpropFilter>>(               \
      {.op = "Dilation2DBackpropFilter", .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(MG_ADD)
  MG_ADD(int8_t) MG_ADD(int16_t) MG_ADD(uint8_t) MG_ADD(uint16_t)
#undef MG_ADD
}

}  // namespace monograph::ops::dilation
