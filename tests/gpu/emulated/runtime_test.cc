// What the emulated runtime refuses, as CUDA's documentation says that the real one does: so a test
// that passes over it says something.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "executor/gpu/cuda/driver.h"
#include "executor/gpu/cuda/make_devices.h"
#include "executor/gpu/cuda/stream.h"
#include "executor/gpu/gpu_device.h"
#include "tests/executor/cuda/kernels.h"
#include "tests/gpu/emulated/emulated_gpu.h"

namespace monograph {
namespace {

using cudatest::AddOne;
using cudatest::AddOneBy;

constexpr int64_t kCount = 1024;
constexpr size_t kBlockBytes = kCount * sizeof(int32_t);

const int two_devices = setenv("MG_EMULATED_GPUS", "2", 0);  // before the first call counts them

cudaError_t InAnotherThread(const std::function<cudaError_t()>& call) {
  return std::async(std::launch::async, call).get();
}

class EmulatedRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t* stream : {&stream_, &side_})
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t* event : {&event_, &other_event_})
      ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), kBlockBytes), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned_), kBlockBytes, cudaHostAllocPortable),
              cudaSuccess);
    Fill(0);
  }
  void TearDown() override {
    (void)cudaSetDevice(0);
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    for (cudaStream_t stream : {stream_, side_}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    for (cudaEvent_t event : {event_, other_event_})
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    (void)cudaGetLastError();
  }
  void Fill(int value) {
    ASSERT_EQ(cudaMemsetAsync(data_, value, kBlockBytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  int32_t Value() {
    EXPECT_EQ(cudaMemcpyAsync(pinned_, data_, kBlockBytes, cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return pinned_[kCount - 1];
  }
  cudaError_t Launched() { return cudaGetLastError(); }
  void Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  cudaError_t End() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return error;
  }
  // What may wait for the device.
  std::vector<std::pair<std::string, std::function<cudaError_t()>>> UnsafeCalls() {
    return {{"cudaMalloc",
             [] {
               void* more = nullptr;
               const cudaError_t error = cudaMalloc(&more, 8);
               return more == nullptr ? error : cudaFree(more);
             }},
            {"cudaHostAlloc",
             [] {
               void* more = nullptr;
               const cudaError_t error = cudaHostAlloc(&more, 8, cudaHostAllocPortable);
               return more == nullptr ? error : cudaFreeHost(more);
             }},
            {"cudaEventQuery", [this] { return cudaEventQuery(other_event_); }},
            {"cudaEventSynchronize", [this] { return cudaEventSynchronize(other_event_); }},
            {"cudaStreamQuery", [this] { return cudaStreamQuery(side_); }},
            {"cudaStreamSynchronize", [this] { return cudaStreamSynchronize(side_); }}};
  }

  cudaStream_t stream_ = nullptr, side_ = nullptr;
  cudaEvent_t event_ = nullptr, other_event_ = nullptr;
  int32_t *data_ = nullptr, *pinned_ = nullptr;
};

// Holds up a stream until it goes.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    EXPECT_EQ(
        emulated::EnqueueOn(stream, "gate", [open = open_.get_future().share()] { open.wait(); }),
        cudaSuccess);
  }
  void Open() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

TEST_F(EmulatedRuntime, AThreadThatCapturesDoesNothingThatMightWait) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    for (const auto& [name, call] : UnsafeCalls()) {
      Begin(mode);
      EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << name;
      AddOne(stream_, data_, kCount);
      EXPECT_EQ(Launched(), cudaErrorStreamCaptureInvalidated) << name;
      EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated) << name;
    }
  }
}

