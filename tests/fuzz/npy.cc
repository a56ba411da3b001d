#include "tools/npy.h"

#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void npy(std::string_view bytes) {
  for (const DType wanted : {DT_INVALID, DT_HALF}) {
    const Result<Tensor> tensor = ParseNpy(bytes, "x.npy", wanted);
    if (tensor.ok() && tensor->dtype() != DT_STRING) MG_CHECK(tensor->bytes() <= bytes.size());
  }
}

}  // namespace monograph::fuzz
