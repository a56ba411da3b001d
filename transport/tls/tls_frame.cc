#include "transport/tls/tls_frame.h"

#include <algorithm>
#include <cstring>

#include "base/codec.h"
#include "transport/transport.h"

namespace monograph {
namespace {

constexpr std::string_view kTlsMagic = "MGTD";
constexpr uint8_t kVersion = 1;

}  // namespace

std::string EncodeHello(const TlsHello& hello) {
  Encoder encoder;
  for (const char c : kTlsMagic) encoder.Put(c);
  encoder.Put(kVersion);
  encoder.Put(hello.index);
  encoder.Put(hello.count);
  encoder.Put(uint8_t{0});
  encoder.Put(hello.to);
  encoder.Put(hello.from);
  return encoder.Take();
}

bool IsHello(std::string_view bytes) { return bytes == kTlsMagic; }

Result<TlsHello> DecodeHello(std::string_view bytes) {
  if (!bytes.starts_with(kTlsMagic))
    return InvalidArgument("its first bytes are not those of a data connection of Monograph");
  Decoder decoder(bytes.substr(kTlsMagic.size()));
  const auto version = decoder.Get<uint8_t>();
  TlsHello hello;
  hello.index = decoder.Get<uint8_t>();
  hello.count = decoder.Get<uint8_t>();
  const auto zero = decoder.Get<uint8_t>();
  hello.to = decoder.Get<uint64_t>();
  hello.from = decoder.Get<uint64_t>();
  if (!decoder.ok() || version != kVersion) {
    return InvalidArgument("its data connection is of version " + std::to_string(version) +
                           "; this process speaks version " + std::to_string(kVersion));
  }
  if (zero != 0 || hello.from == 0 || hello.count < 2 || hello.count > kMaxBulkStreams + 1 ||
      hello.index >= hello.count) {
    return InvalidArgument("its hello breaks the rules: stream " + std::to_string(hello.index) +
                           " of " + std::to_string(hello.count) + ", from instance " +
                           std::to_string(hello.from));
  }
  return hello;
}

std::string EncodeWelcome(const Status& status) {
  const std::string_view text =
      std::string_view(status.message()).substr(0, TlsWelcome::kMaxTextBytes);
  Encoder encoder;
  encoder.Put(static_cast<uint16_t>(status.code()));
  encoder.Put(static_cast<uint16_t>(text.size()));
  return encoder.Take().append(text);
}

Result<TlsWelcome> DecodeWelcome(std::string_view bytes) {
  Decoder decoder(bytes);
  TlsWelcome welcome;
  welcome.code = decoder.Get<uint16_t>();
  welcome.text_bytes = decoder.Get<uint16_t>();
  if (!decoder.ok() || welcome.code > static_cast<uint16_t>(Code::kUnauthenticated) ||
      welcome.text_bytes > TlsWelcome::kMaxTextBytes) {
    return InvalidArgument("its welcome breaks the rules: code " + std::to_string(welcome.code) +
                           ", a text of " + std::to_string(welcome.text_bytes) + " bytes");
  }
  return welcome;
}

void AppendFrame(const TlsFrame& frame, std::string* out) {
  char bytes[TlsFrame::kPrefixBytes] = {};
  bytes[0] = static_cast<char>(frame.type);
  std::memcpy(bytes + 2, &frame.header_bytes, 2);
  std::memcpy(bytes + 4, &frame.transfer, 4);
  std::memcpy(bytes + 8, &frame.payload_bytes, 8);
  out->append(bytes, sizeof bytes);
}

Result<TlsFrame> DecodeFrame(const char* bytes) {
  TlsFrame frame;
  frame.type = static_cast<uint8_t>(bytes[0]);
  std::memcpy(&frame.header_bytes, bytes + 2, 2);
  std::memcpy(&frame.transfer, bytes + 4, 4);
  std::memcpy(&frame.payload_bytes, bytes + 8, 8);
  const bool is_inline = frame.type == TlsFrame::kInline;
  const uint64_t least = is_inline ? 0 : 1;
  const uint64_t most = is_inline ? kMaxInlineBytes : kMaxPayloadBytes;
  if ((!is_inline && frame.type != TlsFrame::kAnnounce) || bytes[1] != 0 ||
      (is_inline && frame.transfer != 0) || frame.header_bytes > kMaxHeaderBytes ||
      frame.payload_bytes < least || frame.payload_bytes > most) {
    return InvalidArgument("a frame of type " + std::to_string(frame.type) + " with a header of " +
                           std::to_string(frame.header_bytes) + " bytes and a payload of " +
                           std::to_string(frame.payload_bytes) + " bytes");
  }
  return frame;
}

void EncodeChunk(const TlsChunk& chunk, char* bytes) {
  std::memcpy(bytes, &chunk.transfer, 4);
  std::memcpy(bytes + 4, &chunk.bytes, 4);
  std::memcpy(bytes + 8, &chunk.offset, 8);
}

TlsChunk DecodeChunk(const char* bytes) {
  TlsChunk chunk;
  std::memcpy(&chunk.transfer, bytes, 4);
  std::memcpy(&chunk.bytes, bytes + 4, 4);
  std::memcpy(&chunk.offset, bytes + 8, 8);
  return chunk;
}

}  // namespace monograph
