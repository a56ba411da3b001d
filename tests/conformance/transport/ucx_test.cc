#include "tests/conformance/transport/transport_suite.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {
namespace {

TransportCase Ucx(std::string name, std::string lanes, std::string expected_lane,
                  bool by_reference = false) {
  TransportOptions options{.lanes = std::move(lanes), .net_devices = "lo"};
  if (options.lanes == "tcp") options.trusted_network = {"127.0.0.0/8"};
  return {.name = std::move(name),
          .make =
              [options, by_reference](MessageHandler* handler) {
                return MakeUcxTransport(options, handler, by_reference);
              },
          .by_reference = by_reference,
          .expected_lane = std::move(expected_lane)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         ::testing::Values(Ucx("by_default", "", "shm("),
                                           Ucx("shared_memory", "posix,cma", "shm(posix,cma)"),
                                           Ucx("shared_memory_without_cma", "posix", "shm(posix)"),
                                           Ucx("tcp", "tcp", "tcp(lo)"),
                                           Ucx("by_reference", "posix,cma", "shm(posix,cma)",
                                               true)),
                         CaseName);

}  // namespace monograph
