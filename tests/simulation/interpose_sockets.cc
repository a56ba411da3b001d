// The functions of the system by which a program talks to others, as tests/simulation/interpose.cc
// has those for threads and clocks: on descriptors of the simulated network they come to
// sockets.h, on all others they are the C library's.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tests/simulation/sockets.h"

namespace monograph::simulation {
namespace {

// The C library's function of that name.
template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool IsOurs(int descriptor) { return descriptor >= kFirstDescriptor; }

// -errno becomes -1.
template <typename Number>
Number Told(Number result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace
}  // namespace monograph::simulation

using namespace monograph::simulation;  // NOLINT: each function below is one call of it

#define MG_REAL(name) static auto* const real = Real(&::name, #name)

extern "C" {

// ---- what waits

int epoll_create1(int flags) noexcept {
  if (SimulatesSockets()) return Told(OpenEpoll());
  MG_REAL(epoll_create1);
  return real(flags);
}

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (IsOurs(epoll)) return Told(ControlEpoll(epoll, operation, descriptor, event));
  MG_REAL(epoll_ctl);
  return real(epoll, operation, descriptor, event);
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  if (IsOurs(epoll)) return Told(WaitEpoll(epoll, events, most, timeout));
  MG_REAL(epoll_wait);
  return real(epoll, events, most, timeout);
}

int timerfd_create(clockid_t clock, int flags) noexcept {
  if (SimulatesSockets()) return Told(OpenTimer());
  MG_REAL(timerfd_create);
  return real(clock, flags);
}

int timerfd_settime(int timer, int flags, const itimerspec* value, itimerspec* before) noexcept {
  if (IsOurs(timer)) {
    if (before != nullptr) *before = {};
    return Told(SetTimer(timer, flags, *value));
  }
  MG_REAL(timerfd_settime);
  return real(timer, flags, value, before);
}

int eventfd(unsigned value, int flags) noexcept {
  if (SimulatesSockets()) return Told(OpenEvent(value));
  MG_REAL(eventfd);
  return real(value, flags);
}

int poll(pollfd* descriptors, nfds_t count, int timeout) {
  if (count > 0 && IsOurs(descriptors[0].fd)) {
    if (timeout != 0) {
      std::fprintf(stderr, "a simulated program waits in poll, which is not simulated\n");
      std::abort();
    }
    return PollDescriptors(descriptors, count);
  }
  MG_REAL(poll);
  return real(descriptors, count, timeout);
}

// ---- sockets

int socket(int family, int type, int protocol) noexcept {
  if (SimulatesSockets() && (family == AF_INET || family == AF_INET6 || family == AF_NETLINK))
    return Told(OpenSocket(family, type));
  MG_REAL(socket);
  return real(family, type, protocol);
}

int bind(int descriptor, const sockaddr* address, socklen_t bytes) noexcept {
  if (IsOurs(descriptor)) return Told(BindSocket(descriptor, address, bytes));
  MG_REAL(bind);
  return real(descriptor, address, bytes);
}

int listen(int descriptor, int backlog) noexcept {
  if (IsOurs(descriptor)) return Told(ListenSocket(descriptor));
  MG_REAL(listen);
  return real(descriptor, backlog);
}

int accept(int descriptor, sockaddr* address, socklen_t* bytes) {
  if (IsOurs(descriptor)) return Told(AcceptSocket(descriptor, address, bytes));
  MG_REAL(accept);
  return real(descriptor, address, bytes);
}

int accept4(int descriptor, sockaddr* address, socklen_t* bytes, int flags) {
  if (IsOurs(descriptor)) return Told(AcceptSocket(descriptor, address, bytes));
  MG_REAL(accept4);
  return real(descriptor, address, bytes, flags);
}

int connect(int descriptor, const sockaddr* address, socklen_t bytes) {
  if (IsOurs(descriptor)) return Told(ConnectSocket(descriptor, address, bytes));
  MG_REAL(connect);
  return real(descriptor, address, bytes);
}

int shutdown(int descriptor, int how) noexcept {
  if (IsOurs(descriptor)) return Told(ShutdownSocket(descriptor, how));
  MG_REAL(shutdown);
  return real(descriptor, how);
}

int getsockname(int descriptor, sockaddr* address, socklen_t* bytes) noexcept {
  if (IsOurs(descriptor)) return Told(GetSocketName(descriptor, address, bytes));
  MG_REAL(getsockname);
  return real(descriptor, address, bytes);
}

int getpeername(int descriptor, sockaddr* address, socklen_t* bytes) noexcept {
  if (IsOurs(descriptor)) return Told(GetPeerName(descriptor, address, bytes));
  MG_REAL(getpeername);
  return real(descriptor, address, bytes);
}

int getsockopt(int descriptor, int level, int name, void* value, socklen_t* bytes) noexcept {
  if (IsOurs(descriptor)) return Told(GetSocketOption(descriptor, level, name, value, bytes));
  MG_REAL(getsockopt);
  return real(descriptor, level, name, value, bytes);
}

int setsockopt(int descriptor, int level, int name, const void* value, socklen_t bytes) noexcept {
  if (IsOurs(descriptor)) return Told(SetSocketOption(descriptor, level, name, value, bytes));
  MG_REAL(setsockopt);
  return real(descriptor, level, name, value, bytes);
}

// ---- bytes

ssize_t send(int descriptor, const void* bytes, size_t count, int flags) {
  const iovec part{const_cast<void*>(bytes), count};
  if (IsOurs(descriptor)) return Told(WriteDescriptor(descriptor, &part, 1));
  MG_REAL(send);
  return real(descriptor, bytes, count, flags);
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  if (IsOurs(descriptor))
    return Told(WriteDescriptor(descriptor, message->msg_iov, message->msg_iovlen));
  MG_REAL(sendmsg);
  return real(descriptor, message, flags);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  const iovec part{const_cast<void*>(bytes), count};
  if (IsOurs(descriptor)) return Told(WriteDescriptor(descriptor, &part, 1));
  MG_REAL(write);
  return real(descriptor, bytes, count);
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  if (IsOurs(descriptor))
    return Told(WriteDescriptor(descriptor, parts, static_cast<size_t>(count)));
  MG_REAL(writev);
  return real(descriptor, parts, count);
}

ssize_t recv(int descriptor, void* bytes, size_t count, int flags) {
  const iovec part{bytes, count};
  if (IsOurs(descriptor)) return Told(ReadDescriptor(descriptor, &part, 1));
  MG_REAL(recv);
  return real(descriptor, bytes, count, flags);
}

ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  if (IsOurs(descriptor))
    return Told(ReadDescriptor(descriptor, message->msg_iov, message->msg_iovlen));
  MG_REAL(recvmsg);
  return real(descriptor, message, flags);
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  const iovec part{bytes, count};
  if (IsOurs(descriptor)) return Told(ReadDescriptor(descriptor, &part, 1));
  MG_REAL(read);
  return real(descriptor, bytes, count);
}

ssize_t readv(int descriptor, const iovec* parts, int count) {
  if (IsOurs(descriptor))
    return Told(ReadDescriptor(descriptor, parts, static_cast<size_t>(count)));
  MG_REAL(readv);
  return real(descriptor, parts, count);
}

// ---- descriptors

int close(int descriptor) {
  if (IsOurs(descriptor)) return Told(CloseDescriptor(descriptor));
  MG_REAL(close);
  return real(descriptor);
}

// Flags of simulated descriptors change nothing: none blocks, and no program is started.
int fcntl(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (IsOurs(descriptor)) return command == F_GETFL ? O_RDWR | O_NONBLOCK : 0;
  MG_REAL(fcntl);
  return real(descriptor, command, argument);
}

int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (IsOurs(descriptor)) return 0;
  MG_REAL(ioctl);
  return real(descriptor, request, argument);
}

int getrlimit(__rlimit_resource_t resource, rlimit* limit) noexcept {
  if (resource == RLIMIT_NOFILE && SimulatesSockets()) {
    *limit = {DescriptorLimit(), DescriptorLimit()};
    return 0;
  }
  MG_REAL(getrlimit);
  return real(resource, limit);
}

// ---- names

// What the machines of the network are called; digits stay what they are. What comes is the C
// library's, so that its freeaddrinfo takes it.
int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  MG_REAL(getaddrinfo);
  if (!SimulatesSockets() || name == nullptr) return real(name, service, hints, found);
  const std::string address = NumericAddress(name);
  if (address.empty()) return EAI_NONAME;
  addrinfo numeric{};
  if (hints != nullptr) numeric = *hints;
  numeric.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (numeric.ai_flags & AI_PASSIVE);
  return real(address.c_str(), service, &numeric, found);
}

}  // extern "C"
