// Hello: what the two ends of a control connection tell each other first, and the rules by which
// one refuses the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/control/frame.h"

namespace monograph::control {

// The version of this build.
std::string SoftwareVersion();

// A random number, never zero, chosen once in the life of this process: a restarted task has
// another one.
uint64_t ProcessIncarnation();

struct Hello {
  uint16_t protocol_version = kProtocolVersion;
  std::string software_version = SoftwareVersion();
  // Says which ops this process knows; opaque bytes of the upper layer. Peers whose fingerprints
  // differ refuse each other, unless one is empty.
  std::string fingerprint;
  // "/job:worker/replica:0/task:1"
  std::string task_name;
  uint64_t incarnation = ProcessIncarnation();
  // Whatever else the upper layer wants the peer to know at once; together with the rest at most
  // kMaxHelloBytes.
  std::string extra;

  // What the connection is for; set by this folder. Heartbeats travel on a connection of their own,
  // which names the connection of calls that it guards by the random token of that connection.
  enum class Purpose : uint8_t { kCalls = 0, kHeartbeat = 1 };
  Purpose purpose = Purpose::kCalls;
  uint64_t token = 0;
};

std::string EncodeHello(const Hello& hello);
Result<Hello> DecodeHello(std::string_view bytes);

// FailedPrecondition for another protocol version, Unauthenticated where only one side has a key.
// `peer` names the other end.
Status CheckPreamble(const Preamble& own, const Preamble& theirs, const std::string& peer);
// FailedPrecondition for another software version or other ops.
Status CheckHello(const Hello& own, const Hello& theirs, const std::string& peer);

}  // namespace monograph::control
