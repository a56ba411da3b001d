#include "transport/transports.h"

#include <sstream>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "transport/host_number.h"
#include "transport/lanes/lanes_transport.h"
#include "transport/lanes/memory_space.h"
#include "transport/tls/tls_transport.h"
#include "transport/trusted_network.h"
#include "transport/ucx/ucx_transport.h"

namespace monograph {

namespace {

// The words of a list but one; whether that was among them.
std::string Without(const std::string& list, std::string_view word, bool* found) {
  std::string rest;
  std::istringstream words(list);
  for (std::string lane; std::getline(words, lane, ',');) {
    if (lane == word) {
      *found = true;
    } else {
      rest += (rest.empty() ? "" : ",") + lane;
    }
  }
  return rest;
}

// What UCX offers, with its transports.
Status AddUcx(TransportOptions options, bool by_reference, LanesParts* parts) {
  MG_ASSIGN_OR_RETURN(const UcxLanes lanes, PrepareUcx(options));
  LanesOffer& offer = parts->offer;
  offer.names = lanes.names;
  offer.shared_memory = lanes.shared_memory;
  if (lanes.shared_memory) offer.memory = MemorySpace();
  offer.fabrics = lanes.fabrics;
  offer.trusted = lanes.trusted;
  offer.addresses = lanes.addresses;
  std::tie(offer.ucx_major, offer.ucx_minor) = UcxVersion();
  offer.gpu_memory = offer.gpus && lanes.gpu_memory;
  parts->ucx = [options = std::move(options), by_reference](MessageHandler* handler) {
    return MakeUcxTransport(options, handler, by_reference);
  };
  return Status();
}

Status AddTls(const TransportOptions& options, const TransportSite& site, LanesParts* parts) {
  TlsListenerOptions listen;
  listen.bind_address = site.bind_address;
  listen.advertised_host = site.advertised_host;
  listen.port = static_cast<uint16_t>(options.data_port);
  listen.key = site.key;
  MG_ASSIGN_OR_RETURN(std::shared_ptr<TlsListener> listener, TlsListener::Start(std::move(listen)));
  parts->offer.tls_listens = listener->port() != 0;
  parts->tls = [listener, spin = options.spin](MessageHandler* handler) {
    return MakeTlsTransport(listener, {.spin = spin}, handler);
  };
  return Status();
}

}  // namespace

Result<TransportFactory> ChooseTransport(TransportOptions options, const TransportSite& site) {
  // Tasks of one machine need no RDMA.
  if (site.loopback && options.net_devices.empty() && options.trusted_network.empty())
    options.net_devices = "lo";
  LanesParts parts;
  parts.offer.host = HostNumber();
  parts.offer.gpus = site.gpus;
  parts.offer.gpu_direct = options.gpu_transfers == GpuTransfers::kDirect;
  parts.offer.gpu_staged = options.gpu_transfers == GpuTransfers::kStaged;
  if (!site.gpus) options.gpu_transfers = GpuTransfers::kStaged;  // nothing of CUDA for UCX
  const bool named = !options.lanes.empty(), excludes = options.lanes.starts_with('^');
  if (excludes) options.lanes.erase(0, 1);
  bool tls = false, reference = false;
  options.lanes = Without(options.lanes, "tls", &tls);
  options.lanes = Without(options.lanes, "reference", &reference);
  if (excludes || !named) tls = !tls;
  // A program that serves no task takes part if it says so: what it fetches is then not its own.
  const bool serves = !site.bind_address.empty();
  const bool by_reference = named && !excludes ? reference : serves && !reference;
  if (excludes && !options.lanes.empty()) options.lanes.insert(0, "^");
  if (tls && named && !excludes && !site.key)
    return InvalidArgument("the data plane's lane 'tls' needs a key (--key_file)");
  tls = tls && site.key.has_value();
  if (options.data_port != 0 && !tls)
    return InvalidArgument("--data_port is for the data plane's lane 'tls', which needs a key");
  if (!named || excludes || !options.lanes.empty()) {
    const Status status = AddUcx(options, by_reference, &parts);
    if (!status.ok() && (!tls || named)) return status;
    if (!status.ok()) LogWarning("no task shares memory with this one: " + status.message());
  }
  if (site.gpus && parts.offer.gpu_direct && !parts.offer.gpu_memory) {
    return InvalidArgument("--gpu_transfers=direct, but " +
                           (parts.ucx ? "UCX " + std::to_string(parts.offer.ucx_major) + "." +
                                            std::to_string(parts.offer.ucx_minor) +
                                            " does not know CUDA's memory here: it has the lanes " +
                                            parts.offer.names
                                      : "the data plane's lanes are without UCX"));
  }
  if (tls) MG_RETURN_IF_ERROR(AddTls(options, site, &parts));
  return TransportFactory([parts = std::move(parts)](MessageHandler* handler) {
    return MakeLanesTransport(parts, handler);
  });
}

std::string DescribeTrust(const TransportOptions& options) {
  const Result<std::vector<IpNetwork>> networks = ParseNetworks(options.trusted_network);
  if (!networks.ok() || networks->empty()) return "";
  std::string who, where;
  for (const IpNetwork& network : *networks) who += (who.empty() ? "" : ", ") + network.ToString();
  for (const NetDevice& device : NetDevices()) {
    if (Contains(*networks, device.address()))
      where +=
          (where.empty() ? "" : ", ") + AddressText(device.address()) + " (" + device.name + ")";
  }
  return "--trusted_network: everyone in " + who + " who reaches a port of " + where +
         " can end this process, and read and change its tensors: UCX's TCP checks nothing";
}

}  // namespace monograph
