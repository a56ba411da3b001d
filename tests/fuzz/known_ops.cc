#include "tests/fuzz/known_ops.h"

#include "ops/register.h"

namespace monograph::fuzz {

const OpRegistry& KnownOps() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    DefineOps(registry);
    return registry;
  }();
  return *ops;
}

}  // namespace monograph::fuzz
