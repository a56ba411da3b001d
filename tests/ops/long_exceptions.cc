// Which ops with a CPU kernel have no run of their own in the test of long kernels, and why.
// Ops with a resource among their inputs are none of these: KernelContext::cancelled says that
// their kernels are never left unfinished.
#include "tests/ops/long_runs.h"

namespace monograph::testing {
namespace {

using Ops = std::vector<const char*>;

// Ops of a family of which another has a run: their loops are cut by the same means.
const std::vector<std::pair<const char*, Ops>>& Likenesses() {
  static const std::vector<std::pair<const char*, Ops>> likenesses = {
      {"Exp",
       {"Abs",        "Acos",  "Acosh",  "Asin",       "Asinh",    "Atan",  "Atanh",
        "Ceil",       "Cos",   "Cosh",   "Digamma",    "Erf",      "Erfc",  "Erfinv",
        "Expm1",      "Floor", "Inv",    "Invert",     "IsFinite", "IsInf", "IsNan",
        "Lgamma",     "Log",   "Log1p",  "LogicalNot", "Ndtri",    "Neg",   "PopulationCount",
        "Reciprocal", "Rint",  "Round",  "Rsqrt",      "Sigmoid",  "Sign",  "Sin",
        "Sinh",       "Sqrt",  "Square", "Tan",        "Tanh"}},
      {"AddV2",
       {"Add",
        "ApproximateEqual",
        "Atan2",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Div",
        "DivNoNan",
        "Equal",
        "FloorDiv",
        "FloorMod",
        "Greater",
        "GreaterEqual",
        "InvGrad",
        "LeftShift",
        "Less",
        "LessEqual",
        "LogicalAnd",
        "LogicalOr",
        "Maximum",
        "Minimum",
        "Mod",
        "Mul",
        "MulNoNan",
        "NextAfter",
        "NotEqual",
        "RealDiv",
        "ReciprocalGrad",
        "RightShift",
        "RsqrtGrad",
        "SigmoidGrad",
        "SqrtGrad",
        "SquaredDifference",
        "Sub",
        "TanhGrad",
        "TruncateDiv",
        "TruncateMod",
        "Xdivy",
        "Xlog1py",
        "Xlogy"}},
      {"Igamma", {"Igammac", "IgammaGradA"}},
      {"Polygamma", {"Zeta"}},
      {"Elu",
       {"EluGrad", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Selu", "SeluGrad", "Softplus",
        "Softsign", "SoftsignGrad"}},
      {"LeakyRelu", {"LeakyReluGrad"}},
      {"ArgMax", {"ArgMin"}},
      {"Max", {"Min"}},
      {"Sum", {"All", "Any"}},
      {"Unique", {"UniqueWithCountsV2"}},
      {"SegmentMax", {"SegmentMin"}},
      {"UnsortedSegmentMax", {"UnsortedSegmentMin"}},
      {"SparseSegmentSum",
       {"SparseSegmentSumWithNumSegments", "SparseSegmentSqrtN",
        "SparseSegmentSqrtNWithNumSegments", "SparseSegmentMeanWithNumSegments"}},
      {"SparseSegmentMeanGrad", {"SparseSegmentSumGrad", "SparseSegmentSqrtNGrad"}},
      {"MatrixDiag", {"MatrixDiagV2", "MatrixDiagV3"}},
      {"MatrixDiagPartV2", {"MatrixDiagPart", "MatrixDiagPartV3"}},
      {"StridedSlice", {"Slice", "DiagPart"}},
      {"MatrixSetDiag", {"MatrixSetDiagV2", "MatrixSetDiagV3"}},
      {"SpaceToBatchND", {"SpaceToBatch"}},
      {"BatchToSpaceND", {"BatchToSpace"}},
      {"TensorScatterAdd", {"ScatterNdNonAliasingAdd", "TensorScatterSub"}},
      {"TensorScatterMin", {"TensorScatterMax"}},
      {"InplaceAdd", {"InplaceSub"}},
      {"Conv3DBackpropInputV2", {"Conv3DBackpropInput"}},
      {"Conv3DBackpropFilterV2", {"Conv3DBackpropFilter"}},
      {"Conv2D", {"_FusedConv2D"}},
      {"Conv2DBackpropInput", {"_Conv2DBackpropInput", "_Conv2DBackprop"}},
      {"MaxPool", {"MaxPoolV2"}},
      {"MaxPoolGrad", {"MaxPoolGradV2"}},
      {"MaxPoolGradGrad", {"MaxPoolGradGradV2"}},
      {"MaxPoolWithArgmax", {"MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"}},
      {"DynamicStitch", {"ParallelDynamicStitch"}},
      {"FusedBatchNormV3",
       {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormGrad", "FusedBatchNormGradV2",
        "_FusedBatchNormEx", "_FusedBatchNormGradEx"}},
      {"MatMul", {"_FusedMatMul"}},
      {"BatchMatMulV2", {"BatchMatMul", "BatchMatMulV3"}},
      {"ConcatV2", {"Concat"}},
      {"SplitV", {"Split"}},
      {"GatherV2", {"Gather"}},
      {"ReverseV2", {"Reverse"}},
      {"SelectV2", {"Select"}},
      {"InTopKV2", {"InTopK"}},
      {"BiasAdd", {"BiasAddV1"}},
      {"Fill", {"ZerosLike", "OnesLike"}},
      {"Cast", {"_MultiCast"}},
      {"AddN", {"_FusedElementwise"}},
      {"TensorListConcatV2", {"TensorListConcat"}},
      {"TensorListFromTensor",
       {"TensorListConcatLists", "TensorListPushBackBatch", "TensorListScatter",
        "TensorListScatterIntoExistingList", "TensorListScatterV2", "TensorListSplit"}},
  };
  return likenesses;
}

// Other reasons.
const std::vector<std::pair<const char*, Ops>>& Others() {
  static const std::vector<std::pair<const char*, Ops>> others = {
      {"passes its input on, or tells of its shape",
       {"Bitcast", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "NoOp", "PreventGradient",
        "Rank", "Reshape", "Shape", "ShapeN", "Size", "Snapshot", "Squeeze", "StopGradient",
        "Const", "Placeholder", "PlaceholderWithDefault"}},
      {"computes with the dimensions of a shape",
       {"BroadcastArgs", "BroadcastGradientArgs", "ConcatOffset"}},
      {"takes, gives or counts elements of a list, or an optional value, without a copy of numbers",
       {"EmptyTensorList", "OptionalFromValue", "OptionalGetValue", "OptionalHasValue",
        "OptionalNone", "TensorListElementShape", "TensorListGetItem", "TensorListLength",
        "TensorListPopBack", "TensorListPushBack", "TensorListReserve", "TensorListResize",
        "TensorListSetItem"}},
      {"makes a resource, or its handle",
       {"VarHandleOp", "FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2",
        "PriorityQueueV2", "HashTableV2", "MutableHashTableV2", "StackV2", "TensorArrayV3",
        "TFRecordReaderV2", "TextLineReaderV2", "FixedLengthRecordReaderV2", "WholeFileReaderV2",
        "IdentityReaderV2", "ResourceConditionalAccumulator",
        "MonographSparseConditionalAccumulator", "MonographStepGate", "_TemporaryVariable",
        "_DestroyTemporaryVariable"}},
      {"reads or writes files: calls of the system, a thread of its own, or both",
       {"ReadFile", "WriteFile", "MatchingFiles", "SaveV2", "RestoreV2", "MergeV2Checkpoints",
        "MonographDatasetBatch"}},
      {"makes a short text; a long one only where the user asks for it by 'summarize'",
       {"Assert", "Print", "PrintV2", "ShardedFilename"}},
      {"a program's own function", {"PyFunc", "PyFuncStateless", "EagerPyFunc"}},
      {"a library writes the message, and gives its parts back, in one call",
       {"TensorSummaryV2", "ScalarSummary"}},
      {"waits for other tasks, and an abort ends that",
       {"CollectiveReduceV2", "CollectiveGatherV2", "CollectiveBcastRecvV2",
        "CollectiveBcastSendV2", "MonographAllReduce", "MonographJobRun", "MonographJobRunBegin",
        "MonographJobRunFinish", "MonographJobRunJoin", "MonographJobRunReady"}},
  };
  return others;
}

}  // namespace

std::vector<std::pair<std::string, Exception>> Exceptions() {
  std::vector<std::pair<std::string, Exception>> exceptions;
  for (const auto& [like, ops] : Likenesses()) {
    for (const char* op : ops)
      exceptions.push_back({op, {"loops that are cut by the same means", like}});
  }
  for (const auto& [why, ops] : Others()) {
    for (const char* op : ops) exceptions.push_back({op, {why, ""}});
  }
  return exceptions;
}

}  // namespace monograph::testing
