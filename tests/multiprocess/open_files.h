// What other processes can find of a process: its sockets, and the memory that it shares; and what
// they can send there.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace monograph {

struct OpenSocket {
  std::string table;  // in /proc/net: "tcp", "tcp6", "udp", "unix", ...
  bool listens = false;
  int port = 0;      // of tcp and udp
  std::string name;  // of unix; "@" begins one in the abstract name space
};

std::string ToString(const std::vector<OpenSocket>& sockets);

// The sockets of every kind that the process has.
std::vector<OpenSocket> SocketsOf(pid_t pid);

struct SharedSegment {
  std::string name;
  unsigned mode = 0;
  uid_t owner = 0;
  bool linked = false;  // others find it by a name in a folder, or by a System V key or id
};

// What UCX 1.13's TCP answers by ending the process: its magic number, and a message of an unknown
// kind.
std::string KillingPacket();

// Files in /dev/shm, memfds and System V segments that the process has open or mapped.
std::vector<SharedSegment> SegmentsOf(pid_t pid);

}  // namespace monograph
