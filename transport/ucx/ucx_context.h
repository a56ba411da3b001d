// Configures and creates UCX contexts, and reads what UCX says about its lanes. A user's own UCX_*
// environment wins.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/status.h"
#include "transport/transports.h"

namespace monograph {

struct UcxContext {
  ucp_context_h handle = nullptr;
  bool shared_memory = true;  // false: the lanes are TCP's only
};

// InvalidArgument for a lane that this machine lacks, naming those it has. The caller frees
// `handle` with ucp_cleanup.
Result<UcxContext> MakeUcxContext(const TransportOptions& options);

// Keeps UCX from printing warnings and errors, in the whole process, until the matching call with
// false. A UCX_LOG_LEVEL in the environment wins.
void SilenceUcx(bool silent);

// "shm(posix,cma) ~12 GB/s".
std::string DescribeEndpoint(ucp_ep_h endpoint);

}  // namespace monograph
