// The kernels of copies (CopyIn, CopyToHost) and of fences. A run has a record, which goes back to
// a list when the device has finished it, so that a steady step allocates none. CopyIn takes memory
// first; if the only free memory is still used by the segment that is being launched, the copy is
// posted to the launching thread and tried again between two segments. A host tensor outside pinned
// memory is copied there first, because only from there can the device copy without the host
// waiting.
#include "executor/gpu/copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/free_list.h"
#include "base/mutex.h"
#include "executor/gpu/launcher.h"
#include "executor/thread_pools.h"

namespace monograph {
namespace {

// Host tensors that are not in pinned memory go through it. Up to kInline bytes are copied on the
// thread that has them; larger ones on inter-op threads, in pieces, so that the device's copy of
// one piece runs beside the host's copies of others. One thread moves some 10 GB/s and a card takes
// 50, so up to kMostHelpers idle threads share the pieces.
constexpr size_t kInline = size_t{64} << 10;
constexpr size_t kPiece = kTransferPart;
constexpr int kMostHelpers = 8;

// One run of a copy, until the device has finished it.
class CopyIn;
struct CopyInRecord : Arrival, LaunchTask {
  // Held while the copy runs: the plan may be destroyed before the device has finished.
  std::shared_ptr<CopyIn> kernel;
  KernelContext* context = nullptr;  // until done
  Done done;
  Tensor from, to;
  Buffer staging;
  uint64_t wait_tick = 0;
  // Of a copy in pieces. Default order: a piece is 1 MiB, so that it costs nothing, and the last
  // helper must see what the others have written.
  std::atomic<size_t> next_piece{0};
  std::atomic<int> helpers{0};  // that have not ended
  Mutex mutex;
  Status failure MG_GUARDED_BY(mutex);  // the first one

  void Arrived(const Status& status) override;
  void Run() override;
  void Clear() {
    from.Reset();
    to.Reset();
    staging = Buffer();
    MutexLock lock(mutex);
    failure = Status();
  }
};

void Keep(Inbound* inbound, EventId event, uint64_t number) {
  inbound->event.store(event, std::memory_order_release);
  inbound->number.store(number, std::memory_order_release);
}

// Lets `queue` of device `to` wait until the tensor is there, on device `from`.
Status Await(const TensorReady& ready, GpuDevice& to, Queue queue, GpuDevice& from) {
  if (ready.event >= 0) MG_RETURN_IF_ERROR(to.driver().Wait(queue, from.driver(), ready.event));
  if (ready.after_segments) MG_RETURN_IF_ERROR(from.LetWaitForSegments(to.driver(), queue));
  for (const auto& inbound : ready.inbounds) {
    const EventId event = inbound->event.load(std::memory_order_acquire);
    if (event >= 0) MG_RETURN_IF_ERROR(to.driver().Wait(queue, from.driver(), event));
  }
  return Status();
}

// Into a device's memory, from the host or from a peer.
class CopyIn : public std::enable_shared_from_this<CopyIn> {
 public:
  using Record = CopyInRecord;

  CopyIn(GpuDevice* to, const std::string* owner, ThreadPools* pools, GpuDevice* peer,
         TensorReady ready, std::shared_ptr<Inbound> inbound)
      : to_(*to),
        owner_(owner),
        pools_(pools),
        peer_(peer),
        ready_(std::move(ready)),
        inbound_(std::move(inbound)) {}

  void Begin(KernelContext& context, Done done) {
    const Tensor& input = std::as_const(context).input(0);
    if (may_be_there_ && to_.memory().Contains(input.raw())) {
      context.set_output(0, input);
      return done(to_.health().WithContext(*owner_));
    }
    Record* run = records_.Take();
    run->kernel = shared_from_this();
    run->context = &context;
    run->done = std::move(done);
    run->step = GpuLauncher::Step(context);
    run->from = std::as_const(context).input(0);
    Start(run, /*launching=*/false);
  }

  void ArriveOnDevice() { may_be_there_ = true; }

