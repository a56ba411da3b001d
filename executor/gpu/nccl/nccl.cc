// Communicators by NCCL, which is loaded at run time (dlopen): GPUs work without it. They do not
// block: a call of NCCL that takes long goes on in a thread of its own, and Ready tells when it is
// over, so that the members thread can abort it at a deadline. Bytes go by NCCL's sends and
// receives, and the members' GPUs add up by themselves, in the order of ranks. Where any order will
// do, NCCL's all-reduce adds up, with whatever it has for that, such as sums inside NVLink's
// switches. With a pool (NcclPool) a communicator registers the pool's regions before the first
// exchange that may touch them.
#include "executor/gpu/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/gpu/cuda/error.h"

namespace monograph::cuda {
namespace {

struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclMemAlloc) allocate = nullptr;
  decltype(&ncclMemFree) free = nullptr;
  decltype(&ncclCommRegister) register_memory = nullptr;
  int version = 0;
  Status status;  // why it cannot be used

  Library() { status = Open(); }

 private:
  Status Open() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return NotFound(dlerror());
    const auto find = [library](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    const bool all =
        find(&get_version, "ncclGetVersion") && find(&get_unique_id, "ncclGetUniqueId") &&
        find(&init_rank, "ncclCommInitRankConfig") && find(&async_error, "ncclCommGetAsyncError") &&
        find(&last_error, "ncclGetLastError") && find(&abort, "ncclCommAbort") &&
        find(&group_start, "ncclGroupStart") && find(&group_end, "ncclGroupEnd") &&
        find(&send, "ncclSend") && find(&receive, "ncclRecv") &&
        find(&all_reduce, "ncclAllReduce") && find(&allocate, "ncclMemAlloc") &&
        find(&free, "ncclMemFree") && find(&register_memory, "ncclCommRegister");
    if (!all) return FailedPrecondition("libnccl.so.2 is too old");
    MG_NCCL_RETURN_IF_ERROR(get_version(&version));
    constexpr int kLeast = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0);
    if (version < kLeast) {
      return FailedPrecondition("libnccl.so.2 is of version " + std::to_string(version) +
                                "; this program needs " + std::to_string(kLeast));
    }
    return Status();
  }
};

const Library& Nccl() {
  static const Library* library = new Library;
  return *library;
}

// A communicator does not block: a call that takes long goes on in a thread of NCCL's.
Status Begun(ncclResult_t result, const char* call) {
  return result == ncclInProgress ? Status() : NcclStatus(result, call);
}

Result<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DT_FLOAT:
      return ncclFloat32;
    case DT_DOUBLE:
      return ncclFloat64;
    case DT_HALF:
      return ncclFloat16;
    case DT_BFLOAT16:
      return ncclBfloat16;
    default:
      return Unimplemented("an all-reduce of " + std::string(DTypeName(dtype)));
  }
}

class Pool : public NcclPool {
 public:
  struct Region {
    void* data;
    size_t bytes;
  };

