// Which transports the tasks of a simulation make: those over the simulated network, of the machine
// that the task's address names, or for a client of the calling thread's machine. In the place of
// transport/transports.cc.
#include "transport/transports.h"

#include "tests/simulation/host.h"
#include "tests/simulation/network.h"
#include "tests/simulation/sim_transport.h"

namespace monograph {

Result<TransportFactory> ChooseTransport(TransportOptions, const TransportSite& site) {
  simulation::Network& network = simulation::Network::Current();
  const int named = network.HostNamed(site.advertised_host);
  const simulation::Site own = network.SiteOf(named < 0 ? simulation::CurrentHost() : named);
  return TransportFactory(
      [&network, own](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
        return simulation::MakeSimTransport(&network, own, handler);
      });
}

std::string DescribeTrust(const TransportOptions&) { return ""; }

void ReleaseUcxSignals() {}  // there is no UCX

}  // namespace monograph
