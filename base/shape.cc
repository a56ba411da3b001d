// Shape and PartialShape: construction, text, merging and broadcasting. Make, Merge and
// BroadcastShapes meet sizes that come from a user and return a Status; elsewhere a wrong argument
// is a bug of ours and fails an MG_CHECK. In a PartialShape -1 stands for an unknown dimension, and
// a rank below 0 for an unknown rank.
#include "base/shape.h"

#include <algorithm>
#include <limits>

namespace monograph {
namespace {

std::string DimsToString(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += dims[i] < 0 ? "?" : std::to_string(dims[i]);
  }
  return text + "]";
}

Status TooLarge(const std::string& a, const std::string& b) {
  return InvalidArgument("shapes " + a + " and " + b +
                         " broadcast together have more than 2^63 elements");
}

}  // namespace

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  MG_CHECK(dims.size() <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

Result<Shape> Shape::Make(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return InvalidArgument("shape " + DimsToString(dims) + " has " + std::to_string(dims.size()) +
                           " dimensions; at most " + std::to_string(kMaxRank) + " are supported");
  }
  int64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim < 0)
      return InvalidArgument("shape " + DimsToString(dims) + " has a negative dimension");
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      return InvalidArgument("shape " + DimsToString(dims) + " has more than 2^63 elements");
    }
  }
  return Shape(dims);
}

void Shape::AddDim(int64_t size) {
  MG_CHECK(rank_ < kMaxRank);
  dims_[static_cast<size_t>(rank_++)] = size;
}

std::string Shape::ToString() const { return DimsToString(dims()); }

PartialShape::PartialShape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  MG_CHECK(dims.size() <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

PartialShape PartialShape::UnknownOfRank(int rank) {
  PartialShape shape = Scalar();
  for (int i = 0; i < rank; ++i) shape.AddDim(-1);
  return shape;
}

void PartialShape::AddDim(int64_t size) {
  MG_CHECK(rank_ >= 0 && rank_ < kMaxRank);
  dims_[static_cast<size_t>(rank_++)] = size;
}

bool PartialShape::fully_known() const {
  if (rank_ < 0) return false;
  for (int64_t dim : dims()) {
    if (dim < 0) return false;
  }
  return true;
}

int64_t PartialShape::elements() const {
  if (!fully_known()) return -1;
  if (std::find(dims().begin(), dims().end(), 0) != dims().end()) return 0;
  int64_t product = 1;
  for (int64_t dim : dims()) {
    if (__builtin_mul_overflow(product, dim, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

Shape PartialShape::AsShape() const {
  MG_CHECK(fully_known());
  return Shape(dims());
}

std::string PartialShape::ToString() const {
  return rank_ < 0 ? "<unknown>" : DimsToString(dims());
}

bool PartialShape::Accepts(const Shape& shape) const {
  if (rank_ < 0) return true;
  if (rank_ != shape.rank()) return false;
  for (int i = 0; i < rank_; ++i) {
    if (dim(i) >= 0 && dim(i) != shape.dim(i)) return false;
  }
  return true;
}

Result<PartialShape> PartialShape::Merge(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank()) return b;
  if (!b.known_rank()) return a;
  PartialShape merged = a;
  bool fits = a.rank_ == b.rank_;
  for (int i = 0; fits && i < a.rank_; ++i) {
    if (a.dim(i) < 0) {
      merged.set_dim(i, b.dim(i));
    } else if (b.dim(i) >= 0 && b.dim(i) != a.dim(i)) {
      fits = false;
    }
  }
  if (!fits)
    return InvalidArgument("shapes " + a.ToString() + " and " + b.ToString() + " do not agree");
  return merged;
}

Result<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  int64_t elements = 1;
  bool wraps = false;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia), db = ib < 0 ? 1 : b.dim(ib);
    if (da != db && da != 1 && db != 1) {
      return InvalidArgument("shapes " + a.ToString() + " and " + b.ToString() +
                             " cannot be broadcast together");
    }
    out.AddDim(da == 1 ? db : da);
    wraps |= __builtin_mul_overflow(elements, out.dim(i), &elements);
  }
  if (wraps) return TooLarge(a.ToString(), b.ToString());
  return out;
}

Result<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank()) return PartialShape();
  const int rank = std::max(a.rank(), b.rank());
  PartialShape out = PartialShape::Scalar();
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia), db = ib < 0 ? 1 : b.dim(ib);
    if (da == 1) {
      out.AddDim(db);
    } else if (db == 1) {
      out.AddDim(da);
    } else if (da < 0 || db < 0) {
      out.AddDim(std::max(da, db));
    } else if (da == db) {
      out.AddDim(da);
    } else {
      return InvalidArgument("shapes " + a.ToString() + " and " + b.ToString() +
                             " cannot be broadcast together");
    }
  }
  if (out.fully_known() && !Shape::Make(out.dims()).ok())
    return TooLarge(a.ToString(), b.ToString());
  return out;
}

}  // namespace monograph
