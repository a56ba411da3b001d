// Cast: a function for each pair of types that converts a row (FindRow, when the kernel is made),
// and rows shared out among threads. 16-bit floats go by way of float, a few hundred at a time, so
// that their conversions are vectorised; Truncate cuts bits off the input first.
#include <algorithm>
#include <type_traits>

#include "base/complex.h"
#include "executor/kernel.h"
#include "ops/cast/truncate.h"
#include "ops/cpu/kernel_util.h"

namespace monograph::ops::cast {
namespace {

using RowFn = void (*)(const void* from, void* to, int64_t n);

template <typename T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// Of a complex number what is real has the real part, as in TensorFlow.
template <typename From, typename To>
To Convert(From value) {
  if constexpr (kIsComplex<To> && kIsComplex<From>) {
    return To(value);
  } else if constexpr (kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(value));
  } else if constexpr (kIsComplex<From>) {
    return Convert<typename From::value_type, To>(value.real());
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void CastRow(const void* from, void* to, int64_t n) {
  const auto* in = static_cast<const From*>(from);
  auto* out = static_cast<To*>(to);
  constexpr int64_t kChunk = 256;
  constexpr bool kFrom16 = std::is_same_v<From, half> || std::is_same_v<From, bfloat16>;
  constexpr bool kTo16 = std::is_same_v<To, half> || std::is_same_v<To, bfloat16>;
  if constexpr (kFrom16 || kTo16) {  // by way of float
    float wide[kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      if constexpr (kFrom16) {
        ToFloats(in + i, wide, count);
      } else {
        CastRow<From, float>(in + i, wide, count);
      }
      if constexpr (kTo16) {
        FromFloats(wide, out + i, count);
      } else {
        CastRow<float, To>(wide, out + i, count);
      }
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<From, To>(in[i]);
  }
}

#define MG_CAST_TYPES(M) \
  M(float)               \
  M(double)              \
  M(half)                \
  M(bfloat16)            \
  M(int32_t)             \
  M(int64_t)             \
  M(bool)                \
  M(uint8_t)             \
  M(int8_t)              \
  M(int16_t) M(uint16_t) M(uint32_t) M(uint64_t) M(std::complex<float>) M(std::complex<double>)

template <typename From>
RowFn RowTo(DType to) {
  switch (to) {
#define MG_CASE(To)  \
  case kDTypeOf<To>: \
    return &CastRow<From, To>;
    MG_CAST_TYPES(MG_CASE)
#undef MG_CASE
    default:
      return nullptr;
  }
}

// The same with the last bits cut off before. REQUIRES: From is float or double.
template <typename From>
void CutRow(RowFn row, int cut, const void* from, void* to, size_t to_size, int64_t n) {
  constexpr int64_t kChunk = 256;
  From exact[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    for (int64_t k = 0; k < count; ++k)
      exact[k] = CutBits(static_cast<const From*>(from)[i + k], cut);
    row(exact, static_cast<char*>(to) + static_cast<size_t>(i) * to_size, count);
  }
}

RowFn FindRow(DType from, DType to) {
  switch (from) {
#define MG_CASE(From)  \
  case kDTypeOf<From>: \
    return RowTo<From>(to);
    MG_CAST_TYPES(MG_CASE)
#undef MG_CASE
    default:
      return nullptr;
  }
}

class CastKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const DType from = k.input_dtype(0), to = k.output_dtype(0);
    const RowFn row = FindRow(from, to);
    if (row == nullptr) {
      return Unimplemented("no cast from " + std::string(DTypeName(from)) + " to " +
                           std::string(DTypeName(to)));
    }
    const int cut = k.attrs().GetOr<bool>("Truncate", false) ? BitsToCut(from, to) : 0;
    return std::unique_ptr<Kernel>(new CastKernel(from, to, row, cut));
  }

  Status Compute(KernelContext& c) override {
    if (from_ == to_) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    const char* from = static_cast<const char*>(c.input(0).raw());
    char* to = static_cast<char*>(out->raw());
    const size_t from_size = DTypeSize(from_), to_size = DTypeSize(to_);
    c.ParallelFor(out->elements(), 1, [=, this](int64_t begin, int64_t end) {
      const char* first = from + static_cast<size_t>(begin) * from_size;
      char* out_first = to + static_cast<size_t>(begin) * to_size;
      if (cut_ == 0) {
        row_(first, out_first, end - begin);
      } else if (from_ == DT_FLOAT) {
        CutRow<float>(row_, cut_, first, out_first, to_size, end - begin);
      } else {
        CutRow<double>(row_, cut_, first, out_first, to_size, end - begin);
      }
    });
    return Status();
  }

 private:
  CastKernel(DType from, DType to, RowFn row, int cut)
      : from_(from), to_(to), row_(row), cut_(cut) {}
  const DType from_, to_;
  const RowFn row_;
  const int cut_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<CastKernel>(registry, {.op = "Cast"}, "SrcT");
}

}  // namespace monograph::ops::cast
