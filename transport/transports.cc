#include "transport/transports.h"

#include <utility>

#include "transport/trusted_network.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {

Result<TransportFactory> ChooseTransport(TransportOptions options, bool loopback) {
  // Tasks of one machine need no RDMA.
  if (loopback && options.net_devices.empty() && options.trusted_network.empty())
    options.net_devices = "lo";
  MG_RETURN_IF_ERROR(PrepareUcx(options));
  return TransportFactory([options = std::move(options)](MessageHandler* handler) {
    return MakeUcxTransport(options, handler);
  });
}

std::string DescribeTrust(const TransportOptions& options) {
  const Result<std::vector<Network>> networks = ParseNetworks(options.trusted_network);
  if (!networks.ok() || networks->empty()) return "";
  std::string who, where;
  for (const Network& network : *networks) who += (who.empty() ? "" : ", ") + network.ToString();
  for (const NetDevice& device : NetDevices()) {
    if (Contains(*networks, device.address()))
      where +=
          (where.empty() ? "" : ", ") + AddressText(device.address()) + " (" + device.name + ")";
  }
  return "--trusted_network: everyone in " + who + " who reaches a port of " + where +
         " can end this process, and read and change its tensors: UCX's TCP checks nothing";
}

}  // namespace monograph
