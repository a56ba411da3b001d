// Einsum by matrix products. Each operand is copied, by strides, to [batch, rows or columns,
// summed]: labels of both operands and of the result are the batch, those of one operand and of the
// result its rows or columns, all others are summed. Labels that one operand alone has and the
// result lacks are summed first, so that the product does not repeat that work.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/matmul/equation.h"
#include "ops/matmul/multiplier_cpu.h"

namespace monograph::ops::matmul {
namespace {

bool Has(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

// An operand, or the result, by labels. A label that occurs twice walks the diagonal; one that is
// broadcast stays.
struct View {
  const void* data = nullptr;
  std::map<char, int64_t> strides;

  int64_t stride(char label) const {
    const auto at = strides.find(label);
    return at == strides.end() ? 0 : at->second;
  }
};

View ViewOf(const Tensor& tensor, const std::string& labels) {
  View view{tensor.raw(), {}};
  const auto strides = StridesOf(tensor.shape());
  for (size_t d = 0; d < labels.size(); ++d) {
    if (tensor.shape()[static_cast<int>(d)] != 1) view.strides[labels[d]] += strides[d];
  }
  return view;
}

using Sizes = std::map<char, int64_t>;

// The largest int64, of which no memory has so many, if 63 bits do not hold the number.
int64_t Elements(const Sizes& sizes, const std::string& labels) {
  int64_t n = 1;
  bool wraps = false;
  for (char label : labels) {
    if (sizes.at(label) == 0) return 0;
    wraps |= __builtin_mul_overflow(n, sizes.at(label), &n);
  }
  return wraps ? std::numeric_limits<int64_t>::max() : n;
}

// The elements of `view` in the order of `labels`, one after the other.
Status Gather(KernelContext& c, const View& view, const Sizes& sizes, const std::string& labels,
              size_t size, void* to) {
  if (labels.size() > static_cast<size_t>(kMaxRank))
    return InvalidArgument("an operand of more than " + std::to_string(kMaxRank) + " labels");
  StridedSpace space;
  int64_t stride = Elements(sizes, labels);
  if (stride == 0) return Status();
  for (char label : labels) {
    stride /= sizes.at(label);
    space.Add(sizes.at(label), view.stride(label), stride);
  }
  StridedCopy(c, size, view.data, to, space);
  return Status();
}

template <typename T>
class EinsumKernel : public Kernel {
  using C = Accumulator<T>;

 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    MG_ASSIGN_OR_RETURN(Equation equation,
                        Equation::Parse(k.attr<std::string>("equation"), k.num_inputs()));
    auto kernel = std::make_unique<EinsumKernel>();
    kernel->equation_ = std::move(equation);
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    std::vector<PartialShape> shapes;
    for (const Tensor& input : c.inputs()) shapes.push_back(PartialShape(input.shape()));
    MG_ASSIGN_OR_RETURN(const PartialShape partial, equation_.OutputShape(shapes));
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(partial.dims()));
    Sizes sizes;
    std::vector<std::string> labels;
    int dots = 0;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Shape& in = c.input(i).shape();
      MG_ASSIGN_OR_RETURN(std::string own, equation_.Labels(i, in.rank()));
      for (size_t d = 0; d < own.size(); ++d) {
        int64_t& size = sizes.emplace(own[d], 1).first->second;
        if (in[static_cast<int>(d)] != 1) size = in[static_cast<int>(d)];
        if (own[d] <= '9') dots = std::max(dots, own[d] - '0' + 1);
      }
      labels.push_back(std::move(own));
    }
    const std::string result = equation_.OutputLabels(dots);
    Tensor a, b;
    View views[2];
    std::string own[2];
    for (int i = 0; i < c.num_inputs(); ++i) {
      const auto at = static_cast<size_t>(i);
      const std::string others = result + (c.num_inputs() == 2 ? labels[1 - at] : "");
      MG_RETURN_IF_ERROR(
          Reduced(c, i, labels[at], others, sizes, i == 0 ? &a : &b, &views[i], &own[i]));
    }

