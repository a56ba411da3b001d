#include "ops/image/image_cpu.h"

#include <cstring>

#include "ops/cpu/kernel_util.h"
#include "ops/image/patches.h"

namespace monograph::ops::image {
namespace {

// A pixel of the result, as ForPixels goes through them, is a place of a window: [images x rows,
// columns, places, channels].
class PatchesKernel : public Kernel {
 public:
  explicit PatchesKernel(const KernelConstruction& k)
      : attrs_(k.attrs()), element_size_(static_cast<int64_t>(DTypeSize(k.output_dtype(0)))) {}

  Status Compute(KernelContext& c) override {
    const Shape& in = c.input(0).shape();
    if (in.rank() != 4) {
      return InvalidArgument("input must be 4-dimensional, got shape " + in.ToString());
    }
    MG_ASSIGN_OR_RETURN(const Patches p, PatchesOf(attrs_, in[1], in[2]));
    MG_ASSIGN_OR_RETURN(const int64_t channels, p.Channels(in[3]));
    const int64_t dims[] = {in[0], p.rows.out, p.columns.out, channels};
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const auto* const from = static_cast<const char*>(c.input(0).raw());
    auto* const to = static_cast<char*>(out->raw());
    const Shape places{in[0] * p.rows.out, p.columns.out, p.rows.size * p.columns.size, in[3]};
    ForPixels(c, places, 1, [&](const PixelPart& part) {
      const auto bytes = static_cast<size_t>((part.end - part.begin) * element_size_);
      const int64_t n = part.n / p.rows.out;
      const int64_t y = At(p.rows, part.n % p.rows.out, part.x / p.columns.size),
                    x = At(p.columns, part.y, part.x % p.columns.size);
      char* const pixel = to + part.at * element_size_;
      if (y < 0 || y >= in[1] || x < 0 || x >= in[2]) {
        std::memset(pixel, 0, bytes);
      } else {
        const int64_t at = ((n * in[1] + y) * in[2] + x) * in[3] + part.begin;
        std::memcpy(pixel, from + at * element_size_, bytes);
      }
    });
    return Status();
  }

 private:
  static int64_t At(const Window& window, int64_t out, int64_t place) {
    return out * window.stride - window.pad_before + place * window.dilation;
  }

  const Attrs attrs_;
  const int64_t element_size_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  RegisterResizes(registry);
  RegisterWideResizes(registry);
  RegisterCrops(registry);
  RegisterColours(registry);
  RegisterBoxes(registry);
  RegisterRandomBoxes(registry);
  AddForPlainTypes<PatchesKernel>(registry, {.op = "ExtractImagePatches"});
}

}  // namespace monograph::ops::image
