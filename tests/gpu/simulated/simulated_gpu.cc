#include "tests/gpu/simulated/simulated_gpu.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <utility>

namespace monograph {

namespace optest {
namespace {

constexpr size_t kArena = size_t{1} << 30;  // address space; only touched pages count
constexpr size_t kStep = size_t{256} << 10;
constexpr size_t kGuard = 64;
constexpr unsigned char kPoison = 0xcb, kWatch = 0xa7;

}  // namespace

// Blocks one behind the other; begins anew when all are free.
class SimulatedMemory::Arena : public Allocator {
 public:
  Arena()
      : base_(static_cast<char*>(
            mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    MG_CHECK(base_ != MAP_FAILED);
  }
  ~Arena() override { munmap(base_, kArena); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void Open(bool open) {
    open_ = open;
    MG_CHECK(mprotect(base_, reach_, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
  }

  // fn() with the memory open.
  template <typename Fn>
  void Touch(const Fn& fn) {
    const bool was = open_;
    if (!was) Open(true);
    fn();
    if (!was) Open(false);
  }

  std::string name() const override { return "simulated GPU"; }
  bool on_host() const override { return false; }
  void* Allocate(size_t bytes) override {
    if (refused_ >= 0 && refused_-- == 0) return nullptr;
    const size_t whole = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (used_ + whole + 2 * kGuard > kArena) return nullptr;
    char* const block = base_ + used_ + kGuard;
    used_ += whole + 2 * kGuard;
    live_[block] = bytes;
    if (used_ > reach_) {
      reach_ = (used_ + kStep - 1) / kStep * kStep;
      Open(open_);
    }
    Touch([&] {
      std::memset(block - kGuard, kWatch, kGuard);
      std::memset(block, kPoison, bytes);
      std::memset(block + bytes, kWatch, whole - bytes + kGuard);
    });
    return block;
  }
  void Deallocate(void* data, size_t bytes) noexcept override {
    char* const block = static_cast<char*>(data);
    Touch([&] {
      const auto watch = [&](const char* at, size_t n) {
        for (size_t i = 0; i < n; ++i) {
          if (static_cast<unsigned char>(at[i]) == kWatch || !damage_.empty()) continue;
          damage_ = "byte " + std::to_string(at + static_cast<ptrdiff_t>(i) - block) +
                    " of a block of " + std::to_string(bytes) + " was written";
        }
      };
      watch(block - kGuard, kGuard);
      watch(block + bytes, kGuard);
      std::memset(block, kPoison, bytes);
    });
    live_.erase(block);
    if (live_.empty()) Clear();
  }
  std::span<const std::byte> BlockAt(const void* address) const {
    auto block = live_.upper_bound(static_cast<const char*>(address));
    if (block == live_.begin()) return {};
    --block;
    return {reinterpret_cast<const std::byte*>(block->first), block->second};
  }
  void Refuse(int64_t block) { refused_ = block; }
  std::string TakeDamage() { return std::exchange(damage_, ""); }

 private:
  void Clear() {
    used_ = 0;
    if (reach_ == kStep) return;
    MG_CHECK(madvise(base_, reach_, MADV_DONTNEED) == 0);
    MG_CHECK(mprotect(base_, reach_, PROT_NONE) == 0);
    reach_ = 0;
  }

  char* const base_;
  size_t used_ = 0;
  size_t reach_ = 0;  // what is opened and closed, which costs time by the page; the rest is closed
  std::map<const char*, size_t> live_;  // blocks and their bytes
  bool open_ = true;
  int64_t refused_ = -1;
  std::string damage_;
};

namespace {

// The memory that launches open; one at a time.
SimulatedMemory* current = nullptr;

}  // namespace

SimulatedMemory::SimulatedMemory()
    : device_(std::make_unique<Arena>()), host_(std::make_unique<Arena>()) {
  MG_CHECK(current == nullptr);
  current = this;
  device_->Open(false);
  ops::simulated::TheGrid().begin = [] {
    current->device_->Open(true);
    current->host_->Open(false);
  };
  ops::simulated::TheGrid().end = [] {
    current->device_->Open(false);
    current->host_->Open(true);
  };
}

SimulatedMemory::~SimulatedMemory() {
  ops::simulated::TheGrid() = {};
  current = nullptr;
}

Allocator* SimulatedMemory::allocator() { return device_.get(); }

Result<Tensor> SimulatedMemory::ToDevice(const Tensor& on_host) {
  const size_t shift = static_cast<size_t>(shift_) * DTypeSize(on_host.dtype());
  Buffer buffer = Buffer::Allocate(device_.get(), on_host.bytes() + shift);
  if (!buffer) return ResourceExhausted("the simulated GPU's memory is full");
  Tensor copy(on_host.dtype(), on_host.shape(), std::move(buffer), shift);
  device_->Touch([&] { std::memcpy(copy.raw(), on_host.raw(), on_host.bytes()); });
  return copy;
}

Result<Tensor> SimulatedMemory::ToHost(const Tensor& on_device) {
  MG_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(on_device.dtype(), on_device.shape()));
  device_->Touch([&] { std::memcpy(copy.raw(), on_device.raw(), on_device.bytes()); });
  return copy;
}

Result<Tensor> SimulatedMemory::HostArgument(const Tensor& on_host) {
  Buffer buffer = Buffer::Allocate(host_.get(), on_host.bytes());
  if (!buffer) return ResourceExhausted("the simulated GPU's host memory is full");
  Tensor copy(on_host.dtype(), on_host.shape(), std::move(buffer));
  std::memcpy(copy.raw(), on_host.raw(), on_host.bytes());
  return copy;
}

std::span<const std::byte> SimulatedMemory::BlockAt(const void* address) {
  return current == nullptr ? std::span<const std::byte>() : current->device_->BlockAt(address);
}

void SimulatedMemory::RefuseBlock(int64_t block) { device_->Refuse(block); }

std::string SimulatedMemory::Damage() { return device_->TakeDamage(); }

}  // namespace optest
}  // namespace monograph
