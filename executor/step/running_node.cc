#include "executor/step/running_node.h"

#include "base/mutex.h"

namespace monograph {
namespace {

// Those of all threads. It lives as long as the process: threads may end after static objects.
struct Threads {
  Mutex mutex;
  std::vector<const RunningNode*> all MG_GUARDED_BY(mutex);
};

Threads& AllThreads() {
  static auto* const threads = new Threads;
  return *threads;
}

}  // namespace

RunningNode::RunningNode() {
  Threads& threads = AllThreads();
  MutexLock lock(threads.mutex);
  threads.all.push_back(this);
}

RunningNode::~RunningNode() {
  Threads& threads = AllThreads();
  MutexLock lock(threads.mutex);
  std::erase(threads.all, this);
}

RunningNode& RunningNode::Mine() {
  static thread_local RunningNode mine;
  return mine;
}

std::vector<int32_t> RunningNode::Of(const Step& step) {
  std::vector<int32_t> nodes;
  Threads& threads = AllThreads();
  MutexLock lock(threads.mutex);
  for (const RunningNode* thread : threads.all) {
    if (thread->step_.load(std::memory_order_relaxed) == &step && thread->node() >= 0)
      nodes.push_back(thread->node());
  }
  return nodes;
}

}  // namespace monograph
