// The equation of Einsum: what its shape function, its gradient and its kernel read from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "base/status.h"

namespace monograph::ops::matmul {

// "ij,jk->ik": a label for each dimension. "..." stands for any dimensions, which broadcast.
class Equation {
 public:
  static Result<Equation> Parse(const std::string& text, int operands);

  // Labels of an operand and of the result, "..." as '.'.
  const std::string& input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  const std::string& output() const { return output_; }

  // The same for an operand of this rank: what "..." stands for as the digits from '0' on, the last
  // of them for its last dimension. InvalidArgument if the rank does not fit.
  Result<std::string> Labels(int i, int rank) const;
  // Of a result whose "..." is `dots` dimensions.
  std::string OutputLabels(int dots) const;
  // Unknown if a rank is. InvalidArgument for operands that do not fit.
  Result<PartialShape> OutputShape(std::span<const PartialShape> inputs) const;
  // Unimplemented for an equation whose gradient we cannot write; `node` is for the message.
  Status CheckGradient(std::string_view node) const;

 private:
  static constexpr int kMostDots = 8;
  std::string text_, output_;
  std::vector<std::string> inputs_;
};

}  // namespace monograph::ops::matmul
