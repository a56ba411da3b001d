// The part of CUDA's runtime that we use, without a GPU: what is enqueued runs on the host, in the
// order of streams and events and no other. Each stream is a thread, which now and then is late, so
// that an event that is missing shows. Kernels are nvcc's PTX, interpreted
// (tests/gpu/emulated/ptx.h).
//
// It is as strict as CUDA's documentation. Refused are: launches beyond an H200's limits, or on a
// stream of another device than the thread's; copies whose addresses are not what their kind says;
// the legacy stream; while a stream is captured, everything that might wait for the device, for the
// threads that the capture's mode names; copies of pageable memory into a graph, events from
// outside of a capture, captures that meet, and work that has not joined when a capture ends. Each
// breaks the capture. A kernel, a copy or a library's call that touches what is no memory of its
// device, or of a peer that it may read, loses the device, and every later call says so; freed
// memory is not given out again. New memory holds no zeros.
//
// Weaker than a GPU: no time is measured that means anything; one context for all devices, lost as
// one; large regions of memory are zero at first, and given out again; the host may read them.
//
// From the environment: MG_EMULATED_GPUS (devices of the machine, 1), of which CUDA_VISIBLE_DEVICES
// may show some, by number; MG_EMULATED_NODE (of another name: as if on another machine, the
// devices' places on the bus say so); MG_EMULATED_GPU_SEED (of delays and orders),
// MG_EMULATED_GPU_COMPUTE=0 (kernels do nothing), MG_EMULATED_GPU_LOG=FILE (every call that
// matters, one a line; totals at the end). A test may let any call fail:
// tests/gpu/emulated/injected_failures.h.
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
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/emulated_gpu.h"
#include "tests/gpu/emulated/injected_failures.h"
#include "tests/gpu/emulated/ptx.h"
#include "tests/gpu/emulated/registered_kernels.h"

using Clock = std::chrono::steady_clock;
using Work = std::function<cudaError_t()>;

namespace {

// One cudaEventRecord.
struct Record {
  bool done = false;
  Clock::time_point when{};
};

struct Node {
  Work work;
  std::vector<size_t> after;  // nodes that come first
};

// A graph in the making. A stream joins by waiting for an event of it.
struct Capture {
  std::vector<Node> nodes;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode{};
  std::thread::id capturer;
  bool broken = false, over = false;
};

}  // namespace

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<Record> record;    // the last; null: there is none outside of captures
  std::shared_ptr<Capture> capture;  // if the last one was captured
  std::vector<size_t> after;         // then: its nodes
};

struct CUstream_st {
  struct Entry {
    Work work;                        // or, without it,
    std::shared_ptr<Record> records;  // what is there
    std::shared_ptr<Record> awaits;   // or is to be
  };
  int device = 0;
  std::deque<Entry> queue;
  bool busy = false, ends = false;
  std::minstd_rand delays;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> after;  // while it is captured: what its next node follows
};

struct CUgraph_st {
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<Node>> nodes;
};

namespace {

using namespace monograph;

// ---- what there is ----

constexpr size_t kMemory = size_t{64} << 30;  // taken from the host when it is touched
constexpr size_t kShared = 48 << 10;

struct Range {
  size_t bytes = 0;
  int device = 0;  // -1: pinned host memory
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const std::byte*, Range> ranges;
  std::set<cudaStream_t> streams;
  std::set<cudaStream_t> ending;  // destroyed, but not done yet
  std::set<cudaEvent_t> events;
  std::set<std::pair<int, int>> peers;  // the first may read the memory of the second
  std::map<int, size_t> used;
  cudaError_t lost = cudaSuccess;
  // What a test lets fail: the call that is `fail_in` calls away (0: none), of those with a name.
  int64_t fail_in = 0;
  int fail_with = 0;
  std::string fail_only, failed;
  std::map<std::string, int64_t> counts;
  int64_t programmatic_launches = 0;
  FILE* log = nullptr;
  bool compute = true;
  unsigned seed = 1;

