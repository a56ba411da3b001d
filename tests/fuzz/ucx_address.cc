#include "transport/ucx/ucx_address.h"

#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void ucx_address(std::string_view bytes) {
  if (const Result<UcxAddress> address = DecodeUcxAddress(bytes); address.ok())
    MG_CHECK(EncodeUcxAddress(*address).substr(8) == bytes.substr(8));
  if (bytes.empty()) return;
  // Past the checksum: the bytes in the place of UCX's own.
  UcxAddress address;
  address.worker_address = bytes;
  const Result<UcxAddress> read = DecodeUcxAddress(EncodeUcxAddress(address));
  MG_CHECK(read.ok() && read->worker_address == bytes);
}

}  // namespace monograph::fuzz
