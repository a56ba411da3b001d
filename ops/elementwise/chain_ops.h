// The ops that a chain (chain.h) may hold.
#pragma once

#include <cstdint>
#include <string_view>

namespace monograph::ops::elementwise {

// M(op, functor): steps with one operand beside the value, and with none.
#define MG_CHAIN_BINARY(M)                  \
  M(AddV2, AddFn)                           \
  M(Sub, SubFn)                             \
  M(Mul, MulFn)                             \
  M(Div, DivFn)                             \
  M(RealDiv, DivFn)                         \
  M(Maximum, MaximumFn)                     \
  M(Minimum, MinimumFn)                     \
  M(SquaredDifference, SquaredDifferenceFn) \
  M(SigmoidGrad, SigmoidGradFn)             \
  M(TanhGrad, TanhGradFn)                   \
  M(DivNoNan, DivNoNanFn)
#define MG_CHAIN_UNARY(M)     \
  M(Neg, NegFn)               \
  M(Exp, ExpFn)               \
  M(Log, LogFn)               \
  M(Sqrt, SqrtFn)             \
  M(Rsqrt, RsqrtFn)           \
  M(Square, SquareFn)         \
  M(Abs, AbsFn)               \
  M(Reciprocal, ReciprocalFn) \
  M(Sigmoid, SigmoidFn)       \
  M(Tanh, TanhFn)             \
  M(Relu, ReluOfChain)

enum class ChainOp : uint8_t {
#define MG_OP(op, functor) k##op,
  MG_CHAIN_BINARY(MG_OP) MG_CHAIN_UNARY(MG_OP)
#undef MG_OP
};

inline constexpr int kMostSteps = 16, kMostInputs = 8;

// -1 for an op that no chain holds; else a ChainOp, and how many operands it has beside the value.
inline int FindChainOp(std::string_view op, int* operands) {
#define MG_OP(name, functor)                   \
  if (op == #name) {                           \
    *operands = 1;                             \
    return static_cast<int>(ChainOp::k##name); \
  }
  MG_CHAIN_BINARY(MG_OP)
#undef MG_OP
#define MG_OP(name, functor)                   \
  if (op == #name) {                           \
    *operands = 0;                             \
    return static_cast<int>(ChainOp::k##name); \
  }
  MG_CHAIN_UNARY(MG_OP)
#undef MG_OP
  return -1;
}

}  // namespace monograph::ops::elementwise
