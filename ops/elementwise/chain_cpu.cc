#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "ops/elementwise/chain.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

Result<ChainArgs> ParseChain(const KernelConstruction& k) {
  const auto& ops = k.attr<std::vector<std::string>>("ops");
  const auto& operands = k.attr<std::vector<int64_t>>("operand");
  const auto& first = k.attr<std::vector<int64_t>>("operand_first");
  ChainArgs chain;
  chain.input_count = k.num_inputs();
  if (ops.empty() || ops.size() > kMostSteps || operands.size() != ops.size() ||
      first.size() != ops.size() || k.num_inputs() > kMostInputs) {
    return InvalidArgument("a chain has 1 to " + std::to_string(kMostSteps) +
                           " steps and at most " + std::to_string(kMostInputs) +
                           " inputs; this one has " + std::to_string(ops.size()) + " ops, " +
                           std::to_string(operands.size()) + " operands and " +
                           std::to_string(k.num_inputs()) + " inputs");
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    int needed = 0;
    const int op = FindChainOp(ops[i], &needed);
    const int64_t operand = operands[i];
    if (op < 0 || operand >= k.num_inputs() || (operand > 0) != (needed == 1)) {
      return InvalidArgument("step " + std::to_string(i) + " of a chain, " + ops[i] +
                             " with operand " + std::to_string(operand) + ", is none");
    }
    chain.steps[chain.step_count++] = {
        static_cast<ChainOp>(op), static_cast<int8_t>(needed == 1 ? operand : -1), first[i] != 0};
  }
  return chain;
}

Result<ChainArgs> BindChain(const ChainArgs& chain, KernelContext& c, int64_t pack) {
  ChainArgs args = chain;
  Shape shape = c.input(0).shape();
  for (int i = 1; i < args.input_count; ++i) {
    MG_ASSIGN_OR_RETURN(shape, BroadcastShapes(shape, c.input(i).shape()));
  }
  args.n = shape.elements();
  Tensor* out = nullptr;
  for (int i = 0; i < args.input_count && out == nullptr; ++i) {
    if (!(c.input(i).shape() == shape) || !c.input(i).unique()) continue;
    MG_ASSIGN_OR_RETURN(out, c.ForwardOrAllocate(i, 0, shape));
  }
  if (out == nullptr) {
    MG_ASSIGN_OR_RETURN(out, c.AllocateOutput(0, shape));
  }
  args.out = out->raw();
  if (args.n == 0) return args;

  bool flat = true;
  for (int i = 0; i < args.input_count; ++i) {
    const int64_t elements = c.input(i).elements();
    args.inputs[i] = c.input(i).raw();
    args.step[i] = elements == args.n ? 1 : 0;
    flat = flat && (elements == args.n || elements == 1);
  }
  int64_t row = args.n;
  if (!flat) {
    args.rank = 0;
    std::array<int64_t, kMaxRank> size{};
    std::array<std::array<int64_t, kMaxRank>, kMostInputs> strides{};
    for (int i = 0; i < args.input_count; ++i) {
      const Shape& own = c.input(i).shape();
      const int lead = shape.rank() - own.rank();
      int64_t stride = 1;
      for (int d = own.rank() - 1; d >= 0; --d) {
        if (own.dim(d) != 1)
          strides[static_cast<size_t>(i)][static_cast<size_t>(d + lead)] = stride;
        stride *= own.dim(d);
      }
    }
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t dim = shape.dim(d);
      if (dim == 1) continue;
      bool joins = args.rank > 0;
      for (int i = 0; i < args.input_count && joins; ++i) {
        joins = args.stride[i][args.rank - 1] ==
                strides[static_cast<size_t>(i)][static_cast<size_t>(d)] * dim;
      }
      if (joins) {
        size[static_cast<size_t>(args.rank - 1)] *= dim;
      } else {
        size[static_cast<size_t>(args.rank++)] = dim;
      }
      for (int i = 0; i < args.input_count; ++i)
        args.stride[i][args.rank - 1] = strides[static_cast<size_t>(i)][static_cast<size_t>(d)];
    }
    for (int d = 0; d < args.rank; ++d) args.size[d] = Divisor(size[static_cast<size_t>(d)]);
    for (int i = 0; i < args.input_count; ++i) args.step[i] = args.stride[i][args.rank - 1];
    row = size[static_cast<size_t>(args.rank - 1)];
  }
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  args.packs = (args.rank == 0 || row % pack == 0) && aligned(args.out);
  for (int i = 0; i < args.input_count; ++i)
    args.packs = args.packs && (args.step[i] == 0 || aligned(args.inputs[i]));
  return args;
}

namespace {

// No graph of a CPU has chains; this is what a GPU's are compared with.
template <typename T>
class ChainKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<ChainKernel>();
    MG_ASSIGN_OR_RETURN(kernel->chain_, ParseChain(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    constexpr int64_t kPack = ChainBody<T>::kPack;
    MG_ASSIGN_OR_RETURN(const ChainArgs args, BindChain(chain_, c, kPack));
    const ChainBody<T> body{args};
    c.ParallelFor((args.n + kPack - 1) / kPack, 20, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    });
    return Status();
  }

 private:
  ChainArgs chain_;
};

}  // namespace

void RegisterChains(KernelRegistry* registry) {
#define MG_ADD(T) \
  registry->Add<ChainKernel<T>>({.op = "_FusedElementwise", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::elementwise
