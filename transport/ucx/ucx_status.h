// UCX's codes in ours.
#pragma once

#include <ucs/type/status.h>

#include <string_view>

#include "base/status.h"

namespace monograph {

// OK for UCS_OK; else "context: UCX's own words".
Status FromUcx(ucs_status_t status, std::string_view context);

}  // namespace monograph