    std::string batch, rows, columns, summed;
    for (char label : result) {
      const bool in_a = Has(own[0], label), in_b = Has(own[1], label);
      (in_a && in_b ? batch : in_a ? rows : columns) += label;
    }
    for (char label : own[0]) {
      if (!Has(result, label)) summed += label;
    }
    const int64_t count = Elements(sizes, batch);
    const Product p{Elements(sizes, rows), Elements(sizes, summed), Elements(sizes, columns)};
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    // A dimension that is broadcast makes an operand larger than it is.
    const std::string of_left = batch + rows + summed, of_right = batch + summed + columns;
    MG_ASSIGN_OR_RETURN(Tensor left, c.AllocateTemp(kDTypeOf<C>, Shape{Elements(sizes, of_left)}));
    MG_RETURN_IF_ERROR(Gather(c, views[0], sizes, of_left, sizeof(C), left.raw()));
    Tensor product = left;
    if (c.num_inputs() == 2) {
      MG_ASSIGN_OR_RETURN(Tensor right,
                          c.AllocateTemp(kDTypeOf<C>, Shape{Elements(sizes, of_right)}));
      MG_RETURN_IF_ERROR(Gather(c, views[1], sizes, of_right, sizeof(C), right.raw()));
      MG_ASSIGN_OR_RETURN(product, c.AllocateTemp(kDTypeOf<C>, Shape{count * p.m * p.n}));
      for (int64_t i = 0; i < count && !c.cancelled(); ++i) {
        MG_RETURN_IF_ERROR(multiplier_.Run(c, p, left.data<C>() + i * p.m * p.k,
                                           right.data<C>() + i * p.k * p.n, nullptr,
                                           product.data<C>() + i * p.m * p.n));
      }
    }
    // To the order of the result.
    const std::string order = batch + rows + columns;
    View view{product.raw(), {}};
    int64_t stride = Elements(sizes, order);
    for (char label : order) {
      stride /= sizes.at(label);
      view.strides[label] = stride;
    }
    Tensor target = *out;
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(DT_FLOAT, shape));
    }
    MG_RETURN_IF_ERROR(Gather(c, view, sizes, result, sizeof(C), target.raw()));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  // Operand i with the labels that neither the other one nor the result has summed. `memory` keeps
  // what `view` shows.
  Status Reduced(KernelContext& c, int i, const std::string& labels, const std::string& others,
                 const Sizes& sizes, Tensor* memory, View* view, std::string* kept) {
    MG_ASSIGN_OR_RETURN(*memory, ToFloat<T>(c, c.input(i)));
    *view = ViewOf(*memory, labels);
    std::string lonely;
    for (char label : labels) {
      std::string& list = Has(others, label) ? *kept : lonely;
      if (!Has(list, label)) list += label;
    }
    if (lonely.empty()) return Status();
    const int64_t rows = Elements(sizes, *kept), n = Elements(sizes, lonely);
    MG_ASSIGN_OR_RETURN(Tensor moved,
                        c.AllocateTemp(kDTypeOf<C>, Shape{Elements(sizes, *kept + lonely)}));
    MG_RETURN_IF_ERROR(Gather(c, *view, sizes, *kept + lonely, sizeof(C), moved.raw()));
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(kDTypeOf<C>, Shape{rows}));
    const C* const from = moved.data<C>();
    C* const to = sums.data<C>();
    c.ParallelFor(rows, n, [=, &c](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        C sum = 0;
        InPieces(c, n, [&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) sum += from[r * n + k];
        });
        to[r] = sum;
      }
    });
    *memory = sums;
    *view = View{memory->raw(), {}};
    int64_t stride = rows;
    for (char label : *kept) {
      if (stride == 0) break;
      stride /= sizes.at(label);
      view->strides[label] = stride;
    }
    return Status();
  }

  Equation equation_;
  Multiplier<C> multiplier_;
};

}  // namespace

void RegisterEinsum(KernelRegistry* registry) {
#define ADD(T) registry->Add<EinsumKernel<T>>({.op = "Einsum", .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::matmul
