// Which transport a task has as its data plane, and what its user sets of it. What a transport
// does: transport/transport.h.
#pragma once

#include <chrono>
#include <string>

#include "transport/transport.h"

namespace monograph {

struct TransportOptions {
  // UCX_TLS: empty lets UCX choose ("posix,cma", "tcp", ...). A lane that this machine lacks is
  // InvalidArgument, naming those it has.
  std::string lanes = {};
  // UCX_NET_DEVICES. Empty: "lo" if every task is on this machine, else UCX chooses.
  std::string net_devices = {};
  // How long an idle progress thread spins before it sleeps.
  std::chrono::microseconds spin{50};
};

// The transport that the options name. `loopback`: every task that it is to reach is on this
// machine, so that its messages need not leave it.
TransportFactory ChooseTransport(TransportOptions options, bool loopback);

// UCX catches signals when it is loaded: those of crashes, and SIGHUP, which then no longer ends a
// process whose terminal is closed. This restores what each of them did before; under nohup SIGHUP
// is ignored again. It leaves those alone that the user gave to UCX (UCX_HANDLE_ERRORS,
// UCX_DEBUG_SIGNO). Call it before a handler of your own is set.
void ReleaseUcxSignals();

}  // namespace monograph
