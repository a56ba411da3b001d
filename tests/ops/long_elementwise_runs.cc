// Runs of kernels that compute each element by itself, or each row: functions of one and of two
// numbers, their gradients, and the smallest and largest of many. They differ by op alone, so that
// a list of names and a size say all.
#include "tests/ops/long_runs.h"

namespace monograph::testing {
namespace {

using Names = std::vector<const char*>;

void AddUnary(const Names& ops, DType dtype, int64_t n, std::vector<LongRun>* runs) {
  for (const char* op : ops) {
    runs->push_back({op, [=] { return std::vector{Zeros(dtype, {n})}; }});
  }
}

void AddBinary(const Names& ops, DType dtype, int64_t n, std::vector<LongRun>* runs) {
  for (const char* op : ops) {
    runs->push_back({op, [=] { return std::vector{Zeros(dtype, {n}), Zeros(dtype, {n})}; }});
  }
}

}  // namespace

std::vector<LongRun> ElementwiseRuns() {
  std::vector<LongRun> runs;
  AddUnary({"Abs", "Ceil", "Floor", "Inv", "IsFinite", "IsInf", "IsNan", "Neg", "Reciprocal",
            "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Sign", "Softsign", "Sqrt", "Square"},
           DT_FLOAT, 6 * kRow, &runs);
  AddUnary({"Acos",      "Acosh",     "Asin",      "Asinh",    "Atan",     "Atanh",    "BesselI0",
            "BesselI0e", "BesselI1",  "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e",
            "BesselK1",  "BesselK1e", "BesselY0",  "BesselY1", "Cos",      "Cosh",     "Digamma",
            "Erf",       "Erfc",      "Erfinv",    "Expm1",    "Lgamma",   "Log",      "Log1p",
            "Ndtri",     "Selu",      "Sigmoid",   "Sin",      "Sinh",     "Softplus", "Tan",
            "Tanh",      "_Gelu"},
           DT_FLOAT, 3 * kRow, &runs);
  AddUnary({"Invert", "PopulationCount"}, DT_INT32, 6 * kRow, &runs);
  AddUnary({"LogicalNot"}, DT_BOOL, 20 * kRow, &runs);
  AddBinary({"Add",           "ApproximateEqual",
             "Atan2",         "Div",
             "DivNoNan",      "EluGrad",
             "Equal",         "FloorDiv",
             "FloorMod",      "Greater",
             "GreaterEqual",  "InvGrad",
             "LeakyReluGrad", "Less",
             "LessEqual",     "Maximum",
             "Minimum",       "Mod",
             "Mul",           "MulNoNan",
             "NextAfter",     "NotEqual",
             "RealDiv",       "ReciprocalGrad",
             "Relu6Grad",     "ReluGrad",
             "RsqrtGrad",     "SeluGrad",
             "SigmoidGrad",   "SoftsignGrad",
             "SqrtGrad",      "SquaredDifference",
             "Sub",           "TanhGrad",
             "TruncateMod",   "Xdivy",
             "Xlog1py",       "Xlogy",
             "_GeluGrad"},
            DT_FLOAT, 3 * kRow, &runs);
  AddBinary({"Igammac", "IgammaGradA", "Zeta"}, DT_FLOAT, kRow / 5, &runs);
  AddBinary({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"}, DT_INT32,
            4 * kRow, &runs);
  AddBinary({"LogicalAnd", "LogicalOr"}, DT_BOOL, 10 * kRow, &runs);
  for (const char* op : {"Min", "ArgMin", "CumulativeLogsumexp"}) {
    runs.push_back({op, [] { return std::vector{Floats({4 * kRow}), Tensor::Scalar(0)}; }});
  }
  for (const char* op : {"All", "Any"}) {
    runs.push_back({op, [] { return std::vector{Zeros(DT_BOOL, {20 * kRow}), Ints({0})}; }});
  }
  runs.push_back({"SegmentMin", [] {
                    return std::vector{Floats({2 * kRow}), Zeros(DT_INT32, {2 * kRow})};
                  }});
  runs.push_back(
      {"UnsortedSegmentMin", [] {
         return std::vector{Floats({2 * kRow}), Zeros(DT_INT32, {2 * kRow}), Tensor::Scalar(2)};
       }});
  return runs;
}

}  // namespace monograph::testing
