#include "tests/multiprocess/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// Runs a command; its error text, empty if it went well.
std::string Run(const std::vector<std::string>& argv) {
  ChildProcess process(argv);
  const std::optional<Exit> exit = process.Wait(20s);
  if (exit && !exit->signalled && exit->code == 0) return "";
  std::string command;
  for (const std::string& word : argv) command += word + " ";
  return command + "failed: " + process.error();
}

std::string Port(int host) { return "port" + std::to_string(host); }

}  // namespace

Network::~Network() {
  if (home_ >= 0) setns(home_, CLONE_NEWNET);
  // Where they were made: in the mount namespace that this process had at first. Their links go
  // along.
  for (const std::string& name : made_) {
    std::vector<std::string> command = {"ip", "netns", "del", name};
    if (own_mounts_) {
      command.insert(command.begin(), {"nsenter", "--mount=/proc/" + std::to_string(getpid()) +
                                                      "/fd/" + std::to_string(mounts_)});
    }
    if (const std::string why = Run(command); !why.empty())
      std::fprintf(stderr, "%s\n", why.c_str());
  }
  close(home_);
  close(mounts_);
}

std::string Network::Make() {
  mounts_ = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (geteuid() != 0) return "network namespaces need root";
  if (std::string why = Run({"nsenter", "--version"}); !why.empty()) return why;
  if (std::string why = Run({"ip", "-V"}); !why.empty()) return why;
  for (int i = 0; i <= hosts_; ++i) {
    const std::string name = Name(i);
    if (std::string why = Run({"ip", "netns", "add", name}); !why.empty()) return why;
    made_.push_back(name);
    if (std::string why = Run({"ip", "-n", name, "link", "set", "lo", "up"}); !why.empty())
      return why;
  }
  if (std::string why = Run({"ip", "-n", Hub(), "link", "add", "br0", "type", "bridge"});
      !why.empty())
    return why;
  if (std::string why = Run({"ip", "-n", Hub(), "link", "set", "br0", "up"}); !why.empty())
    return why;
  for (int i = 0; i < hosts_; ++i) {
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"ip", "-n", Hub(), "link", "add", Port(i), "type", "veth", "peer", "name", "eth0",
              "netns", Name(i)},
             {"ip", "-n", Hub(), "link", "set", Port(i), "master", "br0", "up"},
             {"ip", "-n", Name(i), "addr", "add", Address(i) + "/24", "dev", "eth0"},
             {"ip", "-n", Name(i), "link", "set", "eth0", "up"}}) {
      if (std::string why = Run(command); !why.empty()) return why;
    }
  }
  home_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open(("/run/netns/" + Name(0)).c_str(), O_RDONLY | O_CLOEXEC);
  const bool moved = there >= 0 && setns(there, CLONE_NEWNET) == 0;
  if (there >= 0) close(there);
  if (!moved) return "cannot enter a network namespace";
  // UCX finds network devices in /sys, which shows those of the namespace that mounted it.
  own_mounts_ = unshare(CLONE_NEWNS) == 0;
  if (!own_mounts_ || mount("", "/", "none", MS_SLAVE | MS_REC, nullptr) != 0)
    return "cannot make a mount namespace";
  umount2("/sys", MNT_DETACH);
  return mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 ? "" : "cannot mount /sys";
}

std::string Network::Name(int host) {
  return "mg" + std::to_string(getpid()) + "-" + std::to_string(host);
}

std::vector<std::string> Network::On(int host, const std::vector<std::string>& argv) {
  std::vector<std::string> command = {"ip", "netns", "exec", Name(host)};
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

int64_t Network::BytesSent(int host) {
  ChildProcess reader(On(host, {"cat", "/sys/class/net/eth0/statistics/tx_bytes"}));
  EXPECT_TRUE(reader.Wait(20s).has_value()) << reader.error();
  return std::atoll(reader.output().c_str());
}

std::string Network::SetCable(int host, bool plugged) const {
  return Run({"ip", "-n", Hub(), "link", "set", Port(host), plugged ? "up" : "down"});
}

std::string Network::SetIsolated(int host, bool isolated) const {
  return Run({"ip", "-n", Hub(), "link", "set", Port(host), "type", "bridge_slave", "isolated",
              isolated ? "on" : "off"});
}

std::string Network::Control(int host,
                             const std::vector<std::vector<std::string>>& commands) const {
  const std::pair<std::string, std::string> ends[] = {{Hub(), Port(host)}, {Name(host), "eth0"}};
  for (const auto& [name, device] : ends) {
    for (const std::vector<std::string>& words : commands) {
      std::vector<std::string> command = {"tc", "-n", name, words[0], words[1], "dev", device};
      command.insert(command.end(), words.begin() + 2, words.end());
      if (std::string why = Run(command); !why.empty()) return why;
    }
  }
  return "";
}

std::string Network::SetRate(int host, const std::string& rate) const {
  if (rate.empty()) return Control(host, {{"qdisc", "del", "root"}});
  return Control(
      host, {{"qdisc", "replace", "root", "tbf", "rate", rate, "burst", "32k", "latency", "50ms"}});
}

// A share of the packets, drawn by a filter (which compares a random word), goes to a class that
// keeps nothing (a packet that it kept would keep TCP from sending it again). netem would do, but
// not every kernel has it.
std::string Network::SetLoss(int host, int percent) const {
  if (percent == 0) return Control(host, {{"qdisc", "del", "root"}});
  const std::string most =
      std::to_string((uint64_t{1} << 32) * static_cast<uint64_t>(percent) / 100);
  return Control(
      host,
      {{"qdisc", "replace", "root", "handle", "1:", "htb", "default", "1"},
       {"class", "replace", "parent", "1:", "classid", "1:1", "htb", "rate", "10gbit", "quantum",
        "60000"},
       {"class", "replace", "parent", "1:", "classid", "1:2", "htb", "rate", "8bit", "burst", "1",
        "cburst", "1", "quantum", "1500"},
       {"qdisc", "replace", "parent", "1:2", "bfifo", "limit", "1"},
       {"filter", "replace", "parent", "1:", "protocol", "all", "prio", "1", "bpf", "bytecode",
        "4,32 0 0 4294963256,53 0 1 " + most + ",6 0 0 0,6 0 0 4294967295", "classid", "1:2"}});
}

}  // namespace monograph
