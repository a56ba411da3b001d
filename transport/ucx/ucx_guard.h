// Keeps UCX's TCP from who is not in a trusted network. UCX opens the port itself and has no way to
// say whom it takes, so a filter is attached to its listening sockets (SO_ATTACH_FILTER, for which
// no privilege is needed): the kernel drops every packet from another address before it reaches the
// socket, also those of the connections that the socket accepts.
//
// What it does not stop: who is in a trusted network, or can send and receive with an address of
// one.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "transport/trusted_network.h"

namespace monograph {

// Calls `open`, which makes UCX listen, and guards the sockets that listen on the addresses of
// trusted devices since. `own_host`: whether this host, with all its users, is let in, too; tasks
// that share memory need not be. `close` takes back what `open` did: it is called, and `open`
// again, if somebody connected before the guard stood. FailedPrecondition if the kernel knows no
// such filter. One call at a time in a process.
Status OpenGuarded(const std::vector<IpNetwork>& trusted, bool own_host,
                   const std::function<Status()>& open, const std::function<void()>& close);

}  // namespace monograph
