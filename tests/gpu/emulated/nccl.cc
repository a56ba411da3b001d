// The part of NCCL that executor/gpu/nccl/ uses, without GPUs: a library that is opened in its
// place, over the emulated runtime. Its version is one that NVIDIA never made.
//
// As NCCL's documentation has it: a communicator belongs to the device that was current when it was
// joined; it may be used when all ranks have joined, which a thread of its own waits for; what a
// group holds is enqueued together, by that thread, once the group has ended, and not before
// ncclCommGetAsyncError says so; sends and receives match in their order, byte for byte; a group
// with a call that failed does nothing; two ranks on one card, the same rank twice, and everything
// on a communicator that is gone are refused. ncclCommAbort ends what is
// enqueued, and frees memory of the device, for which CUDA waits until its streams are done. A rank
// whose process is gone is an error where it is waited for (ncclRemoteError); one that was aborted
// is waited for, until this rank is aborted, too. What has gone wrong keeps the stream until then.
//
// An all-reduce adds from the last rank to the first, so that its bits are not those of rank order.
//
// The first exchange with a rank waits, on the communicator's thread, for that rank to begin one.
//
// What a communicator registers is memory of ncclMemAlloc. Once it has, it sends from registered
// memory and receives into it, and into no other (NCCL: else the behaviour is undefined).
//
// Refused though NCCL has it, since nothing here uses it: communicators that block, several streams
// for one communicator, captured streams, the same memory registered twice with a communicator,
// all-reduces of what is registered.
//
// From the environment, beside what runtime.cc takes: MG_EMULATED_NCCL_HOLD=FILE: while the file is
// there no exchange begins; one that waits for that makes FILE.waits. If the file says `lose`, the
// device is lost meanwhile.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/emulated_gpu.h"
#include "tests/gpu/emulated/nccl_peers.h"
#include "tests/gpu/emulated/numbers.h"

namespace {

using namespace monograph;
using emulated::Peers;

constexpr int kVersion = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 99);
constexpr size_t kBuffer = 64 << 10;  // a communicator's own memory
constexpr size_t kIdBytes = 16;

std::mutex error_mutex;
char last_error[512];  // stays where it is: callers hold its address

ncclResult_t Fail(ncclResult_t code, const std::string& why) {
  std::fprintf(stderr, "emulated NCCL: %s\n", why.c_str());
  std::lock_guard lock(error_mutex);
  last_error[why.copy(last_error, sizeof last_error - 1)] = '\0';
  return code;
}

size_t BytesOf(ncclDataType_t type) {
  static constexpr size_t kBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? kBytes[type] : 0;
}

// DT_INVALID: types whose sums are not emulated.
DType SummedType(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DT_FLOAT;
    case ncclFloat64:
      return DT_DOUBLE;
    case ncclFloat16:
      return DT_HALF;
    case ncclBfloat16:
      return DT_BFLOAT16;
    default:
      return DT_INVALID;
  }
}

struct Sum {
  DType dtype;
  const std::byte* data;
  std::byte* result;
  size_t elements;
  size_t bytes() const { return elements * DTypeSize(dtype); }
};

