// libFuzzer's entry points for the target MG_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "base/log.h"
#include "base/status.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  monograph::SetLogLevel(monograph::LogLevel::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::clock_t before = std::clock();
  monograph::fuzz::MG_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  MG_CHECK(std::clock() - before < 2 * CLOCKS_PER_SEC);  // on a busy machine, too
  return 0;
}
