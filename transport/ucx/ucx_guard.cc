// The guard is set in three phases: the sockets that listen are noted before and after UCX opens
// its own; each new one on a trusted device gets the filter; then it is seen whether somebody
// connected in between. Nobody who is trusted can have: the port is told to no one yet. UCX reads
// from its connections only when its worker is driven, which it is not yet either.
//
// The filter is a classic BPF program, which the kernel runs on a packet from its IP header on.
#include "transport/ucx/ucx_guard.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"

namespace monograph {
namespace {

constexpr int kAttempts = 3;
// Offsets of the source address in the IP header.
constexpr uint32_t kSource4 = 12, kSource6 = 8;
// A jump in a classic program spans at most 255 instructions.
constexpr size_t kMostInstructions = 250;

struct Socket {
  int fd = -1;
  bool listens = false;
  sockaddr_storage storage{};

  const sockaddr& address() const { return reinterpret_cast<const sockaddr&>(storage); }
  uint16_t port() const {
    return address().sa_family == AF_INET
               ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
               : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port;
  }
};

// The TCP sockets of this process.
std::vector<Socket> Sockets() {
  std::vector<Socket> sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    Socket found;
    std::from_chars(name.data(), name.data() + name.size(), found.fd);
    int type = 0, listens = 0;
    socklen_t size = sizeof type, length = sizeof found.storage;
    if (getsockopt(found.fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM ||
        getsockname(found.fd, reinterpret_cast<sockaddr*>(&found.storage), &length) != 0 ||
        (found.address().sa_family != AF_INET && found.address().sa_family != AF_INET6))
      continue;
    size = sizeof listens;
    found.listens =
        getsockopt(found.fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
    sockets.push_back(found);
  }
  return sockets;
}

sock_filter Load(uint32_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF) + offset);
}

// Takes or drops a packet from the network; one from elsewhere goes on behind these instructions.
void AppendNetwork(const IpNetwork& network, std::vector<sock_filter>* program, bool takes) {
  const int words = network.family == AF_INET ? 1 : 4;
  std::vector<sock_filter> tests;
  for (int word = 0; word < words; ++word) {
    const int bits = std::clamp(network.bits - 32 * word, 0, 32);
    if (bits == 0) break;
    const uint32_t mask = bits == 32 ? ~0u : ~(~0u >> bits);
    uint32_t value;
    std::memcpy(&value, network.bytes.data() + 4 * word, sizeof value);
    tests.push_back(
        Load((network.family == AF_INET ? kSource4 : kSource6) + 4 * static_cast<uint32_t>(word)));
    tests.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    tests.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(value) & mask, 0, 0));
  }
  const size_t length = tests.size() + 1;
  for (size_t i = 0; i < tests.size(); ++i) {
    if (BPF_CLASS(tests[i].code) == BPF_JMP) tests[i].jf = static_cast<uint8_t>(length - i - 1);
  }
  tests.push_back(BPF_STMT(BPF_RET | BPF_K, takes ? ~0u : 0));
  program->insert(program->end(), tests.begin(), tests.end());
}

// Takes packets from the networks, but none from this host's own address unless `own_host`.
std::vector<sock_filter> Program(const std::vector<IpNetwork>& trusted, const IpNetwork& own,
                                 bool own_host) {
  std::vector<sock_filter> program;
  if (!own_host) AppendNetwork(own, &program, false);
  for (const IpNetwork& network : trusted) {
    if (network.family == own.family) AppendNetwork(network, &program, true);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  return program;
}

Status Guard(const Socket& socket, const std::vector<IpNetwork>& trusted, bool own_host) {
  std::vector<sock_filter> program = Program(trusted, NetworkOf(socket.address()), own_host);
  if (program.size() > kMostInstructions)
    return InvalidArgument("too many trusted networks for one filter");
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  const int lock = 1;
  if (setsockopt(socket.fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 ||
      setsockopt(socket.fd, SOL_SOCKET, SO_LOCK_FILTER, &lock, sizeof lock) != 0) {
    return FailedPrecondition("cannot keep strangers from the port of UCX's TCP: " +
                              std::string(std::strerror(errno)));
  }
  return Status();
}

// Somebody has connected to one of the ports, or waits to be accepted.
bool AnybodyAt(const std::vector<Socket>& guarded) {
  for (const Socket& socket : guarded) {
    pollfd waiting{.fd = socket.fd, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 0) > 0) return true;
  }
  // A connection that UCX's own thread accepts at this moment has its descriptor in a moment.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<Socket> sockets = Sockets();
  return std::any_of(sockets.begin(), sockets.end(), [&](const Socket& socket) {
    return !socket.listens && std::any_of(guarded.begin(), guarded.end(), [&](const Socket& port) {
      return port.port() == socket.port() &&
             AddressText(port.address()) == AddressText(socket.address());
    });
  });
}

}  // namespace

Status OpenGuarded(const std::vector<IpNetwork>& trusted, bool own_host,
                   const std::function<Status()>& open, const std::function<void()>& close) {
  static Mutex mutex;
  MutexLock lock(mutex);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::set<int> before;
    for (const Socket& socket : Sockets()) {
      if (socket.listens) before.insert(socket.fd);
    }
    MG_RETURN_IF_ERROR(open());
    std::vector<Socket> guarded;
    Status status;
    for (const Socket& socket : Sockets()) {
      if (!socket.listens || before.contains(socket.fd) || !Contains(trusted, socket.address()))
        continue;
      status.Update(Guard(socket, trusted, own_host));
      guarded.push_back(socket);
    }
    if (status.ok() && !AnybodyAt(guarded)) return status;
    close();
    MG_RETURN_IF_ERROR(status);
    LogWarning("somebody connected to UCX's TCP before its port was known; it is opened anew");
  }
  return Unavailable("somebody connects to every port of UCX's TCP before it is known");
}

}  // namespace monograph
