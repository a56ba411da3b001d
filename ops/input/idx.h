// IDX: the file format of MNIST and Fashion-MNIST, plain or compressed by gzip.
//
//   file   = 0x00 0x00 type rank dim{rank} value*
//   type   = 0x08 (unsigned byte), the only one here
//   dim    = 32 bits, big-endian
//
// The values come row by row, as many as the dimensions' product.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
  std::vector<std::shared_ptr<void>> room = {};  // of the host's pool, for the values
};

// Reads a whole file of `rank` dimensions. NotFound if there is no such file; DataLoss names the
// path, what is wrong, what was expected and what was found: no IDX file, another rank or type,
// fewer or more bytes than the dimensions say, a damaged gzip stream. ResourceExhausted if the
// values are more than the process may take (--memory_limit).
Result<IdxArray> ReadIdx(const std::string& path, int rank);

}  // namespace monograph
