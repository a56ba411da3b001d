// Targets: TensorFlow's way to say where a session runs, as an address of one task.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/status.h"
#include "client/cluster.h"
#include "transport/control/key_ring.h"

namespace monograph {

// "grpc://host:port" of a server.
std::string TargetOf(const std::string& address);

// The cluster that the daemon at "grpc://host:port" belongs to, as it says itself; it is waited for
// at most `timeout`. None for "", which is this process. InvalidArgument for another text,
// FailedPrecondition if the daemon knows no cluster, else as control::Channel::Connect.
Result<std::optional<ClusterSpec>> ClusterOfTarget(const std::string& target,
                                                   const std::optional<control::KeyRing>& key,
                                                   std::chrono::milliseconds timeout);

}  // namespace monograph
