// Turns the errors of Boost.Asio and, through it, of sockets and OpenSSL, into ours.
#pragma once

#include <string_view>

#include "base/status.h"

namespace boost::system {
class error_code;
}

namespace monograph::control {

// "what: text of the error". Unavailable for connections that are refused, reset or closed;
// FailedPrecondition for an address in use; NotFound for unknown hosts; Unauthenticated for errors
// of TLS; Cancelled for operations that were.
Status FromAsio(const boost::system::error_code& error, std::string_view what);

}  // namespace monograph::control