TEST_F(EmulatedRuntime, OtherThreadsMayWaitUnlessTheCaptureIsGlobal) {
  for (const auto& [name, call] : UnsafeCalls()) {
    Begin(cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(InAnotherThread(call), cudaSuccess) << name;
    EXPECT_EQ(End(), cudaSuccess);
    Begin(cudaStreamCaptureModeRelaxed);
    EXPECT_EQ(call(), cudaSuccess) << name;
    EXPECT_EQ(End(), cudaSuccess);
    Begin(cudaStreamCaptureModeThreadLocal);
    cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&relaxed), cudaSuccess);
    EXPECT_EQ(call(), cudaSuccess) << name;
    ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&relaxed), cudaSuccess);
    EXPECT_EQ(End(), cudaSuccess);
    Begin(cudaStreamCaptureModeGlobal);
    EXPECT_EQ(InAnotherThread(call), cudaErrorStreamCaptureUnsupported) << name;
    EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(EmulatedRuntime, NobodyWaitsForWhatIsCaptured) {
  Begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  Begin(cudaStreamCaptureModeRelaxed);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(EmulatedRuntime, AStreamJoinsACaptureByAnEventAndHasToComeBack) {
  const auto fork = [&] {
    Begin();
    AddOne(stream_, data_, kCount);
    EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(side_, event_, 0), cudaSuccess);
    AddOne(side_, data_, kCount);
  };
  fork();
  EXPECT_EQ(End(), cudaErrorStreamCaptureUnjoined);
  fork();
  ASSERT_EQ(cudaEventRecord(other_event_, side_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream_, other_event_, 0), cudaSuccess);
  AddOne(stream_, data_, kCount);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(Value(), 0);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(Value(), 15);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(EmulatedRuntime, CapturesKeepToThemselves) {
  ASSERT_EQ(cudaEventRecord(event_, side_), cudaSuccess);
  Begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);

  Begin();
  ASSERT_EQ(cudaStreamBeginCapture(side_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, side_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);

  Begin();
  EXPECT_EQ(InAnotherThread([&] { return End(); }), cudaErrorStreamCaptureWrongThread);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedRuntime, TheHostsUnpinnedMemoryDoesNotGoIntoAGraph) {
  std::vector<int32_t> here(kCount, 5);
  Begin();
  EXPECT_EQ(cudaMemcpyAsync(data_, here.data(), kBlockBytes, cudaMemcpyHostToDevice, stream_),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaMemcpyAsync(data_, here.data(), kBlockBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  here.assign(kCount, 6);  // it was read
  EXPECT_EQ(Value(), 5);
}

TEST_F(EmulatedRuntime, LaunchesKeepToTheLimitsOfAnH200) {
  const auto launch = [&](unsigned rows, unsigned threads, size_t shared) {
    AddOneBy(stream_, data_, 1, rows, threads, shared);
    return Launched();
  };
  EXPECT_EQ(launch(1, 1024, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(65536, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1, (48 << 10) + 1), cudaErrorInvalidConfiguration);
  AddOne(nullptr, data_, 1);
  EXPECT_EQ(Launched(), cudaErrorInvalidResourceHandle);
}

TEST_F(EmulatedRuntime, EachThreadHasItsOwnCurrentDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  AddOne(stream_, data_, kCount);
  EXPECT_EQ(Launched(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(InAnotherThread([&] {
              AddOne(stream_, data_, kCount);
              return cudaGetLastError();
            }),
            cudaSuccess);
  cudaEvent_t there = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&there, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(there, stream_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(there), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(Value(), 1);
}

TEST_F(EmulatedRuntime, CopiesAreOfTheKindThatTheySay) {
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, kBlockBytes, kind, stream_);
  };
  EXPECT_EQ(copy(pinned_, data_, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(copy(pinned_, data_, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(pinned_, data_, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(pinned_, data_ + 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyPeerAsync(data_, 1, data_, 0, 4, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(pinned_ + kCount, 0, 4, stream_), cudaErrorInvalidValue);
  int32_t* gone = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&gone), kBlockBytes), cudaSuccess);
  ASSERT_EQ(cudaFree(gone), cudaSuccess);
  EXPECT_EQ(copy(gone, data_, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(gone), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
}

TEST_F(EmulatedRuntime, WhatNoEventOrdersSeesNewMemoryAsItIs) {
  int32_t* fresh = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&fresh), kBlockBytes), cudaSuccess);
  Gate gate(stream_);
  ASSERT_EQ(cudaMemsetAsync(fresh, 0, kBlockBytes, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);  // as any error, until it is asked for
  ASSERT_EQ(cudaMemcpyAsync(pinned_, fresh, kBlockBytes, cudaMemcpyDeviceToHost, side_),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(side_), cudaSuccess);
  EXPECT_NE(pinned_[0], 0);
  gate.Open();
  ASSERT_EQ(cudaFree(fresh), cudaSuccess);
}

TEST_F(EmulatedRuntime, AWaitIsForWhatWasRecordedBeforeIt) {
  ASSERT_EQ(cudaEventRecord(event_, side_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  Gate gate(stream_);
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamWaitEvent(side_, event_, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(other_event_, side_), cudaSuccess);
  // Anew, elsewhere: this does not let the first wait through.
  cudaStream_t third = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, third), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(other_event_), cudaErrorNotReady);
  gate.Open();
  EXPECT_EQ(cudaEventSynchronize(other_event_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(third), cudaSuccess);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, other_event_), cudaErrorInvalidResourceHandle);
}

TEST_F(EmulatedRuntime, AStreamThatIsDestroyedStillDoesItsWork) {
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), cudaSuccess);
  Gate gate(gone);
  AddOne(gone, data_, kCount);
  ASSERT_EQ(cudaEventRecord(event_, gone), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
  gate.Open();
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(Value(), 1);
}

// Two cards, below the code that calls CUDA: each queue on the right one, whichever thread asks.
TEST_F(EmulatedRuntime, TwoCardsExchangeMemoryBehindAnEvent) {
  auto devices = cuda::MakeDevices(DeviceName::Parse("/job:test/replica:0/task:0").value(),
                                   {.virtual_device_memory_mb = {{64}, {64}}, .nccl = false});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_NE((*devices)[1]->info().description.find("computes on the CPU"), std::string::npos);
  const auto here = cuda::MakeCudaDriver(0, GpuOptions()).value(),
             there = cuda::MakeCudaDriver(1, GpuOptions()).value();
  ASSERT_TRUE(there->Enter().ok());
  auto* const copy = static_cast<int32_t*>(there->AllocateDevice(kBlockBytes).value());
  const EventId copied = there->MakeEvent(false).value(), came = there->MakeEvent(false).value();
  ASSERT_TRUE(here->Enter().ok());
  const EventId filled = here->MakeEvent(false).value();
  const cudaStream_t compute = static_cast<cuda::Stream*>(here->stream())->stream;
  Gate gate(compute);
  AddOne(compute, data_, kCount);
  ASSERT_TRUE(here->Record(filled, Queue::kCompute).ok());
  ASSERT_TRUE(there->Wait(Queue::kPeer, *here, filled).ok());
  ASSERT_TRUE(there->CopyFromPeer(copy, *here, data_, kBlockBytes).ok());
  ASSERT_TRUE(there->Record(copied, Queue::kPeer).ok());
  ASSERT_TRUE(there->Wait(Queue::kToHost, *there, copied).ok());
  ASSERT_TRUE(there->Copy(Queue::kToHost, pinned_, copy, kBlockBytes).ok());
  ASSERT_TRUE(there->Record(came, Queue::kToHost).ok());
  EXPECT_FALSE(there->Done(came).value());
  gate.Open();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!there->Done(came).value() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(pinned_[kCount - 1], 1);
  there->FreeDevice(copy);
}

// Losing the context ends the process' use of the device: each in one of its own.
void ExpectLost(cudaStream_t stream, cudaError_t expected) {
  const bool told = cudaStreamSynchronize(stream) == expected;
  void* data = nullptr;
  const bool stays = cudaMalloc(&data, 8) == expected && cudaGetLastError() == expected &&
                     cudaGetLastError() == expected && cudaStreamQuery(stream) == expected;
  std::_Exit(told && stays ? 42 : 1);
}

class EmulatedRuntimeDeathTest : public EmulatedRuntime {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EmulatedRuntime::SetUp();
  }
  void ExpectLoses(const std::function<void()>& what, cudaError_t error = cudaErrorIllegalAddress) {
    EXPECT_EXIT(
        {
          what();
          ExpectLost(stream_, error);
        },
        ::testing::ExitedWithCode(42), "emulated GPU: ");
  }
};

TEST_F(EmulatedRuntimeDeathTest, AKernelThatTouchesTheHostsMemoryLosesTheDevice) {
  std::vector<int32_t> here(kCount);
  ExpectLoses([&] { AddOne(stream_, here.data(), kCount); });
}

TEST_F(EmulatedRuntimeDeathTest, AKernelThatGoesBeyondAnAllocationLosesTheDevice) {
  ExpectLoses([&] { AddOne(stream_, data_, kCount + 1); });
}

TEST_F(EmulatedRuntimeDeathTest, AnAddressThatIsNotAlignedLosesTheDevice) {
  auto* const odd = reinterpret_cast<int32_t*>(reinterpret_cast<std::byte*>(data_) + 2);
  ExpectLoses([&] { AddOne(stream_, odd, 1); }, cudaErrorMisalignedAddress);
}

TEST_F(EmulatedRuntimeDeathTest, AKernelReadsAPeersMemoryOnlyIfItMay) {
  int32_t* there = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&there), kBlockBytes), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ExpectLoses([&] { AddOne(stream_, there, kCount); });
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(1, 0);
  EXPECT_TRUE(enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
  AddOne(stream_, there, kCount);
  EXPECT_EQ(Launched(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(there), cudaSuccess);
}

TEST_F(EmulatedRuntimeDeathTest, AGraphThatIsReplayedOverFreedMemoryLosesTheDevice) {
  ExpectLoses([&] {
    int32_t* gone = nullptr;
    (void)cudaMalloc(reinterpret_cast<void**>(&gone), kBlockBytes);
    (void)cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    (void)cudaMemcpyAsync(data_, gone, kBlockBytes, cudaMemcpyDeviceToDevice, stream_);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    (void)cudaStreamEndCapture(stream_, &graph);
    (void)cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaFree(gone);
    (void)cudaGraphLaunch(exec, stream_);
  });
}

// A product of 4x4 floats, as ops/matmul asks for one.
class EmulatedCublas : public EmulatedRuntime {
 protected:
  void SetUp() override {
    EmulatedRuntime::SetUp();
    ASSERT_EQ(cudaMalloc(&workspace_, size_t{4} << 20), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_32F, 4, 4, 4), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    (void)cublasLtMatrixLayoutDestroy(layout_);
    (void)cublasLtMatmulDescDestroy(operation_);
    (void)cublasLtDestroy(handle_);
    EXPECT_EQ(cudaFree(workspace_), cudaSuccess);
    EmulatedRuntime::TearDown();
  }
  int Choose(uint64_t workspace, uint32_t alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    (void)cublasLtMatmulPreferenceCreate(&preference);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      (void)cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(name, alignment);
    int count = 0;
    (void)cublasLtMatmulAlgoGetHeuristic(handle_, operation_, layout_, layout_, layout_, layout_,
                                         preference, 1, &chosen_, &count);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return count;
  }
  cublasStatus_t Multiply(const void* a, size_t workspace) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, operation_, &one, a, layout_, data_ + 64, layout_, &zero,
                          data_ + 128, layout_, data_ + 128, layout_, &chosen_.algo, workspace_,
                          workspace, stream_);
  }

  void* workspace_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

TEST_F(EmulatedCublas, AnAlgorithmGetsWhatItWasPromised) {
  ASSERT_EQ(Choose(1 << 20, 16), 1);
  EXPECT_EQ(chosen_.workspaceSize, 0u);
  EXPECT_EQ(Multiply(data_, 0), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(Choose(4 << 20, 16), 1);
  const size_t needs = chosen_.workspaceSize;
  EXPECT_EQ(Multiply(data_, needs), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Multiply(data_, needs - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(Multiply(data_ + 1, needs), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(Multiply(data_ + kCount - 4, needs), CUBLAS_STATUS_EXECUTION_FAILED);
  alignas(16) float here[16] = {};
  EXPECT_EQ(Multiply(here, needs), CUBLAS_STATUS_EXECUTION_FAILED);
  ASSERT_EQ(Choose(4 << 20, 4), 1);
  EXPECT_EQ(Multiply(data_ + 1, needs), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(EmulatedCublas, TypesThatDoNotGoTogetherHaveNoAlgorithm) {
  (void)cublasLtMatmulDescDestroy(operation_);
  ASSERT_EQ(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_64F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Choose(4 << 20, 16), 0);
}

}  // namespace
}  // namespace monograph
