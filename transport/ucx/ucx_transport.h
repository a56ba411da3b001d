// The data plane by UCX: shared memory within a host, RDMA or TCP between hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "transport/transports.h"
#include "transport/ucx/ucx_lanes.h"

namespace monograph {

// Starts UCX with these options, so that transports of them are made in milliseconds. Starting
// takes longer, and what it has made stays until the process ends. Errors as ChooseUcxLanes.
Result<UcxLanes> PrepareUcx(const TransportOptions& options);

// Major and minor number of the UCX that runs.
std::pair<uint8_t, uint8_t> UcxVersion();

// No net_devices: UCX chooses. `handler` outlives the transport. `by_reference`: large payloads
// between processes of this host that all say so are read where they lie
// (transport/reference/references.h), and come by OnDelivered.
Result<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options,
                                                    MessageHandler* handler,
                                                    bool by_reference = false);

}  // namespace monograph
