#pragma once

#include <string>
#include <vector>

#include "graph/names.h"

namespace monograph {

// "'a', 'b'", or "none".
inline std::string QuotedList(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + Quoted(word);
  return text.empty() ? "none" : text;
}

}  // namespace monograph
