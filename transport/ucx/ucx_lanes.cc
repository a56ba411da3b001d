// Chooses lanes in three phases: which network devices may be used, which lanes UCX has on them,
// and which of these may be. UCX has no function that names lanes, so LanesHere reads the text that
// it prints about a context, and skips lines that look different. UCX resolves the names that stand
// for several lanes itself ("sm", "rc", "^tcp"); what it makes of them is looked through.
#include "transport/ucx/ucx_lanes.h"

#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/mutex.h"
#include "transport/trusted_network.h"
#include "transport/ucx/ucx_context.h"

namespace monograph {
namespace {

// Lanes that let in nobody but whom we give the address. A name that ends in '*': all that begin
// so.
constexpr std::string_view kPrivate[] = {"posix", "cma"};
constexpr std::string_view kGpu[] = {"cuda*", "gdr_copy", "rocm*", "ze*"};
constexpr std::string_view kRdma[] = {"rc*", "ud*", "dc*"};
// Names that stand for several lanes: for each one whose name begins so.
constexpr std::string_view kFamilies[] = {"rc", "ud", "dc", "cuda", "rocm", "ugni", "ze"};

bool Matches(std::span<const std::string_view> patterns, std::string_view lane) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    if (!pattern.ends_with('*')) return lane == pattern;
    return lane.starts_with(pattern.substr(0, pattern.size() - 1));
  });
}

template <typename Names>
std::string Joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

std::string OnDevices(const std::string& net_devices) {
  return net_devices.empty() ? "" : " on network devices '" + net_devices + "'";
}

// The first line of one of the system's files about RDMA devices.
std::string FirstLine(const std::string& name) {
  std::ifstream file("/sys/class/infiniband/" + name);
  std::string line;
  std::getline(file, line);
  return line;
}

// A port of an RDMA device that is up.
struct RdmaPort {
  std::string name;  // as UCX has it: "mlx5_0:1"
  bool ethernet = false;
  uint64_t fabric = 0;
};

std::vector<RdmaPort> RdmaPorts() {
  std::vector<RdmaPort> ports;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      const std::string name = device.path().filename().string(),
                        number = port.path().filename().string(),
                        at = name + "/ports/" + number + "/";
      if (!FirstLine(at + "state").starts_with("4")) continue;  // "4: ACTIVE"
      const bool ethernet = FirstLine(at + "link_layer") != "InfiniBand";
      // The first half of an address is InfiniBand's number of the subnet.
      const std::string subnet = FirstLine(at + "gids/0").substr(0, 19);
      ports.push_back(
          {name + ":" + number, ethernet, Fnv1a(ethernet ? "ethernet" : "infiniband " + subnet)});
    }
  }
  return ports;
}

// Fills in the devices that UCX may use, and where they lead. `ethernet`: RDMA over Ethernet may
// be.
Status ChooseDevices(const std::string& wanted, bool ethernet, UcxLanes* lanes) {
  const std::vector<IpNetwork>& trusted = lanes->trusted;
  const std::vector<NetDevice> here = NetDevices();
  const std::vector<RdmaPort> rdma = RdmaPorts();
  std::vector<std::string> known;
  for (const RdmaPort& port : rdma) known.push_back(port.name);
  for (const NetDevice& device : here)
    known.push_back(device.name + " (" + AddressText(device.address()) + ")");
  std::string networks;
  for (const IpNetwork& network : trusted)
    networks += (networks.empty() ? "" : ",") + network.ToString();
  if (wanted.empty() || wanted == "all") {
    std::vector<std::string> allowed;
    for (const NetDevice& device : here) {
      if (!Contains(trusted, device.address())) continue;
      allowed.push_back(device.name);
      lanes->addresses.push_back(NetworkOf(device.address()));
    }
    if (allowed.empty() && !trusted.empty()) {
      return InvalidArgument(
          "no network device of this machine has an address in the trusted network " + networks +
          "; there are " + Joined(known));
    }
    for (const RdmaPort& port : rdma) {
      if (port.ethernet && !ethernet) continue;
      allowed.push_back(port.name);
      lanes->fabrics.push_back(port.fabric);
    }
    lanes->net_devices = Joined(allowed);
    return Status();
  }
  for (const std::string& name : SplitNames(wanted)) {
    const auto device = std::find_if(here.begin(), here.end(),
                                     [&](const NetDevice& at) { return at.name == name; });
    if (device != here.end() && !trusted.empty() && !Contains(trusted, device->address())) {
      return InvalidArgument("network device '" + name + "' has the address " +
                             AddressText(device->address()) +
                             ", which is not in the trusted network " + networks);
    }
    if (device != here.end() && !trusted.empty())
      lanes->addresses.push_back(NetworkOf(device->address()));
    const std::string without_port = name.substr(0, name.find(':'));
    for (const RdmaPort& port : rdma) {
      if (port.name == name || port.name.starts_with(name + ":"))
        lanes->fabrics.push_back(port.fabric);
    }
    if (device == here.end() && if_nametoindex(name.c_str()) == 0 &&
        !std::filesystem::exists("/sys/class/infiniband/" + without_port)) {
      return InvalidArgument("this machine has no network device '" + name + "'; there are " +
                             Joined(known));
    }
  }
  lanes->net_devices = wanted;
  return Status();
}