// What one group has for one communicator.
struct Group {
  std::vector<Sum> sums;
  std::vector<emulated::Send> sends;
  std::vector<emulated::Receive> receives;
  bool captured = false;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int device, int rank, int size)
      : device_(device),
        rank_(rank),
        size_(size),
        peers_(rank, size),
        delays_(emulated::NextSeed()) {}

  int device() const { return device_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  void Begin(std::string place) {
    thread_ =
        std::thread([self = shared_from_this(), place = std::move(place)] { self->Run(place); });
  }
  ncclResult_t state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }
  void Enqueue(Group group) {
    std::lock_guard lock(mutex_);
    state_ = ncclInProgress;
    groups_.push_back(std::move(group));
    changed_.notify_one();
  }
  // Of a call: it fails for good.
  ncclResult_t Break(ncclResult_t code, const std::string& why) {
    Fail(code, "rank " + std::to_string(rank_) + ": " + why);
    std::lock_guard lock(mutex_);
    return state_ = code;
  }
  void Abort() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_one();
    }
    thread_.join();
    AwaitGraphs();
    int current = 0;
    (void)cudaGetDevice(&current);
    (void)cudaSetDevice(device_);
    if (buffer_ != nullptr) (void)cudaFree(buffer_);
    (void)cudaSetDevice(current);
    peers_.Leave();
  }

  // False: it has been before.
  bool Register(const std::byte* data, size_t bytes) {
    std::lock_guard lock(mutex_);
    return registered_.emplace(data, bytes).second;
  }
  bool HasRegistered() const {
    std::lock_guard lock(mutex_);
    return !registered_.empty();
  }
  bool HasRegistered(const std::byte* data, size_t bytes) const {
    std::lock_guard lock(mutex_);
    const auto after = registered_.upper_bound(data);
    return after != registered_.begin() &&
           data + bytes <= std::prev(after)->first + std::prev(after)->second;
  }

  cudaStream_t stream = nullptr;  // that it was used with first

 private:
  void Run(const std::string& place);
  void Join(const std::string& place);
  void Launch(Group group);
  void Transfer(const Group& group);
  void Hold() const;
  // As NCCL, it ends after the graphs that have captured it.
  void AwaitGraphs() const {
    for (int ms = 0; in_graphs_.use_count() > 1; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ms < 20'000) continue;
      std::fprintf(stderr, "emulated NCCL: a graph outlives its communicator\n");
      std::abort();
    }
  }
  bool MustEnd() const { return ended_ || emulated::IsLost(); }
  bool Tell(const Peers::End& end);
  void BeLate() {
    if (const auto chance = delays_(); chance % 2 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(chance / 2 % 2000));
  }

  const int device_, rank_, size_;
  Peers peers_;
  std::minstd_rand delays_;
  void* buffer_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ncclResult_t state_ = ncclInProgress;            // guarded by mutex_
  std::vector<Group> groups_;                      // guarded by mutex_
  std::map<const std::byte*, size_t> registered_;  // guarded by mutex_
  std::atomic<bool> ended_{false};
  const std::shared_ptr<int> in_graphs_ = std::make_shared<int>();  // each work there holds it
  std::thread thread_;
};

// Whether it is done.
bool Communicator::Tell(const Peers::End& end) {
  if (end.outcome == Peers::Outcome::kLost) Break(ncclRemoteError, end.why);
  if (end.outcome == Peers::Outcome::kRefused) Break(ncclInvalidUsage, end.why);
  return end.outcome == Peers::Outcome::kDone;
}

void Communicator::Join(const std::string& place) {
  char card[32] = "";
  if (cudaSetDevice(device_) != cudaSuccess ||
      cudaDeviceGetPCIBusId(card, sizeof card, device_) != cudaSuccess ||
      cudaMalloc(&buffer_, kBuffer) != cudaSuccess) {
    Break(ncclUnhandledCudaError, "no device to join with");
    return;
  }
  (void)Tell(peers_.Meet(place, card, [this] { return MustEnd(); }));
}

void Communicator::Run(const std::string& place) {
  BeLate();
  Join(place);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (groups_.empty() && state_ == ncclInProgress && !MustEnd()) state_ = ncclSuccess;
    changed_.wait(lock, [this] { return ended_ || !groups_.empty(); });
    if (ended_) return;
    Group group = std::move(groups_.front());
    groups_.erase(groups_.begin());
    lock.unlock();
    BeLate();
    Launch(std::move(group));
    lock.lock();
  }
}

void Communicator::Launch(Group group) {
  std::set<int> fresh;
  std::vector<emulated::Operand> operands;
  for (const emulated::Send& send : group.sends) {
    if (send.bytes > 0) operands.push_back({send.data, send.bytes});
    if (send.rank != rank_ && !peers_.connected(send.rank)) fresh.insert(send.rank);
  }
  for (const emulated::Receive& receive : group.receives) {
    if (receive.bytes > 0) operands.push_back({receive.data, receive.bytes});
    if (receive.rank != rank_ && !peers_.connected(receive.rank)) fresh.insert(receive.rank);
  }
  for (const Sum& sum : group.sums) {
    if (sum.elements > 0) {
      operands.push_back({sum.data, sum.bytes()});
      operands.push_back({sum.result, sum.bytes()});
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && !peers_.connected(rank)) fresh.insert(rank);
    }
  }
  const std::vector<int> ranks(fresh.begin(), fresh.end());
  if (!Tell(peers_.Connect(ranks, [this] { return MustEnd(); }))) return;
  BeLate();
  if (ended_) return;
  const std::shared_ptr<int> held = group.captured ? in_graphs_ : nullptr;
  const cudaError_t error = emulated::EnqueueOn(
      stream, "ncclGroup",
      [self = shared_from_this(), held, group = std::move(group)] { self->Transfer(group); },
      std::move(operands));
  if (error != cudaSuccess)
    Break(ncclUnhandledCudaError, std::string("ncclGroupEnd: ") + cudaGetErrorName(error));
}

