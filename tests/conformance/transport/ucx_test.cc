#include "tests/conformance/transport/transport_suite.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {
namespace {

TransportCase Ucx(std::string name, std::string lanes, std::string expected_lane) {
  const TransportOptions options{.lanes = std::move(lanes), .net_devices = "lo"};
  return {.name = std::move(name),
          .make = [options](MessageHandler* handler) { return MakeUcxTransport(options, handler); },
          .expected_lane = std::move(expected_lane)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(Ucx("chosen_by_ucx", "", "shm("),
                                         Ucx("shared_memory", "posix,cma", "shm(posix,cma)"),
                                         Ucx("shared_memory_without_cma", "posix", "shm(posix)"),
                                         Ucx("tcp", "tcp", "tcp(lo)")),
                         CaseName);

}  // namespace monograph
