#include "tests/conformance/transport/transport_suite.h"
#include "tests/transport/inproc_transport.h"

namespace monograph {

INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance,
                         ::testing::Values(TransportCase{.name = "inproc",
                                                         .make = [](MessageHandler* handler)
                                                             -> Result<std::unique_ptr<Transport>> {
                                                           return MakeInprocTransport(handler);
                                                         },
                                                         .by_reference = true,
                                                         .expected_lane = "by reference"}),
                         CaseName);

}  // namespace monograph
