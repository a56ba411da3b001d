// Nodes go into one queue that knows their sessions (executor/task_queue.h), and a thread of the
// arena takes the next one. A kernel's loop is cut into blocks that helpers and the caller take
// from a counter; it is short enough to spin for its end. Work that is estimated at more than 2 ms
// is cut even on one thread, so that an aborted step leaves it between two blocks.
#include "executor/thread_pools.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <algorithm>
#include <new>
#include <string>
#include <thread>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "executor/step/outcome.h"
#include "executor/task_queue.h"

namespace monograph {
namespace {

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// TBB has one fewer worker than `max_allowed_parallelism`, by default cores - 1. Ours need not
// leave a core to the calling thread.
void WantWorkers(int workers) {
  static Mutex mutex;
  static int granted MG_GUARDED_BY(mutex) = 0;
  static tbb::global_control* control MG_GUARDED_BY(mutex) =
      nullptr;  // lives as long as the process
  MutexLock lock(mutex);
  if (workers <= granted) return;
  granted = workers;
  auto* raised = new tbb::global_control(tbb::global_control::max_allowed_parallelism,
                                         static_cast<size_t>(workers) + 1);
  delete std::exchange(control, raised);
}

// Names the workers that enter an arena, once each.
class Namer : public tbb::task_scheduler_observer {
 public:
  explicit Namer(tbb::task_arena& arena) : tbb::task_scheduler_observer(arena) { observe(true); }
  ~Namer() override { observe(false); }
  void on_scheduler_entry(bool is_worker) override {
    static std::atomic<int> count{0};  // default order: once per thread
    thread_local bool named = false;
    if (!is_worker || named) return;
    named = true;
    AdoptThread("mg-worker-" + std::to_string(count.fetch_add(1)));
  }
};

// One ParallelFor. Helpers that come when all blocks are taken only drop their reference.
struct Loop {
  const std::function<void(int64_t, int64_t)>*
      fn;                      // the caller's; not touched once all blocks are done
  const StepOutcome* outcome;  // the same
  int64_t total, block;
  int blocks;
  std::atomic<int> next{0};
  std::atomic<int> finished{0};
  std::atomic<int> refs;

  void Work() {
    for (;;) {
      // Relaxed: it only deals blocks out; `finished` publishes what they computed.
      const int i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= blocks) return;
      const int64_t begin = i * block;
      if (outcome == nullptr || !outcome->aborted()) (*fn)(begin, std::min(begin + block, total));
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == blocks) finished.notify_one();
    }
  }
  void Unref() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    this->~Loop();
    HostAllocator()->Deallocate(this, sizeof(Loop));
  }
};

}  // namespace

struct ThreadPools::Impl {
  tbb::task_arena inter, intra;
  Namer inter_namer, intra_namer;
  std::atomic<int> busy{0};
  const std::shared_ptr<TaskQueue> queue = TaskQueue::Make();

  Impl(int inter_op, int intra_op)
      : inter(inter_op, 0),
        intra(std::max(1, intra_op - 1), 0),
        inter_namer(inter),
        intra_namer(intra) {}
  ~Impl() { queue->Close(); }
};

ThreadPools::ThreadPools(int inter_op, int intra_op)
    : inter_op_(inter_op > 0 ? inter_op : Cores()), intra_op_(intra_op > 0 ? intra_op : Cores()) {
  WantWorkers(std::max({inter_op_, intra_op_, Cores()}));
  impl_ = std::make_shared<Impl>(inter_op_, intra_op_);
  busy_ = &impl_->busy;
}

ThreadPools::~ThreadPools() = default;

void ThreadPools::Enqueue(Task run, void* context, int32_t value, uint64_t session) {
  busy_->fetch_add(1, std::memory_order_relaxed);  // a hint, see ThreadPools::hungry
  impl_->queue->Push({run, context, value, session});
  impl_->inter.enqueue([impl = impl_] {
    impl->queue->RunNext();
    impl->busy.fetch_sub(1, std::memory_order_relaxed);
  });
}

namespace {

constexpr int64_t kInlineNs = 20'000;
constexpr int64_t kBlockNs = 10'000;
// Longer work than this is not begun as one piece: so long an abort waits for it, if the estimate
// is right.
constexpr int64_t kLongestBlockNs = 2'000'000;

double WorkOf(int64_t total, int64_t cost_ns) {
  return static_cast<double>(total) * static_cast<double>(std::max<int64_t>(1, cost_ns));
}

// The size of blocks if there are to be so many of `total`, 1 or more.
int64_t BlockOf(int64_t total, int64_t blocks) {
  const int64_t some = std::clamp<int64_t>(blocks, 1, total);
  return (total + some - 1) / some;
}

}  // namespace

void ThreadPools::SerialFor(int64_t total, int64_t cost_ns,
                            const std::function<void(int64_t, int64_t)>& fn,
                            const StepOutcome* outcome) {
  if (total <= 0) return;
  const double work = WorkOf(total, cost_ns);
  if (outcome == nullptr || work <= kLongestBlockNs) return fn(0, total);
  const int64_t block = BlockOf(total, static_cast<int64_t>(work / kLongestBlockNs) + 1);
  for (int64_t begin = 0; begin < total && !outcome->aborted(); begin += block)
    fn(begin, std::min(begin + block, total));
}

void ThreadPools::ParallelFor(int64_t total, int64_t cost_ns,
                              const std::function<void(int64_t, int64_t)>& fn,
                              const StepOutcome* outcome) {
  if (total <= 0) return;
  const double work = WorkOf(total, cost_ns);
  if (intra_op_ == 1 || total == 1 || work < kInlineNs)
    return SerialFor(total, cost_ns, fn, outcome);
  const double wanted =
      std::min(std::max(std::min(work / kBlockNs, 4.0 * intra_op_), work / kLongestBlockNs), 1e6);
  const int64_t block = BlockOf(total, static_cast<int64_t>(wanted));
  const auto blocks = static_cast<int>((total + block - 1) / block);
  if (blocks == 1) return fn(0, total);
  void* memory = HostAllocator()->Allocate(sizeof(Loop));
  if (memory == nullptr) return SerialFor(total, cost_ns, fn, outcome);
  const int helpers = std::min(blocks, intra_op_) - 1;
  auto* loop = new (memory) Loop{.fn = &fn,
                                 .outcome = outcome,
                                 .total = total,
                                 .block = block,
                                 .blocks = blocks,
                                 .refs = helpers + 1};
  for (int i = 0; i < helpers; ++i) {
    impl_->intra.enqueue([loop] {
      loop->Work();
      loop->Unref();
    });
  }
  loop->Work();
  for (int done, spins = 0; (done = loop->finished.load(std::memory_order_acquire)) != blocks;) {
    // Blocks are short; sleep only if a helper has lost its core.
    if (++spins < 2000) {
      __builtin_ia32_pause();
    } else {
      loop->finished.wait(done, std::memory_order_acquire);
    }
  }
  loop->Unref();
}

}  // namespace monograph