  void Start(Record* run, bool launching) {
    if (const Status status = to_.health(); !status.ok()) return Fail(run, status);
    const Tensor& from = run->from;
    bool busy = false;
    Buffer memory = to_.memory().AllocateFor(from.bytes(), owner_, &run->wait_tick, &busy);
    if (!memory && busy && !launching) return to_.Post(run);
    if (!memory && busy) {
      // Between two segments only one whose end could not be recorded keeps memory busy. The end of
      // an empty one behind it is as good.
      if (const Status ended = to_.EndSegment(to_.BeginSegment()); !ended.ok())
        return Fail(run, ended);
      memory = to_.memory().AllocateFor(from.bytes(), owner_, &run->wait_tick, &busy);
    }
    if (!memory) {
      return Fail(run,
                  ResourceExhausted("no memory for " + std::string(DTypeName(from.dtype())) +
                                    from.shape().ToString() + " (" + std::to_string(from.bytes()) +
                                    " bytes). " + to_.memory().Table()));
    }
    run->to = Tensor(from.dtype(), from.shape(), std::move(memory));
    if (peer_ != nullptr) {
      return Finish(run, [this, run] {
        MG_RETURN_IF_ERROR(to_.WaitForTick(Queue::kPeer, run->wait_tick));
        MG_RETURN_IF_ERROR(Await(ready_, to_, Queue::kPeer, *peer_));
        return to_.driver().CopyFromPeer(run->to.raw(), peer_->driver(),
                                         std::as_const(run->from).raw(), run->from.bytes());
      });
    }
    const void* source = std::as_const(run->from).raw();
    if (from.bytes() > 0 && !to_.pinned().Contains(source)) {
      run->staging = Buffer::Allocate(&to_.pinned(), from.bytes());
      if (!run->staging) return Fail(run, ResourceExhausted("no pinned host memory for a copy"));
      if (from.bytes() > kInline) return StartPieces(run);
      std::memcpy(run->staging.data(), source, from.bytes());
      source = run->staging.data();
    }
    Finish(run, [this, run, source]() -> Status {
      MG_RETURN_IF_ERROR(to_.WaitForTick(Queue::kToDevice, run->wait_tick));
      if (run->from.bytes() == 0) return Status();
      return to_.driver().Copy(Queue::kToDevice, run->to.raw(), source, run->from.bytes());
    });
  }

  void StartPieces(Record* run) {
    const size_t pieces = (run->from.bytes() + kPiece - 1) / kPiece;
    const int helpers =
        std::clamp(pools_->idle(), 1, static_cast<int>(std::min<size_t>(kMostHelpers, pieces)));
    // The queue has to wait before the first piece.
    const Status waits = to_.Issue(Queue::kToDevice, [this, run] {
      return to_.WaitForTick(Queue::kToDevice, run->wait_tick);
    });
    if (!waits.ok()) return Fail(run, waits);
    run->next_piece = 0;
    run->helpers = helpers;
    for (int i = 0; i < helpers; ++i) {
      pools_->Enqueue(
          [](void* record, int32_t) {
            auto* big = static_cast<Record*>(record);
            big->kernel->CopyPieces(big);
          },
          run, 0);
    }
  }

