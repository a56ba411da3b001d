// Creates UCX contexts, and reads what UCX says about its lanes.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/transports.h"
#include "transport/ucx/ucx_lanes.h"

namespace monograph {

struct UcxContext {
  ucp_context_h handle = nullptr;
  UcxLanes lanes;
};

// The context of this process for these options, which transports share. It is made by the first
// call, in some 20 ms, and stays until the process ends: a request that a dead peer never answered
// keeps memory registered there (of every lane since UCX 1.14, of RDMA before), and UCX ends a
// process that ends a context in use. Errors as ChooseUcxLanes has them. Thread-safe.
Result<UcxContext> SharedUcxContext(const TransportOptions& options);

// A context with these lanes and network devices (empty: all), which the caller frees.
// `shared_memory`: workers will use it.
Result<ucp_context_h> InitUcx(const std::string& lanes, const std::string& net_devices,
                              bool shared_memory = false);
// What UCX prints about the context.
std::string PrintedContext(ucp_context_h context);
std::vector<std::string> SplitNames(std::string_view text, char separator = ',');

// Keeps UCX from printing warnings and errors, in the whole process, until the matching call with
// false. A UCX_LOG_LEVEL in the environment wins.
void SilenceUcx(bool silent);

// "shm(posix,cma) ~12 GB/s".
std::string DescribeEndpoint(ucp_ep_h endpoint);

}  // namespace monograph
