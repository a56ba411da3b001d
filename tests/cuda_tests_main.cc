// Runs the tests of a library that links CUDA's libraries, which it opens: so the program starts
// where these are absent, and says so.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/gpu/beside_plugin.h"

int main(int argc, char** argv) {
  if (dlopen(monograph::testing::BesidePlugin(MG_CUDA_TESTS).c_str(), RTLD_NOW) == nullptr) {
    const std::string why = dlerror();
    std::printf("[  SKIPPED ] all tests: %s\n", why.c_str());
    // Anything else that is missing is a fault.
    return why.starts_with("libcublasLt.so") || why.starts_with("libcudnn") ? 0 : 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
