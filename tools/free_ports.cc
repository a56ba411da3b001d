#include "tools/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "tools/launch.h"

namespace monograph {
namespace {

// The bounds of a range of ports from which the kernel gives none to sockets that ask for any: a
// port that is free now stays free until a daemon listens on it. UCX listens on ports that it is
// given, and one of them could be the one that another daemon was told. {0, 0}, any port, if the
// kernel gives them all.
std::pair<int, int> PortsNobodyIsGiven() {
  constexpr int kLowest = 10000, kHighest = 65535, kEnough = 2000;
  int first = 0, last = 0;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  if (!(range >> first >> last)) return {0, 0};
  if (first - kLowest >= kEnough) return {kLowest, first - 1};
  if (kHighest - last >= kEnough) return {last + 1, kHighest};
  return {0, 0};
}

// Takes a name that only one socket can have where the port is (abstract names belong to the
// network namespace, as ports do), until this process ends: between being found free and being
// listened on by a daemon, a port is no other caller's, in this process or another. False if it is
// taken.
bool Reserve(int port) {
  static Mutex mutex;
  static auto* kept MG_PT_GUARDED_BY(mutex) = new std::vector<Descriptor>();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "monograph-port-" + std::to_string(port);  // after a zero: abstract
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return false;
  MutexLock lock(mutex);
  kept->push_back(std::move(socket));
  return true;
}

}  // namespace

Result<std::vector<int>> FreePorts(int count) {
  const auto [low, high] = PortsNobodyIsGiven();
  std::minstd_rand random(std::random_device{}());
  // All sockets are held until the last has its port, so that no port is given twice.
  std::vector<Descriptor> sockets;
  std::vector<int> ports;
  constexpr int kTries = 1000;
  for (int tries = 0; static_cast<int>(ports.size()) < count; ++tries) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::uniform_int_distribution(low, high)(random)));
    socklen_t size = sizeof address;
    if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      if (errno == EADDRINUSE && tries < kTries) continue;
      return Internal(std::string("no free port: ") + std::strerror(errno));
    }
    const int port = ntohs(address.sin_port);
    if (!Reserve(port)) {
      if (tries < kTries) continue;
      return ResourceExhausted("no free port that nobody has reserved");
    }
    sockets.push_back(std::move(socket));
    ports.push_back(port);
  }
  return ports;
}

}  // namespace monograph