  State() {
    const char* text = std::getenv("MG_EMULATED_GPU_SEED");
    if (text != nullptr) seed = static_cast<unsigned>(std::atoi(text));
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

// The machine's number of each device that is visible: of a list those before the first that there
// is none of.
const std::vector<int>& Cards() {
  static const std::vector<int> cards = [] {
    const char* text = std::getenv("MG_EMULATED_GPUS");
    std::vector<int> all(static_cast<size_t>(text == nullptr ? 1 : std::atoi(text)));
    std::iota(all.begin(), all.end(), 0);
    text = std::getenv("CUDA_VISIBLE_DEVICES");
    if (text == nullptr) return all;
    std::vector<int> shown;
    std::istringstream list(text);
    for (int card; list >> card && card >= 0 && card < static_cast<int>(all.size()); list.ignore())
      shown.push_back(card);
    return shown;
  }();
  return cards;
}
int Devices() { return static_cast<int>(Cards().size()); }

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

cudaError_t Lost() { return S().lost == cudaSuccess ? cudaSuccess : last = S().lost; }

#define RETURN_IF_ERROR(call)                                               \
  do {                                                                      \
    if (const cudaError_t error = call; error != cudaSuccess) return error; \
  } while (false)

// ---- captures ----

cudaError_t Break(Capture& capture, cudaError_t code, const char* call, const std::string& why) {
  capture.broken = true;
  return Fail(code, call, why);
}

// The error code, 0 for none, that a test wants of this call. Polls, of which there may be any
// number, count only where they are asked for by name.
int Injected(Lock&, const char* call, cudaStream_t stream = nullptr) {
  State& s = S();
  const bool poll = std::strstr(call, "Query") != nullptr;
  if (s.fail_in == 0 || (s.fail_only.empty() ? poll : s.fail_only != call) || --s.fail_in > 0)
    return 0;
  s.failed = call;
  std::fprintf(stderr, "emulated GPU: %s fails with %d, as a test wants\n", call, s.fail_with);
  if (s.fail_only.empty() && s.fail_with == cudaErrorLaunchFailure) s.lost = cudaErrorLaunchFailure;
  const bool breaks = s.fail_with >= cudaErrorStreamCaptureUnsupported &&
                      s.fail_with <= cudaErrorStreamCaptureWrongThread;
  if (breaks && stream != nullptr && stream->capture != nullptr) stream->capture->broken = true;
  return s.fail_with;
}

#define MAY_FAIL(...)                                          \
  do {                                                         \
    if (const int wanted = Injected(__VA_ARGS__); wanted != 0) \
      return last = static_cast<cudaError_t>(wanted);          \
  } while (false)

// What might wait for the device: not while this thread captures, unless it said that it knows.
cudaError_t Unsafe(Lock&, const char* call) {
  if (mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (cudaStream_t stream : S().streams) {
    Capture* const capture = stream->capture.get();
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = capture->capturer == std::this_thread::get_id();
    const bool everybodys =
        capture->mode == cudaStreamCaptureModeGlobal && mode == cudaStreamCaptureModeGlobal;
    if (own || everybodys)
      return Break(*capture, cudaErrorStreamCaptureUnsupported, call,
                   "not while a stream is captured");
  }
  return cudaSuccess;
}

cudaError_t Known(Lock&, cudaStream_t stream, const char* call) {
  RETURN_IF_ERROR(Lost());
  if (stream == nullptr)
    return Fail(cudaErrorInvalidResourceHandle, call, "the legacy stream is not emulated");
  if (!S().streams.contains(stream))
    return Fail(cudaErrorInvalidResourceHandle, call, "no such stream");
  return cudaSuccess;
}
cudaError_t KnownEvent(Lock&, cudaEvent_t event, const char* call) {
  RETURN_IF_ERROR(Lost());
  if (!S().events.contains(event))
    return Fail(cudaErrorInvalidResourceHandle, call, "no such event");
  return cudaSuccess;
}
// What waits for a stream or an event.
cudaError_t NotCaptured(Lock& lock, cudaStream_t stream, const char* call) {
  if (stream->capture != nullptr)
    return Break(*stream->capture, cudaErrorStreamCaptureUnsupported, call,
                 "the stream is captured");
  return Unsafe(lock, call);
}
cudaError_t NotCaptured(Lock& lock, cudaEvent_t event, const char* call) {
  if (event->capture != nullptr)
    return Break(*event->capture, cudaErrorCapturedEvent, call, "the event was captured");
  return Unsafe(lock, call);
}

cudaError_t Enqueue(Lock& lock, cudaStream_t stream, const char* call, Work work) {
  RETURN_IF_ERROR(Known(lock, stream, call));
  if (Capture* const capture = stream->capture.get(); capture != nullptr) {
    if (capture->broken)
      return Fail(cudaErrorStreamCaptureInvalidated, call, "the capture was broken");
    capture->nodes.push_back({std::move(work), std::move(stream->after)});
    stream->after = {capture->nodes.size() - 1};
    return cudaSuccess;
  }
  stream->queue.push_back({.work = std::move(work)});
  S().changed.notify_all();
  return cudaSuccess;
}

// Whether the end of `of` comes after all nodes of `others`.
bool Joined(const Capture& capture, const std::vector<size_t>& of,
            const std::vector<size_t>& others) {
  std::vector<bool> before(capture.nodes.size());
  std::vector<size_t> left = of;
  while (!left.empty()) {
    const size_t node = left.back();
    left.pop_back();
    if (before[node]) continue;
    before[node] = true;
    left.insert(left.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return std::all_of(others.begin(), others.end(), [&](size_t node) { return before[node]; });
}

// In one of the orders that the nodes allow.
cudaError_t RunGraph(const std::vector<Node>& nodes, std::minstd_rand& random) {
  std::vector<size_t> waits(nodes.size()), ready;
  std::vector<std::vector<size_t>> followers(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    waits[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) followers[before].push_back(i);
    if (waits[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const size_t node = ready.back();
    ready.pop_back();
    RETURN_IF_ERROR(nodes[node].work());
    for (const size_t follower : followers[node]) {
      if (--waits[follower] == 0) ready.push_back(follower);
    }
  }
  return cudaSuccess;
}

// ---- streams ----

void RunStream(cudaStream_t stream) {
  State& s = S();
  Lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] {
      if (stream->queue.empty()) return stream->ends;
      const auto& next = stream->queue.front();
      return next.awaits == nullptr || next.awaits->done;
    });
    if (stream->queue.empty()) break;
    CUstream_st::Entry entry = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (entry.work != nullptr) {
      stream->busy = true;
      cudaError_t error = s.lost;
      const auto chance = stream->delays();
      lock.unlock();
      if (chance % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(chance / 8 % 200));
      if (error == cudaSuccess) error = entry.work();
      entry.work = nullptr;
      lock.lock();
      stream->busy = false;
      if (s.lost == cudaSuccess) s.lost = error;
    } else if (entry.records != nullptr) {
      entry.records->done = true;
      entry.records->when = Clock::now();
    }
    s.changed.notify_all();
  }
  s.ending.erase(stream);
  delete stream;
  s.changed.notify_all();
}

// Waits for what they hold now.
void Finish(Lock& lock, const std::set<cudaStream_t>& streams) {
  std::vector<std::shared_ptr<Record>> ends;
  for (cudaStream_t stream : streams) {
    if (stream->queue.empty() && !stream->busy) continue;
    ends.push_back(std::make_shared<Record>());
    stream->queue.push_back({.records = ends.back()});
  }
  S().changed.notify_all();
  for (const auto& end : ends) {
    S().changed.wait(lock, [&] { return end->done; });
  }
}

// ---- memory ----

// The range that holds [data, data + bytes); end(): none does.
auto FindRange(Lock&, const void* data, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  auto& ranges = S().ranges;
  auto it = ranges.upper_bound(at);
  if (it == ranges.begin()) return ranges.end();
  --it;
  return at + bytes <= it->first + it->second.bytes ? it : ranges.end();
}
const Range* RangeOf(Lock& lock, const void* data, size_t bytes) {
  const auto it = FindRange(lock, data, bytes);
  return it == S().ranges.end() ? nullptr : &it->second;
}

// Whether code on `device` may touch it.
bool MayTouch(Lock&, int device, const Range& range) {
  return range.device < 0 || range.device == device || S().peers.contains({device, range.device});
}

std::span<const std::byte> BlockOf(int device, const void* address) {
  Lock lock(S().mutex);
  const auto it = FindRange(lock, address, 1);
  if (it == S().ranges.end() || !MayTouch(lock, device, it->second)) return {};
  return {it->first, it->second.bytes};
}

constexpr size_t kSmall = size_t{4} << 20;  // is filled, and not given out again
constexpr size_t kAlign = 256;              // of what cudaMalloc gives, and no more

cudaError_t Take(void** data, size_t bytes, int device, const char* call) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  RETURN_IF_ERROR(Unsafe(lock, call));
  *data = nullptr;
  MAY_FAIL(lock, call);
  if (bytes == 0) return cudaSuccess;
  if (device >= 0 && S().used[device] + bytes > kMemory) return last = cudaErrorMemoryAllocation;
  void* const mapped = mmap(nullptr, bytes + kAlign, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return last = cudaErrorMemoryAllocation;
  std::byte* const at = static_cast<std::byte*>(mapped) + kAlign;
  if (bytes <= kSmall) std::memset(at, 0xA5, bytes);
  S().ranges[at] = {bytes, device};
  S().used[device] += bytes;
  *data = at;
  Log(call, std::to_string(bytes));
  return cudaSuccess;
}

cudaError_t Release(void* data, bool pinned, const char* call) {
  if (data == nullptr) return cudaSuccess;
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  RETURN_IF_ERROR(Unsafe(lock, call));
  MAY_FAIL(lock, call);
  const auto it = S().ranges.find(static_cast<std::byte*>(data));
  if (it == S().ranges.end() || (it->second.device < 0) != pinned)
    return Fail(cudaErrorInvalidValue, call, "no such allocation");
  const Range range = it->second;
  std::set<cudaStream_t> users;  // that CUDA waits for
  for (const auto& streams : {S().streams, S().ending}) {
    for (cudaStream_t stream : streams) {
      if (pinned || stream->device == range.device) users.insert(stream);
    }
  }
  Finish(lock, users);
  S().used[range.device] -= range.bytes;
  S().ranges.erase(static_cast<std::byte*>(data));
  void* const mapped = static_cast<std::byte*>(data) - kAlign;
  if (range.bytes <= kSmall) {
    (void)mmap(mapped, range.bytes + kAlign, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    munmap(mapped, range.bytes + kAlign);
  }
  Log(call);
  return cudaSuccess;
}

const char* NameOf(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice   ? "to the device"
         : kind == cudaMemcpyDeviceToHost ? "to the host"
                                          : "on the device";
}

cudaError_t Move(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 const char* call) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, call));
  MAY_FAIL(lock, call, stream);
  if (bytes == 0) return cudaSuccess;
  const Range *target = RangeOf(lock, to, bytes), *source = RangeOf(lock, from, bytes);
  const bool to_device = target != nullptr && target->device >= 0,
             from_device = source != nullptr && source->device >= 0;
  const bool pageable = (target == nullptr && kind == cudaMemcpyDeviceToHost) ||
                        (source == nullptr && kind == cudaMemcpyHostToDevice);
  const bool fits = kind == cudaMemcpyHostToDevice   ? to_device && !from_device
                    : kind == cudaMemcpyDeviceToHost ? !to_device && from_device
                                                     : to_device && from_device;
  if (!fits)
    return Fail(cudaErrorInvalidValue, call,
                std::string("addresses are not those of a copy ") + NameOf(kind));
  if (pageable && stream->capture != nullptr) {
    return Break(*stream->capture, cudaErrorStreamCaptureUnsupported, call,
                 "memory of the host that is not pinned, into a graph");
  }
  Log(call, std::string(NameOf(kind)) + " " + std::to_string(bytes) +
                (stream->capture != nullptr ? " captured" : "") + (pageable ? " pageable" : ""));
  // Pageable memory is read before the call returns, and written before it does.
  auto staged = std::make_shared<std::vector<std::byte>>();
  if (pageable && kind == cudaMemcpyHostToDevice) {
    const auto* begin = static_cast<const std::byte*>(from);
    staged->assign(begin, begin + bytes);
  }
  RETURN_IF_ERROR(Enqueue(lock, stream, call, [=] {
    {
      Lock now(S().mutex);
      if ((to_device && RangeOf(now, to, bytes) == nullptr) ||
          (from_device && RangeOf(now, from, bytes) == nullptr)) {
        std::fprintf(stderr, "emulated GPU: %s: of memory that was freed\n", call);
        return cudaErrorIllegalAddress;
      }
    }
    std::memcpy(to, staged->empty() ? from : staged->data(), bytes);
    return cudaSuccess;
  }));
  if (pageable && kind == cudaMemcpyDeviceToHost) Finish(lock, {stream});
  return cudaSuccess;
}

// ---- kernels ----

std::string Text(const uint32_t (&size)[3]) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
}

}  // namespace

namespace monograph::emulated {

MemoryRange MemoryAt(const void* address) {
  Lock lock(S().mutex);
  const auto it = FindRange(lock, address, 1);
  if (it == S().ranges.end()) return {};
  return {it->first, it->second.bytes, it->second.device};
}

int DeviceOf(CUstream_st* stream) {
  Lock lock(S().mutex);
  return S().streams.contains(stream) ? stream->device : -1;
}

void Lose(const char* why) {
  std::fprintf(stderr, "emulated GPU: %s\n", why);
  Lock lock(S().mutex);
  S().lost = cudaErrorLaunchFailure;
}
bool IsLost() {
  Lock lock(S().mutex);
  return S().lost != cudaSuccess;
}
int InjectedFailure(const char* call) {
  Lock lock(S().mutex);
  return Injected(lock, call);
}
int NamedFailure(const char* call) {
  Lock lock(S().mutex);
  return S().fail_only == call ? Injected(lock, call) : 0;
}
unsigned NextSeed() {
  Lock lock(S().mutex);
  return S().seed += 2;
}

cudaError_t EnqueueOn(CUstream_st* stream, const char* what, std::function<void()> work,
                      std::vector<Operand> operands) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, what));
  MAY_FAIL(lock, what, stream);
  if (stream->device != current)
    return Fail(cudaErrorInvalidResourceHandle, what,
                "a stream of another device than the thread's");
  const auto good = [operands = std::move(operands), device = stream->device](Lock& held) {
    return std::all_of(operands.begin(), operands.end(), [&](const Operand& operand) {
      const Range* const range = RangeOf(held, operand.data, operand.bytes);
      return range != nullptr && MayTouch(held, device, *range);
    });
  };
  if (!good(lock))
    return Fail(cudaErrorInvalidValue, what, "an operand is not in the device's memory");
  Log(what, stream->capture != nullptr ? "captured" : "");
  if (!S().compute) work = [] {};
  return Enqueue(lock, stream, what, [work = std::move(work), good, what] {
    {
      Lock now(S().mutex);
      if (!good(now)) {
        std::fprintf(stderr, "emulated GPU: %s: an operand was freed\n", what);
        return cudaErrorIllegalAddress;
      }
    }
    work();
    return cudaSuccess;
  });
}

