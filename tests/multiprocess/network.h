// Network: several hosts on one machine: network namespaces joined by veth pairs and a bridge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace monograph {

// Hosts 0, 1, 2, ... with addresses 10.86.0.1, .2, .3, ..., and a switch between them. This process
// moves into host 0. Functions that return a text say why they could not; empty: done.
class Network {
 public:
  explicit Network(int hosts = 3) : hosts_(hosts) {}
  ~Network();  // this process moves back, and the hosts go
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Why this machine cannot.
  std::string Make();
  int hosts() const { return hosts_; }
  static std::string Name(int host);
  static std::string Address(int host) { return "10.86.0." + std::to_string(host + 1); }
  // The network that they are in, for --trusted_network.
  static std::string Trusted() { return "10.86.0.0/24"; }
  // The command that runs `argv` on a host.
  static std::vector<std::string> On(int host, const std::vector<std::string>& argv);
  // Since the start, by the host's cable, with what TCP adds.
  static int64_t BytesSent(int host);

  // The cable between the host and the switch.
  std::string SetCable(int host, bool plugged) const;
  // Hosts that are isolated do not reach each other; the others reach all.
  std::string SetIsolated(int host, bool isolated) const;
  // What the cable carries both ways, "10mbit"; empty: no limit. Ends SetLoss.
  std::string SetRate(int host, const std::string& rate) const;
  // The percentage of packets that the cable loses each way; 0: none. Ends SetRate.
  std::string SetLoss(int host, int percent) const;

 private:
  std::string Hub() const { return Name(hosts_); }
  // `tc` with these words for both ends of the cable.
  std::string Control(int host, const std::vector<std::vector<std::string>>& commands) const;

  const int hosts_;
  std::vector<std::string> made_;
  int home_ = -1, mounts_ = -1;  // the namespaces that this process had at first
  bool own_mounts_ = false;      // it has left the second
};

}  // namespace monograph
