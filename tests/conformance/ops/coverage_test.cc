// No op without cases: one that has none shows up here by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "graph/op_def.h"
#include "ops/constant/constant.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/conformance/ops/golden.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

namespace fs = std::filesystem;

// By op. A reason that names a test ("FILE beside this file", or its path, a folder of files too)
// is checked: the test must be there and name the op, or what comes after " as ".
using Reasons = std::map<std::string, std::string>;

const Reasons& WithoutGoldenCase() {
  static const char* const lists = "of variants, in whole graphs: tests/golden/graphs/tensor_lists";
  static const Reasons reasons = {
      {"RandomUniform", "its values are ours: random_test beside this file"},
      {"RandomStandardNormal", "its values are ours: random_test beside this file"},
      {"TruncatedNormal", "its values are ours: random_test beside this file"},
      {"RandomUniformInt", "its values are ours: random_test beside this file"},
      {"Multinomial", "its values are ours: random_test beside this file"},
      {"RandomShuffle", "its values are ours: random_test beside this file"},
      {"HashTableV2", "has state: tests/ops/lookup_test"},
      {"MutableHashTableV2", "has state: tests/ops/lookup_test"},
      {"MutableHashTableOfTensorsV2", "has state: tests/golden/graphs/tables"},
      {"MutableDenseHashTableV2", "has state: tests/golden/graphs/tables"},
      {"_MutableDenseHashTable", "has state: tests/ops/lookup_test"},
      {"AnonymousHashTable", "has state: tests/golden/graphs/tables"},
      {"AnonymousMutableHashTable", "has state: tests/golden/graphs/tables"},
      {"AnonymousMutableHashTableOfTensors", "has state: tests/golden/graphs/tables"},
      {"AnonymousMutableDenseHashTable", "has state: tests/golden/graphs/tables"},
      {"InitializeTableV2", "has state: tests/ops/lookup_test"},
      {"InitializeTableFromTextFileV2", "has state: tests/ops/lookup_test"},
      {"LookupTableFindV2", "has state: tests/ops/lookup_test"},
      {"LookupTableInsertV2", "has state: tests/ops/lookup_test"},
      {"LookupTableImportV2", "has state: tests/ops/lookup_test"},
      {"LookupTableRemoveV2", "has state: tests/ops/lookup_test"},
      {"LookupTableExportV2", "has state: tests/ops/lookup_test"},
      {"LookupTableSizeV2", "has state: tests/ops/lookup_test"},
      {"TFRecordReaderV2", "reads, writes or prints: tests/ops/reader_test"},
      {"TextLineReaderV2", "reads, writes or prints: tests/ops/reader_test"},
      {"FixedLengthRecordReaderV2", "reads, writes or prints: tests/ops/reader_test"},
      {"WholeFileReaderV2", "reads, writes or prints: tests/ops/reader_test"},
      {"IdentityReaderV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderReadV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderReadUpToV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderNumRecordsProducedV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderNumWorkUnitsCompletedV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderResetV2", "reads, writes or prints: tests/ops/reader_test"},
      {"ReaderSerializeStateV2", "has state: tests/ops/reader_test"},
      {"ReaderRestoreStateV2", "has state: tests/ops/reader_test"},
      {"ReadFile", "reads, writes or prints: tests/ops/reader_test"},
      {"WriteFile", "reads, writes or prints: tests/ops/reader_test"},
      {"MatchingFiles", "reads, writes or prints: tests/ops/reader_test"},
      {"Print", "reads, writes or prints: tests/ops/reader_test"},
      {"PrintV2", "reads, writes or prints: tests/ops/reader_test"},
      {"_FusedAttention", "ours alone: tests/ops/attention_test"},
      {"_FusedAttentionGrad", "ours alone: tests/ops/attention_test"},
      {"_FusedLayerNorm", "ours alone: tests/ops/layer_norm_test"},
      {"_FusedLayerNormGrad", "ours alone: tests/ops/layer_norm_test"},
      {"_Gelu", "ours alone: tests/ops/layer_norm_test"},
      {"_GeluGrad", "ours alone: tests/ops/layer_norm_test"},
      {"_FusedMatMul", "against the separate ops: tests/ops/matmul_test"},
      {"_FusedConv2D", "against the separate ops: tests/ops/image_test"},
      {"_Conv2DBackprop", "against the separate ops: tests/ops/fuse_test"},
      {"_FusedBatchNormEx", "against the separate ops: tests/ops/fuse_test"},
      {"_FusedBatchNormGradEx", "against the separate ops: tests/ops/fuse_test"},
      {"Placeholder", "only a step that forgets to feed runs it: tests/ops/array_test"},
      {"MonographDatasetBatch", "ours alone: tests/ops/input_test"},
      {"SaveV2", "writes files: tests/train/saver_test"},
      {"RestoreV2", "reads files: tests/train/saver_test"},
      {"MergeV2Checkpoints", "moves files: tests/train/tensorflow_job_test"},
      {"ShardedFilename", "names files: tests/train/tensorflow_job_test"},
      {"StringJoin", "names files: tests/train/tensorflow_job_test"},
      {"PyFunc", "calls the program: tests/client/py_func_test"},
      {"PyFuncStateless", "calls the program: tests/client/py_func_test"},
      {"EagerPyFunc",
       "calls the program: tests/python/with_tensorflow/test_py_func.py as py_function"},
      {"GetSessionHandle", "needs a session: tests/client/session_test"},
      {"GetSessionHandleV2", "needs a session: tests/client/session_test"},
      {"GetSessionTensor", "needs a session: tests/client/session_test"},
      {"DeleteSessionTensor", "needs a session: tests/client/session_test"},
      {"CollectiveReduceV2", "needs a session: tests/client/collective_test"},
      {"CollectiveGatherV2", "needs a session: tests/client/collective_test"},
      {"CollectiveBcastSendV2",
       "needs a session: tests/client/collective_test as CollectiveBroadcastSend"},
      {"CollectiveBcastRecvV2",
       "needs a session: tests/client/collective_test as CollectiveBroadcastRecv"},
      {"MonographAllReduce", "ours alone: tests/client/collective_test"},
      {"VarHandleOp", "has state: tests/ops/variable_fixture.h"},
      {"_HandleStrings", "reads a handle: tests/client/references_test"},
      {"ReadVariableOp", "has state: tests/ops/variable_test"},
      {"AssignVariableOp", "has state: tests/ops/variable_test"},
      {"AssignAddVariableOp", "has state: tests/ops/variable_test"},
      {"AssignSubVariableOp", "has state: tests/ops/variable_test"},
      {"ResourceCountUpTo", "has state: tests/ops/variable_test"},
      {"VarIsInitializedOp", "has state: tests/ops/variable_test"},
      {"VariableShape", "has state: tests/ops/variable_test"},
      {"ResourceGather", "has state: tests/ops/variable_test"},
      {"ResourceScatterAdd", "has state: tests/ops/variable_test"},
      {"ResourceScatterSub", "has state: tests/ops/variable_test"},
      {"DestroyResourceOp", "has state: tests/ops/variable_test"},
      {"FIFOQueueV2", "has state: tests/train/queue_test"},
      {"RandomShuffleQueueV2", "has state: tests/train/queue_test"},
      {"PaddingFIFOQueueV2", "has state: tests/ops/reader_test"},
      {"PriorityQueueV2", "has state: tests/ops/reader_test"},
      {"QueueEnqueueV2", "has state: tests/train/queue_test"},
      {"QueueEnqueueManyV2", "has state: tests/train/queue_test"},
      {"QueueDequeueV2", "has state: tests/train/queue_test"},
      {"QueueDequeueManyV2", "has state: tests/train/queue_test"},
      {"QueueDequeueUpToV2", "has state: tests/train/queue_test"},
      {"QueueCloseV2", "has state: tests/train/queue_test"},
      {"QueueSizeV2", "has state: tests/train/queue_test"},
      {"QueueIsClosedV2", "has state: tests/train/queue_test"},
      {"ResourceConditionalAccumulator", "has state: tests/train/accumulator_test"},
      {"ResourceAccumulatorApplyGradient", "has state: tests/train/accumulator_test"},
      {"ResourceAccumulatorTakeGradient", "has state: tests/train/accumulator_test"},
      {"MonographSparseConditionalAccumulator", "has state: tests/train/accumulator_test"},
      {"MonographSparseAccumulatorApplyGradient", "has state: tests/train/accumulator_test"},
      {"MonographSparseAccumulatorTakeGradient", "has state: tests/train/accumulator_test"},
      {"ResourceAccumulatorSetGlobalStep", "has state: tests/train/accumulator_test"},
      {"ResourceAccumulatorNumAccumulated", "has state: tests/train/accumulator_test"},
      {"MonographAccumulatorRanks", "has state: tests/train/accumulator_test"},
      {"MonographStepGate", "has state: tests/train/accumulator_test"},
      {"MonographStepGateSet", "has state: tests/train/accumulator_test"},
      {"MonographStepGateWait", "has state: tests/train/accumulator_test"},
      {"MonographStepGateClose", "has state: tests/train/accumulator_test"},
      {"MonographStepGateStep", "has state: tests/train/accumulator_test"},
      {"MonographStepGateHold", "has state: tests/multiprocess/sync_replicas_test as SyncReplicas"},
      {"MonographJobRun", "has state: tests/multiprocess/job_run_test"},
      {"MonographJobRunBegin", "has state: tests/multiprocess/job_run_test"},
      {"MonographJobRunReady", "has state: tests/multiprocess/job_run_test"},
      {"MonographJobRunFinish", "has state: tests/multiprocess/job_run_test"},
      {"MonographJobRunFinished",
       "what workers part by: tests/multiprocess/replicated_jobs_test as ReplicatedJobs"},
      {"MonographJobRunJoin", "has state: tests/multiprocess/job_run_test"},
      {"ResourceApplyGradientDescent", "by hand: tests/ops/variable_test"},
      {"ResourceApplyMomentum", "by hand: tests/ops/variable_test"},
      {"ResourceApplyAdam", "by hand: tests/ops/variable_test"},
      {"ResourceApplyAdagrad", "by hand: tests/ops/variable_test"},
      {"ResourceApplyAdagradV2", "by hand: tests/ops/variable_test"},
      {"ResourceApplyRMSProp", "by hand: tests/ops/variable_test"},
      {"ResourceApplyCenteredRMSProp", "by hand: tests/ops/variable_test"},
      {"_FusedElementwise", "against the separate ops: simulated_gpu_test beside this file"},
      {"_Conv2DBackpropInput", "against Conv2DBackpropInput: simulated_gpu_test beside this file"},
      {"_Conv2DBackpropFilter",
       "against Conv2DBackpropFilter: simulated_gpu_test beside this file"},
      {"_MultiCast", "against single casts: simulated_gpu_test beside this file"},
      {"_MultiResourceApply", "against the single updates: simulated_gpu_test beside this file"},
      {"Switch", "in whole graphs: tests/golden/graphs/control_flow"},
      {"Merge", "in whole graphs: tests/golden/graphs/control_flow"},
      {"Enter", "in whole graphs: tests/golden/graphs/control_flow"},
      {"Exit", "in whole graphs: tests/golden/graphs/control_flow"},
      {"NextIteration", "in whole graphs: tests/golden/graphs/control_flow"},
      {"LoopCond", "in whole graphs: tests/golden/graphs/control_flow"},
      {"ControlTrigger", "only waits: tests/golden/graphs/gradients_of_loops"},
      {"StackV2", "has state: tests/client/control_flow_test"},
      {"_SparseConditionalAccumulator",
       "in whole graphs: tests/golden/graphs/ref_row_accumulators"},
      {"_SparseAccumulatorApplyGradient",
       "in whole graphs: tests/golden/graphs/ref_row_accumulators"},
      {"_SparseAccumulatorTakeGradient",
       "in whole graphs: tests/golden/graphs/ref_row_accumulators"},
      {"_Stack", "in whole graphs: tests/golden/graphs/ref_resources"},
      {"_Barrier", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"_BarrierInsertMany", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"_BarrierTakeMany", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"_BarrierClose", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"_BarrierReadySize", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"_BarrierIncompleteSize", "in whole graphs: tests/golden/graphs/ref_barriers"},
      {"StackPushV2", "has state: tests/client/control_flow_test"},
      {"StackPopV2", "has state: tests/client/control_flow_test"},
      {"StackCloseV2", "has state: tests/client/control_flow_test"},
      {"EmptyTensorList", lists},
      {"TensorListReserve", lists},
      {"TensorListLength", lists},
      {"TensorListElementShape", lists},
      {"TensorListPushBack", lists},
      {"TensorListPopBack", lists},
      {"TensorListGetItem", lists},
      {"TensorListSetItem", lists},
      {"TensorListResize", lists},
      {"TensorListStack", lists},
      {"TensorListGather", lists},
      {"TensorListConcat", lists},
      {"TensorListConcatV2", lists},
      {"TensorListFromTensor", lists},
      {"TensorListSplit", lists},
      {"TensorListScatter", lists},
      {"TensorListScatterV2", lists},
      {"TensorListScatterIntoExistingList", lists},
      {"TensorListPushBackBatch", lists},
      {"TensorListConcatLists", lists},
      {"OptionalFromValue", lists},
      {"OptionalNone", lists},
      {"OptionalHasValue", lists},
      {"OptionalGetValue", lists},
      {"TensorArrayV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayGradV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayGradWithShape", "in whole graphs: tests/golden/graphs/tensor_arrays"},
      {"TensorArrayWriteV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayReadV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayGatherV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayScatterV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArrayConcatV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArraySplitV3", "has state: tests/ops/tensor_array_test"},
      {"TensorArraySizeV3", "in whole graphs: tests/golden/graphs/tensor_arrays"},
      {"TensorArrayCloseV3", "in whole graphs: tests/golden/graphs/tensor_arrays"},
      {"TensorArrayPack", "has state: tests/client/references_test"},
      {"TensorArrayUnpack", "has state: tests/client/references_test"},
      {"ResourceApplyAdadelta", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyFtrl", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyFtrlV2", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyProximalGradientDescent",
       "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyProximalAdagrad", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyAdagradDA", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyAddSign", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyPowerSign", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyAdaMax", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceApplyKerasMomentum", "in whole graphs: tests/golden/graphs/keras_optimizers"},
      {"ResourceApplyAdamWithAmsgrad", "in whole graphs: tests/golden/graphs/keras_optimizers"},
      {"ResourceSparseApplyKerasMomentum", "in whole graphs: tests/golden/graphs/keras_optimizers"},
      {"ResourceGatherNd", "in whole graphs: tests/golden/graphs/gather_nd"},
      {"ResourceSparseApplyAdadelta", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceSparseApplyFtrl", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceSparseApplyFtrlV2", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceSparseApplyProximalGradientDescent",
       "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceSparseApplyProximalAdagrad",
       "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceSparseApplyAdagradDA", "in whole graphs: tests/golden/graphs/resource_optimizers"},
      {"ResourceScatterUpdate", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterMul", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterDiv", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterMin", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterMax", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceStridedSliceAssign", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterNdUpdate", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterNdAdd", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterNdSub", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterNdMin", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"ResourceScatterNdMax", "in whole graphs: tests/golden/graphs/resource_scatters"},
      {"_SelectHandle", "in whole graphs: tests/golden/graphs/ref_control_flow as RefSelect"},
      {"_TemporaryVariable", "in whole graphs: tests/golden/graphs/ref_scatters"},
      {"_DestroyTemporaryVariable", "in whole graphs: tests/golden/graphs/ref_scatters"},
      {"ResourceSparseApplyMomentum", "has state: tests/ops/sparse_test"},
      {"ResourceSparseApplyAdagrad", "has state: tests/ops/sparse_test"},
      {"ResourceSparseApplyAdagradV2", "has state: tests/ops/sparse_test"},
      {"ResourceSparseApplyRMSProp", "has state: tests/ops/sparse_test"},
      {"ResourceSparseApplyCenteredRMSProp", "has state: tests/ops/sparse_test"},
  };
  return reasons;
}

const Reasons& WithoutGradientCase() {
  static const Reasons reasons = {
      {"PreventGradient", "its gradient is an error"},
      {"ReadVariableOp", "needs a variable: tests/ops/variable_test"},
      {"ResourceGather", "needs a variable: tests/train/sparse_training_test"},
      {"ResourceGatherNd", "needs a variable: tests/ops/variable_test"},
      {"ConjugateTranspose", "the kernel and gradient of Transpose"},
      {"ParallelDynamicStitch", "the kernel and gradient of DynamicStitch"},
      {"FusedBatchNorm", "takes no double: tests/ops/batch_norm_test"},
      {"FusedBatchNormV2", "takes no double: tests/ops/batch_norm_test"},
      {"FusedBatchNormV3", "takes no double: tests/ops/batch_norm_test"},
      {"_FusedAttention", "takes no double: tests/ops/attention_test"},
      {"_FusedLayerNorm", "takes no double: tests/ops/layer_norm_test"},
      {"LRN", "takes no double: tests/ops/batch_norm_test"},
      {"SparseMatMul", "takes no double: tests/ops/batch_norm_test"},
      {"Switch", "its outputs are not both there: tests/client/control_flow_test"},
      {"Merge", "its inputs are not all there: tests/client/control_flow_test"},
      {"TensorListConcat", "the kernel and gradient of TensorListConcatV2"},
      {"TensorListScatter", "the kernel and gradient of TensorListScatterV2"},
      {"TensorArrayWriteV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArrayReadV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArrayGatherV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArrayScatterV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArrayConcatV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArraySplitV3", "has state: tests/client/loop_gradients_test"},
      {"TensorArrayPack", "has state: tests/client/references_test"},
      {"TensorArrayUnpack", "has state: tests/client/references_test"},
      {"RefSwitch", "as Switch"},
      {"RefMerge", "as Merge"},
  };
  return reasons;
}

// Gradients flow through these, but nobody has given them: asking for one is an error.
const Reasons& WithoutGradient() {
  static const Reasons reasons = {
      {"_FusedAttentionGrad", "cuDNN has none: attention of plain ops has"},
      {"_FusedLayerNormGrad", "normalisation of plain ops has"},
      {"_GeluGrad", "that of plain ops has"},
      {"_FusedMatMul", "made by FuseOps after gradients"},
      {"_FusedConv2D", "made by FuseOps after gradients"},
      {"_Conv2DBackprop", "made by FuseOps after gradients"},
      {"_Conv2DBackpropInput", "made by GroupCasts after gradients"},
      {"_Conv2DBackpropFilter", "made by GroupCasts after gradients"},
      {"_MultiCast", "made by GroupCasts after gradients"},
      {"_FusedBatchNormEx", "made by FuseOps after gradients"},
      {"_FusedBatchNormGradEx", "made by FuseOps after gradients"},
      {"FusedBatchNormGrad", "TensorFlow composes it of plain ops"},
      {"FusedBatchNormGradV2", "TensorFlow composes it of plain ops"},
      {"FusedBatchNormGradV3", "TensorFlow composes it of plain ops"},
      {"TensorListPushBackBatch", "TensorFlow has none"},
      {"TensorListConcatLists", "TensorFlow has none"},
      {"BatchNormWithGlobalNormalizationGrad", "TensorFlow has none"},
      {"LRNGrad", "TensorFlow has none"},
      {"FractionalMaxPoolGrad", "TensorFlow has none"},
      {"FractionalAvgPoolGrad", "TensorFlow has none"},
      {"Dilation2DBackpropInput", "TensorFlow has none"},
      {"Dilation2DBackpropFilter", "TensorFlow has none"},
      {"ResizeNearestNeighborGrad", "TensorFlow has none"},
      {"CropAndResizeGradImage", "TensorFlow has none"},
      {"CropAndResizeGradBoxes", "TensorFlow has none"},
      {"ResizeArea", "TensorFlow has none"},
      {"RefSelect", "TensorFlow has none"},
      {"ResizeBicubicGrad", "TensorFlow has none"},
      {"DrawBoundingBoxesV2", "TensorFlow has none"},
      {"NonMaxSuppressionV5", "TensorFlow has none"},
      {"AdjustContrastv2", "TensorFlow has none"},
      {"AdjustHue", "TensorFlow has none"},
      {"AdjustSaturation", "TensorFlow has none"},
      {"SparseSplit", "TensorFlow has none"},
      {"SparseDenseCwiseAdd", "TensorFlow has none"},
      {"SparseSparseMaximum", "TensorFlow has none"},
      {"SparseSparseMinimum", "TensorFlow has none"},
  };
  return reasons;
}

// Ops that ops/ defines: those of the graph layer itself are not ours to test.
std::vector<const OpDef*> OurOps() {
  const OpRegistry structural;
  std::vector<const OpDef*> ours;
  for (const OpDef* op : Ops().All()) {
    if (structural.Find(op->name()) == nullptr) ours.push_back(op);
  }
  return ours;
}

// A reason's test; none if it names none. `word`: what the reason says that the test names.
fs::path TestOf(const std::string& reason, std::string* word) {
  static const std::regex pattern(R"((tests/[\w./]+)( as (\w+))?|(\w+) beside this file)");
  std::smatch found;
  if (!std::regex_search(reason, found, pattern)) return {};
  *word = found[3];
  const fs::path root = MG_SOURCE_ROOT;
  const fs::path path =
      root / (found[1].matched ? found[1].str() : "tests/conformance/ops/" + found[4].str());
  return fs::exists(path) ? path : fs::path(path.string() + ".cc");
}

// What a program calls an op: without the version, and without what sets ours apart.
std::vector<std::string> NamesOf(const std::string& op) {
  std::vector<std::string> names = {op};
  const auto shorten = [&](const char* pattern) {
    names.push_back(std::regex_replace(names.back(), std::regex(pattern), ""));
  };
  for (const char* pattern : {"^_", "V[0-9]+$", "^(Monograph|Resource)"}) shorten(pattern);
  return names;
}

bool HasWord(const std::string& text, const std::string& word) {
  const auto letter = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if (!(at > 0 && letter(at - 1)) && !letter(end) && !(end < text.size() && text[end] == '_'))
      return true;
  }
  return false;
}

std::string TextOf(const fs::path& path) {
  std::ostringstream text;
  const auto add = [&](const fs::path& file) {
    text << std::ifstream(file, std::ios::binary).rdbuf();
  };
  if (!fs::is_directory(path)) {
    add(path);
    return text.str();
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) add(entry.path());
  }
  return text.str();
}

