// One table of files (File) has all simulated descriptors: sockets, which are ends of Tcp, epoll
// sets, timers, counters of events, and questions to sock_diag. Sockets, made for each call, holds
// the network's lock while it works on the table. What an epoll set waits for is looked at when an
// end tells its watcher, or at the time when the next packet, timer or deadline is due
// (NextChange).
#include "tests/simulation/sockets.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/host.h"
#include "tests/simulation/network.h"
#include "tests/simulation/tcp.h"

namespace monograph::simulation {
namespace {

constexpr int kMostDescriptors = 1 << 16;

// 127.0.0.1 and 0.0.0.0 are the machine's own.
TcpAddress ReadAddress(const sockaddr* address, int own_host) {
  sockaddr_in v4{};
  std::memcpy(&v4, address, sizeof v4);
  const uint32_t number = ntohl(v4.sin_addr.s_addr);
  const bool own = number == INADDR_ANY || number == INADDR_LOOPBACK;
  return {own ? own_host : static_cast<int>(number - Network::Current().first_address()),
          ntohs(v4.sin_port)};
}

uint32_t NumberOf(const TcpAddress& address) {
  return htonl(Network::Current().first_address() + static_cast<uint32_t>(address.host));
}

void WriteAddress(const TcpAddress& from, sockaddr* address, socklen_t* bytes) {
  if (address == nullptr) return;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = NumberOf(from);
  v4.sin_port = htons(from.port);
  std::memcpy(address, &v4, std::min<size_t>(*bytes, sizeof v4));
  *bytes = sizeof v4;
}

Clock::time_point After(Clock::time_point now, std::chrono::nanoseconds time) {
  return time < Clock::time_point::max() - now ? now + time : Clock::time_point::max();
}

}  // namespace

class Epoll;

// What a descriptor names.
struct File {
  enum class Kind { kSocket, kEpoll, kTimer, kEvent, kDiag };
  explicit File(Kind of_kind) : kind(of_kind) {}

  const Kind kind;
  std::shared_ptr<TcpEnd> end;                           // of a socket
  std::shared_ptr<Epoll> epoll;                          // of an epoll
  Clock::time_point expires = Clock::time_point::max();  // of a timer
  uint64_t value = 0;                                    // of an event
  std::string answer;                                    // of sock_diag
  std::weak_ptr<Epoll> watched_by;
};
using FilePtr = std::shared_ptr<File>;

class Epoll : public TcpWatcher {
 public:
  void Look() override {
    ++looks;
    if (waiting) changed.NotifyAll();
  }

  struct Item {
    int descriptor = -1;
    FilePtr file;
    epoll_event event{};
    uint64_t seen = 0;    // of the end's changes
    bool forced = false;  // it was added or modified, and not looked at since
  };
  std::vector<Item> items;
  CondVar changed;
  bool waiting = false;
  uint64_t looks = 0;
};

class Sockets {
 public:
  // Of all networks, one after the other.
  static std::map<int, FilePtr>& files() {
    static auto* const all = new std::map<int, FilePtr>;
    return *all;
  }

  explicit Sockets(Network* network)
      : network_(*network), tcp_(*network->tcp_), lock_(network->mutex_) {}

  int Add(FilePtr file) {
    int number = kFirstDescriptor;
    for (const auto& [used, ignored] : files()) {
      if (used != number) break;
      ++number;
    }
    if (number >= kFirstDescriptor + kMostDescriptors) return -EMFILE;
    files().emplace(number, std::move(file));
    return number;
  }
  FilePtr Get(int descriptor) {
    const auto found = files().find(descriptor);
    return found == files().end() ? nullptr : found->second;
  }
  TcpEnd* Socket(int descriptor) {
    const FilePtr file = Get(descriptor);
    return file == nullptr ? nullptr : file->end.get();
  }
  int Close(int descriptor);
  uint32_t Ready(const File& file);
  int Collect(Epoll& epoll, epoll_event* events, int most);
  Clock::time_point NextChange(const Epoll& epoll);
  int Wait(Epoll& epoll, epoll_event* events, int most, int timeout_ms);
  static void Look(const FilePtr& file) {
    if (const auto epoll = file->watched_by.lock(); epoll != nullptr) epoll->Look();
  }
  std::string Diagnose(const char* question, size_t bytes);
  const TcpEnd* Find(TcpAddress own, TcpAddress peer) { return tcp_.Find(own, peer); }

  Tcp& tcp() { return tcp_; }

