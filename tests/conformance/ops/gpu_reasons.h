// Why an op has no kernel for GPUs.
#pragma once

#include <map>
#include <string>

#include "base/dtype.h"

namespace monograph::optest {

inline const std::map<std::string, std::string>& WithoutGpuKernel() {
  static const std::string
      host = "works on what lives in host memory",
      cpu = "has one for CPUs alone so far",
      fails = "fails the step by a variable's value, which lies on the GPU",
      collective =
          "has one beside the CPU's, not in the plug-in: values meet in host memory or go by NCCL",
      flow = "the executor runs it itself, on CPUs alone: nodes of GPUs beside it are refused";
  static const std::map<std::string, std::string> reasons = {
      {"ResourceCountUpTo", fails},
      {"_Conv2DBackprop", "FuseOps makes it of nodes of CPUs alone"},
      {"MonographDatasetBatch", host},
      {"SaveV2", host},
      {"RestoreV2", host},
      {"MergeV2Checkpoints", host},
      {"ShardedFilename", host},
      {"StringJoin", host},
      {"FIFOQueueV2", host},
      {"RandomShuffleQueueV2", host},
      {"QueueEnqueueV2", host},
      {"QueueEnqueueManyV2", host},
      {"QueueDequeueV2", host},
      {"QueueDequeueManyV2", host},
      {"QueueDequeueUpToV2", host},
      {"QueueCloseV2", host},
      {"QueueSizeV2", host},
      {"QueueIsClosedV2", host},
      {"ResourceConditionalAccumulator", host},
      {"ResourceAccumulatorApplyGradient", host},
      {"ResourceAccumulatorTakeGradient", host},
      {"ResourceAccumulatorSetGlobalStep", host},
      {"ResourceAccumulatorNumAccumulated", host},
      {"MonographAccumulatorRanks", host},
      {"MonographSparseConditionalAccumulator", host},
      {"MonographSparseAccumulatorApplyGradient", host},
      {"MonographSparseAccumulatorTakeGradient", host},
      {"MonographStepGate", host},
      {"MonographStepGateSet", host},
      {"MonographStepGateWait", host},
      {"MonographStepGateClose", host},
      {"MonographStepGateStep", host},
      {"MonographStepGateHold", host},
      {"MonographJobRun", host},
      {"MonographJobRunBegin", host},
      {"MonographJobRunReady", host},
      {"MonographJobRunFinish", host},
      {"MonographJobRunJoin", host},
      {"ControlTrigger", flow},
      {"Enter", flow},
      {"Exit", flow},
      {"LoopCond", flow},
      {"Merge", flow},
      {"NextIteration", flow},
      {"Switch", flow},
      {"ResourceApplyAdadelta", cpu},
      {"ResourceApplyFtrl", cpu},
      {"ResourceApplyFtrlV2", cpu},
      {"ResourceApplyProximalGradientDescent", cpu},
      {"ResourceApplyProximalAdagrad", cpu},
      {"ResourceApplyAdagradDA", cpu},
      {"ResourceApplyAddSign", cpu},
      {"ResourceApplyPowerSign", cpu},
      {"ResourceApplyAdaMax", cpu},
      {"ResourceSparseApplyAdadelta", cpu},
      {"ResourceSparseApplyFtrl", cpu},
      {"ResourceSparseApplyFtrlV2", cpu},
      {"ResourceSparseApplyProximalGradientDescent", cpu},
      {"ResourceSparseApplyProximalAdagrad", cpu},
      {"ResourceSparseApplyAdagradDA", cpu},
      {"ResourceScatterUpdate", cpu},
      {"ResourceScatterMul", cpu},
      {"ResourceScatterDiv", cpu},
      {"ResourceScatterMin", cpu},
      {"ResourceScatterMax", cpu},
      {"ResourceScatterNdUpdate", cpu},
      {"ResourceScatterNdAdd", cpu},
      {"ResourceScatterNdSub", cpu},
      {"ResourceScatterNdMin", cpu},
      {"ResourceScatterNdMax", cpu},
      {"_TemporaryVariable", cpu},
      {"_DestroyTemporaryVariable", cpu},
      {"StackV2", host},
      {"StackPushV2", host},
      {"StackPopV2", host},
      {"StackCloseV2", host},
      {"CollectiveReduceV2", collective},
      {"CollectiveGatherV2", collective},
      {"CollectiveBcastSendV2", collective},
      {"CollectiveBcastRecvV2", collective},
      {"MonographAllReduce", collective},
  };
  return reasons;
}

// Why no op has a kernel for GPUs of this type; empty: those that have one for CPUs have one for
// GPUs.
inline std::string WithoutGpuKernelOf(DType dtype) {
  return dtype == DT_STRING ? "strings live in host memory" : "";
}

// Ops that have a kernel for GPUs and no reference case: what compares it with the CPU's on a GPU.
inline const std::map<std::string, std::string>& ComparedOnGpuBy() {
  static const std::string state = "gpu_state_test", kernels = "gpu_kernels_test",
                           training = "gpu_training_test";
  static const std::map<std::string, std::string> tests = {
      {"RandomUniform", state},
      {"RandomStandardNormal", state},
      {"TruncatedNormal", state},
      {"RandomUniformInt", state},
      {"VarHandleOp", state},
      {"ReadVariableOp", state},
      {"AssignVariableOp", state},
      {"VarIsInitializedOp", state},
      {"VariableShape", state},
      {"DestroyResourceOp", state},
      {"ResourceGather", state},
      {"_FusedElementwise", state},
      {"_FusedMatMul", kernels},
      {"_FusedConv2D", kernels},
      {"_Conv2DBackpropInput", state},
      {"_FusedBatchNormEx", kernels},
      {"_FusedBatchNormGradEx", kernels},
      {"_MultiCast", state},
      {"_MultiResourceApply", training},
      {"Placeholder", "none: it is always fed"},
  };
  return tests;
}

}  // namespace monograph::optest
