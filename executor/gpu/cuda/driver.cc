// StreamDriver by CUDA: a queue is a stream, events and graphs are handles behind small ids, and
// each failed call becomes a Status that names the call. What any thread may call first makes its
// device current (Use); BeginCapture and Launch need not, since only the launching thread calls
// them, after Enter. An error that the context does not survive sets lost_; any other is cleared in
// CUDA, which would otherwise report it again from a later call.
#include "executor/gpu/cuda/driver.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/gpu/cuda/captured.h"
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/nccl.h"
#include "executor/gpu/cuda/stream.h"

namespace monograph::cuda {
namespace {

class CudaStream : public CapturingStream {
 public:
  cudnnContext* cudnn() override { return cudnn_; }
  cublasLtContext* cublaslt() override { return cublaslt_; }

  Status Make() {
    MG_CUDNN_RETURN_IF_ERROR(cudnnCreate(&cudnn_));
    MG_CUDNN_RETURN_IF_ERROR(cudnnSetStream(cudnn_, stream));
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtCreate(&cublaslt_));
    void* counters = nullptr;
    MG_CUDA_RETURN_IF_ERROR(cudaMalloc(&counters, kArrivals * sizeof(*arrivals)));
    arrivals = static_cast<uint32_t*>(counters);
    MG_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(arrivals, 0, kArrivals * sizeof(*arrivals), stream));
    return Status();
  }
  ~CudaStream() override { Close(); }
  // To be called before the stream is destroyed, since cuDNN's handle refers to it.
  void Close() {
    if (cudnn_ != nullptr) (void)cudnnDestroy(std::exchange(cudnn_, nullptr));
    if (cublaslt_ != nullptr) (void)cublasLtDestroy(std::exchange(cublaslt_, nullptr));
    if (arrivals != nullptr) (void)cudaFree(std::exchange(arrivals, nullptr));
  }

 private:
  cudnnHandle_t cudnn_ = nullptr;
  cublasLtHandle_t cublaslt_ = nullptr;
};

// Ids for handles of CUDA. Thread-safe.
template <typename Handle>
class Handles {
 public:
  int32_t Add(Handle handle) {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      const int32_t id = free_.back();
      free_.pop_back();
      handles_[static_cast<size_t>(id)] = std::move(handle);
      return id;
    }
    handles_.push_back(std::move(handle));
    return static_cast<int32_t>(handles_.size() - 1);
  }
  Handle Get(int32_t id) const {
    MutexLock lock(mutex_);
    return handles_[static_cast<size_t>(id)];
  }
  Handle Remove(int32_t id) {
    MutexLock lock(mutex_);
    free_.push_back(id);
    return std::exchange(handles_[static_cast<size_t>(id)], nullptr);
  }

 private:
  mutable Mutex mutex_;
  std::vector<Handle> handles_ MG_GUARDED_BY(mutex_);
  std::vector<int32_t> free_ MG_GUARDED_BY(mutex_);
};

// Of a call that gives back or sets back, whose failure changes nothing here: without this the next
// launch would find its error.
void Ignore(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
}

// Memory that nothing has written is NaN then, so that a kernel that reads it shows. No flag, since
// programs without flags, as those of tests, want it, too.
bool IsPoisoned() {
  const char* text = std::getenv("MONOGRAPH_GPU_POISON");
  return text != nullptr && std::string_view(text) == "1";
}

struct CapturedGraph {
  ~CapturedGraph() {
    if (exec != nullptr) Ignore(cudaGraphExecDestroy(exec));
  }
  cudaGraphExec_t exec = nullptr;
  std::vector<std::shared_ptr<const void>> needs;  // KeepForGraph
};

