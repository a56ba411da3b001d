// A driver that answers nothing, but for what the environment said when it was opened.
#include <cstdlib>
#include <string>

namespace {

const std::string loading = [] {
  const char* text = std::getenv("CUDA_MODULE_LOADING");
  return std::string(text == nullptr ? "unset" : text);
}();

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* monograph_fake_driver_loading();
extern "C" const char* monograph_fake_driver_loading() { return loading.c_str(); }
