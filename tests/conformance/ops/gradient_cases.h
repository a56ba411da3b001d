// Expressions whose symbolic gradients are compared with numeric ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph::optest {

struct GradientCase {
  std::string name;
  // Builds the expression from inputs of type double.
  std::function<Outputs(const Scope&, const Outputs&)> build;
  // Shapes of the inputs; values are drawn from [low, high) by the case's name.
  std::vector<Shape> shapes;
  double low = -2, high = 2;
  // Values to use instead, for ops whose gradient needs them apart (Max, Maximum).
  std::vector<std::vector<double>> values = {};
  // Also with inputs of unknown shape.
  bool unknown_shapes = true;
  // Of the central differences.
  double step = 1e-5;
};

std::vector<GradientCase> ArrayGradientCases();
std::vector<GradientCase> DataGradientCases();
std::vector<GradientCase> MathGradientCases();
std::vector<GradientCase> NnGradientCases();
inline std::vector<GradientCase> AllGradientCases() {
  std::vector<GradientCase> all = ArrayGradientCases();
  for (auto cases : {DataGradientCases(), MathGradientCases(), NnGradientCases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

}  // namespace monograph::optest
