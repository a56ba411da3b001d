#include <utility>
// The first line is for Asio's coroutine headers, which use std::exchange.
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <string>

#include "transport/control/asio_status.h"

namespace monograph::control {
namespace {

namespace errors = boost::asio::error;

Code CodeOf(const boost::system::error_code& error) {
  if (error.category() == errors::get_ssl_category()) return Code::kUnauthenticated;
  if (error == boost::asio::ssl::error::stream_truncated) return Code::kUnavailable;
  if (error == errors::operation_aborted) return Code::kCancelled;
  if (error == errors::address_in_use) return Code::kFailedPrecondition;
  if (error == errors::access_denied || error == errors::no_permission)
    return Code::kPermissionDenied;
  if (error == errors::host_not_found || error == errors::no_data ||
      error == errors::service_not_found) {
    return Code::kNotFound;
  }
  if (error == errors::no_descriptors || error == errors::no_memory ||
      error == errors::no_buffer_space ||
      error == boost::system::errc::too_many_files_open_in_system) {
    return Code::kResourceExhausted;
  }
  if (error == errors::invalid_argument || error == errors::address_family_not_supported)
    return Code::kInvalidArgument;
  if (error.category() == boost::system::system_category() ||
      error.category() == errors::get_misc_category() ||
      error.category() == errors::get_netdb_category()) {
    return Code::kUnavailable;  // refused, reset, closed, unreachable, timed out
  }
  return Code::kInternal;
}

std::string TextOf(const boost::system::error_code& error) {
  if (error == errors::eof || error == boost::asio::ssl::error::stream_truncated)
    return "the peer closed the connection";
  std::string text = error.message();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

}  // namespace

Status FromAsio(const boost::system::error_code& error, std::string_view what) {
  if (!error) return Status();
  return Status(CodeOf(error), std::string(what) + ": " + TextOf(error));
}

}  // namespace monograph::control