// While this thread captures a graph: what it does here may be no part of the graph.
class Relaxed {
 public:
  Relaxed() : error_(cudaThreadExchangeStreamCaptureMode(&mode_)) {}
  ~Relaxed() {
    if (error_ == cudaSuccess) Ignore(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  cudaError_t error() const { return error_; }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  const cudaError_t error_;
};

class CudaDriver : public StreamDriver {
 public:
  explicit CudaDriver(int device) : device_(device) {}
  ~CudaDriver() override;
  Status Make(const GpuOptions& options);

  DeviceStream* stream() override { return &stream_; }
  DeviceStream* members_stream() override { return &members_stream_; }
  Communicators* communicators() override { return communicators_.get(); }
  Status Enter() override { return Check(cudaSetDevice(device_), "cudaSetDevice"); }
  bool lost() override;

  Result<void*> AllocateDevice(size_t bytes) override;
  void FreeDevice(void* data) override {
    (void)Use();
    pool_ == nullptr ? Ignore(cudaFree(data)) : pool_->Free(data);
  }
  Result<void*> AllocatePinned(size_t bytes) override;
  void FreePinned(void* data) override {
    (void)Use();
    Ignore(cudaFreeHost(data));
  }

  Result<EventId> MakeEvent(bool timed) override;
  void DropEvent(EventId event) override {
    (void)Use();
    Ignore(cudaEventDestroy(events_.Remove(event)));
  }
  Status Record(EventId event, Queue queue) override {
    MG_RETURN_IF_ERROR(Use());
    return Check(cudaEventRecord(events_.Get(event), Of(queue)), "cudaEventRecord");
  }
  Status Wait(Queue queue, StreamDriver& other, EventId event) override {
    MG_RETURN_IF_ERROR(Use());
    const cudaEvent_t handle = static_cast<CudaDriver&>(other).events_.Get(event);
    return Check(cudaStreamWaitEvent(Of(queue), handle, 0), "cudaStreamWaitEvent");
  }
  Result<bool> Done(EventId event) override;
  Result<int64_t> ElapsedNs(EventId from, EventId to) override;

  Status Copy(Queue queue, void* to, const void* from, size_t bytes) override;
  Status CopyFromPeer(void* to, StreamDriver& other, const void* from, size_t bytes) override;

  Status BeginCapture() override {
    MG_RETURN_IF_ERROR(
        Check(cudaStreamBeginCapture(Of(Queue::kCompute), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture"));
    stream_.captures = true;
    return Status();
  }
  Result<GraphId> EndCapture() override;
  Status Launch(GraphId graph) override {
    return Check(cudaGraphLaunch(graphs_.Get(graph)->exec, Of(Queue::kCompute)), "cudaGraphLaunch");
  }
  void DropGraph(GraphId graph) override { graphs_.Remove(graph); }

 private:
  cudaStream_t Of(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }
  // Any thread of the task may call. For a thread that has set no device CUDA takes the first GPU:
  // it would allocate there, and create a context in a process that does not use that GPU.
  Status Use() {
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == device_) [[likely]]
      return Status();
    return Enter();
  }
  // Clears an error that the context survives, so that CUDA does not report it again.
  Status Check(cudaError_t error, const char* call) {
    if (error == cudaSuccess) [[likely]]
      return Status();
    if (IsSticky(error)) {
      lost_ = true;
    } else {
      (void)cudaGetLastError();
    }
    return CudaStatus(error, call);
  }
  // Fills new memory with bytes that are NaN in every type of floats, and waits for that.
  Status Poison(void* data, size_t bytes);

  const int device_;
  const bool poisons_ = IsPoisoned();
  std::array<cudaStream_t, kQueues> streams_{};
  CudaStream stream_, members_stream_;
  std::shared_ptr<NcclPool> pool_;  // of device memory; nullptr: CUDA gives it
  std::unique_ptr<Communicators> communicators_;
  Handles<cudaEvent_t> events_;
  Handles<std::shared_ptr<CapturedGraph>> graphs_;
  // Default order: only failed calls look at it.
  std::atomic<bool> lost_{false};  // default order: read after errors only
};

Status CudaDriver::Make(const GpuOptions& options) {
  MG_RETURN_IF_ERROR(Enter());
  for (cudaStream_t& stream : streams_)
    MG_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaDeviceProp properties;
  MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device_));
  stream_.stream = Of(Queue::kCompute);
  stream_.device = device_;
  stream_.multiprocessors = properties.multiProcessorCount;
  stream_.compute_capability = 10 * properties.major + properties.minor;
  stream_.options = options;
  MG_RETURN_IF_ERROR(stream_.Make());
  members_stream_.stream = Of(Queue::kMembers);
  members_stream_.device = device_;
  members_stream_.multiprocessors = stream_.multiprocessors;
  members_stream_.compute_capability = stream_.compute_capability;
  members_stream_.options = options;
  // NCCL's kernels run before ours there.
  members_stream_.options.programmatic_dependent_launch = false;
  if (WantsNcclPool(options)) pool_ = MakeNcclPool();
  if (options.nccl && NcclVersion().ok())
    communicators_ = MakeNcclCommunicators(Of(Queue::kMembers), !options.deterministic, pool_);
  return Status();
}

CudaDriver::~CudaDriver() {
  (void)cudaSetDevice(device_);
  communicators_.reset();
  stream_.Close();
  for (const cudaStream_t stream : streams_) {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
}

// Kernels call CUDA themselves, and Check does not see their errors: query a stream.
bool CudaDriver::lost() {
  if (lost_) return true;
  (void)Use();
  const cudaError_t error = cudaStreamQuery(Of(Queue::kToDevice));
  if (IsSticky(error)) {
    lost_ = true;
  } else if (error != cudaSuccess) {
    (void)cudaGetLastError();
  }
  return lost_;
}

// Also called while a graph is captured: relaxed mode allows to allocate then. The allocation is no
// part of the graph.
Result<void*> CudaDriver::AllocateDevice(size_t bytes) {
  const Relaxed relaxed;
  void* data = nullptr;
  Status status = Check(relaxed.error(), "cudaThreadExchangeStreamCaptureMode");
  if (status.ok()) status = Use();
  if (status.ok() && pool_ != nullptr) {
    const Result<void*> given = pool_->Allocate(bytes);
    status = given.status();
    if (given.ok()) data = *given;
  } else if (status.ok()) {
    status = Check(cudaMalloc(&data, bytes), "cudaMalloc");
  }
  if (status.ok() && poisons_) {
    status = Poison(data, bytes);
    if (!status.ok()) FreeDevice(data);
  }
  if (!status.ok()) return status.WithContext(std::to_string(bytes) + " bytes");
  return data;
}

Status CudaDriver::Poison(void* data, size_t bytes) {
  const cudaStream_t stream = Of(Queue::kToDevice);
  MG_RETURN_IF_ERROR(Check(cudaMemsetAsync(data, 0xff, bytes, stream), "cudaMemsetAsync"));
  return Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Result<void*> CudaDriver::AllocatePinned(size_t bytes) {
  const Relaxed relaxed;
  void* data = nullptr;
  Status status = Check(relaxed.error(), "cudaThreadExchangeStreamCaptureMode");
  if (status.ok()) status = Use();
  if (status.ok())
    status = Check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  if (!status.ok()) return status.WithContext(std::to_string(bytes) + " bytes");
  return data;
}

Result<EventId> CudaDriver::MakeEvent(bool timed) {
  cudaEvent_t event = nullptr;
  MG_RETURN_IF_ERROR(Use());
  MG_RETURN_IF_ERROR(
      Check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
            "cudaEventCreateWithFlags"));
  return events_.Add(event);
}

Result<bool> CudaDriver::Done(EventId event) {
  MG_RETURN_IF_ERROR(Use());
  const cudaError_t error = cudaEventQuery(events_.Get(event));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  MG_RETURN_IF_ERROR(Check(error, "cudaEventQuery"));
  return true;
}

Result<int64_t> CudaDriver::ElapsedNs(EventId from, EventId to) {
  float ms = 0;
  MG_RETURN_IF_ERROR(Use());
  MG_RETURN_IF_ERROR(
      Check(cudaEventElapsedTime(&ms, events_.Get(from), events_.Get(to)), "cudaEventElapsedTime"));
  return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
}

Status CudaDriver::Copy(Queue queue, void* to, const void* from, size_t bytes) {
  MG_RETURN_IF_ERROR(Use());
  const cudaMemcpyKind kind = queue == Queue::kToDevice ? cudaMemcpyHostToDevice
                              : queue == Queue::kToHost ? cudaMemcpyDeviceToHost
                                                        : cudaMemcpyDeviceToDevice;
  return Check(cudaMemcpyAsync(to, from, bytes, kind, Of(queue)), "cudaMemcpyAsync");
}

Status CudaDriver::CopyFromPeer(void* to, StreamDriver& other, const void* from, size_t bytes) {
  const int source = static_cast<CudaDriver&>(other).device_;
  const cudaStream_t stream = Of(Queue::kPeer);
  MG_RETURN_IF_ERROR(Use());
  if (source == device_)
    return Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync");
  return Check(cudaMemcpyPeerAsync(to, device_, from, source, bytes, stream),
               "cudaMemcpyPeerAsync");
}

Result<GraphId> CudaDriver::EndCapture() {
  stream_.captures = false;
  const auto captured = std::make_shared<CapturedGraph>();
  captured->needs = std::exchange(stream_.captured, {});
  cudaGraph_t graph = nullptr;
  MG_RETURN_IF_ERROR(
      Check(cudaStreamEndCapture(Of(Queue::kCompute), &graph), "cudaStreamEndCapture"));
  const Status status =
      Check(cudaGraphInstantiate(&captured->exec, graph, 0), "cudaGraphInstantiate");
  Ignore(cudaGraphDestroy(graph));
  MG_RETURN_IF_ERROR(status);
  return graphs_.Add(captured);
}

}  // namespace

Result<std::shared_ptr<StreamDriver>> MakeCudaDriver(int device, const GpuOptions& options) {
  auto driver = std::make_shared<CudaDriver>(device);
  MG_RETURN_IF_ERROR(driver->Make(options));
  return std::shared_ptr<StreamDriver>(std::move(driver));
}

}  // namespace monograph::cuda