// On the stream.
void Communicator::Transfer(const Group& group) {
  Hold();
  std::vector<emulated::Send> sends, own;
  std::vector<emulated::Receive> receives;
  for (const emulated::Send& send : group.sends) (send.rank == rank_ ? own : sends).push_back(send);
  for (const emulated::Receive& receive : group.receives) {
    if (receive.rank != rank_) {
      receives.push_back(receive);
    } else {
      std::memmove(receive.data, own.front().data, receive.bytes);
      own.erase(own.begin());
    }
  }
  // By sum and rank.
  std::vector<std::vector<std::byte>> terms;
  for (const Sum& sum : group.sums) {
    for (int rank = 0; rank < size_; ++rank) {
      terms.emplace_back(sum.data, sum.data + sum.bytes());
      if (rank == rank_) continue;
      sends.push_back({rank, sum.data, sum.bytes()});
      receives.push_back({rank, terms.back().data(), sum.bytes()});
    }
  }
  const auto must_end = [this] { return MustEnd(); };
  if (Tell(peers_.Exchange(sends, receives, must_end))) {
    for (size_t s = 0; s < group.sums.size(); ++s) {
      const Sum& sum = group.sums[s];
      const auto term = [&](int rank, int64_t i) {
        return emulated::Load(
            sum.dtype, terms[s * static_cast<size_t>(size_) + static_cast<size_t>(rank)].data(), i);
      };
      for (int64_t i = 0; i < static_cast<int64_t>(sum.elements); ++i) {
        emulated::Store(sum.dtype, sum.result, i, term(size_ - 1, i));
        for (int rank = size_ - 2; rank >= 0; --rank) {
          emulated::Store(sum.dtype, sum.result, i,
                          emulated::Load(sum.dtype, sum.result, i) + term(rank, i));
        }
      }
    }
    return;
  }
  while (!must_end()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Communicator::Hold() const {
  static const char* const file = std::getenv("MG_EMULATED_NCCL_HOLD");
  if (file == nullptr) return;
  while (!MustEnd() && access(file, F_OK) == 0) {
    const std::ofstream waits(std::string(file) + ".waits");  // it is there, and empty
    std::string text;
    std::ifstream(file) >> text;
    if (text == "lose") emulated::Lose("the device is lost, as it was told to be");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- communicators by their handles

std::mutex communicators_mutex;
std::map<ncclComm_t, std::shared_ptr<Communicator>> communicators;

std::shared_ptr<Communicator> Find(ncclComm_t handle) {
  std::lock_guard lock(communicators_mutex);
  const auto it = communicators.find(handle);
  return it == communicators.end() ? nullptr : it->second;
}

// What ncclMemAlloc gave; with communicators_mutex.
std::map<void*, size_t> allocated;

// ---- the thread's group

struct ThreadGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // of its first call that failed
  std::map<std::shared_ptr<Communicator>, Group> groups;
};
thread_local ThreadGroup thread_group;

ncclResult_t Launch(std::map<std::shared_ptr<Communicator>, Group> groups) {
  for (const auto& [communicator, group] : groups) {
    std::vector<size_t> to_self, from_self;
    for (const auto& send : group.sends)
      if (send.rank == communicator->rank()) to_self.push_back(send.bytes);
    for (const auto& receive : group.receives)
      if (receive.rank == communicator->rank()) from_self.push_back(receive.bytes);
    if (to_self != from_self) {
      return communicator->Break(ncclInvalidUsage,
                                 "what it sends to itself is not what it receives in the group");
    }
  }
  for (auto& [communicator, group] : groups) communicator->Enqueue(std::move(group));
  return groups.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t Check(const std::shared_ptr<Communicator>& communicator, const void* data,
                   size_t count, ncclDataType_t type, int peer, cudaStream_t stream,
                   const char* call, bool* captures) {
  const auto fail = [&](ncclResult_t code, const std::string& why) {
    return Fail(code, std::string(call) + ": " + why);
  };
  if (communicator == nullptr) return fail(ncclInvalidArgument, "no such communicator");
  const ncclResult_t state = communicator->state();
  if (state == ncclInProgress)
    return fail(ncclInvalidArgument, "what was begun before is not done");
  if (state != ncclSuccess) return fail(state, "the communicator has failed before");
  if (peer < 0 || peer >= communicator->size()) {
    return fail(ncclInvalidArgument,
                "rank " + std::to_string(peer) + " of " + std::to_string(communicator->size()));
  }
  if (BytesOf(type) == 0) return fail(ncclInvalidArgument, "no such type");
  if (data == nullptr && count > 0) return fail(ncclInvalidArgument, "no memory");
  if (communicator->HasRegistered() &&
      !communicator->HasRegistered(static_cast<const std::byte*>(data), count * BytesOf(type)))
    return fail(ncclInvalidUsage, "memory that is not registered, where other memory is");
  int current = -1;
  if (thread_group.depth == 0 &&
      (cudaGetDevice(&current) != cudaSuccess || current != communicator->device()))
    return fail(ncclInvalidUsage, "the communicator's device is not the thread's");
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &captured) != cudaSuccess)
    return fail(ncclUnhandledCudaError, "no such stream");
  *captures = captured != cudaStreamCaptureStatusNone;
  if (communicator->stream == nullptr) communicator->stream = stream;
  if (communicator->stream != stream)
    return fail(ncclInvalidUsage, "a second stream is not emulated");
  return ncclSuccess;
}

// What a test wants of the call (injected_failures.h).
ncclResult_t Injected(const char* call) {
  const int wanted = emulated::NamedFailure(call);
  return wanted == 0 ? ncclSuccess
                     : Fail(static_cast<ncclResult_t>(wanted), std::string(call) + ": injected");
}

// Adds to the thread's group; where there is none, the call is one.
template <typename Add>
ncclResult_t Call(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                  cudaStream_t stream, const char* call, Add add) {
  ThreadGroup& group = thread_group;
  const std::shared_ptr<Communicator> communicator = Find(handle);
  bool captures = false;
  ncclResult_t result = Check(communicator, data, count, type, peer, stream, call, &captures);
  if (result == ncclSuccess) result = Injected(call);
  if (result != ncclSuccess) {
    if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
    return result;
  }
  if (group.depth > 0) {
    Group& of = group.groups[communicator];
    of.captured = captures;
    add(of, count * BytesOf(type));
    return ncclSuccess;
  }
  std::map<std::shared_ptr<Communicator>, Group> one;
  one[communicator].captured = captures;
  add(one[communicator], count * BytesOf(type));
  return Launch(std::move(one));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return Fail(ncclInvalidArgument, "ncclGetVersion: no place for it");
  *version = kVersion;
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t) { return last_error; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return Fail(ncclInvalidArgument, "ncclGetUniqueId: no place for it");
  if (const ncclResult_t wanted = Injected("ncclGetUniqueId"); wanted != ncclSuccess) return wanted;
  std::random_device random;
  *id = {};
  for (size_t i = 0; i < kIdBytes; ++i) id->internal[i] = static_cast<char>('a' + random() % 26);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const char* const call = "ncclCommInitRankConfig: ";
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (made == nullptr) return Fail(ncclInvalidArgument, std::string(call) + "no place for it");
  *made = nullptr;
  if (size < 1 || rank < 0 || rank >= size) {
    return Fail(ncclInvalidArgument,
                call + ("rank " + std::to_string(rank)) + " of " + std::to_string(size));
  }
  if (config == nullptr || config->magic != initial.magic || config->size != initial.size)
    return Fail(ncclInvalidArgument, std::string(call) + "config is not NCCL_CONFIG_INITIALIZER");
  if (config->blocking != 0)
    return Fail(ncclInvalidUsage, std::string(call) + "communicators that block are not emulated");
  if (strnlen(id.internal, sizeof id.internal) != kIdBytes)
    return Fail(ncclInvalidArgument, std::string(call) + "the id is not ncclGetUniqueId's");
  if (const ncclResult_t wanted = Injected("ncclCommInitRankConfig"); wanted != ncclSuccess)
    return wanted;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess || emulated::IsLost())
    return Fail(ncclUnhandledCudaError, std::string(call) + "no device");
  const auto communicator = std::make_shared<Communicator>(device, rank, size);
  *made = reinterpret_cast<ncclComm_t>(communicator.get());
  {
    std::lock_guard lock(communicators_mutex);
    communicators[*made] = communicator;
  }
  communicator->Begin(std::string(id.internal, kIdBytes));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  const std::shared_ptr<Communicator> communicator = Find(handle);
  if (communicator == nullptr || state == nullptr)
    return Fail(ncclInvalidArgument, "ncclCommGetAsyncError: no such communicator");
  if (const ncclResult_t wanted = Injected("ncclCommGetAsyncError"); wanted != ncclSuccess)
    return wanted;
  *state = communicator->state();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (const ncclResult_t wanted = Injected("ncclCommAbort"); wanted != ncclSuccess) return wanted;
  std::shared_ptr<Communicator> communicator;
  {
    std::lock_guard lock(communicators_mutex);
    const auto node = communicators.extract(handle);
    if (node.empty()) return Fail(ncclInvalidArgument, "ncclCommAbort: no such communicator");
    communicator = node.mapped();
  }
  communicator->Abort();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t wanted = Injected("ncclGroupStart"); wanted != ncclSuccess) return wanted;
  ++thread_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  ThreadGroup& group = thread_group;
  if (group.depth == 0) return Fail(ncclInvalidUsage, "ncclGroupEnd: no group has begun");
  if (--group.depth > 0) return ncclSuccess;
  auto groups = std::exchange(group.groups, {});
  ncclResult_t error = std::exchange(group.error, ncclSuccess);
  if (error == ncclSuccess) error = Injected("ncclGroupEnd");
  return error != ncclSuccess ? error : Launch(std::move(groups));
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Call(data, count, type, peer, comm, stream, "ncclSend", [&](Group& group, size_t bytes) {
    group.sends.push_back({peer, static_cast<const std::byte*>(data), bytes});
  });
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Call(data, count, type, peer, comm, stream, "ncclRecv", [&](Group& group, size_t bytes) {
    group.receives.push_back({peer, static_cast<std::byte*>(data), bytes});
  });
}

