// How kernels that only move elements do so: HostMoves in the host's memory, DeviceMoves in a
// GPU's, on its stream. Such a kernel is a template over one of them, in <op>_kernels.h, and so is
// one piece of code for both.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "ops/cpu/copy_elements_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"

namespace monograph::ops {

// One of several blocks that lie beside each other in every row of a whole.
struct RowPart {
  const void* data;
  size_t bytes;  // of one row; its rows are consecutive
};

// The parts of a whole; up to 16 without heap memory.
class RowParts {
 public:
  void Add(const void* data, size_t bytes) {
    if (size_ < few_.size()) {
      few_[size_] = {data, bytes};
    } else {
      if (size_ == few_.size()) many_.assign(few_.begin(), few_.end());
      many_.push_back({data, bytes});
    }
    ++size_;
  }
  bool empty() const { return size_ == 0; }
  std::span<const RowPart> span() const {
    return {size_ <= few_.size() ? few_.data() : many_.data(), size_};
  }

 private:
  std::array<RowPart, 16> few_{};
  std::vector<RowPart> many_;
  size_t size_ = 0;
};

struct HostMoves {
  // As StridedCopy.
  static Status Strided(KernelContext& c, size_t element_size, const void* from, void* to,
                        const StridedSpace& space) {
    StridedCopy(c, element_size, from, to, space);
    return Status();
  }
  static Status Zero(KernelContext& c, void* to, size_t bytes) {
    c.ParallelFor(static_cast<int64_t>(bytes / kPage + 1), kPageNs,
                  [=](int64_t begin, int64_t end) {
                    const size_t first = static_cast<size_t>(begin) * kPage;
                    std::memset(static_cast<char*>(to) + first, 0,
                                std::min(bytes, static_cast<size_t>(end) * kPage) - first);
                  });
    return Status();
  }
  static Status Copy(KernelContext& c, void* to, const void* from, size_t bytes) {
    if (bytes == 0) return Status();
    c.ParallelFor(
        static_cast<int64_t>(bytes / kPage + 1), kPageNs, [=](int64_t begin, int64_t end) {
          const size_t first = static_cast<size_t>(begin) * kPage;
          std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                      std::min(bytes, static_cast<size_t>(end) * kPage) - first);
        });
    return Status();
  }
  // n elements, each of them `value`, which is in host memory.
  static Status Fill(KernelContext& c, size_t element_size, const void* value, void* to,
                     int64_t n) {
    StridedSpace space;
    space.Add(n, 0, 1);
    StridedCopy(c, element_size, value, to, space);
    return Status();
  }
  // `outer` rows of all parts, side by side, into `to`. Of strings, bytes are those of the objects.
  static Status Join(KernelContext& c, DType dtype, std::span<const RowPart> parts, int64_t outer,
                     void* to) {
    size_t at = 0;
    const size_t pitch = Pitch(parts);
    for (const RowPart& part : parts) {
      if (c.cancelled()) return Status();
      Blocks(c, dtype, static_cast<const char*>(part.data), static_cast<char*>(to) + at, outer,
             part.bytes, part.bytes, pitch);
      at += part.bytes;
    }
    return Status();
  }
  // The way back: the parts are written.
  static Status Part(KernelContext& c, DType dtype, const void* from, int64_t outer,
                     std::span<const RowPart> parts) {
    size_t at = 0;
    const size_t pitch = Pitch(parts);
    for (const RowPart& part : parts) {
      if (c.cancelled()) return Status();
      Blocks(c, dtype, static_cast<const char*>(from) + at,
             static_cast<char*>(const_cast<void*>(part.data)), outer, part.bytes, pitch,
             part.bytes);
      at += part.bytes;
    }
    return Status();
  }

 private:
  // What threads share out of one block of memory, and how long it takes.
  static constexpr size_t kPage = 4096;
  static constexpr int64_t kPageNs = 500;
  // A long row is copied in such pieces, a multiple of the size of any element.
  static constexpr int64_t kPieceBytes = int64_t{3} << 20;

  static size_t Pitch(std::span<const RowPart> parts) {
    size_t pitch = 0;
    for (const RowPart& part : parts) pitch += part.bytes;
    return pitch;
  }
  // Copies `outer` blocks of `bytes` between rows that lie `from_pitch` and `to_pitch` bytes apart.
  static void Blocks(KernelContext& c, DType dtype, const char* from, char* to, int64_t outer,
                     size_t bytes, size_t from_pitch, size_t to_pitch) {
    if (bytes == 0) return;
    c.ParallelFor(outer, 5 + static_cast<int64_t>(bytes / 8), [=, &c](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        InPieces(c, static_cast<int64_t>(bytes), kPieceBytes, [&](int64_t first, int64_t last) {
          CopyElements(c, dtype, from + i * from_pitch + first, to + i * to_pitch + first,
                       static_cast<size_t>(last - first));
        });
      }
    });
  }
};

// Types whose tensors lie in a GPU's memory; int32 stays on the host (ops/gpu/on_host_cuda.h).
inline constexpr DType kDeviceTypes[] = {DT_FLOAT,  DT_DOUBLE, DT_HALF,   DT_BFLOAT16,
                                         DT_INT64,  DT_INT8,   DT_INT16,  DT_UINT8,
                                         DT_UINT16, DT_UINT32, DT_UINT64, DT_BOOL};
inline constexpr DType kHostInt[] = {DT_INT32};

// The same for plain data in device memory (ops/gpu/moves_cuda.cu): returns when all is enqueued.
struct DeviceMoves {
  static Status Strided(KernelContext& c, size_t element_size, const void* from, void* to,
                        const StridedSpace& space);
  static Status Zero(KernelContext& c, void* to, size_t bytes);
  static Status Copy(KernelContext& c, void* to, const void* from, size_t bytes);
  static Status Fill(KernelContext& c, size_t element_size, const void* value, void* to, int64_t n);
  static Status Join(KernelContext& c, DType dtype, std::span<const RowPart> parts, int64_t outer,
                     void* to);
  static Status Part(KernelContext& c, DType dtype, const void* from, int64_t outer,
                     std::span<const RowPart> parts);
};

}  // namespace monograph::ops
