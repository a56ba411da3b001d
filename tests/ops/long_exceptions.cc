// Which ops with a CPU kernel run as others do in the test of long kernels, and which have no run
// of their own, and why.
#include "tests/ops/long_runs.h"

namespace monograph::testing {
namespace {

using Ops = std::vector<const char*>;

// Ops of a family of which another has a run: their loops are cut by the same means.
const std::vector<std::pair<const char*, Ops>>& Likenesses() {
  static const std::vector<std::pair<const char*, Ops>> likenesses = {
      {"AddV2", {"TruncateDiv"}},
      {"Unique", {"UniqueWithCountsV2"}},
      {"SparseSegmentSum",
       {"SparseSegmentSumWithNumSegments", "SparseSegmentSqrtNWithNumSegments",
        "SparseSegmentMeanWithNumSegments"}},
      {"SparseToSparseSetOperation", {"DenseToSparseSetOperation"}},
      {"MatrixDiag", {"MatrixDiagV2", "MatrixDiagV3"}},
      {"MatrixDiagPartV2", {"MatrixDiagPart", "MatrixDiagPartV3"}},
      {"StridedSlice", {"Slice", "DiagPart"}},
      {"MatrixSetDiag", {"MatrixSetDiagV2", "MatrixSetDiagV3"}},
      {"SpaceToBatchND", {"SpaceToBatch"}},
      {"BatchToSpaceND", {"BatchToSpace"}},
      {"Conv3DBackpropInputV2", {"Conv3DBackpropInput"}},
      {"Conv3DBackpropFilterV2", {"Conv3DBackpropFilter"}},
      {"DrawBoundingBoxes", {"DrawBoundingBoxesV2"}},
      {"NonMaxSuppression",
       {"NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4",
        "NonMaxSuppressionV5"}},
      {"SampleDistortedBoundingBox", {"SampleDistortedBoundingBoxV2"}},
      {"DecodeJpeg", {"DecodeAndCropJpeg"}},
      {"Conv2D", {"_FusedConv2D"}},
      {"Conv2DBackpropInput", {"_Conv2DBackpropInput", "_Conv2DBackprop"}},
      {"Conv2DBackpropFilter", {"_Conv2DBackpropFilter"}},
      {"MaxPool", {"MaxPoolV2"}},
      {"MaxPoolGrad", {"MaxPoolGradV2"}},
      {"MaxPoolGradGrad", {"MaxPoolGradGradV2"}},
      {"MaxPoolWithArgmax", {"MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"}},
      {"FusedBatchNormV3",
       {"FusedBatchNorm", "FusedBatchNormGrad", "FusedBatchNormGradV2", "_FusedBatchNormEx",
        "_FusedBatchNormGradEx"}},
      {"MatMul", {"_FusedMatMul"}},
      {"BatchMatMulV2", {"BatchMatMulV3"}},
      {"ConcatV2", {"Concat"}},
      {"SplitV", {"Split"}},
      {"GatherV2", {"Gather"}},
      {"ReverseV2", {"Reverse"}},
      {"InTopKV2", {"InTopK"}},
      {"Fill", {"ZerosLike", "OnesLike"}},
      {"Cast", {"_MultiCast"}},
      {"AddN", {"_FusedElementwise"}},
      {"TensorListConcatV2", {"TensorListConcat"}},
      {"TensorListFromTensor",
       {"TensorListConcatLists", "TensorListPushBackBatch", "TensorListScatter",
        "TensorListScatterIntoExistingList", "TensorListScatterV2", "TensorListSplit"}},
      {"ResourceApplyGradientDescent",
       {"ResourceApplyAdaMax", "ResourceApplyAdadelta", "ResourceApplyAdagrad",
        "ResourceApplyAdagradDA", "ResourceApplyAdagradV2", "ResourceApplyAdam",
        "ResourceApplyAdamWithAmsgrad", "ResourceApplyKerasMomentum", "ResourceApplyAddSign",
        "ResourceApplyCenteredRMSProp", "ResourceApplyFtrl", "ResourceApplyFtrlV2",
        "ResourceApplyMomentum", "ResourceApplyPowerSign", "ResourceApplyProximalAdagrad",
        "ResourceApplyProximalGradientDescent", "ResourceApplyRMSProp", "_MultiResourceApply"}},
      {"ResourceSparseApplyAdagrad",
       {"ResourceSparseApplyAdadelta", "ResourceSparseApplyAdagradDA",
        "ResourceSparseApplyAdagradV2", "ResourceSparseApplyCenteredRMSProp",
        "ResourceSparseApplyFtrl", "ResourceSparseApplyFtrlV2", "ResourceSparseApplyKerasMomentum",
        "ResourceSparseApplyMomentum", "ResourceSparseApplyProximalAdagrad",
        "ResourceSparseApplyProximalGradientDescent", "ResourceSparseApplyRMSProp"}},
      {"StaticRegexReplace", {"RegexReplace"}},
      {"ReaderReadUpToV2", {"ReaderReadV2"}},
      {"QueueDequeueManyV2", {"_BarrierTakeMany"}},
      {"TensorArrayGradV3", {"TensorArrayGradWithShape"}},
      {"MonographSparseAccumulatorTakeGradient", {"_SparseAccumulatorTakeGradient"}},
  };
  return likenesses;
}

// Other reasons.
const std::vector<std::pair<const char*, Ops>>& Others() {
  static const std::vector<std::pair<const char*, Ops>> others = {
      {"passes its input on, or tells of its shape",
       {"Bitcast", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "NoOp", "PreventGradient",
        "Rank", "Reshape", "Shape", "ShapeN", "Size", "Snapshot", "Squeeze", "StopGradient",
        "Const", "Placeholder", "PlaceholderWithDefault", "_SelectHandle"}},
      {"reads the header of a file", {"ExtractJpegShape"}},
      {"fails", {"_RecursionEnd"}},
      {"computes with the dimensions of a shape",
       {"BroadcastArgs", "BroadcastGradientArgs", "ConcatOffset"}},
      {"takes, gives or counts elements of a list, or an optional value, without a copy of numbers",
       {"EmptyTensorList", "OptionalFromValue", "OptionalGetValue", "OptionalHasValue",
        "OptionalNone", "TensorListElementShape", "TensorListGetItem", "TensorListLength",
        "TensorListPopBack", "TensorListPushBack", "TensorListReserve", "TensorListResize",
        "TensorListSetItem"}},
      {"makes a resource, or its handle",
       {"VarHandleOp",
        "FIFOQueueV2",
        "RandomShuffleQueueV2",
        "PaddingFIFOQueueV2",
        "PriorityQueueV2",
        "HashTableV2",
        "MutableHashTableV2",
        "MutableHashTableOfTensorsV2",
        "MutableDenseHashTableV2",
        "_MutableDenseHashTable",
        "AnonymousHashTable",
        "AnonymousMutableHashTable",
        "AnonymousMutableHashTableOfTensors",
        "AnonymousMutableDenseHashTable",
        "StackV2",
        "TensorArrayV3",
        "TFRecordReaderV2",
        "TextLineReaderV2",
        "FixedLengthRecordReaderV2",
        "WholeFileReaderV2",
        "IdentityReaderV2",
        "ResourceConditionalAccumulator",
        "MonographSparseConditionalAccumulator",
        "MonographStepGate",
        "_Barrier",
        "_SparseConditionalAccumulator",
        "_Stack",
        "_TemporaryVariable",
        "_DestroyTemporaryVariable"}},
      {"reads or changes a few numbers of a resource, or ends it",
       {"DestroyResourceOp",
        "LookupTableSizeV2",
        "MonographAccumulatorRanks",
        "MonographStepGateClose",
        "MonographStepGateHold",
        "MonographStepGateSet",
        "MonographStepGateStep",
        "QueueCloseV2",
        "QueueIsClosedV2",
        "QueueSizeV2",
        "ReaderNumRecordsProducedV2",
        "ReaderNumWorkUnitsCompletedV2",
        "ReaderResetV2",
        "ReaderSerializeStateV2",
        "ReaderRestoreStateV2",
        "ResourceAccumulatorNumAccumulated",
        "ResourceAccumulatorSetGlobalStep",
        "ResourceCountUpTo",
        "StackCloseV2",
        "TensorArrayCloseV3",
        "TensorArraySizeV3",
        "VarIsInitializedOp",
        "VariableShape",
        "_BarrierClose",
        "_BarrierIncompleteSize",
        "_BarrierReadySize"}},
      {"gives or takes a tensor without a copy, but for a small view of a large one",
       {"QueueDequeueV2", "QueueEnqueueV2", "ReadVariableOp", "StackPopV2", "StackPushV2"}},
      {"adds one gradient, whole or not at all",
       {"MonographSparseAccumulatorApplyGradient", "ResourceAccumulatorApplyGradient",
        "_SparseAccumulatorApplyGradient"}},
      {"reads or writes files: calls of the system, a thread of its own, or both",
       {"ReadFile", "WriteFile", "MatchingFiles", "SaveV2", "RestoreV2", "MergeV2Checkpoints",
        "MonographDatasetBatch"}},
      {"makes a short text; a long one only where the user asks for it by 'summarize'",
       {"Assert", "Print", "PrintV2", "ShardedFilename"}},
      {"a program's own function", {"PyFunc", "PyFuncStateless", "EagerPyFunc"}},
      {"a library writes the message, and gives its parts back, in one call",
       {"TensorSummaryV2", "ScalarSummary"}},
      {"waits for other tasks, and an abort ends that",
       {"MonographStepGateWait", "CollectiveReduceV2", "CollectiveGatherV2",
        "CollectiveBcastRecvV2", "CollectiveBcastSendV2", "MonographAllReduce", "MonographJobRun",
        "MonographJobRunBegin", "MonographJobRunFinish", "MonographJobRunFinished",
        "MonographJobRunJoin", "MonographJobRunReady"}},
  };
  return others;
}

}  // namespace

std::vector<std::pair<const char*, std::vector<const char*>>> SameInputs() {
  return {
      {"StringToHashBucketFast", {"StringToHashBucket"}},
      {"SparseSegmentSum", {"SparseSegmentSqrtN"}},
      {"SparseSegmentMeanGrad", {"SparseSegmentSumGrad", "SparseSegmentSqrtNGrad"}},
      {"SparseSparseMaximum", {"SparseSparseMinimum"}},
      {"SparseDenseCwiseMul", {"SparseDenseCwiseAdd", "SparseDenseCwiseDiv"}},
      {"UniformCandidateSampler", {"LogUniformCandidateSampler"}},
      {"LearnedUnigramCandidateSampler", {"ThreadUnsafeUnigramCandidateSampler"}},
      {"TensorScatterAdd", {"ScatterNdNonAliasingAdd", "TensorScatterSub"}},
      {"TensorScatterMin", {"TensorScatterMax"}},
      {"InplaceAdd", {"InplaceSub"}},
      {"DynamicStitch", {"ParallelDynamicStitch"}},
      {"FusedBatchNormV3", {"FusedBatchNormV2"}},
      {"BatchMatMulV2", {"BatchMatMul"}},
      {"BiasAdd", {"BiasAddV1"}},
      {"SelectV2", {"Select"}},
      {"AssignAddVariableOp", {"AssignSubVariableOp"}},
      {"ResourceScatterAdd",
       {"ResourceScatterDiv", "ResourceScatterMax", "ResourceScatterMin", "ResourceScatterMul",
        "ResourceScatterSub", "ResourceScatterUpdate"}},
      {"ResourceScatterNdAdd",
       {"ResourceScatterNdMax", "ResourceScatterNdMin", "ResourceScatterNdSub",
        "ResourceScatterNdUpdate"}},
      {"QueueDequeueManyV2", {"QueueDequeueUpToV2"}},
  };
}

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
