// The real cuDNN beside the emulated one: what needs no GPU is its own.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace monograph::emulated {

template <typename Fn>
Fn* Real(const char* name) {
  static void* const library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "emulated GPU: no %s: %s\n", name, dlerror());
    std::abort();
  }
  return reinterpret_cast<Fn*>(found);
}

}  // namespace monograph::emulated

#define REAL(name) ::monograph::emulated::Real<decltype(name)>(#name)
