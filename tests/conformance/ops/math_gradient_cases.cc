// Gradients of elementwise math, reductions and scans, to be compared with central differences.
// Tables of ops and the range of their inputs come first, then the cases that need more.
#include "ops/constant/constant.h"
#include "ops/diag/diag.h"
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
  for (const Binary& b :
       {Binary{"AddV2", -2, 2}, {"Add", -2, 2},       {"Sub", -2, 2},
        {"Mul", -2, 2},         {"Div", 0.5, 2},      {"RealDiv", 0.5, 2},
        {"DivNoNan", 0.5, 2},   {"Pow", 0.5, 2},      {"SquaredDifference", -2, 2},
        {"Maximum", -2, 2},     {"Minimum", -2, 2},   {"TruncateMod", 2.1, 3.9},
        {"Mod", 2.1, 3.9},      {"MulNoNan", 0.5, 2}, {"Xlogy", 0.5, 2},
        {"Xlog1py", 0.5, 2},    {"Xdivy", 0.5, 2},    {"Atan2", 0.5, 2},
        {"Igamma", 0.5, 2},     {"Igammac", 0.5, 2}}) {
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
  for (const Unary& u : {Unary{"Neg", -2, 2},   {"Exp", -2, 2},         {"Log", 0.3, 3},
                         {"Log1p", -0.5, 3},    {"Sqrt", 0.3, 3},       {"Rsqrt", 0.3, 3},
                         {"Square", -2, 2},     {"Abs", 0.1, 2},        {"Abs", -2, -0.1},
                         {"Sign", 0.1, 2},      {"Reciprocal", 0.3, 3}, {"Inv", 0.3, 3},
                         {"Sigmoid", -3, 3},    {"Tanh", -2, 2},        {"Sin", -3, 3},
                         {"Cos", -3, 3},        {"Tan", -1, 1},         {"Asin", -0.8, 0.8},
                         {"Acos", -0.8, 0.8},   {"Atan", -3, 3},        {"Sinh", -2, 2},
                         {"Cosh", -2, 2},       {"Asinh", -2, 2},       {"Acosh", 1.2, 4},
                         {"Atanh", -0.8, 0.8},  {"Expm1", -2, 2},       {"Erf", -2, 2},
                         {"Erfc", -2, 2},       {"Erfinv", -0.8, 0.8},  {"Ndtri", 0.1, 0.9},
                         {"Lgamma", 0.5, 4},    {"Digamma", 0.5, 4},    {"BesselI0", -4, 4},
                         {"BesselI0e", -4, 4},  {"BesselI1", -4, 4},    {"BesselI1e", -4, 4},
                         {"BesselJ0", -4, 4},   {"BesselJ1", -4, 4},    {"BesselK0", 0.5, 4},
                         {"BesselK0e", 0.5, 4}, {"BesselK1", 0.5, 4},   {"BesselK1e", 0.5, 4},
                         {"BesselY0", 0.5, 4},  {"BesselY1", 0.5, 4}}) {
    cases.push_back(
        {std::string(u.op) + " from " + std::to_string(u.low),
         [op = u.op](S s, In x) { return Outputs{OpBuilder(s, op).Input(x[0]).BuildOutput()}; },
         {{2, 3}},
         u.low,
         u.high});
  }
  // Of the second operand; none flows to the first one.
  for (const char* op : {"Polygamma", "Zeta"}) {
    cases.push_back({op,
                     [op](S s, In x) {
                       const Output order = ScalarConst(s, 3, DT_DOUBLE);
                       return Outputs{OpBuilder(s, op).Input(order).Input(x[0]).BuildOutput()};
                     },
                     {{2, 3}},
                     0.5,
                     4});
  }
  // Of x alone, where it has the result's shape and where it is a scalar.
  for (const bool scalar : {false, true}) {
    cases.push_back(
        {scalar ? "Betainc of a scalar" : "Betainc",
         [scalar](S s, In x) {
           const Output a = Const(s, {0.7, 1.0, 2.5});
           const Output b = scalar ? Const(s, {3.0, 0.4, 1.0}) : ScalarConst(s, 1.5, DT_DOUBLE);
           return Outputs{Betainc(s, a, b, x[0])};
         },
         {scalar ? Shape() : Shape{3}},
         0.2,
         0.8});
  }
  cases.push_back(
      {"NextAfter",
       [](S s, In x) { return Outputs{NextAfter(s, x[0], ScalarConst(s, 9, DT_DOUBLE))}; },
       {{2, 3}}});
  cases.push_back(
      {"Cross", [](S s, In x) { return Outputs{Cross(s, x[0], x[1])}; }, {{2, 3}, {2, 3}}});
  cases.push_back({"ClipByValue by numbers",
                   [](S s, In x) { return Outputs{ClipByValue(s, x[0], x[1], x[2])}; },
                   {Shape{5}, Shape(), Shape()},
                   0,
                   0,
                   {{-2, -0.5, 0.3, 0.9, 2}, {-1}, {0.7}}});
  cases.push_back({"ClipByValue by tensors",
                   [](S s, In x) { return Outputs{ClipByValue(s, x[0], x[1], x[2])}; },
                   {Shape{3}, Shape{3}, Shape{3}},
                   0,
                   0,
                   {{-2, 0.5, 3}, {-1, -1, -1}, {1, 1, 1}}});

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

  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"}) {
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
      cases.push_back({"CumulativeLogsumexp" + suffix,
                       [=](S s, In x) {
                         // Where exclusive, what begins is -infinity: of no use here.
                         const Output y =
                             CumulativeLogsumexp(s, x[0], Const(s, 1), exclusive, reverse);
                         return Outputs{Sub(s, Exp(s, y), Square(s, Exp(s, y)))};
                       },
                       {{2, 3, 2}}});
    }
  }
  cases.push_back({"Dropout", [](S s, In x) { return Outputs{Dropout(s, x[0], 0.5)}; }, {{4, 5}}});
  // All versions of ops of diagonals, of rectangles.
  for (const char* version : {"", "V2", "V3"}) {
    const bool first = *version == 0;
    const auto band = [=](const Scope& scope, OpBuilder builder, bool sizes, bool padding) {
      if (!first) builder.Input(IntsConst(scope, {-1, 1}));
      if (!first && sizes) builder.Input(Const(scope, 3)).Input(Const(scope, 4));
      if (!first && padding) builder.Input(Const(scope, 7.0));
      return Outputs{builder.BuildOutput()};
    };
    const std::string name = version;
    const Shape diagonals = first ? Shape{2, 3} : Shape{2, 3, 3};
    cases.push_back({"MatrixDiagPart" + name,
                     [=](S s, In x) {
                       return band(s, OpBuilder(s, "MatrixDiagPart" + name).Input(x[0]), false,
                                   true);
                     },
                     {{2, 3, 4}}});
    cases.push_back({"MatrixDiag" + name,
                     [=](S s, In x) {
                       return band(s, OpBuilder(s, "MatrixDiag" + name).Input(x[0]), true, true);
                     },
                     {diagonals}});
    cases.push_back({"MatrixSetDiag" + name,
                     [=](S s, In x) {
                       OpBuilder builder(s, "MatrixSetDiag" + name);
                       return band(s, builder.Input(x[0]).Input(x[1]), false, false);
                     },
                     {{2, 3, 4}, diagonals}});
  }
  cases.push_back(
      {"MatrixBandPart",
       [](S s, In x) { return Outputs{MatrixBandPart(s, x[0], Const(s, 1), Const(s, 0))}; },
       {{2, 3, 4}}});
  return cases;
}

}  // namespace monograph::optest
