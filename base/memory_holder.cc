#include "base/memory_holder.h"

namespace monograph {

constinit thread_local MemoryHolder* MemoryHolder::current_ = nullptr;
std::atomic<int> MemoryHolder::sharing_{0};

MemoryHolder::MemoryHolder(std::string name, bool shares)
    : name_(std::move(name)), shares_(shares) {
  if (shares_) sharing_.fetch_add(1, std::memory_order_relaxed);
}

MemoryHolder::~MemoryHolder() { Retire(); }

void MemoryHolder::Retire() {
  // Relaxed: a hint.
  if (shares_ && !retired_.exchange(true, std::memory_order_relaxed))
    sharing_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace monograph
