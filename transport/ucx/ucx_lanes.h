// Which of UCX's lanes a transport uses: none that lets in whoever finds it. By default that is
// shared memory of mode 0600 (posix), reading of the peer's memory (cma), InfiniBand's RDMA and
// what a CUDA-aware UCX has for GPUs. RDMA over Ethernet crosses an ordinary network, so it needs a
// trusted one, or to be named. UCX's TCP listens on a port at which 77 bytes end the
// process, so it needs a trusted network; SysV segments have mode 0660 and are never used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/transports.h"
#include "transport/trusted_network.h"

namespace monograph {

struct UcxLanes {
  std::string names;        // for UCX_TLS: "posix,cma"
  std::string net_devices;  // for UCX_NET_DEVICES; empty: UCX chooses
  bool shared_memory = false;
  bool tcp = false;
  bool rdma = false;
  bool gpu_memory = false;         // UCX knows CUDA's memory, and may: SharedUcxContext fills it in
  std::vector<uint64_t> fabrics;   // of RDMA: a number for each network that a device is on
  std::vector<IpNetwork> trusted;  // where TCP is taken from
  std::vector<IpNetwork> addresses;  // where TCP listens
};

// Follows the options or, where they are set, UCX_TLS and UCX_NET_DEVICES of the environment. What
// these name and what may not be is left out with a warning. InvalidArgument for a lane or device
// of the options that this machine lacks or that may not be, naming those that can be.
Result<UcxLanes> ChooseUcxLanes(const TransportOptions& options);

}  // namespace monograph
