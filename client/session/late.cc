#include "client/session/late.h"

#include <algorithm>

#include "executor/step/unfinished.h"

namespace monograph {
namespace {

constexpr size_t kMostListed = 8;

bool WaitsForOthers(const LatePart& part) {
  return part.what.empty() || part.what.starts_with(Unfinished::kAwaits);
}

}  // namespace

std::string DescribeLateParts(std::vector<LatePart> parts) {
  std::stable_partition(parts.begin(), parts.end(),
                        [](const LatePart& part) { return !WaitsForOthers(part); });
  std::string text;
  for (size_t i = 0; i < parts.size() && i < kMostListed; ++i) {
    text += (i == 0 ? "" : ", ") + parts[i].task;
    if (!parts[i].what.empty()) text += " (" + parts[i].what + ")";
  }
  if (parts.size() > kMostListed)
    text += ", and " + std::to_string(parts.size() - kMostListed) + " more";
  return text;
}

}  // namespace monograph
