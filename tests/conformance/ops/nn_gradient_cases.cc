#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {

std::vector<GradientCase> NnGradientCases() { return {}; }

}  // namespace monograph::optest