// The lanes that UCX makes of `names` on the devices, from lines such as
//   resource 3  :  md 3  dev 2  flags -- posix/memory
// They do not change while the process lives.
Result<std::set<std::string>> LanesHere(const std::string& names, const std::string& net_devices) {
  static Mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::set<std::string>> known MG_GUARDED_BY(
      mutex);
  MutexLock lock(mutex);
  std::set<std::string>& lanes = known[{names, net_devices}];
  if (!lanes.empty()) return lanes;
  MG_ASSIGN_OR_RETURN(ucp_context_h context, InitUcx(names, net_devices));
  const std::string text = PrintedContext(context);
  ucp_cleanup(context);
  for (const std::string& line : SplitNames(text, '\n')) {
    const size_t flags = line.find(" flags ");
    const size_t slash = line.rfind('/');
    if (line.find("resource") == std::string::npos || flags == std::string::npos ||
        slash == std::string::npos)
      continue;
    const size_t space = line.rfind(' ', slash);
    lanes.insert(line.substr(space + 1, slash - space - 1));
  }
  return lanes;
}

// Refuses a lane that --lanes names and that is not here or may not be.
Status CheckNamed(const std::string& wanted, const std::string& net_devices,
                  const std::set<std::string>& usable, bool tcp_trusted) {
  const std::string what = "the data plane's lanes are '" + wanted + "', but ";
  for (const std::string& lane : SplitNames(wanted)) {
    if (lane == "tcp" && !tcp_trusted) {
      return InvalidArgument(what +
                             "UCX's TCP needs --trusted_network: whoever reaches its port can end "
                             "this process");
    }
    if (lane == "sysv") {
      return InvalidArgument(what +
                             "segments of 'sysv' are open to the group of their owner; use posix");
    }
    const auto begins = [&](const std::string& name) { return name.starts_with(lane); };
    const bool family =
        std::find(std::begin(kFamilies), std::end(kFamilies), lane) != std::end(kFamilies);
    if (lane == "all" || usable.contains(lane) ||
        (family && std::any_of(usable.begin(), usable.end(), begins)) ||
        ((lane == "shm" || lane == "sm") && usable.contains("posix")))
      continue;
    std::string list;
    for (const std::string& name : usable) list += (list.empty() ? "" : ", ") + name;
    return InvalidArgument(what + "this machine has no lane '" + lane + "'" +
                           OnDevices(net_devices) + "; it has " + list);
  }
  return Status();
}

}  // namespace

Result<UcxLanes> ChooseUcxLanes(const TransportOptions& options) {
  UcxLanes lanes;
  MG_ASSIGN_OR_RETURN(lanes.trusted, ParseNetworks(options.trusted_network));
  const std::vector<IpNetwork>& trusted = lanes.trusted;
  const auto environment = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string wanted = environment("UCX_TLS");
  const bool by_options = wanted.empty();
  if (by_options) {
    wanted = options.lanes;
  } else if (!options.lanes.empty() && options.lanes != wanted) {
    LogWarning("UCX_TLS=" + wanted + " in the environment overrides the lanes '" + options.lanes +
               "'");
  }
  const std::string devices = environment("UCX_NET_DEVICES");
  MG_RETURN_IF_ERROR(ChooseDevices(devices.empty() ? options.net_devices : devices,
                                   !trusted.empty() || !wanted.empty(), &lanes));
  // Those for GPUs cost each message a look at where its memory lies.
  const bool names_lanes = !wanted.empty() && wanted != "all" && !wanted.starts_with('^');
  const bool for_gpus = options.gpu_transfers != GpuTransfers::kStaged || names_lanes;
  const auto usable = [&](const std::set<std::string>& here) {
    std::set<std::string> names;
    for (const std::string& lane : here) {
      if (Matches(kRdma, lane) ? !lanes.fabrics.empty()
                               : Matches(kPrivate, lane) || (for_gpus && Matches(kGpu, lane)) ||
                                     (lane == "tcp" && !trusted.empty()))
        names.insert(lane);
    }
    return names;
  };
  if (by_options && !wanted.empty() && !wanted.starts_with('^')) {
    MG_ASSIGN_OR_RETURN(const std::set<std::string> all, LanesHere("all", lanes.net_devices));
    MG_RETURN_IF_ERROR(CheckNamed(wanted, lanes.net_devices, usable(all), !trusted.empty()));
  }
  MG_ASSIGN_OR_RETURN(const std::set<std::string> here,
                      LanesHere(wanted.empty() ? "all" : wanted, lanes.net_devices));
  const std::set<std::string> names = usable(here);
  if (names.empty()) {
    return InvalidArgument(
        "UCX has no lane here that lets in nobody else; it has " + Joined(here) +
        OnDevices(lanes.net_devices) +
        ". Shared memory needs 16 MB of /dev/shm, and TCP needs --trusted_network");
  }
  if (!by_options && here.contains("tcp") && trusted.empty()) {
    LogWarning("UCX_TLS=" + wanted +
               " in the environment: its lane tcp is left out, for it needs --trusted_network");
  }
  // Named as the user did where nothing is left out: a family may mean more to UCX than its lanes.
  lanes.names = !wanted.empty() && names == here ? wanted : Joined(names);
  lanes.shared_memory = names.contains("posix");
  lanes.tcp = names.contains("tcp");
  lanes.rdma = std::any_of(names.begin(), names.end(),
                           [](const std::string& lane) { return Matches(kRdma, lane); });
  if (!lanes.tcp) lanes.addresses.clear();
  if (!lanes.rdma) lanes.fabrics.clear();
  return lanes;
}

}  // namespace monograph
