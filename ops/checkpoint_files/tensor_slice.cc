#include "ops/checkpoint_files/tensor_slice.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace monograph {
namespace {

// Takes what stands before `mark` off `text`; all of it if the mark is not there.
std::string_view TakeUntil(char mark, std::string_view* text) {
  const size_t at = std::min(text->find(mark), text->size());
  const std::string_view word = text->substr(0, at);
  text->remove_prefix(std::min(at + 1, text->size()));
  return word;
}

bool ParseWhole(std::string_view word, int64_t* number) {
  const auto [after, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
  return error == std::errc() && after == word.data() + word.size() && *number >= 0;
}

Status NoSlice(const std::string& text, const std::string& why) {
  return InvalidArgument("the slice '" + text + "' " + why +
                         "; rows 3 to 6 of a [7, 2] are '7 2 3,4:-'");
}

}  // namespace

Result<ShapeAndSlice> ParseShapeAndSlice(const std::string& text) {
  ShapeAndSlice parsed;
  if (text.empty()) return parsed;
  parsed.has_shape = true;
  std::vector<int64_t> dims;
  std::string_view rest = text;
  while (rest.find(' ') != std::string_view::npos) {
    const std::string_view word = TakeUntil(' ', &rest);
    if (!ParseWhole(word, &dims.emplace_back())) return NoSlice(text, "has no shape in front");
  }
  const Result<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return shape.status().WithContext("the slice '" + text + "'");
  parsed.whole = *shape;
  while (!rest.empty()) {
    std::string_view extent = TakeUntil(':', &rest);
    SliceExtent& added = parsed.slice.emplace_back();
    if (extent == "-") continue;
    const std::string_view start = TakeUntil(',', &extent);
    if (!ParseWhole(start, &added.start) || !ParseWhole(extent, &added.length))
      return NoSlice(text, "has an extent that is neither '-' nor 'START,LENGTH'");
  }
  if (parsed.slice.size() != dims.size())
    return NoSlice(text, "has " + std::to_string(parsed.slice.size()) + " extents for " +
                             std::to_string(dims.size()) + " dimensions");
  const Result<Box> box = BoxOf(parsed.slice, parsed.whole);
  if (!box.ok()) return NoSlice(text, box.status().message());
  return parsed;
}

Box Box::Whole(const Shape& shape) {
  return {std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0), shape};
}

bool Box::IsRowsOf(const Shape& whole) const {
  for (int i = 1; i < whole.rank(); ++i) {
    if (shape[i] != whole[i]) return false;
  }
  return true;
}

Result<Box> BoxOf(const TensorSlice& slice, const Shape& whole) {
  Box box = Box::Whole(whole);
  if (slice.empty()) return box;
  if (slice.size() != box.begin.size())
    return InvalidArgument("has " + std::to_string(slice.size()) + " extents, the tensor is " +
                           whole.ToString());
  for (int i = 0; i < whole.rank(); ++i) {
    const SliceExtent& extent = slice[static_cast<size_t>(i)];
    if (extent.length < 0) continue;
    if (extent.start < 0 || extent.start > whole[i] || extent.length > whole[i] - extent.start)
      return InvalidArgument("is not inside of " + whole.ToString());
    box.begin[static_cast<size_t>(i)] = extent.start;
    box.shape.set_dim(i, extent.length);
  }
  return box;
}

int64_t CopyShared(const Box& source, const Box& target, const CopyRun& copy) {
  const int rank = source.shape.rank();
  if (rank == 0) {
    copy(0, 0, 1);
    return 1;
  }
  // Of each dimension: where the shared box begins and how long it is.
  std::vector<int64_t> begin, length;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
    const int dim = static_cast<int>(i);
    begin.push_back(std::max(source.begin[i], target.begin[i]));
    length.push_back(
        std::min(source.begin[i] + source.shape[dim], target.begin[i] + target.shape[dim]) -
        begin[i]);
    if (length[i] <= 0) return 0;
  }
  const auto position = [&](const Box& box, const std::vector<int64_t>& at) {
    int64_t index = 0;
    for (size_t i = 0; i < at.size(); ++i)
      index = index * box.shape[static_cast<int>(i)] + at[i] - box.begin[i];
    return index;
  };
  const size_t last = begin.size() - 1;
  int64_t copied = 0;
  for (std::vector<int64_t> at = begin;;) {
    copy(position(source, at), position(target, at), length[last]);
    copied += length[last];
    size_t dim = last;  // which is copied as a whole; the others count up, the last of them fastest
    while (dim > 0 && ++at[dim - 1] == begin[dim - 1] + length[dim - 1]) {
      at[dim - 1] = begin[dim - 1];
      --dim;
    }
    if (dim == 0) return copied;
  }
}

int64_t CopyTensorBox(const Tensor& from, const Box& source, Tensor* to, const Box& target) {
  if (from.dtype() == DT_STRING) {
    return CopyShared(source, target, [&](int64_t at, int64_t there, int64_t count) {
      std::copy_n(from.strings() + at, count, to->strings() + there);
    });
  }
  const size_t size = DTypeSize(from.dtype());
  return CopyShared(source, target, [&](int64_t at, int64_t there, int64_t count) {
    std::memcpy(static_cast<char*>(to->raw()) + size * static_cast<size_t>(there),
                static_cast<const char*>(from.raw()) + size * static_cast<size_t>(at),
                size * static_cast<size_t>(count));
  });
}

}  // namespace monograph
