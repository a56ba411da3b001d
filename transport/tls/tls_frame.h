// What crosses a connection of the TLS transport, under TLS.
//
//   connection = hello welcome (control | bulk)     the dialer's hello, then the acceptor's welcome
//   hello      = "MGTD" version:u8 index:u8 count:u8 0:u8 to:u64 from:u64
//   welcome    = code:u16 length:u16 text:byte[length]        code 0: the connection stands
//
// A pair of transports (`to`, `from`: their instances) has `count` connections; that of index 0 is
// the control stream, which carries all headers in order and small payloads, the others are bulk
// streams, which carry large payloads in pieces.
//
//   control    = frame*                                       both ways
//   frame      = type:u8 0:u8 header_bytes:u16 transfer:u32 payload_bytes:u64 header [payload]
//     type 1     a message; its payload, of at most kMaxInlineBytes, follows. transfer = 0
//     type 2     announces a payload that comes over the bulk streams; transfer counts these frames
//                from 1, modulo 2^32
//   bulk       = chunk*                                       both ways
//   chunk      = transfer:u32 bytes:u32 offset:u64 byte[bytes]
//
// A chunk may come before the frame that announces it; its stream is not read on until then. At
// most kMaxAnnounced transfers are announced and not complete. Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

inline constexpr size_t kMaxInlineBytes = 16 << 10;
inline constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 40;
inline constexpr uint32_t kMaxAnnounced = 16384;
inline constexpr int kMaxBulkStreams = 7;

struct TlsHello {
  static constexpr size_t kBytes = 24;
  uint64_t to = 0, from = 0;
  uint8_t index = 0, count = 0;
};

std::string EncodeHello(const TlsHello& hello);
// Whether a hello begins with these bytes, of which there are 4.
bool IsHello(std::string_view bytes);
// `bytes`: kBytes of them. InvalidArgument that says what is wrong.
Result<TlsHello> DecodeHello(std::string_view bytes);

struct TlsWelcome {
  static constexpr size_t kPrefixBytes = 4;
  static constexpr size_t kMaxTextBytes = 512;
  uint16_t code = 0;
  uint16_t text_bytes = 0;
};

std::string EncodeWelcome(const Status& status);
// `bytes`: kPrefixBytes of them; the text follows.
Result<TlsWelcome> DecodeWelcome(std::string_view bytes);

struct TlsFrame {
  static constexpr size_t kPrefixBytes = 16;
  enum Type : uint8_t { kInline = 1, kAnnounce = 2 };
  uint8_t type = kInline;
  uint16_t header_bytes = 0;
  uint32_t transfer = 0;
  uint64_t payload_bytes = 0;
};

// Appends the prefix to `out`.
void AppendFrame(const TlsFrame& frame, std::string* out);
// `bytes`: kPrefixBytes of them. InvalidArgument for a frame that breaks a rule by itself.
Result<TlsFrame> DecodeFrame(const char* bytes);

struct TlsChunk {
  static constexpr size_t kPrefixBytes = 16;
  uint32_t transfer = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;
};

void EncodeChunk(const TlsChunk& chunk, char* bytes);
TlsChunk DecodeChunk(const char* bytes);

}  // namespace monograph
