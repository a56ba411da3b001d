#include "ops/input/idx.h"

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void idx(std::string_view bytes) {
  static MemoryFile file;
  const std::string& path = file.Fill(bytes);
  for (const int rank : {1, 3}) {
    const Result<IdxArray> array = ReadIdx(path, rank);
    if (!array.ok()) continue;
    size_t product = 1;
    for (const int64_t dim : array->dims) product *= static_cast<size_t>(dim);
    MG_CHECK(array->values.size() == product);
  }
}

}  // namespace monograph::fuzz