 private:
  Network& network_;
  Tcp& tcp_;
  MutexLock<Mutex> lock_;
};

int Sockets::Close(int descriptor) {
  const FilePtr file = Get(descriptor);
  if (file == nullptr) return -EBADF;
  files().erase(descriptor);
  if (const auto epoll = file->watched_by.lock(); epoll != nullptr) {
    std::erase_if(epoll->items, [&](const Epoll::Item& item) { return item.file == file; });
  }
  if (file->end != nullptr) {
    file->end->watcher = nullptr;
    tcp_.Close(*file->end);
  }
  if (file->epoll != nullptr) {
    for (const Epoll::Item& item : file->epoll->items) {
      if (item.file->end != nullptr) item.file->end->watcher = nullptr;
    }
  }
  return 0;
}

uint32_t Sockets::Ready(const File& file) {
  switch (file.kind) {
    case File::Kind::kSocket:
      tcp_.Settle(*file.end);
      return tcp_.Readiness(*file.end);
    case File::Kind::kTimer:
      return file.expires <= Clock::now() ? uint32_t{EPOLLIN} : 0;
    case File::Kind::kEvent:
      return file.value > 0 ? EPOLLIN | EPOLLOUT : EPOLLOUT;
    case File::Kind::kDiag:
      return EPOLLOUT;
    case File::Kind::kEpoll:
      break;
  }
  return 0;
}

int Sockets::Collect(Epoll& epoll, epoll_event* events, int most) {
  int count = 0;
  for (Epoll::Item& item : epoll.items) {
    if (count == most) break;
    const bool edges = (item.event.events & EPOLLET) != 0;
    if (item.file->end == nullptr && edges && !item.forced) continue;
    uint32_t ready = Ready(*item.file) & (item.event.events | EPOLLERR | EPOLLHUP);
    if (edges && item.file->end != nullptr &&
        std::exchange(item.seen, item.file->end->changes) == item.file->end->changes &&
        !item.forced)
      continue;
    item.forced = false;
    if (ready == 0) continue;
    events[count] = item.event;
    events[count++].events = ready;
  }
  return count;
}

Clock::time_point Sockets::NextChange(const Epoll& epoll) {
  Clock::time_point next = Clock::time_point::max();
  for (const Epoll::Item& item : epoll.items) {
    if (item.file->end != nullptr) next = std::min(next, tcp_.NextChange(*item.file->end));
    next = std::min(next, item.file->expires);
  }
  return next;
}

int Sockets::Wait(Epoll& epoll, epoll_event* events, int most, int timeout_ms) {
  network_.mutex_.AssertHeld();
  Clock::time_point until = Clock::time_point::max();
  if (timeout_ms > 0) until = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    const int count = Collect(epoll, events, most);
    if (count > 0 || timeout_ms == 0) return count;
    if (until != Clock::time_point::max() && Clock::now() >= until) return 0;
    const Clock::time_point next = std::min(until, NextChange(epoll));
    epoll.waiting = true;
    if (next == Clock::time_point::max()) {
      epoll.changed.Wait(network_.mutex_);
    } else {
      epoll.changed.WaitUntil(network_.mutex_, next);
    }
    epoll.waiting = false;
  }
}

// The answer to a question of transport/control/peer_user.cc. All simulated processes are of the
// user of this one.
std::string Sockets::Diagnose(const char* question, size_t bytes) {
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } asked{};
  std::memcpy(&asked, question, std::min(bytes, sizeof asked));
  const auto address = [](const __be32* number, __be16 port) {
    return TcpAddress{static_cast<int>(ntohl(number[0]) - Network::Current().first_address()),
                      ntohs(port)};
  };
  const inet_diag_sockid& id = asked.body.id;
  const TcpAddress own = address(id.idiag_src, id.idiag_sport);
  const TcpAddress peer = address(id.idiag_dst, id.idiag_dport);
  const bool held = Find(own, peer) != nullptr;
  struct {
    nlmsghdr head;
    union {
      nlmsgerr error;
      inet_diag_msg found;
    };
  } answer{};
  // An end that nobody holds any more, or not yet, has no inode.
  if (!held && Find(peer, own) == nullptr) {
    answer.head.nlmsg_type = NLMSG_ERROR;
    answer.head.nlmsg_len = NLMSG_LENGTH(sizeof answer.error);
    answer.error.error = -ENOENT;
  } else {
    answer.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    answer.head.nlmsg_len = NLMSG_LENGTH(sizeof answer.found);
    answer.found.id = id;
    answer.found.idiag_uid = geteuid();
    answer.found.idiag_inode = held ? 1 : 0;
  }
  return std::string(reinterpret_cast<const char*>(&answer), answer.head.nlmsg_len);
}

bool SimulatesSockets() { return Network::Exists(); }

// ---- epoll, timers, events

