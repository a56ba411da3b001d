// MemoryHolder: somebody who holds tensors of the process's pool: a session, a variable. The pool
// knows of each large block (base/pool_allocator.h) whose it is, so that a refusal can say who has
// the memory, and so that one session does not take it all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace monograph {

// Thread-safe. Lives as long as one of its blocks.
class MemoryHolder : public std::enable_shared_from_this<MemoryHolder> {
 public:
  // With `shares` it may take only a part of the memory while others that share hold some or may
  // want some (PoolAllocator::kShare), until Retire.
  explicit MemoryHolder(std::string name, bool shares = false);
  ~MemoryHolder();
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;

  const std::string& name() const { return name_; }
  // Of its large blocks. Relaxed: a counter.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // It shares and has not retired.
  bool bounded() const { return shares_ && !retired_.load(std::memory_order_relaxed); }
  // It asks for no more: others need not leave it anything.
  void Retire();
  // How many share and have not retired.
  static int sharing() { return sharing_.load(std::memory_order_relaxed); }

  // While it lives, large blocks that this thread takes are the holder's (nullptr: nobody's).
  // Scopes nest.
  class Scope {
   public:
    explicit Scope(MemoryHolder* holder) : outer_(std::exchange(current_, holder)) {}
    ~Scope() { current_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MemoryHolder* const outer_;
  };
  static MemoryHolder* Current() { return current_; }

 private:
  friend class PoolAllocator;
  static constinit thread_local MemoryHolder* current_;
  // Relaxed, all uses: a hint.
  static std::atomic<int> sharing_;

  const std::string name_;
  const bool shares_;
  std::atomic<bool> retired_{false};
  std::atomic<int64_t> bytes_{0};
};

}  // namespace monograph
