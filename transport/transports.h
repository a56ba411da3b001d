// Which transports a task makes for its sessions, and what its user sets of them. What a transport
// does: transport/transport.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/control/key_ring.h"
#include "transport/transport.h"

namespace monograph {

// How tensors in a GPU's memory go to other tasks, and come from there.
enum class GpuTransfers : uint8_t {
  kAuto,    // as kDirect where both tasks can, else as kStaged
  kDirect,  // UCX reads and writes the GPU's memory; two tasks with GPUs that cannot do not meet
  kStaged,  // by way of pinned host memory
};

struct TransportOptions {
  // UCX's lanes (UCX_TLS) and our own: "posix,cma", "rc", "tcp", "tls", ... Empty: shared memory,
  // InfiniBand, in a trusted network TCP (transport/ucx/ucx_lanes.h), and tls with a key. A lane
  // that this machine lacks is InvalidArgument, naming those it has. "reference": large payloads
  // between tasks of this host that all have it are read where they lie; a program that serves no
  // task has it only if it is named.
  std::string lanes = {};
  // UCX_NET_DEVICES. Empty: those of the trusted network and RDMA's.
  std::string net_devices = {};
  // Where a daemon takes tensors from tasks that it shares neither memory nor a trusted network
  // with. 0: a free port.
  int data_port = 0;
  // Networks in which UCX may use TCP: {"10.0.0.0/24"}. Everyone in them, and every user of their
  // hosts, can then end this process, and read and change its tensors. Empty: UCX opens no port.
  std::vector<std::string> trusted_network = {};
  GpuTransfers gpu_transfers = GpuTransfers::kAuto;
  // How long an idle progress thread spins before it sleeps.
  std::chrono::microseconds spin{50};
};

// Where a task's data plane stands in the cluster.
struct TransportSite {
  // Every task that it is to reach is on this machine, so that messages need not leave it.
  bool loopback = false;
  // The task has GPUs.
  bool gpus = false;
  // Tasks that share neither memory nor a trusted network meet by TLS with this key.
  std::optional<control::KeyRing> key = {};
  // Where it listens for them, and the name by which they find that. Empty: it dials only.
  std::string bind_address = {}, advertised_host = {};
};

// Makes transports that choose a way for each peer (transport/lanes/lanes_transport.h). What is
// slow, and what can be refused (InvalidArgument), happens here, and the port for data is opened: a
// transport is then made in milliseconds.
Result<TransportFactory> ChooseTransport(TransportOptions options, const TransportSite& site);

// What options.trusted_network trusts, in one line for a log; empty: nobody.
std::string DescribeTrust(const TransportOptions& options);

// UCX catches signals when it is loaded: those of crashes, and SIGHUP, which then no longer ends a
// process whose terminal is closed. This restores what each of them did before; under nohup SIGHUP
// is ignored again. It leaves those alone that the user gave to UCX (UCX_HANDLE_ERRORS,
// UCX_DEBUG_SIGNO). Call it before a handler of your own is set.
void ReleaseUcxSignals();

}  // namespace monograph
