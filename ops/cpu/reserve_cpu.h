// Vectors of kernels' resources that grow within the process's limit of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/pool_allocator.h"
#include "base/status.h"

namespace monograph {

inline constexpr size_t kUnasked = 4096;  // bytes that the runtime takes without asking

// Reserves memory for `wanted` elements; `room` holds it in the limit as long as the vector has it.
// ResourceExhausted says of how many bytes and why; the vector is as it was then.
template <typename T>
Status ReserveWithin(std::vector<T>* elements, size_t wanted, std::shared_ptr<void>* room) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(wanted, sizeof(T), &bytes)) bytes = SIZE_MAX;  // which is refused
  std::shared_ptr<void> taken;
  if (bytes > kUnasked) {
    taken = HostPool().Reserve(bytes);
    if (taken == nullptr) return ResourceExhausted(HostPool().Explain(bytes));
  }
  elements->reserve(wanted);
  *room = std::move(taken);
  return Status();
}

}  // namespace monograph
