// _FusedElementwise: a chain of elementwise ops in one pass over memory.
//
//   value = x;  for each step: value = op(value, operand)  or  op(operand, value)  or  op(value)
//
// FuseChains makes it on GPUs. The value is rounded to T after every step, so that the bits are
// those of the separate ops. All tensors broadcast to the result's shape.
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "executor/kernel.h"
#include "ops/elementwise/chain_ops.h"
#include "ops/elementwise/functors.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::elementwise {

template <typename T>
struct ReluOfChain {
  MG_HD T operator()(T x) const { return x < T(0) ? T(0) : x; }
};

struct ChainStep {
  ChainOp op;
  int8_t operand;      // which input; -1: none
  bool operand_first;  // op(operand, value)
};

struct ChainArgs {
  ChainStep steps[kMostSteps];
  int step_count = 0, input_count = 0;
  const void* inputs[kMostInputs] = {};  // x, then the operands
  int64_t step[kMostInputs] = {};        // along the innermost dimension: 1 or 0
  int rank = 0;                          // 0: inputs are as long as the result or single
  Divisor size[kMaxRank];
  int64_t stride[kMostInputs][kMaxRank] = {};
  void* out = nullptr;
  int64_t n = 0;
  bool packs = false;  // every pack lies in one row, aligned wherever it is read or written

  MG_HD int64_t Offset(int input, int64_t index) const {
    if (rank == 0) return index * step[input];
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t rest = size[d].Divide(index);
      offset += (index - rest * size[d].divisor()) * stride[input][d];
      index = rest;
    }
    return offset;
  }
};

// One thread's part: a pack of consecutive elements.
template <typename T>
struct ChainBody {
  using A = Accumulator<T>;
  static constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  ChainArgs args;

  MG_HD void operator()(int64_t group) const {
    const int64_t first = group * kPack;
    A value[kPack], other[kPack] = {};
    if (args.packs && first + kPack <= args.n) {
      LoadPack(0, first, value);
      for (int s = 0; s < args.step_count; ++s) {
        const ChainStep step = args.steps[s];
        if (step.operand >= 0) LoadPack(step.operand, first, other);
        Apply<kPack>(step, value, other);
      }
      ElementPack<T, kPack> out;
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) out.values[k] = Narrow<T>(value[k]);
      StorePack<T, kPack>(static_cast<T*>(args.out) + first, out);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < args.n; ++i) {
      value[0] = Load(0, i);
      for (int s = 0; s < args.step_count; ++s) {
        const ChainStep step = args.steps[s];
        if (step.operand >= 0) other[0] = Load(step.operand, i);
        Apply<1>(step, value, other);
      }
      static_cast<T*>(args.out)[i] = Narrow<T>(value[0]);
    }
  }

 private:
  MG_HD A Load(int input, int64_t i) const {
    return Widen(static_cast<const T*>(args.inputs[input])[args.Offset(input, i)]);
  }
  MG_HD void LoadPack(int input, int64_t first, A* values) const {
    const T* from = static_cast<const T*>(args.inputs[input]) + args.Offset(input, first);
    if (args.step[input] == 0) {
      const A single = Widen(*from);
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) values[k] = single;
      return;
    }
    const auto pack = *reinterpret_cast<const ElementPack<T, kPack>*>(from);
    MG_UNROLL
    for (int k = 0; k < kPack; ++k) values[k] = Widen(pack.values[k]);
  }

  // All threads take the same step.
  template <int kCount>
  MG_HD static void Apply(const ChainStep& step, A* value, const A* other) {
    switch (step.op) {
#define MG_OP(op, functor)                                  \
  case ChainOp::k##op:                                      \
    MG_UNROLL                                               \
    for (int k = 0; k < kCount; ++k) {                      \
      const A a = step.operand_first ? other[k] : value[k], \
              b = step.operand_first ? value[k] : other[k]; \
      value[k] = Widen(Narrow<T>(functor<A>()(a, b)));      \
    }                                                       \
    return;
      MG_CHAIN_BINARY(MG_OP)
#undef MG_OP
#define MG_OP(op, functor)                                                                \
  case ChainOp::k##op:                                                                    \
    MG_UNROLL                                                                             \
    for (int k = 0; k < kCount; ++k) value[k] = Widen(Narrow<T>(functor<A>()(value[k]))); \
    return;
      MG_CHAIN_UNARY(MG_OP)
#undef MG_OP
    }
  }
};

// The steps that a node's attributes describe. InvalidArgument for what no kernel can do.
Result<ChainArgs> ParseChain(const KernelConstruction& k);
// With the tensors of a step: allocates the output. `pack` elements are handled at a time.
Result<ChainArgs> BindChain(const ChainArgs& chain, KernelContext& c, int64_t pack);

}  // namespace monograph::ops::elementwise
