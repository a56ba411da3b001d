// A GPU's grid on the host, for tests: kernels of ops/gpu/launch.h that the host's compiler
// compiled run here, index by index, in an order that the test chooses. A result that depends on
// the order is a race on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>

namespace monograph::ops::simulated {

enum class Order { kForward, kBackward, kScattered };

// What a test sets. One thread at a time.
struct Grid {
  Order order = Order::kForward;
  int64_t launches = 0;
  // Around each launch: the test's device memory can be touched only between them.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
inline Grid& TheGrid() {
  static Grid grid;
  return grid;
}

// The stream's counters (ops/gpu/arrivals.h).
inline uint32_t* Arrivals() {
  static uint32_t counters[2048] = {};
  return counters;
}

class Launch {
 public:
  Launch() {
    ++TheGrid().launches;
    if (TheGrid().begin != nullptr) TheGrid().begin();
  }
  ~Launch() {
    if (TheGrid().end != nullptr) TheGrid().end();
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

// fn(k) for each k in [0, n), in the grid's order.
template <typename Fn>
void InOrder(int64_t n, const Fn& fn) {
  const Order order = TheGrid().order;
  int64_t stride = n / 2 + 7;  // without a common divisor with n
  while (std::gcd(stride, n) != 1) ++stride;
  for (int64_t k = 0, at = n / 3; k < n; ++k, at = (at + stride) % n) {
    fn(order == Order::kForward ? k : order == Order::kBackward ? n - 1 - k : at);
  }
}

template <typename Body>
void RunEach(int64_t n, const Body& body) {
  const Launch launch;
  InOrder(n, body);
}

template <typename Body>
void RunBlocks(int64_t blocks, const Body& body) {
  auto shared = std::make_unique<typename Body::Shared>();
  const Launch launch;
  InOrder(blocks, [&](int64_t block) {
    std::memset(static_cast<void*>(shared.get()), 0xcb, sizeof(*shared));
    for (int phase = 0; phase < Body::kPhases; ++phase) {
      InOrder(Body::kThreads,
              [&](int64_t thread) { body(phase, block, static_cast<int>(thread), *shared); });
    }
  });
}

inline void Zero(void* to, size_t bytes) {
  const Launch launch;
  std::memset(to, 0, bytes);
}
inline void Copy(void* to, const void* from, size_t bytes) {
  const Launch launch;
  std::memcpy(to, from, bytes);
}

}  // namespace monograph::ops::simulated
