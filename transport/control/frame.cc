// Grammar of a control connection. All integers are little-endian.
//
//   connection := preamble [ TLS 1.3 handshake ] hello frame*
//   preamble   := "MGC\n" version:u16 security:u8 length:u8 software:byte[24]
//   hello      := frame with type 1; body as in hello.cc
//   frame      := head_bytes:u32 body_bytes:u32 head body:byte[body_bytes]
//   head       := type:u8 flags:u8 code:u16 timeout_ms:u32 id:u64 [ lost ] text
//   lost       := bytes:u32 byte[bytes]
//   ping       := progress:u64
//   pong       := progress:u64 received_ns:i64 sent_ns:i64
//
// Each side sends a connection; the client's preamble and hello come first. The preamble has 32
// bytes in every protocol version. security is 0 for plain frames and 1 for TLS with the cluster's
// key; both sides must say the same. flags: bit 0 marks a derived status, bit 1 one with a lost
// task, whose name comes before the text; other bits are zero. The text is the rest of the head.
// type, text and body mean what FrameType says.
#include "transport/control/frame.h"

#include <cctype>

#include "base/codec.h"

namespace monograph::control {
namespace {

constexpr std::string_view kFrameMagic = "MGC\n";
constexpr size_t kSoftwareBytes = 24;
constexpr size_t kFixedHeadBytes = 16;
constexpr uint8_t kDerivedFlag = 1, kLostTaskFlag = 2;

std::string Printable(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    if (std::isprint(static_cast<unsigned char>(c)) && c != '\\' && c != '\'') {
      text.push_back(c);
    } else {
      text += {'\\', 'x', kDigits[static_cast<unsigned char>(c) >> 4],
               kDigits[static_cast<unsigned char>(c) & 15]};
    }
  }
  return text;
}

}  // namespace

std::string EncodePreamble(const Preamble& preamble) {
  const std::string_view software =
      std::string_view(preamble.software_version).substr(0, kSoftwareBytes);
  Encoder encoder;
  encoder.Put(preamble.protocol_version);
  encoder.Put(static_cast<uint8_t>(preamble.security));
  encoder.Put(static_cast<uint8_t>(software.size()));
  std::string bytes(kFrameMagic);
  bytes += encoder.bytes();
  bytes += software;
  bytes.resize(kPreambleBytes, '\0');
  return bytes;
}

Result<Preamble> DecodePreamble(std::string_view bytes) {
  const size_t known = bytes.size() < kFrameMagic.size() ? bytes.size() : kFrameMagic.size();
  if (bytes.substr(0, known) != kFrameMagic.substr(0, known)) {
    return InvalidArgument("it sent '" + Printable(bytes.substr(0, 8)) +
                           "', not the beginning of a Monograph connection");
  }
  Preamble preamble;
  if (bytes.size() < kPreambleBytes) return preamble;
  Decoder decoder(bytes.substr(kFrameMagic.size()));
  preamble.protocol_version = decoder.Get<uint16_t>();
  const auto security = decoder.Get<uint8_t>();
  const auto length = decoder.Get<uint8_t>();
  if (security > 1 || length > kSoftwareBytes) {
    return InvalidArgument("it sent a malformed preamble '" + Printable(bytes.substr(0, 8)) + "'");
  }
  preamble.security = static_cast<Security>(security);
  preamble.software_version = Printable(decoder.rest().substr(0, length));
  return preamble;
}

Status Frame::status() const {
  if (code == Code::kOk) return Status();
  Status status(code, text, lost_task);
  return derived ? status.AsDerived() : status;
}

void Frame::SetStatus(const Status& status) {
  code = status.code();
  derived = status.derived();
  text = status.message();
  lost_task = status.lost_task();
}

std::string EncodePing(const PingBody& ping) {
  Encoder encoder;
  encoder.Put(ping.progress);
  return encoder.Take();
}

std::string EncodePong(const PongBody& pong) {
  Encoder encoder;
  encoder.Put(pong.progress);
  encoder.Put(pong.received_ns);
  encoder.Put(pong.sent_ns);
  return encoder.Take();
}

Result<PingBody> DecodePing(std::string_view body) {
  Decoder decoder(body);
  PingBody ping;
  ping.progress = decoder.Get<uint64_t>();
  if (!decoder.ok()) return InvalidArgument("it sent a malformed ping");
  return ping;
}

Result<PongBody> DecodePong(std::string_view body) {
  Decoder decoder(body);
  PongBody pong;
  pong.progress = decoder.Get<uint64_t>();
  pong.received_ns = decoder.Get<int64_t>();
  pong.sent_ns = decoder.Get<int64_t>();
  if (!decoder.ok()) return InvalidArgument("it sent a malformed pong");
  return pong;
}

std::string EncodeHead(const Frame& frame) {
  const size_t lost_bytes = frame.lost_task.empty() ? 0 : sizeof(uint32_t) + frame.lost_task.size();
  MG_CHECK(lost_bytes <= kMaxHeadBytes - kFixedHeadBytes);
  const std::string_view text =
      std::string_view(frame.text).substr(0, kMaxHeadBytes - kFixedHeadBytes - lost_bytes);
  Encoder encoder;
  encoder.Put(static_cast<uint32_t>(kFixedHeadBytes + lost_bytes + text.size()));
  encoder.Put(static_cast<uint32_t>(frame.body.size()));
  encoder.Put(static_cast<uint8_t>(frame.type));
  encoder.Put(static_cast<uint8_t>((frame.derived ? kDerivedFlag : 0) |
                                   (lost_bytes > 0 ? kLostTaskFlag : 0)));
  encoder.Put(static_cast<uint16_t>(frame.code));
  encoder.Put(frame.timeout_ms);
  encoder.Put(frame.id);
  if (lost_bytes > 0) encoder.PutBytes(frame.lost_task);
  std::string bytes = encoder.Take();
  bytes += text;
  return bytes;
}

FramePrefix DecodePrefix(std::string_view bytes) {
  Decoder decoder(bytes);
  FramePrefix prefix;
  prefix.head_bytes = decoder.Get<uint32_t>();
  prefix.body_bytes = decoder.Get<uint32_t>();
  return prefix;
}

Status DecodeHead(std::string_view head, Frame* frame) {
  Decoder decoder(head);
  const auto type = decoder.Get<uint8_t>();
  const auto flags = decoder.Get<uint8_t>();
  const auto code = decoder.Get<uint16_t>();
  frame->timeout_ms = decoder.Get<uint32_t>();
  frame->id = decoder.Get<uint64_t>();
  if (!decoder.ok())
    return InvalidArgument("it sent a frame whose head has " + std::to_string(head.size()) +
                           " bytes");
  if (type < static_cast<uint8_t>(FrameType::kHello) ||
      type > static_cast<uint8_t>(FrameType::kGoodbye)) {
    return InvalidArgument("it sent a frame of unknown type " + std::to_string(type));
  }
  frame->type = static_cast<FrameType>(type);
  frame->derived = (flags & kDerivedFlag) != 0;
  frame->code = static_cast<Code>(code);
  frame->lost_task = (flags & kLostTaskFlag) != 0 ? decoder.GetBytes() : std::string_view();
  if (!decoder.ok()) return InvalidArgument("it sent a frame whose lost task is cut off");
  frame->text = decoder.rest();
  return Status();
}

}  // namespace monograph::control
