// Buffer: shared ownership of a block of memory; Allocator: where blocks come from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace monograph {

inline constexpr size_t kBufferAlignment = 64;

// Gives out memory. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string name() const = 0;
  // At least `bytes` bytes, aligned to kBufferAlignment; nullptr if there is no more. The contents
  // are undefined.
  virtual void* Allocate(size_t bytes) = 0;
  // `bytes` is what Allocate was asked for.
  virtual void Deallocate(void* data, size_t bytes) noexcept = 0;
  // False: memory of a GPU, which the CPU may not touch.
  virtual bool on_host() const { return true; }
  // For what outlives the step: the value of a variable, what a kernel keeps. Lives as long as
  // this.
  virtual Allocator* kept() { return this; }
};

// The process's pool for host tensors (base/pool_allocator.h): huge-page-advised, recycled, so that
// a steady step touches no new page, and bounded. Lives until the process ends.
Allocator* HostAllocator();

// A counted reference to a block. Copying shares; the block is freed when the last reference goes.
// Thread-safe in the way shared_ptr is. The reference count and the payload lie in one allocation,
// but for memory that is not on the host.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer& other) : block_(other.block_) {
    // Relaxed: who copies a reference has one already, so that the block stays.
    if (block_) block_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer() { Unref(); }

  // Empty (operator bool is false) if the allocator has no memory. Zero bytes give a valid buffer.
  static Buffer Allocate(Allocator* allocator, size_t bytes);
  // Memory that somebody else owns; `release` runs when the last reference goes, on that thread.
  static Buffer Wrap(void* data, size_t bytes, std::function<void()> release);
  // Memory of another process that this one may only read, and that changes for nobody as long as
  // it is held: see constant(). The caller keeps it until nobody else has the buffer.
  static Buffer WrapConstant(const void* data, size_t bytes);
  // Of a Wrap whose elements own memory elsewhere: keeps `room` for that (nullptr: they own none)
  // until the last reference goes. False if it keeps something already.
  bool Keep(std::shared_ptr<void> room) const;
  bool keeps() const;

  explicit operator bool() const { return block_ != nullptr; }
  void* data() const { return block_ ? block_->data : nullptr; }
  size_t size() const { return block_ ? block_->bytes : 0; }
  // True if this is the only reference: what it holds may be overwritten in place.
  bool unique() const { return block_ && block_->refs.load(std::memory_order_acquire) == 1; }
  // True for what WrapConstant has made: to be read at any time, never to be written to.
  bool constant() const { return block_ && block_->constant; }
  friend bool operator==(const Buffer& a, const Buffer& b) { return a.block_ == b.block_; }

 private:
  struct Block {
    std::atomic<int64_t> refs{1};
    void* data = nullptr;
    size_t bytes = 0;
    bool constant = false;
    bool wrapped = false;  // a WrappedBlock: plug-ins have code of their own in `destroy`
    void (*destroy)(Block*) noexcept = nullptr;
  };
  struct PooledBlock;
  struct ApartBlock;
  struct WrappedBlock;

  explicit Buffer(Block* block) : block_(block) {}
  void Unref() {
    if (block_ == nullptr) return;
    // The only reference cannot be copied meanwhile: a plain load saves the atomic decrement.
    if (block_->refs.load(std::memory_order_acquire) == 1 ||
        block_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      block_->destroy(block_);
    }
  }

  Block* block_ = nullptr;
};

}  // namespace monograph
