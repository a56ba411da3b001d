// Descriptors of the simulated network, as the system calls below have them: sockets, what waits
// for them (epoll, timerfd, eventfd), and the answers of sock_diag. The C library's functions that
// come here are in tests/simulation/interpose_sockets.cc.
//
// Their numbers begin where those of the system end (kFirstDescriptor): a function that is given a
// number knows by it whose the descriptor is. New ones are simulated as long as there is a Network:
// those of processes outside of any are the system's. All machines share the numbers; the lowest
// that is free is given first, as by the system.
//
// Only what Boost.Asio and transport/control/ ask for is there; other questions get EINVAL. All
// sockets are non-blocking.
//
// Threads: any. A socket belongs to the machine of the thread that opens it.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <string>

namespace monograph::simulation {

inline constexpr int kFirstDescriptor = 1 << 20;

// Whether descriptors that are opened now are simulated.
bool SimulatesSockets();

// Each returns what the system call of its name returns, but -errno in the place of -1.

int OpenEpoll();
int ControlEpoll(int epoll, int operation, int descriptor, const epoll_event* event);
int WaitEpoll(int epoll, epoll_event* events, int most, int timeout_ms);
int OpenTimer();
int SetTimer(int timer, int flags, const itimerspec& value);
int OpenEvent(unsigned value);

int OpenSocket(int family, int type);
int BindSocket(int descriptor, const sockaddr* address, socklen_t bytes);
int ListenSocket(int descriptor);
int AcceptSocket(int descriptor, sockaddr* address, socklen_t* bytes);
int ConnectSocket(int descriptor, const sockaddr* address, socklen_t bytes);
int ShutdownSocket(int descriptor, int how);
int GetSocketName(int descriptor, sockaddr* address, socklen_t* bytes);
int GetPeerName(int descriptor, sockaddr* address, socklen_t* bytes);
int GetSocketOption(int descriptor, int level, int name, void* value, socklen_t* bytes);
int SetSocketOption(int descriptor, int level, int name, const void* value, socklen_t bytes);

ssize_t WriteDescriptor(int descriptor, const iovec* parts, size_t count);
ssize_t ReadDescriptor(int descriptor, const iovec* parts, size_t count);
int PollDescriptors(pollfd* descriptors, nfds_t count);  // without waiting
int CloseDescriptor(int descriptor);

// The address of a simulated machine by its name, in digits; empty: there is none of that name.
std::string NumericAddress(const char* name);

// What RLIMIT_NOFILE is where descriptors are simulated.
rlim_t DescriptorLimit();

// How many there are.
size_t OpenDescriptors();

}  // namespace monograph::simulation
