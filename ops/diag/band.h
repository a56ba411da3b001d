// The geometry of diagonals: what shape functions and kernels check.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/shape.h"
#include "base/status.h"
#include "graph/attr.h"

namespace monograph::ops::diag {

// Some neighbouring diagonals of a matrix.
struct Band {
  int64_t rows = 0, columns = 0;
  int64_t lowest = 0, highest = 0;
  bool upper_left = true, lower_left = true;  // where the short ones above and below 0 stand

  int64_t count() const { return highest - lowest + 1; }
  int64_t longest() const {
    return std::min(rows + std::min<int64_t>(highest, 0), columns - std::max<int64_t>(lowest, 0));
  }
  int64_t Length(int64_t d) const {
    return std::min(rows + std::min<int64_t>(d, 0), columns - std::max<int64_t>(d, 0));
  }
  // Where diagonal d begins in its row of the band.
  int64_t Offset(int64_t d) const {
    const bool left = (d >= 0 && upper_left) || (d <= 0 && lower_left);
    return left ? 0 : longest() - Length(d);
  }
  // Calls fn(first place in the matrix, first place in the band, length); the steps in the matrix
  // are columns + 1.
  template <typename Fn>
  void ForDiagonals(const Fn& fn) const {
    for (int64_t d = highest; d >= lowest; --d) {
      const int64_t first = d >= 0 ? d : -d * columns;
      fn(first, (highest - d) * longest() + Offset(d), Length(d));
    }
  }
};

// Which diagonals `k` says, and how `align` (none: as the second versions) puts them.
inline Result<Band> ParseBand(const Attrs& attrs, std::span<const int64_t> k) {
  if (k.empty() || k.size() > 2 || k[0] > k[k.size() - 1]) {
    std::string given;
    for (int64_t value : k) given += (given.empty() ? "" : ", ") + std::to_string(value);
    return InvalidArgument("k must be a diagonal, or the lowest and the highest of some, got [" +
                           given + "]");
  }
  Band band;
  band.lowest = k[0], band.highest = k[k.size() - 1];
  const std::string align = attrs.GetOr<std::string>("align", "LEFT_LEFT");
  band.upper_left = align.starts_with("LEFT");
  band.lower_left = align.ends_with("LEFT");
  return band;
}

// That the matrix has these diagonals.
inline Status CheckBand(const Band& band) {
  const auto inside = [&](int64_t d) { return d == 0 || (d > -band.rows && d < band.columns); };
  if (inside(band.lowest) && inside(band.highest)) return Status();
  return InvalidArgument("diagonals " + std::to_string(band.lowest) + " to " +
                         std::to_string(band.highest) + " are not all in a matrix of " +
                         std::to_string(band.rows) + " rows and " + std::to_string(band.columns) +
                         " columns");
}

// The size of a matrix whose longest diagonal has this length; -1 for sizes that are not given.
inline Status SizeMatrix(Band* band, int64_t longest, int64_t rows, int64_t columns) {
  int64_t least_rows = 0, least_columns = 0;
  if (__builtin_sub_overflow(longest, std::min<int64_t>(band->highest, 0), &least_rows) ||
      __builtin_add_overflow(longest, std::max<int64_t>(band->lowest, 0), &least_columns)) {
    return InvalidArgument("a matrix with a diagonal of " + std::to_string(longest) +
                           " elements is too large");
  }
  if (rows == -1 && columns == -1) {
    rows = columns = std::max(least_rows, least_columns);
  } else if (rows == -1) {
    rows = least_rows;
  } else if (columns == -1) {
    columns = least_columns;
  }
  if (rows < least_rows || columns < least_columns ||
      (rows != least_rows && columns != least_columns)) {
    return InvalidArgument("a matrix of " + std::to_string(rows) + " rows and " +
                           std::to_string(columns) + " columns does not have diagonals " +
                           std::to_string(band->lowest) + " to " + std::to_string(band->highest) +
                           " of which the longest has " + std::to_string(longest) + " elements");
  }
  band->rows = rows, band->columns = columns;
  return CheckBand(*band);
}

}  // namespace monograph::ops::diag
