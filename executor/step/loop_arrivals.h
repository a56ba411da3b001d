// Where tensors from other tasks and the _Recvs of loops meet: in each iteration a tensor comes, or
// the word that it is dead, and a _Recv asks for it; either may be first. Private to the step
// folder.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/tensor.h"

namespace monograph {

struct Iteration;

// Thread-safe.
class LoopArrivals {
 public:
  // A _Recv runs in `iteration`. True if its tensor has come; else Bring will name the iteration.
  bool Take(uint32_t edge, Iteration* iteration, Tensor* tensor) MG_EXCLUDES(mutex_);

  enum class Brought {
    kKept,     // until its _Recv runs
    kAwaited,  // the _Recv of `*iteration` waits, and can take it
    kTwice,    // dropped
    kNoMemory
  };
  // A tensor of the iteration with this Iteration::id.
  Brought Bring(uint32_t edge, uint64_t id, Tensor tensor, Iteration** iteration)
      MG_EXCLUDES(mutex_);

  // _Recvs that wait now.
  bool any_wait() const MG_EXCLUDES(mutex_);
  std::vector<uint32_t> awaited() const MG_EXCLUDES(mutex_);  // their edges, each once
  int64_t brought() const MG_EXCLUDES(mutex_);                // tensors so far
  void Clear() MG_EXCLUDES(mutex_);

 private:
  struct Key {
    uint64_t id;
    uint32_t edge;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      const uint64_t h = (key.id ^ uint64_t{key.edge} << 40) * 0x9e3779b97f4a7c15ull;
      return h ^ h >> 32;
    }
  };
  struct Entry {
    Iteration* waits = nullptr;
    bool here = false;
    Tensor tensor;  // of a control edge invalid
  };

  mutable Mutex mutex_;
  std::unordered_map<Key, Entry, KeyHash> entries_ MG_GUARDED_BY(mutex_);
  int64_t waiting_ MG_GUARDED_BY(mutex_) = 0;
  int64_t brought_ MG_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<void>> room_ MG_GUARDED_BY(mutex_);  // of the host's pool
};

}  // namespace monograph