  Result<void*> Allocate(size_t bytes) override {
    void* data = nullptr;
    if (const ncclResult_t result = Nccl().allocate(&data, bytes); result != ncclSuccess) {
      (void)cudaGetLastError();  // the next call would find it
      return NcclStatus(result, "ncclMemAlloc");
    }
    MutexLock lock(mutex_);
    regions_.push_back({data, bytes});
    return data;
  }
  void Free(void* data) override {
    {
      MutexLock lock(mutex_);
      std::erase_if(regions_, [data](const Region& region) { return region.data == data; });
    }
    (void)Nccl().free(data);
  }
  std::vector<Region> regions() const {
    MutexLock lock(mutex_);
    return regions_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Region> regions_ MG_GUARDED_BY(mutex_);
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(CUstream_st* stream, std::shared_ptr<Pool> pool)
      : stream_(stream), pool_(std::move(pool)) {}
  ~NcclCommunicator() override { (void)NcclCommunicator::Abort(); }

  Status Join(const std::string& id, int rank, int size) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique.internal)
      return DataLoss("the id of a communicator has " + std::to_string(id.size()) + " bytes");
    id.copy(unique.internal, sizeof unique.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return Explained(
        Begun(Nccl().init_rank(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig"));
  }

  Result<bool> Ready() override {
    if (comm_ == nullptr) return Aborted("the communicator was aborted");
    ncclResult_t state = ncclSuccess;
    MG_RETURN_IF_ERROR(NcclStatus(Nccl().async_error(comm_, &state), "ncclCommGetAsyncError"));
    if (state == ncclInProgress) return false;
    if (const Status status = NcclStatus(state, "NCCL, by ncclCommGetAsyncError,"); !status.ok())
      return Explained(status);
    return true;
  }

  Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    return Together([&] { return Enqueue(sends, receives); });
  }

  Status AllReduce(DType dtype, std::span<const Sum> sums) override {
    MG_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    return Together([&]() -> Status {
      for (const Sum& sum : sums) {
        MG_RETURN_IF_ERROR(Begun(
            Nccl().all_reduce(sum.data, sum.result, sum.elements, type, ncclSum, comm_, stream_),
            "ncclAllReduce"));
      }
      return Status();
    });
  }

  Status Abort() override {
    if (comm_ == nullptr) return Status();
    return Begun(Nccl().abort(std::exchange(comm_, nullptr)), "ncclCommAbort");
  }
  void Abandon() override { comm_ = nullptr; }

 private:
  // As one group of NCCL's.
  template <typename EnqueueFn>
  Status Together(EnqueueFn enqueue) {
    if (comm_ == nullptr) return Aborted("the communicator was aborted");
    if (pool_ != nullptr) MG_RETURN_IF_ERROR(Register());
    MG_RETURN_IF_ERROR(NcclStatus(Nccl().group_start(), "ncclGroupStart"));
    const Status status = enqueue();
    // Ends the group after a failure, too.
    const Status ended = Begun(Nccl().group_end(), "ncclGroupEnd");
    return Explained(status.ok() ? ended : status);
  }

  Status Enqueue(std::span<const Send> sends, std::span<const Receive> receives) {
    for (const Send& send : sends) {
      MG_RETURN_IF_ERROR(Begun(
          Nccl().send(send.data, send.bytes, ncclUint8, send.rank, comm_, stream_), "ncclSend"));
    }
    for (const Receive& receive : receives) {
      MG_RETURN_IF_ERROR(Begun(
          Nccl().receive(receive.data, receive.bytes, ncclUint8, receive.rank, comm_, stream_),
          "ncclRecv"));
    }
    return Status();
  }

  // The regions that the pool has got since. What is registered stays so until the abort.
  Status Register() {
    for (const Pool::Region& region : pool_->regions()) {
      if (!registered_.insert(region.data).second) continue;
      void* handle = nullptr;
      MG_RETURN_IF_ERROR(Explained(NcclStatus(
          Nccl().register_memory(comm_, region.data, region.bytes, &handle), "ncclCommRegister")));
    }
    return Status();
  }

  Status Explained(const Status& status) const {
    const char* detail = status.ok() ? nullptr : Nccl().last_error(comm_);
    if (detail == nullptr || *detail == '\0') return status;
    return status.WithMessage(status.message() + ": " + detail);
  }

  CUstream_st* const stream_;
  const std::shared_ptr<Pool> pool_;
  std::set<void*> registered_;
  ncclComm_t comm_ = nullptr;
};

class NcclCommunicators : public Communicators {
 public:
  NcclCommunicators(CUstream_st* stream, bool any_order, std::shared_ptr<Pool> pool)
      : stream_(stream), any_order_(any_order), pool_(std::move(pool)) {}

  Result<std::string> NewId() override {
    ncclUniqueId id;
    MG_RETURN_IF_ERROR(NcclStatus(Nccl().get_unique_id(&id), "ncclGetUniqueId"));
    return std::string(id.internal, sizeof id.internal);
  }
  bool any_order() const override { return any_order_; }

  Result<std::unique_ptr<Communicator>> Join(const std::string& id, int rank, int size) override {
    auto communicator = std::make_unique<NcclCommunicator>(stream_, pool_);
    MG_RETURN_IF_ERROR(communicator->Join(id, rank, size));
    return std::unique_ptr<Communicator>(std::move(communicator));
  }

 private:
  CUstream_st* const stream_;
  const bool any_order_;
  const std::shared_ptr<Pool> pool_;
};

}  // namespace

Result<std::string> NcclVersion() {
  const Library& nccl = Nccl();
  MG_RETURN_IF_ERROR(nccl.status);
  return "NCCL " + std::to_string(nccl.version / 10000) + "." +
         std::to_string(nccl.version % 10000 / 100) + "." + std::to_string(nccl.version % 100);
}

// An environment variable and no flag: no card has told yet what it gains.
bool WantsNcclPool(const GpuOptions& options) {
  const char* text = std::getenv("MONOGRAPH_NCCL_POOL");
  return text != nullptr && std::string_view(text) == "1" && options.nccl &&
         options.deterministic && NcclVersion().ok();
}

std::shared_ptr<NcclPool> MakeNcclPool() { return std::make_shared<Pool>(); }

std::unique_ptr<Communicators> MakeNcclCommunicators(CUstream_st* stream, bool any_order,
                                                     std::shared_ptr<NcclPool> pool) {
  return std::make_unique<NcclCommunicators>(stream, any_order,
                                             std::static_pointer_cast<Pool>(std::move(pool)));
}

}  // namespace monograph::cuda
