#include "base/buffer.h"

#include <memory>
#include <new>
#include <utility>

#include "base/status.h"

namespace monograph {

// Header and payload share one allocation; the header takes exactly one alignment unit.
struct Buffer::PooledBlock : Block {
  Allocator* allocator = nullptr;

  static void Destroy(Block* block) noexcept {
    auto* self = static_cast<PooledBlock*>(block);
    Allocator* allocator = self->allocator;
    const size_t total = self->bytes + kBufferAlignment;
    self->~PooledBlock();
    allocator->Deallocate(self, total);
  }
};

// Of memory that the CPU may not touch: only the header is on the host.
struct Buffer::ApartBlock : Block {
  Allocator* allocator = nullptr;

  static void Destroy(Block* block) noexcept {
    auto* self = static_cast<ApartBlock*>(block);
    self->allocator->Deallocate(self->data, self->bytes);
    self->~ApartBlock();
    HostAllocator()->Deallocate(self, sizeof(ApartBlock));
  }

  static Block* Make(Allocator* allocator, size_t bytes) {
    void* memory = HostAllocator()->Allocate(sizeof(ApartBlock));
    if (memory == nullptr) return nullptr;
    void* data = allocator->Allocate(bytes);
    if (data == nullptr) {
      HostAllocator()->Deallocate(memory, sizeof(ApartBlock));
      return nullptr;
    }
    auto* block = new (memory) ApartBlock;
    block->data = data;
    block->bytes = bytes;
    block->allocator = allocator;
    block->destroy = &ApartBlock::Destroy;
    return block;
  }
};

struct Buffer::WrappedBlock : Block {
  std::function<void()> release;
  // Whoever sets `kept` writes `room`, which only Destroy reads: the references order the two.
  std::atomic<bool> kept{false};
  std::shared_ptr<void> room = nullptr;

  static void Destroy(Block* block) noexcept {
    auto* self = static_cast<WrappedBlock*>(block);
    if (self->release) self->release();
    delete self;
  }
};

Buffer Buffer::Allocate(Allocator* allocator, size_t bytes) {
  static_assert(sizeof(PooledBlock) <= kBufferAlignment);
  if (bytes > SIZE_MAX - kBufferAlignment) return Buffer();
  if (!allocator->on_host()) return Buffer(ApartBlock::Make(allocator, bytes));
  void* memory = allocator->Allocate(bytes + kBufferAlignment);
  if (memory == nullptr) return Buffer();
  auto* block = new (memory) PooledBlock;
  block->data = static_cast<char*>(memory) + kBufferAlignment;
  block->bytes = bytes;
  block->allocator = allocator;
  block->destroy = &PooledBlock::Destroy;
  return Buffer(block);
}

Buffer Buffer::Wrap(void* data, size_t bytes, std::function<void()> release) {
  auto* block = new WrappedBlock;
  block->data = data;
  block->bytes = bytes;
  block->release = std::move(release);
  block->wrapped = true;
  block->destroy = &WrappedBlock::Destroy;
  return Buffer(block);
}

Buffer Buffer::WrapConstant(const void* data, size_t bytes) {
  Buffer buffer = Wrap(const_cast<void*>(data), bytes, nullptr);
  buffer.block_->constant = true;
  return buffer;
}

bool Buffer::Keep(std::shared_ptr<void> room) const {
  MG_CHECK(block_ != nullptr && block_->wrapped);
  auto* const block = static_cast<WrappedBlock*>(block_);
  // Relaxed: see WrappedBlock.
  if (block->kept.exchange(true, std::memory_order_relaxed)) return false;
  block->room = std::move(room);
  return true;
}

bool Buffer::keeps() const {
  return block_ != nullptr && block_->wrapped &&
         static_cast<WrappedBlock*>(block_)->kept.load(std::memory_order_relaxed);
}

}  // namespace monograph
