// Which user of this machine a connection on loopback leads to. Without a key that is all that can
// be known of a peer.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace monograph::control {

// "user 1000 (ada)", or without the name where there is none.
std::string UserName(uid_t user);

// OK if the socket at the other end of `descriptor`, a TCP connection that a program holds there,
// was made by the user as whom this process runs; root is no exception. Asks the kernel
// (sock_diag), some 10 us. Unauthenticated names both users and the remedy, or, for a connection
// that is not on loopback or that the kernel cannot tell of, what is wrong; Unavailable if the peer
// has closed its end or this process has no descriptor left to ask with. A client calls it when it
// has heard from its server: before the server has accepted the connection its end belongs to
// nobody. `peer` begins a message: "127.0.0.1:40312".
Status CheckPeerUser(int descriptor, const std::string& peer);

}  // namespace monograph::control
