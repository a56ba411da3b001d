#include <algorithm>
#include <cmath>
#include <numbers>

#include "executor/kernel.h"
#include "ops/kernel_util.h"
#include "ops/random/philox.h"

namespace monograph::ops::random {
namespace {

double UnitDouble(uint32_t high, uint32_t low) {  // [0, 1), 53 bits
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Two independent normal values of one block (Box and Muller).
std::array<double, 2> Normals(const PhiloxBlock& block) {
  const double u = 1.0 - UnitDouble(block.words[0], block.words[1]);  // (0, 1]
  const double v = UnitDouble(block.words[2], block.words[3]);
  const double radius = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Each distribution says how many elements a block of random bits gives, and which.
struct Uniform {
  template <typename T>
  static constexpr int kPerBlock = sizeof(T) == 8 ? 2 : 4;
  template <typename T>
  static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    const PhiloxBlock bits = stream.Block(block);
    if constexpr (sizeof(T) == 8) {
      out[0] = UnitDouble(bits.words[0], bits.words[1]);
      out[1] = UnitDouble(bits.words[2], bits.words[3]);
    } else {
      // As many bits as the type holds, so that rounding never gives 1.
      constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, half> ? 11 : 8;
      for (int i = 0; i < 4; ++i) {
        out[i] =
            T(static_cast<float>(bits.words[i] >> (32 - kBits)) / static_cast<float>(1 << kBits));
      }
    }
  }
};

struct Normal {
  template <typename T>
  static constexpr int kPerBlock = 2;
  template <typename T>
  static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    const auto values = Normals(stream.Block(block));
    for (size_t i = 0; i < 2; ++i)
      out[i] = T(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(values[i]));
  }
};

struct Truncated {
  template <typename T>
  static constexpr int kPerBlock = 1;
  template <typename T>
  static void Fill(const RandomStream& stream, uint64_t block, T* out) {
    for (uint32_t attempt = 0;; ++attempt) {
      for (double value : Normals(stream.Block(block, attempt))) {
        if (std::abs(value) >= 2.0) continue;
        *out = T(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(value));
        return;
      }
    }
  }
};

template <typename T, typename Distribution>
class RandomKernel : public Kernel {
 public:
  explicit RandomKernel(const KernelConstruction& k)
      : stream_(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    RandomStream stream = stream_;
    stream.step = c.step_id();
    constexpr int64_t kPer = Distribution::template kPerBlock<T>;
    const int64_t n = shape.elements();
    T* to = out->data<T>();
    c.ParallelFor((n + kPer - 1) / kPer, 30, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        T values[kPer];
        Distribution::template Fill<T>(stream, static_cast<uint64_t>(block), values);
        const int64_t count = std::min(kPer, n - block * kPer);
        for (int64_t i = 0; i < count; ++i) to[block * kPer + i] = values[i];
      }
    });
    return Status();
  }

 private:
  const RandomStream stream_;
};

template <typename T>
class RandomIntKernel : public Kernel {
 public:
  explicit RandomIntKernel(const KernelConstruction& k)
      : stream_(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
    if (c.input(1).shape().rank() != 0 || c.input(2).shape().rank() != 0) {
      return InvalidArgument("minval and maxval must be scalars");
    }
    const T low = c.input(1).scalar<T>(), high = c.input(2).scalar<T>();
    if (low >= high) {
      return InvalidArgument("Need minval < maxval, got " + std::to_string(low) +
                             " >= " + std::to_string(high));
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    RandomStream stream = stream_;
    stream.step = c.step_id();
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    T* to = out->data<T>();
    c.ParallelFor(shape.elements(), 20, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        // The upper half of (64 random bits) * range: uniform but for 2^-64 * range.
        const PhiloxBlock bits = stream.Block(static_cast<uint64_t>(i));
        const auto product =
            static_cast<unsigned __int128>(uint64_t{bits.words[0]} << 32 | bits.words[1]) * range;
        to[i] = static_cast<T>(static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64));
      }
    });
    return Status();
  }

 private:
  const RandomStream stream_;
};

template <typename Distribution>
void AddDistribution(KernelRegistry* registry, const char* op) {
#define MG_ADD(T)                               \
  registry->Add<RandomKernel<T, Distribution>>( \
      {.op = op, .types = {{"dtype", kDTypeOf<T>}}, .host_args = {"shape"}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddDistribution<Uniform>(registry, "RandomUniform");
  AddDistribution<Normal>(registry, "RandomStandardNormal");
  AddDistribution<Truncated>(registry, "TruncatedNormal");
  registry->Add<RandomIntKernel<int32_t>>({.op = "RandomUniformInt",
                                           .types = {{"Tout", DT_INT32}},
                                           .host_args = {"shape", "minval", "maxval"}});
  registry->Add<RandomIntKernel<int64_t>>({.op = "RandomUniformInt",
                                           .types = {{"Tout", DT_INT64}},
                                           .host_args = {"shape", "minval", "maxval"}});
}

}  // namespace monograph::ops::random
