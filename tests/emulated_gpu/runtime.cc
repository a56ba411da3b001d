// The part of CUDA's runtime that we use, without a GPU: what is enqueued runs on the host, in the
// order of streams and events and no other, each stream on a thread of its own. Kernels are nvcc's
// PTX, interpreted (tests/emulated_gpu/ptx.h).
//
// It refuses what CUDA refuses: launches beyond an H200's limits, streams of another device, freed
// or foreign addresses, and while a graph is captured all that might wait for the device or would
// break the capture. What a kernel does wrong loses the device, as there.
//
// From the environment: MG_EMULATED_GPUS (devices, 1), MG_EMULATED_GPU_COMPUTE=0 (kernels do
// nothing), MG_EMULATED_GPU_LOG=FILE (every call that matters, one a line; totals at the end).
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/fatbin.h"
#include "tests/emulated_gpu/ptx.h"

using Clock = std::chrono::steady_clock;
using Work = std::function<cudaError_t()>;

struct CUevent_st {
  uint64_t recorded = 0, reached = 0;
  bool timed = false, captured = false;
  Clock::time_point when{};
};

struct CUstream_st {
  struct Entry {
    Work work;                    // or, without it,
    cudaEvent_t event = nullptr;  // what is recorded or awaited
    uint64_t turn = 0;
    bool wait = false;
  };
  int device = 0;
  std::deque<Entry> queue;
  bool busy = false, ends = false;
  std::unique_ptr<CUgraph_st> capture;
  bool invalid = false;
  cudaStreamCaptureMode mode{};
  std::thread::id capturer;
  std::thread thread;
};

struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Work>> nodes;
};

namespace {

using namespace monograph;

// ---- what there is ----

constexpr size_t kMemory = size_t{64} << 30;  // taken from the host when it is touched
constexpr size_t kShared = 48 << 10;

struct Binary {
  const void* image = nullptr;
  bool parsed = false;
  std::vector<std::unique_ptr<ptx::Module>> modules;
};
struct Function {
  Binary* binary = nullptr;
  std::string name;
  const ptx::Kernel* kernel = nullptr;
  bool looked_for = false;
};
struct Range {
  size_t bytes;
  int device;  // -1: pinned host memory
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, std::unique_ptr<Function>> functions;
  std::map<const std::byte*, Range> ranges;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::map<int, size_t> used;
  cudaError_t lost = cudaSuccess;
  std::map<std::string, int64_t> counts;
  FILE* log = nullptr;
  bool compute = true;
  int devices = 1;

