#include "ops/cast/truncate.h"
#include "ops/cpu/kernel_util.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::cast {
namespace {

template <typename To, typename From>
MG_HD To Convert(From x) {
  const auto wide = Widen(x);
  if constexpr (std::is_same_v<To, bool>) {
    return wide != decltype(wide)(0);
  } else if constexpr (kIs16Bit<To>) {
    return Narrow<To>(static_cast<float>(wide));
  } else if constexpr (kIs16Bit<From>) {
    return static_cast<To>(static_cast<float>(wide));
  } else {
    return static_cast<To>(wide);
  }
}

// One body for each source type; the destination's is asked for at run time, by all threads alike.
// A pack is 16 bytes of 2-byte elements, and several times as many of wider ones.
template <typename From>
struct CastBody {
  static constexpr int kPack = 8, kResident = 4;
  const From* from;
  void* to;
  DType dtype;
  int64_t n;
  bool packs;  // both sides are aligned for whole packs
  int cut;     // BitsToCut

  MG_HD void operator()(int64_t group) const {
    switch (dtype) {
#define MG_CASE(T)  \
  case kDTypeOf<T>: \
    return Move(group, static_cast<T*>(to));
      MG_ALL_TYPES(MG_CASE)
      MG_CASE(uint32_t)
      MG_CASE(uint64_t)
#undef MG_CASE
      default:
        return;
    }
  }

 private:
  template <typename To>
  MG_HD void Move(int64_t group, To* out) const {
    const int64_t first = group * kPack;
    if (packs && first + kPack <= n) {
      const auto in = LoadPack<From, kPack>(from + first);
      ElementPack<To, kPack> pack;
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) pack.values[k] = Convert<To>(CutBits(in.values[k], cut));
      StorePack<To, kPack>(out + first, pack);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < n; ++i)
      out[i] = Convert<To>(CutBits(from[i], cut));
  }
};

template <typename From>
class DeviceCastKernel : public Kernel {
 public:
  explicit DeviceCastKernel(const KernelConstruction& k)
      : to_(k.output_dtype(0)),
        cut_(k.attrs().GetOr<bool>("Truncate", false) ? BitsToCut(kDTypeOf<From>, to_) : 0) {}
  Status Compute(KernelContext& c) override {
    if (to_ == kDTypeOf<From>) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    if (!IsPlainData(to_)) {
      return Unimplemented("no cast from " + std::string(DTypeName(kDTypeOf<From>)) + " to " +
                           std::string(DTypeName(to_)));
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    constexpr int64_t kPack = CastBody<From>::kPack;
    const int64_t n = out->elements();
    const auto aligned = [&](const void* p, size_t size) {
      return reinterpret_cast<uintptr_t>(p) % (static_cast<size_t>(kPack) * size) == 0;
    };
    const CastBody<From> body{
        c.input(0).template data<From>(),
        out->raw(),
        to_,
        n,
        aligned(c.input(0).raw(), sizeof(From)) && aligned(out->raw(), DTypeSize(to_)),
        cut_};
    return ForEach(c, (n + kPack - 1) / kPack, body);
  }

 private:
  const DType to_;
  const int cut_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define MG_ADD(T)                     \
  registry->Add<DeviceCastKernel<T>>( \
      {.op = "Cast", .device = kGpu, .types = {{"SrcT", kDTypeOf<T>}}});
  MG_ALL_TYPES(MG_ADD)
  MG_ADD(uint32_t)
  MG_ADD(uint64_t)
#undef MG_ADD
}

}  // namespace monograph::ops::cast