void ExpectCovered(const OpDef& op, const std::set<std::string>& covered, const Reasons& excused,
                   const char* what) {
  const bool has_case = covered.contains(op.name()), has_excuse = excused.contains(op.name());
  EXPECT_TRUE(has_case || has_excuse) << op.name() << " has no " << what << " and no reason why";
  EXPECT_FALSE(has_case && has_excuse)
      << op.name() << " has a " << what << "; its excuse is out of date";
}

TEST(OpCoverage, EveryOpHasAReferenceCaseOrAReason) {
  std::set<std::string> covered;
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) covered.insert(op_case.node().op());
  }
  for (const OpDef* op : OurOps()) {
    const HandleForm* form = op->handle_form();
    if (form != nullptr) {
      // By references it does what its form does by handles.
      EXPECT_NE(Ops().Find(form->op), nullptr) << op->name();
    } else if (!op->added_as().empty()) {
      EXPECT_NE(Ops().Find(op->added_as()), nullptr) << op->name();
    } else {
      ExpectCovered(*op, covered, WithoutGoldenCase(), "reference case");
    }
  }
}

TEST(OpCoverage, AReasonNamesATestThatNamesTheOp) {
  if (!fs::exists(fs::path(MG_SOURCE_ROOT) / "tests/conformance/ops"))
    GTEST_SKIP() << "the sources are not here: " << MG_SOURCE_ROOT;
  for (const Reasons* reasons : {&WithoutGoldenCase(), &WithoutGradientCase()}) {
    for (const auto& [op, reason] : *reasons) {
      EXPECT_NE(Ops().Find(op), nullptr) << op << ": there is no such op";
      std::string word;
      const fs::path test = TestOf(reason, &word);
      if (test.empty()) continue;
      ASSERT_TRUE(fs::exists(test)) << op << ": there is no " << test;
      const std::string text = TextOf(test);
      const auto names = word.empty() ? NamesOf(op) : std::vector<std::string>{word};
      EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                              [&](const std::string& name) { return HasWord(text, name); }))
          << op << ": " << test << " does not name it";
    }
  }
}