  State() {
    const char* text = std::getenv("MG_EMULATED_GPUS");
    if (text != nullptr) devices = std::atoi(text);
    text = std::getenv("MG_EMULATED_GPU_COMPUTE");
    compute = text == nullptr || *text != '0';
    text = std::getenv("MG_EMULATED_GPU_LOG");
    if (text != nullptr) log = std::fopen(text, "a");
  }
};
State& S() {
  static State* const state = new State;  // outlives all threads
  return *state;
}

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

void Log(const char* call, const std::string& what = "") {
  State& s = S();
  if (s.log == nullptr) return;
  ++s.counts[call];
  std::fprintf(s.log, "%s %s\n", call, what.c_str());
}

cudaError_t Fail(cudaError_t code, const char* call, const std::string& why) {
  if (code != cudaErrorNotReady) {
    std::fprintf(stderr, "emulated GPU: %s: %s (%s)\n", call, why.c_str(), cudaGetErrorName(code));
    if (S().log != nullptr) std::fprintf(S().log, "ERROR %s: %s\n", call, why.c_str());
  }
  return last = code;
}

using Lock = std::unique_lock<std::mutex>;

// ---- captures ----

// What might wait for the device: not while this thread captures, unless it said that it knows.
cudaError_t Unsafe(Lock&, const char* call) {
  if (mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (cudaStream_t stream : S().streams) {
    if (stream->capture == nullptr || stream->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = stream->capturer == std::this_thread::get_id();
    const bool everybodys =
        stream->mode == cudaStreamCaptureModeGlobal && mode == cudaStreamCaptureModeGlobal;
    if (!own && !everybodys) continue;
    stream->invalid = true;
    return Fail(cudaErrorStreamCaptureUnsupported, call, "not while a stream is captured");
  }
  return cudaSuccess;
}

cudaError_t Known(Lock&, cudaStream_t stream, const char* call) {
  if (S().lost != cudaSuccess) return last = S().lost;
  if (stream == nullptr)
    return Fail(cudaErrorInvalidResourceHandle, call, "the legacy stream is not emulated");
  if (!S().streams.contains(stream))
    return Fail(cudaErrorInvalidResourceHandle, call, "no such stream");
  return cudaSuccess;
}

cudaError_t Enqueue(Lock& lock, cudaStream_t stream, const char* call, Work work) {
  if (const cudaError_t error = Known(lock, stream, call); error != cudaSuccess) return error;
  if (stream->capture != nullptr) {
    if (stream->invalid)
      return Fail(cudaErrorStreamCaptureInvalidated, call, "the capture was broken");
    stream->capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  stream->queue.push_back({.work = std::move(work)});
  S().changed.notify_all();
  return cudaSuccess;
}

void RunStream(cudaStream_t stream) {
  State& s = S();
  Lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] {
      if (stream->queue.empty()) return stream->ends;
      const auto& next = stream->queue.front();
      return !next.wait || next.event->reached >= next.turn;
    });
    if (stream->queue.empty()) return;
    CUstream_st::Entry entry = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (entry.work != nullptr) {
      stream->busy = true;
      cudaError_t error = s.lost;
      lock.unlock();
      if (error == cudaSuccess) error = entry.work();
      lock.lock();
      stream->busy = false;
      if (s.lost == cudaSuccess) s.lost = error;
    } else if (!entry.wait) {
      entry.event->reached = std::max(entry.event->reached, entry.turn);
      entry.event->when = Clock::now();
    }
    s.changed.notify_all();
  }
}

void Drain(Lock& lock, cudaStream_t stream) {
  S().changed.wait(lock, [&] { return stream->queue.empty() && !stream->busy; });
}

// ---- memory ----

std::span<const std::byte> BlockOf(const void* address) {
  State& s = S();
  std::lock_guard lock(s.mutex);
  const auto* at = static_cast<const std::byte*>(address);
  auto it = s.ranges.upper_bound(at);
  if (it == s.ranges.begin()) return {};
  --it;
  if (at >= it->first + it->second.bytes) return {};
  return {it->first, it->second.bytes};
}

// The range that holds [data, data + bytes); null: none does.
const Range* RangeOf(Lock&, const void* data, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  auto it = S().ranges.upper_bound(at);
  if (it == S().ranges.begin()) return nullptr;
  --it;
  return at + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

cudaError_t Take(void** data, size_t bytes, int device, const char* call) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Unsafe(lock, call); error != cudaSuccess) return error;
  if (S().lost != cudaSuccess) return last = S().lost;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (device >= 0 && S().used[device] + bytes > kMemory) {
    last = cudaErrorMemoryAllocation;
    return last;
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return last = cudaErrorMemoryAllocation;
  S().ranges[static_cast<std::byte*>(at)] = {bytes, device};
  S().used[device] += bytes;
  *data = at;
  Log(call, std::to_string(bytes));
  return cudaSuccess;
}

cudaError_t Release(void* data, bool pinned, const char* call) {
  if (data == nullptr) return cudaSuccess;
  Lock lock(S().mutex);
  if (const cudaError_t error = Unsafe(lock, call); error != cudaSuccess) return error;
  const auto it = S().ranges.find(static_cast<std::byte*>(data));
  if (it == S().ranges.end() || (it->second.device < 0) != pinned)
    return Fail(cudaErrorInvalidValue, call, "no such allocation");
  for (cudaStream_t stream : S().streams) Drain(lock, stream);  // as cudaFree does
  S().used[it->second.device] -= it->second.bytes;
  munmap(data, it->second.bytes);
  S().ranges.erase(it);
  Log(call);
  return cudaSuccess;
}

cudaError_t Move(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 const char* call) {
  Lock lock(S().mutex);
  const Range *target = RangeOf(lock, to, bytes), *source = RangeOf(lock, from, bytes);
  const bool to_device = target != nullptr && target->device >= 0,
             from_device = source != nullptr && source->device >= 0;
  const bool fits = kind == cudaMemcpyHostToDevice   ? to_device && !from_device
                    : kind == cudaMemcpyDeviceToHost ? !to_device && from_device
                                                     : to_device && from_device;
  if (!fits && bytes > 0)
    return Fail(cudaErrorInvalidValue, call,
                "addresses are not of kind " + std::to_string(static_cast<int>(kind)));
  Log(call, std::string(kind == cudaMemcpyHostToDevice   ? "to the device "
                        : kind == cudaMemcpyDeviceToHost ? "to the host "
                                                         : "on the device ") +
                std::to_string(bytes) + (stream->capture != nullptr ? " captured" : "") +
                (target == nullptr || source == nullptr ? " pageable" : ""));
  return Enqueue(lock, stream, call, [=] {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  });
}

// ---- kernels ----

const ptx::Kernel* KernelOf(Function& f) {
  if (f.looked_for) return f.kernel;
  f.looked_for = true;
  if (!f.binary->parsed) {
    f.binary->parsed = true;
    const auto texts = ptx::PtxOfFatbin(f.binary->image);
    if (!texts.ok()) std::fprintf(stderr, "emulated GPU: %s\n", texts.status().ToString().c_str());
    if (texts.ok()) {
      if (texts->empty()) std::fprintf(stderr, "emulated GPU: no PTX beside %s\n", f.name.c_str());
      for (const std::string& text : *texts) {
        if (const char* to = std::getenv("MG_EMULATED_GPU_PTX")) {  // for a look at it
          if (FILE* out = std::fopen(
                  (std::string(to) + "/" + f.name.substr(0, 100) + ".ptx").c_str(), "w")) {
            std::fputs(text.c_str(), out);
            std::fclose(out);
          }
        }
        auto module = ptx::Module::Parse(text);
        if (!module.ok()) {
          std::fprintf(stderr, "emulated GPU: %s: %s\n", f.name.c_str(),
                       module.status().ToString().c_str());
          continue;
        }
        f.binary->modules.push_back(std::move(module).value());
      }
    }
  }
  for (const auto& module : f.binary->modules) {
    if (f.kernel == nullptr) f.kernel = module->Find(f.name);
  }
  return f.kernel;
}

std::string Text(dim3 d) {
  return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
}

cudaError_t LaunchKernel(Function* f, dim3 grid, dim3 block, void** args, size_t shared,
                         cudaStream_t stream) {
  const char* const call = "launch";
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, call); error != cudaSuccess) return error;
  if (stream->device != current)
    return Fail(cudaErrorInvalidResourceHandle, call, "a stream of another device");
  const ptx::Kernel* kernel = KernelOf(*f);
  if (kernel == nullptr) return Fail(cudaErrorNoKernelImageForDevice, call, "no PTX of " + f->name);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 2147483647 || grid.y > 65535 ||
      grid.z > 65535 || kernel->shared_bytes + shared > kShared)
    return Fail(cudaErrorInvalidConfiguration, call,
                f->name + " " + Text(grid) + " of " + Text(block));
  if (kernel->max_threads > 0 && threads > kernel->max_threads)
    return Fail(cudaErrorLaunchOutOfResources, call, f->name + " in blocks of " + Text(block));
  Log(call, f->name + " " + Text(grid) + " " + Text(block) + " " +
                std::to_string(kernel->shared_bytes + shared) +
                (stream->capture != nullptr ? " captured" : ""));
  if (!S().compute) return Enqueue(lock, stream, call, [] { return cudaSuccess; });
  size_t bytes = 0;
  for (const ptx::Parameter& p : kernel->parameters) bytes = std::max(bytes, p.offset + p.bytes);
  auto values = std::make_shared<std::vector<std::byte>>(bytes);
  auto pointers = std::make_shared<std::vector<void*>>();
  for (size_t i = 0; i < kernel->parameters.size(); ++i) {
    const ptx::Parameter& p = kernel->parameters[i];
    std::memcpy(values->data() + p.offset, args[i], p.bytes);
    pointers->push_back(values->data() + p.offset);
  }
  ptx::LaunchDims dims{
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<uint32_t>(shared)};
  return Enqueue(lock, stream, call, [kernel, dims, values, pointers] {
    const Status status = ptx::Launch(*kernel, dims, pointers->data(), {.memory = BlockOf});
    if (status.ok()) return cudaSuccess;
    std::fprintf(stderr, "emulated GPU: %s\n", status.ToString().c_str());
    return cudaErrorIllegalAddress;
  });
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

