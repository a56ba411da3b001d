// Symbolic gradients against central differences, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/gradients.h"
#include "ops/constant/constant.h"
#include "ops/random/philox.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

// Numbers in [low, high), a function of the text.
Tensor Drawn(const std::string& text, const Shape& shape, double low, double high) {
  Tensor tensor = Tensor::Allocate(DT_DOUBLE, shape).value();
  const ops::random::RandomStream stream(1, 2, text, 3);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double unit = stream.Block(static_cast<uint64_t>(i)).words[0] * 0x1p-32;
    tensor.data<double>()[i] = low + unit * (high - low);
  }
  return tensor;
}

// sum over all outputs of output * weight.
double WeightedSum(const std::vector<Tensor>& outputs, const std::vector<Tensor>& weights) {
  double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    for (int64_t i = 0; i < outputs[k].elements(); ++i) {
      sum += outputs[k].data<double>()[i] * weights[k].data<double>()[i];
    }
  }
  return sum;
}

std::string CheckCase(const GradientCase& test, bool known_shapes) {
  Graph graph(&Ops());
  const Scope root(&graph);
  Outputs inputs;
  Feeds feeds;
  for (size_t k = 0; k < test.shapes.size(); ++k) {
    inputs.push_back(
        Placeholder(root, DT_DOUBLE, known_shapes ? PartialShape(test.shapes[k]) : PartialShape()));
    if (!root.ok()) return root.status().ToString();
    Tensor value =
        test.values.empty()
            ? Drawn(test.name + std::to_string(k), test.shapes[k], test.low, test.high)
            : Tensor::FromValues<double>(test.shapes[k], std::span<const double>(test.values[k]));
    feeds[inputs.back().endpoint] = std::move(value);
  }
  const Outputs ys = test.build(root, inputs);
  if (!root.ok()) return root.status().ToString();
  const auto forward = Evaluate(graph, feeds, ys);
  if (!forward.ok()) return forward.status().ToString();
  std::vector<Tensor> weights;
  Outputs grad_ys;
  for (size_t k = 0; k < ys.size(); ++k) {
    weights.push_back(
        Drawn(test.name + " weight " + std::to_string(k), (*forward)[k].shape(), -1, 1));
    grad_ys.push_back(Const(root, weights.back()));
  }
  const auto gradients = AddGradients(root, ys, inputs, grad_ys);
  if (!gradients.ok()) return gradients.status().ToString();
  Outputs flowing;
  for (const Output& gradient : *gradients) {
    if (gradient.valid()) flowing.push_back(gradient);
  }
  if (flowing.empty()) return "no gradient flows to any input";
  const auto symbolic = Evaluate(graph, feeds, flowing);
  if (!symbolic.ok()) return symbolic.status().ToString();
  size_t next = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor at = feeds[inputs[k].endpoint];
    const bool flows = (*gradients)[k].valid();
    Tensor zero = Tensor::Allocate(DT_DOUBLE, at.shape()).value();
    std::fill_n(zero.data<double>(), zero.elements(), 0.0);
    const Tensor& gradient = flows ? (*symbolic)[next++] : zero;
    if (gradient.shape() != at.shape()) {
      return "the gradient of input " + std::to_string(k) + " has shape " +
             gradient.shape().ToString() + ", the input " + at.shape().ToString();
    }
    for (int64_t i = 0; i < at.elements(); ++i) {
      double sums[2];
      for (int side = 0; side < 2; ++side) {
        Tensor moved = at.Clone().value();
        moved.data<double>()[i] += side == 0 ? -test.step : test.step;
        feeds[inputs[k].endpoint] = moved;
        const auto outputs = Evaluate(graph, feeds, ys);
        if (!outputs.ok()) return outputs.status().ToString();
        sums[side] = WeightedSum(*outputs, weights);
      }
      const double numeric = (sums[1] - sums[0]) / (2 * test.step),
                   claimed = gradient.data<double>()[i];
      if (!(std::abs(numeric - claimed) <= 1e-6 + 1e-5 * std::abs(numeric))) {
        return "d/d(input " + std::to_string(k) + ")[" + std::to_string(i) + "] is " +
               std::to_string(claimed) + ", by differences " + std::to_string(numeric);
      }
    }
    feeds[inputs[k].endpoint] = at;
  }
  return "";
}

TEST(Gradients, EqualCentralDifferences) {
  for (const GradientCase& test : AllGradientCases()) {
    const std::string wrong = CheckCase(test, /*known_shapes=*/true);
    if (!wrong.empty()) ADD_FAILURE() << test.name << ": " << wrong;
    if (!test.unknown_shapes) continue;
    const std::string also = CheckCase(test, /*known_shapes=*/false);
    if (!also.empty()) ADD_FAILURE() << test.name << " with unknown shapes: " << also;
  }
}

}  // namespace
}  // namespace monograph::optest