  // Copies pieces until none is left. The last helper to end ends the copy.
  void CopyPieces(Record* run) {
    const size_t bytes = run->from.bytes();
    auto* staging = static_cast<char*>(run->staging.data());
    const auto* source = static_cast<const char*>(std::as_const(run->from).raw());
    for (;;) {
      const size_t at = kPiece * run->next_piece.fetch_add(1);
      if (at >= bytes) break;
      const size_t piece = std::min(kPiece, bytes - at);
      std::memcpy(staging + at, source + at, piece);
      const Status status = to_.Issue(Queue::kToDevice, [&] {
        return to_.driver().Copy(Queue::kToDevice, static_cast<char*>(run->to.raw()) + at,
                                 staging + at, piece);
      });
      if (status.ok()) continue;
      MutexLock lock(run->mutex);
      if (run->failure.ok()) run->failure = status;
    }
    if (run->helpers.fetch_sub(1) > 1) return;
    Status failure;
    {
      MutexLock lock(run->mutex);
      failure = run->failure;
    }
    if (failure.ok()) return Finish(run, [] { return Status(); });
    // The other pieces may be under way: the memory of both sides is kept until they are over.
    const Done done = std::move(run->done);
    const Status awaited = to_.IssueAndAwait(
        Queue::kToDevice, run, [] { return Status(); }, [](EventId, uint64_t) {});
    if (!awaited.ok()) {
      (void)to_.LoseTrack(awaited);
      GiveBack(run);
    }
    done(to_.Check(failure).WithContext(*owner_));
  }

  void GiveBack(Record* run) {
    const std::shared_ptr<CopyIn> self = std::move(run->kernel);
    run->Clear();
    records_.Give(run);
  }

 private:
  template <typename IssueFn>
  void Finish(Record* run, IssueFn issue) {
    // Take `done` now: once issued, the record may be used by the next step.
    const Done done = std::move(run->done);
    run->context->set_output(0, run->to);
    const Status status = to_.IssueAndAwait(
        inbound_->queue, run, issue,
        [this](EventId event, uint64_t number) { Keep(inbound_.get(), event, number); });
    if (status.ok()) return done(status);
    run->done = done;
    Fail(run, status);
  }

  void Fail(Record* run, const Status& status) {
    const Done done = std::move(run->done);
    GiveBack(run);
    // A lost context, of this device or of the peer, may show as missing memory: then the loss is
    // the error.
    const Status checked = to_.Check(peer_ == nullptr ? status : peer_->Check(status));
    done(checked.WithContext(*owner_));
  }

  GpuDevice& to_;
  const std::string* const owner_;
  ThreadPools* const pools_;
  GpuDevice* const peer_;  // nullptr: the host
  const TensorReady ready_;
  const std::shared_ptr<Inbound> inbound_;
  bool may_be_there_ = false;
  FreeList<Record> records_;
};

void CopyInRecord::Arrived(const Status&) { kernel->GiveBack(this); }
// On the launching thread, between segments.
void CopyInRecord::Run() { kernel->Start(this, /*launching=*/true); }

class CopyInKernel : public AsyncKernel {
 public:
  explicit CopyInKernel(std::shared_ptr<CopyIn> copy) : copy_(std::move(copy)) {}
  void ComputeAsync(KernelContext& context, Done done) override {
    copy_->Begin(context, std::move(done));
  }
  void ArriveOnDevice() { copy_->ArriveOnDevice(); }

 private:
  const std::shared_ptr<CopyIn> copy_;
};

class CopyToHost : public AsyncKernel {
 public:
  struct Record : Arrival {
    CopyToHost* kernel = nullptr;
    KernelContext* context = nullptr;
    Done done;
    Tensor from, to;
    // Of a tensor that leaves in parts. Default order: a part is 1 MiB.
    uint64_t step = 0;
    std::atomic<size_t> parts{0};  // that have not ended
    Mutex mutex;
    Status failure MG_GUARDED_BY(mutex);  // the first one
    void Arrived(const Status& status) override { kernel->Arrived(this, status); }
  };
  struct Part : Arrival {
    Record* run = nullptr;
    size_t offset = 0;
    void Arrived(const Status& status) override { run->kernel->PartArrived(this, status); }
  };

  CopyToHost(GpuDevice* from, const std::string* what, TensorReady ready)
      : from_(*from), what_(what), ready_(std::move(ready)) {}

