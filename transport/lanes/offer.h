// What two tasks can do for each other, and which way they take. Both come to the same choice from
// the same two offers, whichever is theirs.
//
//   offer    = "MGLN" version:u8 flags:u8 ucx_major:u8 ucx_minor:u8 host:u64 memory:u64
//              fabrics:u8 fabric:u64{fabrics} addresses:u8 network{addresses}
//              trusted:u8 network{trusted} names:bytes ucx:bytes tls:bytes crc:u32
//   network  = family:u8 bits:u8 byte[16]       family: 4 or 6
//   bytes    = length:u32 byte[length]
//   version  = 1
//   flags      1: UCX would use shared memory   2: the TLS transport listens
//              4: the task has GPUs             8: whose memory UCX reads and writes
//             16: it has to (--gpu_transfers)  32: it may not
//   host       names the host; 0: not known
//   memory     MemorySpace(); 0: no other process shares memory with the task
//   fabric     names a network of RDMA devices that the task is on
//   address    of the task's in a trusted network, where UCX's TCP listens; all its bits
//   trusted    networks from which the task takes UCX's TCP
//   names      UCX's lanes, for messages
//   ucx, tls = the address of that transport; empty: not offered
//   crc      = CRC-32 of everything before it
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/trusted_network.h"

namespace monograph {

struct LanesOffer {
  uint8_t ucx_major = 0, ucx_minor = 0;
  uint64_t host = 0;
  uint64_t memory = 0;
  bool shared_memory = false;
  bool tls_listens = false;
  bool gpus = false, gpu_memory = false;
  bool gpu_direct = false, gpu_staged = false;  // GpuTransfers::kDirect, kStaged
  std::vector<uint64_t> fabrics;
  std::vector<IpNetwork> addresses, trusted;
  std::string names;
  std::string ucx, tls;
};

std::string EncodeLanesOffer(const LanesOffer& offer);
// InvalidArgument that says what is wrong.
Result<LanesOffer> DecodeLanesOffer(std::string_view bytes);

struct LaneChoice {
  enum class Way {
    kUcx,  // by the memory that both share, by RDMA or by TCP of a trusted network
    kTls
  };
  Way way = Way::kUcx;
  // Why a slower way was taken than the place of the two tasks suggests; else empty.
  std::string note;
  // UCX reads and writes the memory of the GPUs of both tasks.
  bool gpu_memory = false;
  // What becomes of that memory, and why; empty unless both have GPUs.
  std::string gpu_note;
};

// FailedPrecondition that says what each side offers, if no way suits both, or why memory of GPUs
// does not go directly though one of them insists.
Result<LaneChoice> ChooseLane(const LanesOffer& mine, const LanesOffer& theirs);

}  // namespace monograph