namespace monograph::emulated {

cudaError_t EnqueueOn(CUstream_st* stream, const char* what, std::function<void()> work) {
  Lock lock(S().mutex);
  Log(what, stream != nullptr && stream->capture != nullptr ? "captured" : "");
  if (!S().compute) work = [] {};
  return Enqueue(lock, stream, what, [work = std::move(work)] {
    work();
    return cudaSuccess;
  });
}

}  // namespace monograph::emulated

extern "C" {

// ---- what nvcc writes into objects (crt/host_runtime.h) ----

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* data;
    void* file;
  };
  auto* binary = new Binary;  // for the process
  binary->image = static_cast<const Wrapper*>(wrapper)->data;
  return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  std::lock_guard lock(S().mutex);
  auto f = std::make_unique<Function>();
  f->binary = reinterpret_cast<Binary*>(binary);
  f->name = name;
  S().functions[host] = std::move(f);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return cudaErrorInvalidConfiguration;
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid, *block = c.block, *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  std::lock_guard lock(S().mutex);
  const auto it = S().functions.find(host);
  if (it == S().functions.end()) return last = cudaErrorInvalidDeviceFunction;
  *kernel = reinterpret_cast<cudaKernel_t>(it->second.get());
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  return LaunchKernel(reinterpret_cast<Function*>(kernel), grid, block, args, shared, stream);
}