  void ComputeAsync(KernelContext& context, Done done) override {
    Record* run = records_.Take();
    run->kernel = this;
    run->context = &context;
    run->done = std::move(done);
    run->from = std::as_const(context).input(0);
    const bool stays = stays_ && run->from.bytes() >= kLeastGpuTransfer;
    Result<Tensor> to =
        stays ? run->from : Tensor::Allocate(run->from.dtype(), run->from.shape(), &from_.pinned());
    if (!to.ok()) return Arrived(run, from_.Check(to.status()));
    run->to = std::move(to).value();
    if (!stays && !edges_.empty() && run->from.bytes() >= kLeastInParts) return StartParts(run);
    const Status status = from_.IssueAndAwait(
        Queue::kToHost, run,
        [this, run, stays] {
          MG_RETURN_IF_ERROR(Await(ready_, from_, Queue::kToHost, from_));
          if (stays || run->from.bytes() == 0) return Status();
          return from_.driver().Copy(Queue::kToHost, run->to.raw(), std::as_const(run->from).raw(),
                                     run->from.bytes());
        },
        [](EventId, uint64_t) {});
    if (!status.ok()) Arrived(run, status);
  }

  void LeaveOnDevice() { stays_ = true; }
  void LeaveInParts(std::vector<int32_t> edges, SendPart send) {
    edges_ = std::move(edges);
    send_ = std::move(send);
  }

  void StartParts(Record* run) {
    const size_t bytes = run->from.bytes(), parts = (bytes + kTransferPart - 1) / kTransferPart;
    run->step = GpuLauncher::Step(*run->context);
    run->parts = parts;
    for (size_t i = 0; i < parts; ++i) {
      Part* const part = parts_.Take();
      const size_t at = i * kTransferPart;
      part->run = run;
      part->offset = at;
      const Status status = from_.IssueAndAwait(
          Queue::kToHost, part,
          [&] {
            if (i == 0) MG_RETURN_IF_ERROR(Await(ready_, from_, Queue::kToHost, from_));
            return from_.driver().Copy(
                Queue::kToHost, static_cast<char*>(run->to.raw()) + at,
                static_cast<const char*>(std::as_const(run->from).raw()) + at,
                std::min(kTransferPart, bytes - at));
          },
          [](EventId, uint64_t) {});
      if (status.ok()) continue;  // after the last part the run may be over
      parts_.Give(part);
      return EndParts(run, parts - i, status);
    }
  }

  void PartArrived(Part* part, const Status& status) {
    Record* const run = part->run;
    const size_t offset = part->offset;
    parts_.Give(part);
    const auto failed = [run] {
      MutexLock lock(run->mutex);
      return !run->failure.ok();
    };
    if (status.ok() && !failed()) {
      for (const int32_t edge : edges_) send_(run->step, edge, run->to, offset);
    }
    EndParts(run, 1, status);
  }

  void EndParts(Record* run, size_t parts, const Status& status) {
    if (!status.ok()) {
      MutexLock lock(run->mutex);
      if (run->failure.ok()) run->failure = status;
    }
    if (run->parts.fetch_sub(parts) > parts) return;
    Status failure;
    {
      MutexLock lock(run->mutex);
      failure = std::exchange(run->failure, Status());
    }
    Arrived(run, failure);
  }

  void Arrived(Record* run, const Status& status) {
    const Done done = std::move(run->done);
    if (status.ok()) run->context->set_output(0, std::move(run->to));
    run->from.Reset();
    run->to.Reset();
    records_.Give(run);
    done(status.WithContext(*what_));
  }

 private:
  GpuDevice& from_;
  const std::string* const what_;
  const TensorReady ready_;
  bool stays_ = false;
  std::vector<int32_t> edges_;  // that take it in parts
  SendPart send_;
  FreeList<Record> records_;
  FreeList<Part> parts_;
};

struct PartToDevice : Arrival {
  Buffer pinned;
  Tensor to;
  Done done;
  void Arrived(const Status& status) override {
    const std::unique_ptr<PartToDevice> self(this);
    pinned = Buffer();
    to.Reset();
    done(status);
  }
};

class Fence : public AsyncKernel {
 public:
  Fence(GpuDevice* device, std::string what) : device_(*device), what_(std::move(what)) {}

  bool trails() const override { return true; }

