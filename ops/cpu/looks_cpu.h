// Looks at cancellation for loops whose elements take unequal times, such as texts, room for the
// texts that they make, and sorts that look. Where elements are alike, see pieces_cpu.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/cpu/pieces_cpu.h"

namespace monograph {

// Counts work in units of about a nanosecond, and looks whenever a piece of it has come together.
// Of one thread.
class Looks {
 public:
  Looks() = default;  // of no step, which never ends
  explicit Looks(const KernelContext& c) : c_(&c) {}

  // Before so much more work: false once the step is aborted, and nobody will read the result.
  bool GoOn(int64_t work) {
    left_ -= work;
    if (left_ > 0) [[likely]]
      return !stopped_;
    left_ = kPiece;
    stopped_ = stopped_ || (c_ != nullptr && c_->cancelled());
    return !stopped_;
  }
  // The same for a text that is read or written.
  bool GoOn(std::string_view text) { return GoOn(kPerText + static_cast<int64_t>(text.size())); }

  // Before strings of the kernel's outputs take so many more bytes (KernelContext::RoomForStrings,
  // which is asked for many small ones at once): false once there is no room; GoOn then says so,
  // too.
  bool RoomFor(size_t bytes) {
    asked_ += bytes;
    if (asked_ < kAsk) [[likely]]
      return !stopped_;
    stopped_ = stopped_ || (c_ != nullptr && !c_->RoomForStrings(asked_));
    asked_ = 0;
    return !stopped_;
  }
  // The same for a string of `size` bytes, which then has the memory for them.
  bool Reserve(std::string* text, size_t size) {
    const size_t before = text->capacity();
    if (size <= before) return !stopped_;
    // As the string grows: to twice what it has, at least.
    if (!RoomFor(std::max(size, 2 * before) - before)) return false;
    text->reserve(size);
    return true;
  }

 private:
  static constexpr int64_t kPerText = 32;
  static constexpr size_t kAsk = size_t{1} << 16;

  const KernelContext* c_ = nullptr;
  int64_t left_ = kPiece;
  size_t asked_ = 0;
  bool stopped_ = false;
};

// Calls fn(part) for the parts of a text, all but the last of a multiple of 12 bytes (whole groups
// of base64), with a look before each. False: the rest is left out.
template <typename Fn>
bool InParts(Looks* looks, std::string_view text, const Fn& fn) {
  constexpr size_t kPart = size_t{12} << 12;
  if (text.size() <= kPart) {
    if (!looks->GoOn(text)) return false;
    fn(text);
    return true;
  }
  for (; !text.empty(); text.remove_prefix(std::min(kPart, text.size()))) {
    const std::string_view part = text.substr(0, kPart);
    if (!looks->GoOn(part)) return false;
    fn(part);
  }
  return true;
}

// Puts `text` behind what `to` has, a string of the kernel's outputs. False: as above, or there is
// no room.
inline bool AppendText(Looks* looks, std::string_view text, std::string* to) {
  if (!looks->Reserve(to, to->size() + text.size())) return false;
  return InParts(looks, text, [to](std::string_view part) { to->append(part); });
}

// Sorts; equal elements keep their order. False, and in no order: the step is aborted.
template <typename T, typename Less>
bool StableSort(const KernelContext& c, std::vector<T>* elements, const Less& less) {
  const auto n = static_cast<int64_t>(elements->size());
  T* from = elements->data();
  if (n <= kPiece) {
    std::stable_sort(from, from + n, less);
    return true;
  }
  constexpr int64_t kRun = 4096;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    if (c.cancelled()) return false;
    std::stable_sort(from + begin, from + std::min(n, begin + kRun), less);
  }
  std::vector<T> other(elements->size());
  T* to = other.data();
  Looks looks(c);
  for (int64_t width = kRun; width < n; width *= 2, std::swap(from, to)) {
    for (int64_t begin = 0; begin < n; begin += 2 * width) {
      const int64_t middle = std::min(n, begin + width), end = std::min(n, middle + width);
      for (int64_t a = begin, b = middle, at = begin; at < end; ++at) {
        if (!looks.GoOn(10)) return false;
        to[at] = b == end || (a < middle && !less(from[b], from[a])) ? from[a++] : from[b++];
      }
    }
  }
  if (from != elements->data()) elements->swap(other);
  return true;
}

// As std::nth_element: nothing before place n is larger than what it gets, nothing behind smaller.
template <typename T, typename Less>
bool NthElement(const KernelContext& c, std::span<T> elements, int64_t n, const Less& less) {
  int64_t begin = 0, end = static_cast<int64_t>(elements.size());
  T* const at = elements.data();
  Looks looks(c);
  // Each round leaves the part that place n is in. Elements equal to the pivot go to both, so that
  // equal ones are halved, too; with a pivot of few samples a round may leave most, which only
  // costs time.
  for (uint64_t draw = 1; end - begin > kPiece;) {
    T samples[9];
    for (T& sample : samples) {
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      sample = at[begin + static_cast<int64_t>((draw >> 33) % static_cast<uint64_t>(end - begin))];
    }
    std::nth_element(samples, samples + 4, samples + 9, less);
    const T pivot = samples[4];
    int64_t i = begin, k = end - 1;
    while (i <= k) {
      if (!looks.GoOn(8)) return false;
      if (less(at[i], pivot)) {
        ++i;
      } else if (less(pivot, at[k])) {
        --k;
      } else {
        std::swap(at[i++], at[k--]);
      }
    }
    if (n <= k) {
      end = k + 1;
    } else if (n >= i) {
      begin = i;
    } else {
      return true;  // between the two: an element equal to the pivot
    }
  }
  std::nth_element(at + begin, at + n, at + end, less);
  return !c.cancelled();
}

}  // namespace monograph
