// Shape: the dimensions of a tensor. PartialShape: what is known of them before a step runs.
// Both are plain values of at most kMaxRank dimensions, without heap memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/status.h"

namespace monograph {

// TensorFlow's kernels take eight at most, but its gradient of Tile has two for each of the
// input's.
inline constexpr int kMaxRank = 12;

class Shape {
 public:
  Shape() = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  // REQUIRES: at most kMaxRank dimensions, none negative. For sizes that a user gave, use Make.
  explicit Shape(std::span<const int64_t> dims);

  // InvalidArgument if there are more than kMaxRank dimensions, one is negative, or the number of
  // elements does not fit in 63 bits.
  static Result<Shape> Make(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t dim(int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  void set_dim(int i, int64_t size) { dims_[static_cast<size_t>(i)] = size; }
  void AddDim(int64_t size);  // REQUIRES: rank() < kMaxRank
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  std::string ToString() const;  // "[2,3]", "[]"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};  // 0 from rank_ on
  int rank_ = 0;
};

// A shape whose rank or some of whose dimensions may be unknown. An unknown dimension is -1.
class PartialShape {
 public:
  PartialShape() = default;  // unknown rank
  PartialShape(std::initializer_list<int64_t> dims)
      : PartialShape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  // REQUIRES: at most kMaxRank dimensions, each -1 or more.
  explicit PartialShape(std::span<const int64_t> dims);
  PartialShape(const Shape& shape) : PartialShape(shape.dims()) {}  // NOLINT(runtime/explicit)

  static PartialShape Scalar() { return PartialShape(std::span<const int64_t>()); }
  static PartialShape UnknownOfRank(int rank);

  bool known_rank() const { return rank_ >= 0; }
  int rank() const { return rank_; }  // -1: unknown
  int64_t dim(int i) const { return dims_[static_cast<size_t>(i)]; }
  std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_ < 0 ? 0 : rank_)};
  }
  void set_dim(int i, int64_t size) { dims_[static_cast<size_t>(i)] = size; }
  void AddDim(int64_t size);  // REQUIRES: known_rank(), rank() < kMaxRank
  bool fully_known() const;
  // -1 unless fully known; the largest int64 if no int64 holds the number.
  int64_t elements() const;
  Shape AsShape() const;         // REQUIRES: fully_known()
  std::string ToString() const;  // "[?,784]", "<unknown>"

  // True if a tensor of `shape` may flow where this is expected.
  bool Accepts(const Shape& shape) const;
  // The dimensions that `a` or `b` knows. InvalidArgument if they contradict each other.
  static Result<PartialShape> Merge(const PartialShape& a, const PartialShape& b);

  friend bool operator==(const PartialShape&, const PartialShape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};  // 0 from rank_ on
  int rank_ = -1;
};

// NumPy's broadcasting. InvalidArgument names both shapes.
Result<Shape> BroadcastShapes(const Shape& a, const Shape& b);
Result<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b);

}  // namespace monograph
