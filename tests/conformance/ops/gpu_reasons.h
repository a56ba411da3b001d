// Why an op has no kernel for GPUs.
#pragma once

#include <map>
#include <string>

namespace monograph::optest {

inline const std::map<std::string, std::string>& WithoutGpuKernel() {
  static const std::string shape = "the shape of its output depends on values",
                           host = "works on what lives in host memory",
                           fails = "fails the step by a value, which only the host can look at",
                           collective =
                               "has one beside the CPU's: members on GPUs meet in host memory";
  static const std::map<std::string, std::string> reasons = {
      {"Unique", shape},
      {"ListDiff", shape},
      {"DynamicPartition", shape},
      {"CheckNumerics", fails},
      {"ResourceCountUpTo", fails},
      {"MonographDatasetBatch", host},
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
      {"CollectiveReduceV2", collective},
      {"CollectiveGatherV2", collective},
      {"CollectiveBcastSendV2", collective},
      {"CollectiveBcastRecvV2", collective},
      {"MonographAllReduce", collective},
  };
  return reasons;
}

}  // namespace monograph::optest
