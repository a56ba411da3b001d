// The kernel finds the other end of a loopback connection by its addresses and ports: one question
// and one answer on a netlink socket of sock_diag, both at once. /proc/net/tcp says the same, in
// time that grows with all connections of the machine. An end that no program holds (not accepted
// yet, or closed) has no inode, and its user says nothing.
#include "transport/control/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/descriptor.h"

namespace monograph::control {
namespace {

constexpr char kRemedy[] =
    "without a key only processes of one user on one machine serve each other; make a key with "
    "`monograph keygen` and start every process with --key_file";

// What sock_diag names a connection by, seen from the other end of `descriptor`. False if it is no
// connected TCP socket on loopback; errno is ENOTCONN if it was one.
bool OtherEnd(int descriptor, uint8_t* family, inet_diag_sockid* id) {
  sockaddr_storage own{}, other{};
  socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
      getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
    return false;
  *family = static_cast<uint8_t>(own.ss_family);
  id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const auto fill = [family](const sockaddr_storage& from, __be32* address, __be16* port) {
    if (*family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
      std::memcpy(address, &v4.sin_addr, sizeof v4.sin_addr);
      *port = v4.sin_port;
      return (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    std::memcpy(address, &v6.sin6_addr, sizeof v6.sin6_addr);
    *port = v6.sin6_port;
    return *family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  };
  const bool here = fill(own, id->idiag_dst, &id->idiag_dport);
  return fill(other, id->idiag_src, &id->idiag_sport) && here;
}

// On loopback this end learns at once that the other one is closed.
bool Established(int descriptor) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         info.tcpi_state == TCP_ESTABLISHED;
}

struct Answer {
  int error = 0;  // ENOENT: no such connection, or no sock_diag for TCP in this kernel
  inet_diag_msg connection{};
};

// Zero, or an errno if the kernel cannot be asked.
int Ask(uint8_t family, const inet_diag_sockid& id, Answer* answer) {
  Descriptor netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (netlink.get() < 0) return errno;
  // The answer is there when send returns.
  const timeval limit{1, 0};
  (void)setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } question{};
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = family;
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0u;
  question.body.id = id;
  if (send(netlink.get(), &question, sizeof question, 0) < 0) return errno;
  alignas(nlmsghdr) char bytes[4096];
  const ssize_t got = recv(netlink.get(), bytes, sizeof bytes, 0);
  if (got < 0) return errno;
  const auto* head = reinterpret_cast<const nlmsghdr*>(bytes);
  if (!NLMSG_OK(head, static_cast<size_t>(got))) return EBADMSG;
  if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
    answer->error = -static_cast<const nlmsgerr*>(NLMSG_DATA(head))->error;
    return 0;
  }
  if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
    return EBADMSG;
  std::memcpy(&answer->connection, NLMSG_DATA(head), sizeof answer->connection);
  return 0;
}

}  // namespace

std::string UserName(uid_t user) {
  std::string name = "user " + std::to_string(user);
  // The file and not the name service, which may ask other machines.
  const std::unique_ptr<FILE, int (*)(FILE*)> users(std::fopen("/etc/passwd", "re"), &std::fclose);
  while (users != nullptr) {
    const passwd* entry = fgetpwent(users.get());
    if (entry == nullptr) break;
    if (entry->pw_uid == user) return name + " (" + entry->pw_name + ")";
  }
  return name;
}

Status CheckPeerUser(int descriptor, const std::string& peer) {
  uint8_t family = 0;
  inet_diag_sockid id{};
  const Status closed = Unavailable(peer + " has closed its connection");
  errno = 0;
  if (!OtherEnd(descriptor, &family, &id)) {
    if (errno == ENOTCONN) return closed;
    return Unauthenticated(peer + " is not on this machine's loopback; " + kRemedy);
  }
  Answer answer;
  int error = Ask(family, id, &answer);
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
    return Unavailable("cannot ask the kernel whose connection " + peer +
                       " is: " + std::strerror(error));
  if (error == 0) error = answer.error;
  if (error == ENOENT && !Established(descriptor)) return closed;
  if (error != 0) {
    return Unauthenticated("the kernel does not say whose connection " + peer +
                           " is (sock_diag: " + std::strerror(error) + "); " + kRemedy);
  }
  // Where the connection is gone, the kernel names the socket that listens for such ones.
  const inet_diag_msg& found = answer.connection;
  if (found.idiag_inode == 0 || found.id.idiag_sport != id.idiag_sport ||
      found.id.idiag_dport != id.idiag_dport)
    return closed;
  if (found.idiag_uid == geteuid()) return Status();
  return Unauthenticated(peer + " belongs to " + UserName(found.idiag_uid) +
                         " and this process to " + UserName(geteuid()) + "; " + kRemedy);
}

}  // namespace monograph::control
