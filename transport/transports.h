// Which transports a task makes for its sessions, and what its user sets of them. What a transport
// does: transport/transport.h.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace monograph {

struct TransportOptions {
  // UCX_TLS: "posix,cma", "rc", "tcp", ... Empty: shared memory, RDMA where there are devices and,
  // in a trusted network, TCP (transport/ucx/ucx_lanes.h). A lane that this machine lacks is
  // InvalidArgument, naming those it has.
  std::string lanes = {};
  // UCX_NET_DEVICES. Empty: those of the trusted network and RDMA's.
  std::string net_devices = {};
  // Networks in which UCX may use TCP: {"10.0.0.0/24"}. Everyone in them, and every user of their
  // hosts, can then end this process, and read and change its tensors. Empty: UCX opens no port.
  std::vector<std::string> trusted_network = {};
  // How long an idle progress thread spins before it sleeps.
  std::chrono::microseconds spin{50};
};

// Makes transports as the options say. `loopback`: every task that they are to reach is on this
// machine, so that messages need not leave it. What is slow, and what can be refused
// (InvalidArgument), happens here: a transport is then made in milliseconds.
Result<TransportFactory> ChooseTransport(TransportOptions options, bool loopback);

// What options.trusted_network trusts, in one line for a log; empty: nobody.
std::string DescribeTrust(const TransportOptions& options);

// UCX catches signals when it is loaded: those of crashes, and SIGHUP, which then no longer ends a
// process whose terminal is closed. This restores what each of them did before; under nohup SIGHUP
// is ignored again. It leaves those alone that the user gave to UCX (UCX_HANDLE_ERRORS,
// UCX_DEBUG_SIGNO). Call it before a handler of your own is set.
void ReleaseUcxSignals();

}  // namespace monograph
