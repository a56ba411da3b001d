// How kernels call oneDNN: always one thread per call, with memory of our own.
//
// Debian's oneDNN uses OpenMP and bakes the number of threads into a primitive when it is created,
// so every creation and every execution stands under a SingleThread guard; kernels run several
// calls side by side by ParallelFor. Scratch memory belongs to a Frame (never to the library, whose
// own is per creating thread), so that one primitive may run on many threads at once.
//
// Included by kernel sources only: dnnl.hpp is heavy and throws; Guarded() turns its exceptions
// into Status.
#pragma once

#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "base/status.h"

namespace monograph::ops::onednn {

// Sets the calling thread's OpenMP budget to one while it lives.
class SingleThread {
 public:
  SingleThread();
  ~SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int saved_;
};

const dnnl::engine& Engine();
// Whether oneDNN uses AVX-512 on a processor of Intel's: which layouts are fast differs there.
bool IntelAvx512();
// Whether oneDNN computes with bfloat16 as it is, by the processor's instructions for it. Elsewhere
// its kernels would be slower than those of float; the first call says so in the log then.
bool HasBfloat16();
// Whether oneDNN computes products of bfloat16 by tiles (AMX), which then cost so little that
// fewer multiplications win nothing.
bool HasBfloat16Tiles();
// The type of T's elements, float or bfloat16.
template <typename T>
inline constexpr dnnl::memory::data_type kTypeOf =
    std::is_same_v<T, bfloat16> ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
Status FromException(const dnnl::error& error);

// fn() under SingleThread; what it throws becomes a Status (ResourceExhausted, Unimplemented,
// Internal).
template <typename Fn>
Status Guarded(Fn fn) {
  SingleThread single;
  try {
    fn();
  } catch (const dnnl::error& error) {
    return FromException(error);
  }
  return Status();
}

// Attributes with the scratchpad in the caller's hands.
dnnl::primitive_attr UserScratchpad();

// What one call needs: memory objects, buffers and primitives in order. Used by one thread at a
// time. Building throws dnnl::error or std::bad_alloc.
class Frame {
 public:
  Frame();
  ~Frame();
  // A memory whose data the caller binds before each Run. Returns its index.
  int Bound(const dnnl::memory::desc& desc);
  // A memory with a buffer of the frame's own.
  int Owned(const dnnl::memory::desc& desc);
  // Adds a primitive; `args` are pairs of a DNNL_ARG_ and an index.
  void Add(const dnnl::primitive& primitive, std::initializer_list<std::pair<int, int>> args,
           const dnnl::memory::desc& scratchpad);
  void AddReorder(int from, int to);

  void Bind(int index, const void* data);
  void* data(int index) const;
  // REQUIRES: under SingleThread.
  Status Run();

 private:
  struct Step;
  std::vector<dnnl::memory> memories_;
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
};

// Frames of one kind that wait for their next use. Thread-safe.
template <typename F>
class FramePool {
 public:
  template <typename Make>
  std::unique_ptr<F> Take(Make make) {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<F> frame = std::move(free_.back());
        free_.pop_back();
        return frame;
      }
    }
    return make();
  }
  void Give(std::unique_ptr<F> frame) {
    MutexLock lock(mutex_);
    free_.push_back(std::move(frame));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<F>> free_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::ops::onednn