  void ComputeAsync(KernelContext&, Done done) override {
    Record* run = records_.Take();
    run->fence = this;
    run->done = std::move(done);
    device_.AwaitLast(Queue::kCompute, run);
  }

 private:
  struct Record : Arrival {
    Fence* fence = nullptr;
    Done done;
    void Arrived(const Status& status) override {
      const Done finished = std::move(done);
      const Fence* const self = fence;
      fence->records_.Give(this);
      finished(status.WithContext(self->what_));
    }
  };
  GpuDevice& device_;
  const std::string what_;
  FreeList<Record> records_;
};

}  // namespace

Status WaitForCopies(GpuDevice& device, std::span<const std::shared_ptr<const Inbound>> inbounds) {
  for (const Queue queue : {Queue::kToDevice, Queue::kPeer}) {
    // A queue runs its copies in order: waiting for the last one is waiting for all.
    const Inbound* last = nullptr;
    uint64_t number = device.compute_knows(queue);
    for (const auto& inbound : inbounds) {
      const uint64_t issued = inbound->number.load(std::memory_order_acquire);
      if (inbound->queue != queue || issued <= number) continue;
      number = issued;
      last = inbound.get();
    }
    if (last == nullptr) continue;
    StreamDriver& driver = device.driver();
    MG_RETURN_IF_ERROR(device.Check(
        driver.Wait(Queue::kCompute, driver, last->event.load(std::memory_order_acquire))));
    device.compute_knows(queue) = number;
  }
  return Status();
}

std::unique_ptr<AsyncKernel> MakeCopyToDevice(GpuDevice* to, const std::string* owner,
                                              ThreadPools* pools,
                                              std::shared_ptr<Inbound> inbound) {
  return std::make_unique<CopyInKernel>(
      std::make_shared<CopyIn>(to, owner, pools, nullptr, TensorReady(), std::move(inbound)));
}

std::unique_ptr<AsyncKernel> MakeCopyFromPeer(GpuDevice* to, const std::string* owner,
                                              GpuDevice* from, TensorReady ready,
                                              std::shared_ptr<Inbound> inbound) {
  return std::make_unique<CopyInKernel>(
      std::make_shared<CopyIn>(to, owner, nullptr, from, std::move(ready), std::move(inbound)));
}

std::unique_ptr<AsyncKernel> MakeCopyToHost(GpuDevice* from, const std::string* what,
                                            TensorReady ready) {
  return std::make_unique<CopyToHost>(from, what, std::move(ready));
}

void LeaveOnDevice(Kernel* copy_to_host) {
  static_cast<CopyToHost*>(copy_to_host)->LeaveOnDevice();
}

void ArriveOnDevice(Kernel* copy_to_device) {
  static_cast<CopyInKernel*>(copy_to_device)->ArriveOnDevice();
}

void LeaveInParts(Kernel* copy_to_host, std::vector<int32_t> edges, SendPart send) {
  static_cast<CopyToHost*>(copy_to_host)->LeaveInParts(std::move(edges), std::move(send));
}

Status CopyToDevice(GpuDevice& device, Buffer pinned, Tensor to, size_t offset, size_t bytes,
                    Done done) {
  auto part = std::make_unique<PartToDevice>();
  part->pinned = std::move(pinned);
  part->to = std::move(to);
  part->done = std::move(done);
  char* const target = static_cast<char*>(part->to.raw()) + offset;
  const char* const source = static_cast<const char*>(part->pinned.data()) + offset;
  MG_RETURN_IF_ERROR(device.IssueAndAwait(
      Queue::kToDevice, part.get(),
      [&] { return device.driver().Copy(Queue::kToDevice, target, source, bytes); },
      [](EventId, uint64_t) {}));
  (void)part.release();  // it ends itself, and may have
  return Status();
}

std::unique_ptr<AsyncKernel> MakeFence(GpuDevice* device, std::string what) {
  return std::make_unique<Fence>(device, std::move(what));
}

}  // namespace monograph
