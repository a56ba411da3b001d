// The data plane by UCX: shared memory within a host, RDMA or TCP between hosts.
#pragma once

#include <memory>

#include "transport/transports.h"

namespace monograph {

// No net_devices: UCX chooses. `handler` outlives the transport.
Result<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options,
                                                    MessageHandler* handler);

}  // namespace monograph
