#include "transport/transports.h"

#include <utility>

#include "transport/ucx/ucx_transport.h"

namespace monograph {

TransportFactory ChooseTransport(TransportOptions options, bool loopback) {
  if (loopback && options.net_devices.empty()) options.net_devices = "lo";
  return [options = std::move(options)](MessageHandler* handler) {
    return MakeUcxTransport(options, handler);
  };
}

}  // namespace monograph