TEST(OpCoverage, EveryReferenceCaseIsOfAnOpThatWeHave) {
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) {
      EXPECT_NE(Ops().Find(op_case.node().op()), nullptr) << family.file << ": " << op_case.name();
    }
  }
}

TEST(OpCoverage, EveryGradientIsCheckedOrHasAReason) {
  std::set<std::string> covered;
  for (const GradientCase& test : AllGradientCases()) {
    Graph graph(&Ops());
    const Scope root(&graph);
    Outputs inputs;
    for (const Shape& shape : test.shapes) inputs.push_back(Placeholder(root, DT_DOUBLE, shape));
    test.build(root, inputs);
    for (NodeId node = 0; node < graph.num_nodes(); ++node) covered.insert(graph.op(node).name());
  }
  for (const OpDef* op : OurOps()) {
    if (op->gradient() != nullptr && op->added_as().empty())
      ExpectCovered(*op, covered, WithoutGradientCase(), "gradient case");
  }
}

TEST(OpCoverage, EveryOpHasAGradientOrSaysThatNoneFlows) {
  for (const OpDef* op : OurOps()) {
    EXPECT_TRUE(op->gradient() != nullptr || op->no_gradient() || op->outputs().empty() ||
                WithoutGradient().contains(op->name()))
        << op->name();
  }
}

