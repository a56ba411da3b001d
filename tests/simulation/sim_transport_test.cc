// The simulated transport among those that every Transport has to be like, and what it does when
// its network is not well.
#include "tests/simulation/sim_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "tests/conformance/transport/transport_suite.h"

namespace monograph {
namespace {

using simulation::MakeSimTransport;
using simulation::Network;

// One network for all transports of the program, each on a machine of its own.
Network& TheNetwork() {
  static Network* network = new Network({});
  return *network;
}

TransportCase Simulated() {
  return {.name = "simulated",
          .make = [](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
            static std::atomic<int> hosts = 0;
            const int host = TheNetwork().AddHost("host-" + std::to_string(++hosts));
            return MakeSimTransport(&TheNetwork(), TheNetwork().SiteOf(host), handler);
          },
          .expected_lane = "simulated"};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Simulated, TransportConformance, testing::Values(Simulated()), CaseName);

}  // namespace monograph
