#include "transport/ucx/ucx_status.h"

#include <string>

namespace monograph {
namespace {

Code CodeOf(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return Code::kOk;
    case UCS_ERR_CANCELED:
      return Code::kCancelled;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return Code::kResourceExhausted;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return Code::kInvalidArgument;
    case UCS_ERR_NO_ELEM:
      return Code::kNotFound;
    case UCS_ERR_NO_DEVICE:  // which was there when the context was made: its cable is cut
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:  // no deadline of ours is UCX's: the network's
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_SHMEM_SEGMENT:  // the segment of a process that has ended
      return Code::kUnavailable;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
      return Code::kUnimplemented;
    case UCS_ERR_MESSAGE_TRUNCATED:
      return Code::kDataLoss;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Status FromUcx(ucs_status_t status, std::string_view context) {
  if (status == UCS_OK) return Status();
  return Status(CodeOf(status), std::string(context) + ": " + ucs_status_string(status));
}

}  // namespace monograph