int OpenEpoll() {
  Sockets all(&Network::Current());
  auto file = std::make_shared<File>(File::Kind::kEpoll);
  file->epoll = std::make_shared<Epoll>();
  return all.Add(file);
}

int ControlEpoll(int epoll, int operation, int descriptor, const epoll_event* event) {
  Sockets all(&Network::Current());
  const FilePtr waits = all.Get(epoll), file = all.Get(descriptor);
  if (waits == nullptr || file == nullptr) return -EBADF;
  if (waits->epoll == nullptr) return -EINVAL;
  auto& items = waits->epoll->items;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Epoll::Item& item) { return item.file == file; });
  if ((operation == EPOLL_CTL_ADD) != (found == items.end()))
    return operation == EPOLL_CTL_ADD ? -EEXIST : -ENOENT;
  if (operation == EPOLL_CTL_DEL) {
    items.erase(found);
    file->watched_by.reset();
    if (file->end != nullptr) file->end->watcher = nullptr;
    return 0;
  }
  if (operation == EPOLL_CTL_ADD) {
    items.push_back({descriptor, file, *event, 0, true});
    file->watched_by = waits->epoll;
    if (file->end != nullptr) file->end->watcher = waits->epoll.get();
  } else {
    found->event = *event;
    found->forced = true;
  }
  waits->epoll->Look();
  return 0;
}

int WaitEpoll(int epoll, epoll_event* events, int most, int timeout_ms) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(epoll);
  if (file == nullptr || file->epoll == nullptr) return -EBADF;
  return all.Wait(*file->epoll, events, most, timeout_ms);
}

int OpenTimer() {
  Sockets all(&Network::Current());
  return all.Add(std::make_shared<File>(File::Kind::kTimer));
}

int SetTimer(int timer, int flags, const itimerspec& value) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(timer);
  if (file == nullptr || file->kind != File::Kind::kTimer) return -EBADF;
  const auto time = std::chrono::seconds(value.it_value.tv_sec) +
                    std::chrono::nanoseconds(value.it_value.tv_nsec);
  const bool absolute = (flags & TFD_TIMER_ABSTIME) != 0;
  file->expires = time.count() == 0 ? Clock::time_point::max()
                  : absolute        ? Clock::time_point(time)
                                    : After(Clock::now(), time);
  Sockets::Look(file);
  return 0;
}

int OpenEvent(unsigned value) {
  Sockets all(&Network::Current());
  auto file = std::make_shared<File>(File::Kind::kEvent);
  file->value = value;
  return all.Add(file);
}

// ---- sockets

int OpenSocket(int family, int type) {
  if (family == AF_NETLINK) {
    Sockets all(&Network::Current());
    return all.Add(std::make_shared<File>(File::Kind::kDiag));
  }
  if (family != AF_INET || (type & 0xF) != SOCK_STREAM) return -EAFNOSUPPORT;
  Sockets all(&Network::Current());
  auto file = std::make_shared<File>(File::Kind::kSocket);
  file->end = all.tcp().Open(CurrentHost());
  return all.Add(file);
}

int BindSocket(int descriptor, const sockaddr* address, socklen_t) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(descriptor);
  if (file == nullptr || file->end == nullptr) return -EBADF;
  return all.tcp().Bind(file->end, ReadAddress(address, file->end->own.host));
}

int ListenSocket(int descriptor) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(descriptor);
  if (file == nullptr || file->end == nullptr) return -EBADF;
  return all.tcp().Listen(file->end);
}

int AcceptSocket(int descriptor, sockaddr* address, socklen_t* bytes) {
  Sockets all(&Network::Current());
  TcpEnd* const end = all.Socket(descriptor);
  if (end == nullptr) return -EBADF;
  auto file = std::make_shared<File>(File::Kind::kSocket);
  file->end = all.tcp().Accept(*end);
  if (file->end == nullptr) return -EAGAIN;
  WriteAddress(file->end->peer, address, bytes);
  return all.Add(file);
}

int ConnectSocket(int descriptor, const sockaddr* address, socklen_t) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(descriptor);
  if (file == nullptr || file->end == nullptr) return -EBADF;
  return all.tcp().Connect(file->end, ReadAddress(address, file->end->own.host));
}

int ShutdownSocket(int descriptor, int how) {
  Sockets all(&Network::Current());
  TcpEnd* const end = all.Socket(descriptor);
  if (end == nullptr) return -EBADF;
  return all.tcp().Shutdown(*end, how != SHUT_WR, how != SHUT_RD);
}