ncclResult_t ncclAllReduce(const void* data, void* result, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const DType dtype = SummedType(type);
  if (op != ncclSum || dtype == DT_INVALID)
    return Fail(ncclInvalidUsage, "ncclAllReduce: only sums of floats are emulated");
  if (result == nullptr && count > 0)
    return Fail(ncclInvalidArgument, "ncclAllReduce: no memory for the result");
  if (const auto communicator = Find(comm);
      communicator != nullptr && communicator->HasRegistered())
    return Fail(ncclInvalidUsage, "ncclAllReduce: with registered memory it is not emulated");
  return Call(data, count, type, 0, comm, stream, "ncclAllReduce", [&](Group& group, size_t) {
    group.sums.push_back(
        {dtype, static_cast<const std::byte*>(data), static_cast<std::byte*>(result), count});
  });
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (data == nullptr) return Fail(ncclInvalidArgument, "ncclMemAlloc: no place for it");
  if (cudaMalloc(data, bytes) != cudaSuccess)
    return Fail(ncclUnhandledCudaError, "ncclMemAlloc: cudaMalloc failed");
  std::lock_guard lock(communicators_mutex);
  allocated[*data] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  std::lock_guard lock(communicators_mutex);
  if (!allocated.contains(data))
    return Fail(ncclInvalidArgument, "ncclMemFree: ncclMemAlloc has not given it");
  for (const auto& [handle, communicator] : communicators) {
    if (communicator->HasRegistered(static_cast<const std::byte*>(data), 1))
      return Fail(ncclInvalidUsage, "ncclMemFree: a communicator has it registered");
  }
  allocated.erase(data);
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  const char* const call = "ncclCommRegister: ";
  const std::shared_ptr<Communicator> communicator = Find(comm);
  if (communicator == nullptr || handle == nullptr)
    return Fail(ncclInvalidArgument, std::string(call) + "no such communicator");
  if (communicator->state() != ncclSuccess)
    return Fail(ncclInvalidArgument, std::string(call) + "what was begun before is not done");
  {
    std::lock_guard lock(communicators_mutex);
    const auto found = allocated.find(data);
    if (found == allocated.end() || found->second < bytes)
      return Fail(ncclInvalidArgument, std::string(call) + "ncclMemAlloc has not given it");
  }
  if (!communicator->Register(static_cast<const std::byte*>(data), bytes))
    return Fail(ncclInvalidUsage, std::string(call) + "it has registered this before");
  *handle = data;
  return ncclSuccess;
}

}  // extern "C"
