// What the tests of ops share: registries with everything, tensors of pseudo-random numbers, one op
// run by itself.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "executor/thread_pools.h"
#include "graph/graph.h"
#include "ops/register.h"
#include "tests/executor/run_op.h"

namespace monograph::testing {

inline const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    DefineOps(registry);
    return registry;
  }();
  return *ops;
}

inline const KernelRegistry& Kernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterCpuKernels(registry);
    return registry;
  }();
  return *kernels;
}

// Values in [-1, 1), the same for the same seed.
template <typename T>
Tensor Random(const Shape& shape, uint64_t seed = 1) {
  Tensor tensor = Tensor::Allocate(kDTypeOf<T>, shape).value();
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double value = static_cast<double>(state >> 11) / static_cast<double>(uint64_t{1} << 53);
    tensor.data<T>()[i] = T(static_cast<float>(2 * value - 1));
  }
  return tensor;
}

inline Tensor AsDouble(const Tensor& in) {
  Tensor out = Tensor::Allocate(DT_DOUBLE, in.shape()).value();
  for (int64_t i = 0; i < in.elements(); ++i) out.data<double>()[i] = in.data<float>()[i];
  return out;
}

// Runs one op on one CPU device; `pools` may be null.
inline Result<std::vector<Tensor>> RunOp(const std::string& op, std::vector<Tensor> inputs,
                                         Attrs attrs = {}, ThreadPools* pools = nullptr) {
  KernelRunner::Options options;
  options.pools = pools;
  KernelRunner runner(&Kernels(), options);
  return testing::RunOp(runner, Ops(), op, std::move(inputs), std::move(attrs));
}

inline Tensor Run1(const std::string& op, std::vector<Tensor> inputs, Attrs attrs = {},
                   ThreadPools* pools = nullptr) {
  auto result = RunOp(op, std::move(inputs), std::move(attrs), pools);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->front() : Tensor();
}

// |float - double| <= tolerance, element by element.
inline void ExpectNear(const Tensor& got, const Tensor& expected, double tolerance) {
  ASSERT_TRUE(got.valid() && expected.valid());
  ASSERT_EQ(got.shape(), expected.shape());
  const auto value = [](const Tensor& t, int64_t i) {
    return t.dtype() == DT_FLOAT ? static_cast<double>(t.data<float>()[i]) : t.data<double>()[i];
  };
  for (int64_t i = 0; i < got.elements(); ++i) {
    ASSERT_NEAR(value(got, i), value(expected, i), tolerance) << "element " << i;
  }
}

}  // namespace monograph::testing
