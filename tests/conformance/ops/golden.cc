#include "tests/conformance/ops/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/status.h"

namespace monograph::optest {

const std::vector<GoldenFamily>& GoldenFamilies() {
  static const std::vector<GoldenFamily>* const families = [] {
    auto* all = new std::vector<GoldenFamily>;
    for (const auto& entry : std::filesystem::directory_iterator(MG_GOLDEN_OPS)) {
      if (entry.path().extension() != ".pb") continue;
      GoldenFamily family{entry.path().stem(), {}};
      std::ifstream in(entry.path(), std::ios::binary);
      MG_CHECK(family.cases.ParseFromIstream(&in));
      all->push_back(std::move(family));
    }
    std::sort(all->begin(), all->end(),
              [](const auto& a, const auto& b) { return a.file < b.file; });
    MG_CHECK(!all->empty());
    return all;
  }();
  return *families;
}

}  // namespace monograph::optest
