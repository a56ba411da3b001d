// Frames: the units of a control connection, and the preamble that comes before the first one. Pure
// encoding; no input or output here. The grammar stands at the top of frame.cc and in docs/wire.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::control {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kPreambleBytes = 32;
inline constexpr size_t kFramePrefixBytes = 8;
// Limits that hold for every frame, and those for the hello frames of a peer that is not known yet.
inline constexpr size_t kMaxHeadBytes = 64 * 1024;
inline constexpr size_t kMaxHelloBytes = 16 * 1024;
inline constexpr size_t kDefaultMaxBodyBytes = size_t{1} << 30;

enum class Security : uint8_t {
  kPlain = 0,  // frames follow as they are
  kTls = 1,    // a TLS 1.3 handshake with the pre-shared key follows, frames go inside
};

struct Preamble {
  uint16_t protocol_version = kProtocolVersion;
  Security security = Security::kPlain;
  std::string software_version;  // at most 24 bytes
};

std::string EncodePreamble(const Preamble& preamble);
// `bytes` may be the beginning of one: then only that is checked. InvalidArgument, showing the
// bytes, for what is not ours.
Result<Preamble> DecodePreamble(std::string_view bytes);

enum class FrameType : uint8_t {
  kHello = 1,    // body: an encoded Hello; status: why the sender refuses this connection
  kCall = 2,     // text: method; body: request; timeout_ms: what is left of the deadline
  kReply = 3,    // status of the call; body: response
  kPing = 4,     // body: progress
  kPong = 5,     // body: progress and clock readings
  kGoodbye = 6,  // the sender closes the connection on purpose; status: why
};

struct Frame {
  FrameType type = FrameType::kCall;
  uint64_t id = 0;  // of the call or ping
  uint32_t timeout_ms = 0;
  Code code = Code::kOk;
  bool derived = false;
  std::string text;       // the method's name, or the message of a status
  std::string lost_task;  // of a status
  std::string body;

  Status status() const;
  void SetStatus(const Status& status);
};

// Bodies of pings and pongs. Clock readings are nanoseconds of the sender's steady clock.
struct PingBody {
  uint64_t progress = 0;
};
struct PongBody {
  uint64_t progress = 0;
  int64_t received_ns = 0;  // when the ping came
  int64_t sent_ns = 0;      // when this pong left
};
inline int64_t WireTime(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
std::string EncodePing(const PingBody& ping);
std::string EncodePong(const PongBody& pong);
Result<PingBody> DecodePing(std::string_view body);
Result<PongBody> DecodePong(std::string_view body);

struct FramePrefix {
  uint32_t head_bytes = 0;
  uint32_t body_bytes = 0;
};

// Prefix and head; the body follows them on the wire as it is.
std::string EncodeHead(const Frame& frame);
FramePrefix DecodePrefix(std::string_view bytes);
// Fills all of `frame` but its body.
Status DecodeHead(std::string_view head, Frame* frame);

}  // namespace monograph::control
