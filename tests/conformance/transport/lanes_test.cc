#include "tests/conformance/transport/transport_suite.h"
#include "transport/control/key.h"
#include "transport/transports.h"

namespace monograph {
namespace {

// Tasks of one machine with a key. All transports of the program share a port, as those of a
// process do.
TransportCase Lanes(std::string name, std::string lanes, std::string expected_lane,
                    bool by_reference = false) {
  return {.name = std::move(name),
          .make = [lanes = std::move(lanes), factory = TransportFactory()](
                      MessageHandler* handler) mutable -> Result<std::unique_ptr<Transport>> {
            if (!factory) {
              MG_ASSIGN_OR_RETURN(const control::Key key, control::GenerateKey());
              MG_ASSIGN_OR_RETURN(
                  factory,
                  ChooseTransport({.lanes = lanes},
                                  {.loopback = true, .key = key, .bind_address = "127.0.0.1"}));
            }
            return factory(handler);
          },
          .by_reference = by_reference,
          .expected_lane = std::move(expected_lane)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Lanes, TransportConformance,
                         ::testing::Values(Lanes("shared_memory", "^reference", "shm(posix"),
                                           Lanes("by_reference", "", "shm(posix", true),
                                           Lanes("tls_alone", "tls", "tls 1.3")),
                         CaseName);

}  // namespace monograph
