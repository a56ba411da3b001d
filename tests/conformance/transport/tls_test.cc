#include "tests/conformance/transport/transport_suite.h"
#include "transport/tls/tls_transport.h"

namespace monograph {
namespace {

// All transports of the program share a listener, as those of a process do.
TransportCase Tls(std::string name, bool with_key, int bulk_streams, std::string expected_lane) {
  TlsListenerOptions options;
  if (with_key) options.key = control::GenerateKey().value();
  return {.name = std::move(name),
          .make = [options, bulk_streams, listener = std::shared_ptr<TlsListener>()](
                      MessageHandler* handler) mutable -> Result<std::unique_ptr<Transport>> {
            if (listener == nullptr) {
              MG_ASSIGN_OR_RETURN(listener, TlsListener::Start(options));
            }
            return MakeTlsTransport(listener, {.bulk_streams = bulk_streams}, handler);
          },
          .expected_lane = std::move(expected_lane)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Tls, TransportConformance,
                         ::testing::Values(Tls("tls", true, 2,
                                               "tls(openssl, 3 streams, 127.0.0.1:"),
                                           Tls("tls_one_bulk_stream", true, 1, "tls("),
                                           Tls("plain", false, 2, "tcp(plain tcp, 3 streams")),
                         CaseName);

}  // namespace monograph
