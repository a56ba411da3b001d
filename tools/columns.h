// AlignColumns: rows of words as a table of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace monograph {

// Columns as wide as their widest word, two spaces apart; the first `left` columns begin at their
// left edge, the others end at their right one.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows, size_t left = 1);

}  // namespace monograph
