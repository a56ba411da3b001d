// The data plane by UCX: shared memory within a host, RDMA or TCP between hosts.
#pragma once

#include <memory>

#include "transport/transports.h"

namespace monograph {

// Starts UCX with these options, so that transports of them are made in milliseconds. Starting
// takes longer, and what it has made stays until the process ends. InvalidArgument for a lane that
// this machine lacks, naming those it has.
Status PrepareUcx(const TransportOptions& options);

// No net_devices: UCX chooses. `handler` outlives the transport.
Result<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options,
                                                    MessageHandler* handler);

}  // namespace monograph
