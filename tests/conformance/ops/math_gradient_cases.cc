#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

using In = const Outputs&;
using S = const Scope&;

}  // namespace

std::vector<GradientCase> MathGradientCases() {
  std::vector<GradientCase> cases;

  struct Binary {
    const char* op;
    double low, high;
  };
  for (const Binary& b : {Binary{"AddV2", -2, 2},
                          {"Add", -2, 2},
                          {"Sub", -2, 2},
                          {"Mul", -2, 2},
                          {"Div", 0.5, 2},
                          {"RealDiv", 0.5, 2},
                          {"DivNoNan", 0.5, 2},
                          {"Pow", 0.5, 2},
                          {"SquaredDifference", -2, 2},
                          {"Maximum", -2, 2},
                          {"Minimum", -2, 2}}) {
    const auto build = [op = b.op](S s, In x) {
      return Outputs{OpBuilder(s, op).Input(x[0]).Input(x[1]).BuildOutput()};
    };
    cases.push_back(
        {std::string(b.op) + " of equal shapes", build, {{2, 3}, {2, 3}}, b.low, b.high});
    cases.push_back({std::string(b.op) + " with a row", build, {{2, 3}, Shape{3}}, b.low, b.high});
    cases.push_back({std::string(b.op) + " with a column", build, {{2, 1}, {2, 3}}, b.low, b.high});
    cases.push_back(
        {std::string(b.op) + " with a scalar", build, {Shape(), {2, 3}}, b.low, b.high});
    cases.push_back(
        {std::string(b.op) + " of crossing shapes", build, {{2, 1}, {4, 1, 3}}, b.low, b.high});
  }
  // Away from the jumps of floor.
  cases.push_back({"FloorMod",
                   [](S s, In x) { return Outputs{FloorMod(s, x[0], x[1])}; },
                   {Shape{4}, Shape{4}},
                   0,
                   0,
                   {{5.3, -5.3, 2.2, -0.4}, {2.0, 2.5, -1.5, -3.0}}});
  cases.push_back(
      {"AddN", [](S s, In x) { return Outputs{AddN(s, x)}; }, {{2, 3}, {2, 3}, {2, 3}}});

  struct Unary {
    const char* op;
    double low, high;
  };
  for (const Unary& u : {Unary{"Neg", -2, 2},
                         {"Exp", -2, 2},
                         {"Log", 0.3, 3},
                         {"Log1p", -0.5, 3},
                         {"Sqrt", 0.3, 3},
                         {"Rsqrt", 0.3, 3},
                         {"Square", -2, 2},
                         {"Abs", 0.1, 2},
                         {"Abs", -2, -0.1},
                         {"Sign", 0.1, 2},
                         {"Reciprocal", 0.3, 3},
                         {"Inv", 0.3, 3},
                         {"Sigmoid", -3, 3},
                         {"Tanh", -2, 2},
                         {"Sin", -3, 3},
                         {"Cos", -3, 3}}) {
    cases.push_back(
        {std::string(u.op) + " from " + std::to_string(u.low),
         [op = u.op](S s, In x) { return Outputs{OpBuilder(s, op).Input(x[0]).BuildOutput()}; },
         {{2, 3}},
         u.low,
         u.high});
  }
  for (const char* op :
       {"SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"}) {
    cases.push_back({op,
                     [op](S s, In x) {
                       return Outputs{OpBuilder(s, op).Input(x[0]).Input(x[1]).BuildOutput()};
                     },
                     {{2, 3}, {2, 3}},
                     0.3,
                     2});
  }

  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) {
    for (const auto& axes : {std::vector<int64_t>{1}, std::vector<int64_t>{0, -1},
                             std::vector<int64_t>{0, 1, 2}, std::vector<int64_t>{}}) {
      for (bool keep_dims : {false, true}) {
        std::string name = std::string(op) + (keep_dims ? " keeping dimensions, over" : " over");
        for (int64_t axis : axes) name += " " + std::to_string(axis);
        cases.push_back({name,
                         [op, axes, keep_dims](S s, In x) {
                           return Outputs{OpBuilder(s, op)
                                              .Input(x[0])
                                              .Input(IntsConst(s, axes))
                                              .Attr("keep_dims", keep_dims)
                                              .BuildOutput()};
                         },
                         {{2, 3, 4}}});
      }
    }
  }
  cases.push_back({"Prod of elements of which some are zero",
                   [](S s, In x) { return Outputs{Prod(s, x[0], IntsConst(s, {1}))}; },
                   {{3, 3}},
                   0,
                   0,
                   {{1, 2, 3, 0, 5, 6, 0, 0, 7}},
                   false});
  cases.push_back({"Prod over axes that are computed",
                   [](S s, In x) {
                     const Output axes = Sub(s, Rank(s, x[0]), IntsConst(s, {1, 5}));
                     return Outputs{Prod(s, x[0], axes)};
                   },
                   {{2, 3, 2}}});
  for (bool exclusive : {false, true}) {
    for (bool reverse : {false, true}) {
      const std::string suffix =
          std::string(exclusive ? " exclusive" : "") + (reverse ? " reverse" : "");
      cases.push_back(
          {"Cumsum" + suffix,
           [=](S s, In x) { return Outputs{Cumsum(s, x[0], Const(s, 1), exclusive, reverse)}; },
           {{2, 3, 2}}});
      cases.push_back(
          {"Cumprod" + suffix,
           [=](S s, In x) { return Outputs{Cumprod(s, x[0], Const(s, 1), exclusive, reverse)}; },
           {{2, 3, 2}},
           0.5,
           2});
    }
  }
  cases.push_back({"Dropout", [](S s, In x) { return Outputs{Dropout(s, x[0], 0.5)}; }, {{4, 5}}});
  return cases;
}

}  // namespace monograph::optest
