// The transport between hosts that share no trusted network: TLS 1.3 with the cluster's key over
// TCP, several streams per peer. Of two peers with listeners the one with the smaller instance
// number dials; one without a listener dials always. A connection that broke stays lost: what is
// sent to that peer afterwards fails at once with Unavailable, naming the peer as the lost task.
#pragma once

#include <chrono>
#include <memory>

#include "transport/tls/tls_listener.h"
#include "transport/transport.h"

namespace monograph {

struct TlsOptions {
  // How long an idle progress thread spins before it sleeps.
  std::chrono::microseconds spin{50};
  // Streams for large payloads that this transport opens to each peer, beside the one for headers
  // and small payloads: 1 to kMaxBulkStreams. The side that dials decides.
  int bulk_streams = 2;
  // How long a peer may owe what it has to do first: to open the connection on which something is
  // to be sent, to announce a payload that it has begun to send. Then it is lost.
  std::chrono::milliseconds patience{10000};
};

// `handler` outlives the transport.
Result<std::unique_ptr<Transport>> MakeTlsTransport(std::shared_ptr<TlsListener> listener,
                                                    const TlsOptions& options,
                                                    MessageHandler* handler);

}  // namespace monograph
