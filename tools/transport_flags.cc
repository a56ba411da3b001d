#include "tools/transport_flags.h"

namespace monograph {

void TransportFlags::AddTo(Flags* flags) {
  flags->Add("lanes", &lanes,
             "UCX transports (UCX_TLS), such as posix,cma or tcp; default: UCX chooses");
  flags->Add("net_devices", &net_devices,
             "network devices (UCX_NET_DEVICES); default: lo on loopback, else UCX chooses");
}

void TransportFlags::AddDaemonTo(Flags* flags) {
  AddTo(flags);
  flags->Add("spin_us", &spin_us, "how long to poll for messages before sleeping, in microseconds",
             0);
}

TransportOptions TransportFlags::Options() const {
  return {.lanes = lanes, .net_devices = net_devices, .spin = std::chrono::microseconds(spin_us)};
}

}  // namespace monograph