cudaError_t LaunchKernel(const RegisteredKernel& registered, const ptx::LaunchDims& dims,
                         void** args, cudaStream_t stream, bool programmatic) {
  const char* const call = "launch";
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, call));
  MAY_FAIL(lock, call, stream);
  if (stream->device != current)
    return Fail(cudaErrorInvalidResourceHandle, call,
                "a stream of another device than the thread's");
  const auto code = RegisteredKernels::Global().Code(registered);
  if (!code.ok()) return Fail(cudaErrorNoKernelImageForDevice, call, code.status().ToString());
  const ptx::Kernel* const kernel = *code;
  const auto& [x, y, z] = dims.block;
  const auto& [width, height, depth] = dims.grid;
  const uint64_t threads = uint64_t{x} * y * z;
  if (threads == 0 || threads > 1024 || x > 1024 || y > 1024 || z > 64 || width == 0 ||
      height == 0 || depth == 0 || width > 2147483647 || height > 65535 || depth > 65535 ||
      kernel->shared_bytes + dims.dynamic_shared > kShared)
    return Fail(cudaErrorInvalidConfiguration, call,
                kernel->name + " " + Text(dims.grid) + " of " + Text(dims.block));
  if (kernel->max_threads > 0 && threads > kernel->max_threads)
    return Fail(cudaErrorLaunchOutOfResources, call,
                kernel->name + " in blocks of " + Text(dims.block));
  Log(call, kernel->name + " " + Text(dims.grid) + " " + Text(dims.block) + " " +
                std::to_string(kernel->shared_bytes + dims.dynamic_shared) +
                (programmatic ? " programmatic" : "") +
                (stream->capture != nullptr ? " captured" : ""));
  if (programmatic) ++S().programmatic_launches;
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
  return Enqueue(
      lock, stream, call, [kernel, dims, values, pointers, programmatic, device = stream->device] {
        const auto memory = [device](const void* address) { return BlockOf(device, address); };
        const Status status = ptx::Launch(*kernel, dims, pointers->data(),
                                          {.memory = memory, .programmatic = programmatic});
        if (status.ok()) return cudaSuccess;
        std::fprintf(stderr, "emulated GPU: %s\n", status.ToString().c_str());
        const bool misaligned = status.message().find("is not a multiple of") != std::string::npos;
        return misaligned ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress;
      });
}

}  // namespace monograph::emulated

