// LanesTransport: a data plane that holds a UCX transport and a TLS transport, and takes the one
// that suits each peer (transport/lanes/offer.h): UCX to who shares its memory, its RDMA network or
// a trusted network, TLS to all others.
//
// A PeerId is twice the inner one, plus 1 for TLS. Each inner transport has a progress thread of
// its own, TLS's from the first peer that is met so, so callbacks of peers of different ways may
// run at once. DriveUntil drives the transport that has peers; if both have, it drives UCX's, and
// callbacks on the other's thread wake it.
#pragma once

#include <functional>
#include <memory>

#include "transport/lanes/offer.h"
#include "transport/transport.h"

namespace monograph {

struct LanesParts {
  TransportFactory ucx, tls;  // one of them may be empty: not offered
  // What is known before they are made: all but `ucx` and `tls`.
  LanesOffer offer;
};

// `handler` outlives the transport.
Result<std::unique_ptr<Transport>> MakeLanesTransport(const LanesParts& parts,
                                                      MessageHandler* handler);

}  // namespace monograph
