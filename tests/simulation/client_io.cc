// The io thread that the channels of a process share: here one for each simulated process. In the
// place of transport/control/client_io.cc.
#include <utility>
// The first line is for Asio's coroutine headers, which use std::exchange.
#include "tests/simulation/host.h"
#include "tests/simulation/network.h"
#include "transport/control/client_io.h"

namespace monograph::control {

ClientIo& ClientIo::Get() {
  using simulation::Network;
  Network& network = Network::Current();
  const std::shared_ptr<void> io = network.OfProcess(network.SiteOf(simulation::CurrentHost()),
                                                     [] { return std::make_shared<ClientIo>(); });
  return *static_cast<ClientIo*>(io.get());
}

}  // namespace monograph::control