int GetSocketName(int descriptor, sockaddr* address, socklen_t* bytes) {
  Sockets all(&Network::Current());
  const TcpEnd* const end = all.Socket(descriptor);
  if (end == nullptr) return -EBADF;
  WriteAddress(end->own, address, bytes);
  return 0;
}

int GetPeerName(int descriptor, sockaddr* address, socklen_t* bytes) {
  Sockets all(&Network::Current());
  TcpEnd* const end = all.Socket(descriptor);
  if (end == nullptr) return -EBADF;
  all.tcp().Settle(*end);
  if (!end->open()) return -ENOTCONN;
  WriteAddress(end->peer, address, bytes);
  return 0;
}

int GetSocketOption(int descriptor, int level, int name, void* value, socklen_t* bytes) {
  Sockets all(&Network::Current());
  TcpEnd* const end = all.Socket(descriptor);
  if (end == nullptr) return -EBADF;
  all.tcp().Settle(*end);
  if (level == SOL_SOCKET && name == SO_ERROR && *bytes >= sizeof(int)) {
    const int error = std::exchange(end->error, 0);
    std::memcpy(value, &error, sizeof error);
    *bytes = sizeof error;
    return 0;
  }
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    tcp_info info{};
    info.tcpi_state = end->established() ? TCP_ESTABLISHED : TCP_CLOSE;
    *bytes = static_cast<socklen_t>(std::min<size_t>(*bytes, sizeof info));
    std::memcpy(value, &info, *bytes);
    return 0;
  }
  return -EINVAL;
}

// What transport/control/ sets changes nothing here: delays, keepalive, limits of time.
int SetSocketOption(int descriptor, int, int, const void*, socklen_t) {
  Sockets all(&Network::Current());
  return all.Get(descriptor) == nullptr ? -EBADF : 0;
}

ssize_t WriteDescriptor(int descriptor, const iovec* parts, size_t count) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(descriptor);
  if (file == nullptr) return -EBADF;
  std::string bytes;
  for (size_t i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  if (file->end != nullptr) return all.tcp().Send(*file->end, bytes);
  if (file->kind == File::Kind::kEvent && bytes.size() == sizeof(uint64_t)) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    file->value += value;
    Sockets::Look(file);
  } else if (file->kind == File::Kind::kDiag) {
    file->answer = all.Diagnose(bytes.data(), bytes.size());
  } else {
    return -EINVAL;
  }
  return static_cast<ssize_t>(bytes.size());
}

ssize_t ReadDescriptor(int descriptor, const iovec* parts, size_t count) {
  Sockets all(&Network::Current());
  const FilePtr file = all.Get(descriptor);
  if (file == nullptr) return -EBADF;
  if (file->end != nullptr) {
    ssize_t done = 0;
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].iov_len == 0) continue;
      const int got =
          all.tcp().Receive(*file->end, static_cast<char*>(parts[i].iov_base), parts[i].iov_len);
      if (got <= 0) return done > 0 ? done : got;
      done += got;
      if (static_cast<size_t>(got) < parts[i].iov_len) break;
    }
    return done;
  }
  std::string bytes;
  if (file->kind == File::Kind::kEvent) {
    if (file->value == 0) return -EAGAIN;
    const uint64_t value = std::exchange(file->value, 0);
    bytes.assign(reinterpret_cast<const char*>(&value), sizeof value);
  } else if (file->kind == File::Kind::kDiag) {
    bytes = std::move(file->answer);
  }
  if (bytes.empty() || count == 0) return -EINVAL;
  const size_t take = std::min(bytes.size(), parts[0].iov_len);
  std::memcpy(parts[0].iov_base, bytes.data(), take);
  return static_cast<ssize_t>(take);
}

int PollDescriptors(pollfd* descriptors, nfds_t count) {
  Sockets all(&Network::Current());
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    const FilePtr file = all.Get(descriptors[i].fd);
    const uint32_t mask = file == nullptr ? uint32_t{POLLNVAL} : all.Ready(*file);
    const auto wanted = static_cast<uint32_t>(descriptors[i].events);
    descriptors[i].revents = static_cast<short>(mask & (wanted | POLLERR | POLLHUP | POLLNVAL));
    if (descriptors[i].revents != 0) ++ready;
  }
  return ready;
}

int CloseDescriptor(int descriptor) {
  Sockets all(&Network::Current());
  return all.Close(descriptor);
}

rlim_t DescriptorLimit() { return kFirstDescriptor + kMostDescriptors; }

std::string NumericAddress(const char* name) {
  const int host = Network::Current().HostNamed(name);
  return host < 0 ? "" : Network::Current().AddressOf(host);
}

size_t OpenDescriptors() { return Sockets::files().size(); }

}  // namespace monograph::simulation
