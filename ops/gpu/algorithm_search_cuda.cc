#include <cuda_runtime_api.h>

#include <map>

#include "base/mutex.h"
#include "executor/gpu/cuda/error.h"
#include "ops/gpu/algorithm_search.h"

namespace monograph::ops {
namespace {

constexpr int kTimedRuns = 3;

Result<std::string> DeviceName(int device) {
  static Mutex mutex;
  static std::map<int, std::string>* const names MG_PT_GUARDED_BY(mutex) =
      new std::map<int, std::string>;
  MutexLock lock(mutex);
  std::string& name = (*names)[device];
  if (name.empty()) {
    cudaDeviceProp properties;
    MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
    name = properties.name;
  }
  return name;
}

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Status Record(cudaStream_t stream) {
    if (event_ == nullptr) MG_CUDA_RETURN_IF_ERROR(cudaEventCreate(&event_));
    MG_CUDA_RETURN_IF_ERROR(cudaEventRecord(event_, stream));
    return Status();
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

Result<std::string> SearchName(const cuda::Stream& stream, const std::string& library,
                               size_t version, const std::string& shape) {
  MG_ASSIGN_OR_RETURN(const std::string device, DeviceName(stream.device));
  return device + " " + library + " " + std::to_string(version) +
         (stream.options.allow_tf32 ? " tf32" : "") +
         (stream.options.deterministic ? " deterministic" : "") + " " + shape;
}

Result<bool> Capturing(const cuda::Stream& stream) {
  cudaStreamCaptureStatus capture{};
  MG_CUDA_RETURN_IF_ERROR(cudaStreamIsCapturing(stream.stream, &capture));
  return capture != cudaStreamCaptureStatusNone;
}

Result<float> TimeOnDevice(const cuda::Stream& stream, const std::function<Status()>& run) {
  Event start, stop;
  const Status first = run();
  // What a refused call leaves behind is not the next launch's error.
  if (!first.ok()) cudaGetLastError();
  MG_RETURN_IF_ERROR(first);
  MG_RETURN_IF_ERROR(start.Record(stream.stream));
  for (int i = 0; i < kTimedRuns; ++i) MG_RETURN_IF_ERROR(run());
  MG_RETURN_IF_ERROR(stop.Record(stream.stream));
  MG_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(stop.get()));
  float ms = 0;
  MG_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&ms, start.get(), stop.get()));
  return ms / kTimedRuns;
}

}  // namespace monograph::ops