// ---- errors ----

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(code) \
  case code:       \
    return #code;
    NAME(cudaSuccess)
    NAME(cudaErrorInvalidValue)
    NAME(cudaErrorMemoryAllocation)
    NAME(cudaErrorInvalidConfiguration)
    NAME(cudaErrorInvalidDeviceFunction)
    NAME(cudaErrorInvalidDevice)
    NAME(cudaErrorInvalidResourceHandle)
    NAME(cudaErrorNotReady)
    NAME(cudaErrorIllegalAddress)
    NAME(cudaErrorLaunchOutOfResources)
    NAME(cudaErrorNoKernelImageForDevice)
    NAME(cudaErrorPeerAccessAlreadyEnabled)
    NAME(cudaErrorStreamCaptureUnsupported)
    NAME(cudaErrorStreamCaptureInvalidated)
    NAME(cudaErrorStreamCaptureIsolation)
    NAME(cudaErrorCapturedEvent)
    NAME(cudaErrorIllegalState)
#undef NAME
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return std::exchange(last, S().lost); }

// ---- devices ----

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = S().devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= S().devices) return last = cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device < 0 || device >= S().devices) return last = cudaErrorInvalidDevice;
  *p = {};
  std::strcpy(p->name, "Emulated H200 (computes on the CPU)");
  p->totalGlobalMem = kMemory;
  p->major = 9, p->multiProcessorCount = 132, p->warpSize = 32;
  p->sharedMemPerBlock = kShared, p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048;
  p->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  static thread_local bool enabled = false;
  return std::exchange(enabled, true) ? last = cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard lock(S().mutex);
  *total = kMemory;
  *free = kMemory - S().used[current];
  return cudaSuccess;
}

