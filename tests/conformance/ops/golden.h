// The reference cases of tests/golden/ops.
#pragma once

#include <string>
#include <vector>

#include "op_case.pb.h"

namespace monograph::optest {

struct GoldenFamily {
  std::string file;  // "array"
  OpCases cases;
};

// Read once; an unreadable file ends the process.
const std::vector<GoldenFamily>& GoldenFamilies();

}  // namespace monograph::optest
