// Transports of one process that pass payloads by reference; the reference implementation of
// transport/transport.h, for tests and benchmarks.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace monograph {

// `handler` outlives the transport.
std::unique_ptr<Transport> MakeInprocTransport(MessageHandler* handler);

}  // namespace monograph
