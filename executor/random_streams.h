// RandomStreams: how far the nodes of a session have drawn at one task, for sessions that draw as
// TensorFlow does (SessionOptions::tensorflow_random_streams).
//
// In such a session a node whose attributes seed and seed2 are not both 0 draws from the stream of
// these seeds, and each run goes on where the one before ended. In TensorFlow its kernel counts,
// which lives as long as the session. Here each signature has kernels of its own, which come and
// go: the count belongs to the session, by the node's name. Only kernels for CPUs draw so.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "executor/kernel.h"

namespace monograph {

// Thread-safe.
class RandomStreams {
 public:
  // Blocks of four 32-bit words that were taken so far. Relaxed: each run adds what it takes, and
  // nothing else is read by it.
  using Taken = std::atomic<uint64_t>;
  std::shared_ptr<Taken> Of(std::string_view node) MG_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Taken>, std::less<>> taken_ MG_GUARDED_BY(mutex_);
};

// Whether the attributes seed and seed2 are there and not both 0.
bool HasSeeds(const Attrs& attrs);
// Why such a node has no kernel on other devices.
inline constexpr std::string_view kStreamsNeedCpus =
    "with tensorflow_random_streams a node that has seeds draws on a CPU";

// Offered by the constructions of kernels that are made for a task.
class RandomStreamsConstruction {
 public:
  virtual ~RandomStreamsConstruction() = default;
  virtual RandomStreams* random_streams() const = 0;  // nullptr: the session draws otherwise
};
// Of the kernel's node. nullptr: the node draws by its name and the step's number, as it has no
// seeds, or its session did not ask for more, or it runs by itself (executor/step/kernel_runner.h).
std::shared_ptr<RandomStreams::Taken> TakenOf(const KernelConstruction& construction);

}  // namespace monograph