TEST(OpCoverage, EveryOpHasACpuKernel) {
  for (const OpDef* op : OurOps()) {
    // The executor runs what changes the flow of control itself, and nothing by reference or by
    // another name.
    EXPECT_NE(Kernels().HasOp(op->name(), kCpu), op->flow() != FlowOp::kNone ||
                                                     op->handle_form() != nullptr ||
                                                     !op->added_as().empty())
        << op->name();
  }
}

TEST(OpCoverage, EveryKernelIsOfADefinedOp) {
  for (const KernelRegistry::Entry* entry : Kernels().All()) {
    const OpDef* op = Ops().Find(entry->def.op);
    ASSERT_NE(op, nullptr) << entry->def.op;
    for (const auto& [attr, dtype] : entry->def.types) {
      EXPECT_NE(op->FindAttr(attr), nullptr)
          << "the kernel of " << op->name() << " asks for attribute " << attr;
    }
    for (const std::string& host : entry->def.host_args) {
      bool found = false;
      for (const ArgDef& arg : op->inputs()) found = found || arg.name == host;
      for (const ArgDef& arg : op->outputs()) found = found || arg.name == host;
      EXPECT_TRUE(found) << "the kernel of " << op->name() << " names an argument '" << host << "'";
    }
  }
}

}  // namespace
}  // namespace monograph::optest