// ---- memory ----

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Take(data, bytes, current, "cudaMalloc");
}
cudaError_t cudaFree(void* data) { return Release(data, false, "cudaFree"); }
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return Take(data, bytes, -1, "cudaHostAlloc");
}
cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, 0); }
cudaError_t cudaFreeHost(void* data) { return Release(data, true, "cudaFreeHost"); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Move(to, from, bytes, kind, stream, "cudaMemcpyAsync");
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return Move(to, from, bytes, cudaMemcpyDeviceToDevice, stream, "cudaMemcpyPeerAsync");
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Lock lock(S().mutex);
  const Range* range = RangeOf(lock, to, bytes);
  if (range == nullptr || range->device < 0)
    return Fail(cudaErrorInvalidValue, "cudaMemsetAsync", "no device memory");
  Log("cudaMemsetAsync", std::to_string(bytes));
  return Enqueue(lock, stream, "cudaMemsetAsync", [=, compute = S().compute] {
    if (compute) std::memset(to, value, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }  // what is new is zero

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) {
  Lock lock(S().mutex);
  auto* stream = new CUstream_st;
  stream->device = current;
  stream->thread = std::thread(RunStream, stream);
  S().streams.insert(stream);
  *made = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(S().mutex);
  if (!S().streams.contains(stream))
    return Fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy", "no such stream");
  Drain(lock, stream);
  stream->ends = true;
  S().changed.notify_all();
  lock.unlock();
  stream->thread.join();
  lock.lock();
  S().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Lock lock(S().mutex);
  if (S().lost != cudaSuccess) return last = S().lost;
  if (const cudaError_t error = Known(lock, stream, "cudaStreamQuery"); error != cudaSuccess)
    return error;
  if (const cudaError_t error = Unsafe(lock, "cudaStreamQuery"); error != cudaSuccess) return error;
  return stream->queue.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, "cudaStreamSynchronize"); error != cudaSuccess)
    return error;
  if (const cudaError_t error = Unsafe(lock, "cudaStreamSynchronize"); error != cudaSuccess)
    return error;
  Log("cudaStreamSynchronize");
  Drain(lock, stream);
  return S().lost;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  Lock lock(S().mutex);
  auto* event = new CUevent_st;
  event->timed = (flags & cudaEventDisableTiming) == 0;
  S().events.insert(event);
  *made = event;
  Log("cudaEventCreate");
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Lock lock(S().mutex);
  if (S().events.erase(event) == 0)
    return Fail(cudaErrorInvalidResourceHandle, "cudaEventDestroy", "no such event");
  // Streams may still name it: as in CUDA it goes when they are done.
  S().changed.wait(lock, [&] { return event->reached >= event->recorded || event->captured; });
  for (cudaStream_t stream : S().streams) {
    for (auto& entry : stream->queue) {
      if (entry.event == event)
        entry.event = nullptr, entry.wait = false, entry.work = [] { return cudaSuccess; };
    }
  }
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, "cudaEventRecord"); error != cudaSuccess)
    return error;
  if (!S().events.contains(event))
    return Fail(cudaErrorInvalidResourceHandle, "cudaEventRecord", "no such event");
  event->captured = stream->capture != nullptr;
  if (event->captured) return cudaSuccess;
  stream->queue.push_back({.event = event, .turn = ++event->recorded});
  S().changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, "cudaStreamWaitEvent"); error != cudaSuccess)
    return error;
  if (!S().events.contains(event))
    return Fail(cudaErrorInvalidResourceHandle, "cudaStreamWaitEvent", "no such event");
  if ((stream->capture != nullptr) != event->captured) {
    if (stream->capture != nullptr) stream->invalid = true;
    return Fail(cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent",
                "the event is of outside of the capture");
  }
  if (event->captured) return cudaSuccess;
  stream->queue.push_back({.event = event, .turn = event->recorded, .wait = true});
  S().changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(S().mutex);
  if (S().lost != cudaSuccess) return last = S().lost;
  if (event->captured) return Fail(cudaErrorCapturedEvent, "cudaEventQuery", "a captured event");
  if (const cudaError_t error = Unsafe(lock, "cudaEventQuery"); error != cudaSuccess) return error;
  return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(S().mutex);
  if (event->captured)
    return Fail(cudaErrorCapturedEvent, "cudaEventSynchronize", "a captured event");
  if (const cudaError_t error = Unsafe(lock, "cudaEventSynchronize"); error != cudaSuccess)
    return error;
  Log("cudaEventSynchronize");
  S().changed.wait(lock, [&] { return event->reached >= event->recorded; });
  return S().lost;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  Lock lock(S().mutex);
  if (!from->timed || !to->timed || from->recorded == 0 || to->recorded == 0)
    return Fail(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime", "an event without time");
  if (from->reached < from->recorded || to->reached < to->recorded) return last = cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
  std::swap(mode, *other);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, "cudaStreamIsCapturing"); error != cudaSuccess)
    return error;
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->invalid          ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode how) {
  Lock lock(S().mutex);
  if (const cudaError_t error = Known(lock, stream, "cudaStreamBeginCapture"); error != cudaSuccess)
    return error;
  if (stream->capture != nullptr)
    return Fail(cudaErrorIllegalState, "cudaStreamBeginCapture", "it is captured already");
  stream->capture = std::make_unique<CUgraph_st>();
  stream->invalid = false;
  stream->mode = how;
  stream->capturer = std::this_thread::get_id();
  Log("cudaStreamBeginCapture");
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Lock lock(S().mutex);
  *graph = nullptr;
  if (const cudaError_t error = Known(lock, stream, "cudaStreamEndCapture"); error != cudaSuccess)
    return error;
  if (stream->capture == nullptr)
    return Fail(cudaErrorIllegalState, "cudaStreamEndCapture", "nothing is captured");
  auto made = std::move(stream->capture);
  if (stream->invalid)
    return Fail(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture",
                "the capture was broken");
  Log("cudaStreamEndCapture", std::to_string(made->nodes.size()) + " nodes");
  *graph = made.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  Lock lock(S().mutex);
  Log("cudaGraphInstantiate");
  *made = new CUgraphExec_st{std::make_shared<const std::vector<Work>>(graph->nodes)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Lock lock(S().mutex);
  Log("cudaGraphLaunch", std::to_string(graph->nodes->size()) + " nodes");
  return Enqueue(lock, stream, "cudaGraphLaunch", [nodes = graph->nodes] {
    for (const Work& work : *nodes) {
      if (const cudaError_t error = work(); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"

namespace {

struct Totals {
  ~Totals() {
    State& s = S();
    if (s.log == nullptr) return;
    for (const auto& [call, count] : s.counts)
      std::fprintf(s.log, "TOTAL %s %lld\n", call.c_str(), static_cast<long long>(count));
    for (const auto& [device, bytes] : s.used)
      std::fprintf(s.log, "LEFT device %d: %zu bytes\n", device, bytes);
    std::fprintf(s.log, "LEFT %zu streams, %zu events\n", s.streams.size(), s.events.size());
    std::fflush(s.log);
  }
} totals;

}  // namespace
