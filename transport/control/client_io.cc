#include <utility>
// The first line is for Asio's coroutine headers, which use std::exchange.
#include "transport/control/client_io.h"

namespace monograph::control {

ClientIo& ClientIo::Get() {
  static auto* const io = new ClientIo;
  return *io;
}

}  // namespace monograph::control