extern "C" {

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
    NAME(cudaErrorNoDevice)
    NAME(cudaErrorInvalidResourceHandle)
    NAME(cudaErrorNotReady)
    NAME(cudaErrorIllegalAddress)
    NAME(cudaErrorMisalignedAddress)
    NAME(cudaErrorLaunchOutOfResources)
    NAME(cudaErrorLaunchFailure)
    NAME(cudaErrorNoKernelImageForDevice)
    NAME(cudaErrorPeerAccessAlreadyEnabled)
    NAME(cudaErrorStreamCaptureUnsupported)
    NAME(cudaErrorStreamCaptureInvalidated)
    NAME(cudaErrorStreamCaptureIsolation)
    NAME(cudaErrorStreamCaptureMerge)
    NAME(cudaErrorStreamCaptureUnjoined)
    NAME(cudaErrorStreamCaptureUnmatched)
    NAME(cudaErrorStreamCaptureWrongThread)
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
  *count = Devices();
  return *count > 0 ? cudaSuccess : last = cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Devices()) return last = cudaErrorInvalidDevice;
  Lock lock(S().mutex);
  MAY_FAIL(lock, "cudaSetDevice");
  current = device;
  return Lost();
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device < 0 || device >= Devices()) return last = cudaErrorInvalidDevice;
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
// Of the code that LaunchKernel runs.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  const auto* const kernel = monograph::emulated::RegisteredKernels::Global().Find(host);
  if (kernel == nullptr) return last = cudaErrorInvalidDeviceFunction;
  *attributes = {};
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= Devices()) return last = cudaErrorInvalidDevice;
  static const char* const node = std::getenv("MG_EMULATED_NODE");
  std::snprintf(text, static_cast<size_t>(length), "%s%s0000:%02x:00.0",
                node == nullptr ? "" : node, node == nullptr ? "" : "/",
                static_cast<unsigned>(Cards()[static_cast<size_t>(device)] + 1));
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  if (peer == current || peer < 0 || peer >= Devices() || flags != 0)
    return Fail(cudaErrorInvalidDevice, "cudaDeviceEnablePeerAccess", "no peer");
  return S().peers.insert({current, peer}).second ? cudaSuccess
                                                  : last = cudaErrorPeerAccessAlreadyEnabled;
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
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  const char* const call = "cudaMemcpyPeerAsync";
  {
    Lock lock(S().mutex);
    RETURN_IF_ERROR(Known(lock, stream, call));
    const Range *target = RangeOf(lock, to, bytes), *source = RangeOf(lock, from, bytes);
    if (target == nullptr || source == nullptr || target->device != to_device ||
        source->device != from_device)
      return Fail(cudaErrorInvalidValue, call, "memory of another device");
  }
  return Move(to, from, bytes, cudaMemcpyDeviceToDevice, stream, call);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return monograph::emulated::EnqueueOn(stream, "cudaMemsetAsync",
                                        [=] { std::memset(to, value, bytes); }, {{to, bytes}});
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  MAY_FAIL(lock, "cudaStreamCreateWithFlags");
  auto* stream = new CUstream_st;
  stream->device = current;
  stream->delays.seed(S().seed += 2);
  S().streams.insert(stream);
  *made = stream;
  std::thread(RunStream, stream).detach();
  return cudaSuccess;
}
// What is enqueued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, "cudaStreamDestroy"));
  if (stream->capture != nullptr) {
    return Break(*stream->capture, cudaErrorStreamCaptureUnsupported, "cudaStreamDestroy",
                 "the stream is captured");
  }
  S().streams.erase(stream);
  S().ending.insert(stream);
  stream->ends = true;
  S().changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, "cudaStreamQuery"));
  MAY_FAIL(lock, "cudaStreamQuery", stream);
  RETURN_IF_ERROR(NotCaptured(lock, stream, "cudaStreamQuery"));
  if (!stream->queue.empty() || stream->busy) return last = cudaErrorNotReady;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, "cudaStreamSynchronize"));
  MAY_FAIL(lock, "cudaStreamSynchronize", stream);
  RETURN_IF_ERROR(NotCaptured(lock, stream, "cudaStreamSynchronize"));
  Log("cudaStreamSynchronize");
  Finish(lock, {stream});
  return Lost();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  MAY_FAIL(lock, "cudaEventCreateWithFlags");
  auto* event = new CUevent_st;
  event->device = current;
  event->timed = (flags & cudaEventDisableTiming) == 0;
  S().events.insert(event);
  *made = event;
  Log("cudaEventCreate");
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, 0); }
// Streams may still wait for it.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(KnownEvent(lock, event, "cudaEventDestroy"));
  MAY_FAIL(lock, "cudaEventDestroy");
  S().events.erase(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const char* const call = "cudaEventRecord";
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, call));
  RETURN_IF_ERROR(KnownEvent(lock, event, call));
  MAY_FAIL(lock, call, stream);
  if (event->device != stream->device)
    return Fail(cudaErrorInvalidResourceHandle, call,
                "an event of another device than the stream's");
  if (stream->capture != nullptr && stream->capture->broken)
    return Fail(cudaErrorStreamCaptureInvalidated, call, "the capture was broken");
  event->capture = stream->capture;
  event->record = nullptr;
  if (event->capture != nullptr) {
    event->after = stream->after;
    return cudaSuccess;
  }
  Log(call, event->timed ? "timed" : "");
  event->record = std::make_shared<Record>();
  stream->queue.push_back({.records = event->record});
  S().changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const char* const call = "cudaStreamWaitEvent";
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, call));
  RETURN_IF_ERROR(KnownEvent(lock, event, call));
  MAY_FAIL(lock, call, stream);
  if (stream->capture != nullptr && stream->capture->broken)
    return Fail(cudaErrorStreamCaptureInvalidated, call, "the capture was broken");
  Capture* const of = event->capture.get();
  if (stream->capture != nullptr && of != stream->capture.get()) {
    if (of == nullptr || of->over) {
      return Break(*stream->capture, cudaErrorStreamCaptureIsolation, call,
                   "the event is from outside of the capture");
    }
    of->broken = true;
    return Break(*stream->capture, cudaErrorStreamCaptureMerge, call, "two captures meet");
  }
  if (of != nullptr && of->over)
    return Fail(cudaErrorStreamCaptureIsolation, call, "the event is of a capture that has ended");
  if (of != nullptr) {
    if (stream->capture == nullptr) stream->capture = event->capture, stream->after.clear();
    for (const size_t node : event->after) {
      if (std::find(stream->after.begin(), stream->after.end(), node) == stream->after.end())
        stream->after.push_back(node);
    }
    return cudaSuccess;
  }
  if (event->record == nullptr) return cudaSuccess;
  stream->queue.push_back({.awaits = event->record});
  S().changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(KnownEvent(lock, event, "cudaEventQuery"));
  MAY_FAIL(lock, "cudaEventQuery");
  RETURN_IF_ERROR(NotCaptured(lock, event, "cudaEventQuery"));
  const std::shared_ptr<Record> record = event->record;
  if (record == nullptr || record->done) return cudaSuccess;
  // Who asks asks again. It waits here until something happens, so that asking takes no processor
  // from the work that is asked for.
  S().changed.wait_for(lock, std::chrono::milliseconds(1));
  RETURN_IF_ERROR(Lost());
  return record->done ? cudaSuccess : last = cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(KnownEvent(lock, event, "cudaEventSynchronize"));
  MAY_FAIL(lock, "cudaEventSynchronize");
  RETURN_IF_ERROR(NotCaptured(lock, event, "cudaEventSynchronize"));
  Log("cudaEventSynchronize");
  const std::shared_ptr<Record> record = event->record;
  S().changed.wait(lock, [&] { return record == nullptr || record->done; });
  return Lost();
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  const char* const call = "cudaEventElapsedTime";
  Lock lock(S().mutex);
  RETURN_IF_ERROR(KnownEvent(lock, from, call));
  RETURN_IF_ERROR(KnownEvent(lock, to, call));
  MAY_FAIL(lock, call);
  if (!from->timed || !to->timed || from->record == nullptr || to->record == nullptr ||
      from->device != to->device)
    return Fail(cudaErrorInvalidResourceHandle, call, "events without times that can be compared");
  if (!from->record->done || !to->record->done) return last = cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(to->record->when - from->record->when).count();
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
  {
    Lock lock(S().mutex);
    MAY_FAIL(lock, "cudaThreadExchangeStreamCaptureMode");
  }
  std::swap(mode, *other);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, "cudaStreamIsCapturing"));
  MAY_FAIL(lock, "cudaStreamIsCapturing");
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->broken  ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode how) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Known(lock, stream, "cudaStreamBeginCapture"));
  MAY_FAIL(lock, "cudaStreamBeginCapture");
  if (stream->capture != nullptr)
    return Fail(cudaErrorIllegalState, "cudaStreamBeginCapture", "it is captured already");
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = how;
  stream->capture->capturer = std::this_thread::get_id();
  stream->after.clear();
  Log("cudaStreamBeginCapture");
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const char* const call = "cudaStreamEndCapture";
  std::vector<Node> nodes;  // behind the lock: of a capture that failed they go here
  Lock lock(S().mutex);
  *graph = nullptr;
  RETURN_IF_ERROR(Known(lock, stream, call));
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return Fail(cudaErrorIllegalState, call, "nothing is captured");
  if (capture->origin != stream) {
    return Break(*capture, cudaErrorStreamCaptureUnmatched, call,
                 "the capture did not begin on this stream");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->capturer != std::this_thread::get_id())
    return Break(*capture, cudaErrorStreamCaptureWrongThread, call, "another thread began it");
  capture->over = true;
  bool joined = true;
  for (cudaStream_t other : S().streams) {
    if (other->capture != capture) continue;
    joined = joined && Joined(*capture, stream->after, other->after);
    other->capture = nullptr;
  }
  nodes = std::move(capture->nodes);
  MAY_FAIL(lock, call);
  if (capture->broken)
    return Fail(cudaErrorStreamCaptureInvalidated, call, "the capture was broken");
  if (!joined)
    return Fail(cudaErrorStreamCaptureUnjoined, call, "work of another stream has not joined");
  Log(call, std::to_string(nodes.size()) + " nodes");
  *graph = new CUgraph_st{std::move(nodes)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  Lock lock(S().mutex);
  RETURN_IF_ERROR(Lost());
  MAY_FAIL(lock, "cudaGraphInstantiate");
  Log("cudaGraphInstantiate");
  *made = new CUgraphExec_st{std::make_shared<const std::vector<Node>>(graph->nodes)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Lock lock(S().mutex);
  MAY_FAIL(lock, "cudaGraphLaunch");
  Log("cudaGraphLaunch", std::to_string(graph->nodes->size()) + " nodes");
  return Enqueue(lock, stream, "cudaGraphLaunch",
                 [nodes = graph->nodes, random = std::minstd_rand(S().seed += 2)]() mutable {
                   return RunGraph(*nodes, random);
                 });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  Lock lock(S().mutex);
  MAY_FAIL(lock, "cudaGraphDestroy");
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  Lock lock(S().mutex);
  MAY_FAIL(lock, "cudaGraphExecDestroy");
  return cudaSuccess;
}

// ---- for tests: injected_failures.h ----

void MgEmulatedGpuFail(int64_t call, int error, const char* only) {
  Lock lock(S().mutex);
  S().fail_in = call;
  S().fail_with = error;
  S().fail_only = only;
  S().failed.clear();
}
const char* MgEmulatedGpuFailed() {
  static thread_local std::string name;
  Lock lock(S().mutex);
  return (name = S().failed).c_str();
}
int64_t MgEmulatedProgrammaticLaunches() {
  Lock lock(S().mutex);
  return S().programmatic_launches;
}
void MgEmulatedGpuRestart() {
  State& s = S();
  Lock lock(s.mutex);
  s.lost = cudaErrorLaunchFailure;  // what runs ends
  for (cudaStream_t stream : s.streams) {
    stream->capture = nullptr;
    stream->queue.clear();
    stream->ends = true;
    s.ending.insert(stream);
  }
  s.streams.clear();
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return s.ending.empty(); });
  s.events.clear();
  s.ranges.clear();
  s.used.clear();
  s.peers.clear();
  s.lost = cudaSuccess;
  last = cudaSuccess;
  mode = cudaStreamCaptureModeGlobal;
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
