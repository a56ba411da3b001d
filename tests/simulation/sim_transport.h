// A Transport over the simulated network (tests/simulation/network.h), with what the real ones do
// at their edges: one link for each other transport, which the smaller instance dials; a link that
// broke stays lost, and what is sent to its peers fails at once with their names; small payloads
// come with their headers, large ones later, read from the sender's memory at that moment. A peer
// whose process is killed leaves, every other time, a queue that brings nothing more from anybody,
// until Renew makes another.
#pragma once

#include <memory>

#include "tests/simulation/network.h"
#include "transport/transport.h"

namespace monograph::simulation {

// Of a task on that machine. `handler` outlives it, and so does the network.
std::unique_ptr<Transport> MakeSimTransport(Network* network, const Site& site,
                                            MessageHandler* handler);

}  // namespace monograph::simulation
