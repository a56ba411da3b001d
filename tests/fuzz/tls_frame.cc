// What crosses a connection of the TLS transport, and the address of one: each sees all bytes.
#include "transport/tls/tls_frame.h"

#include "tests/fuzz/targets.h"
#include "transport/tls/tls_address.h"

namespace monograph::fuzz {

void tls_frame(std::string_view bytes) {
  if (bytes.size() >= 4) (void)IsHello(bytes.substr(0, 4));
  if (bytes.size() >= TlsHello::kBytes) {
    const Result<TlsHello> hello = DecodeHello(bytes.substr(0, TlsHello::kBytes));
    if (hello.ok()) MG_CHECK(EncodeHello(*hello) == bytes.substr(0, TlsHello::kBytes));
  }
  if (bytes.size() >= TlsWelcome::kPrefixBytes) {
    const Result<TlsWelcome> welcome = DecodeWelcome(bytes.substr(0, TlsWelcome::kPrefixBytes));
    if (welcome.ok()) MG_CHECK(welcome->text_bytes <= TlsWelcome::kMaxTextBytes);
  }
  if (bytes.size() >= TlsFrame::kPrefixBytes) {
    const Result<TlsFrame> frame = DecodeFrame(bytes.data());
    if (frame.ok()) {
      std::string again;
      AppendFrame(*frame, &again);
      MG_CHECK(again == bytes.substr(0, TlsFrame::kPrefixBytes));
      MG_CHECK(frame->payload_bytes <= kMaxPayloadBytes);
    }
    char again[TlsChunk::kPrefixBytes];
    EncodeChunk(DecodeChunk(bytes.data()), again);
    MG_CHECK(std::string_view(again, sizeof again) == bytes.substr(0, sizeof again));
  }
  if (const Result<TlsAddress> address = DecodeTlsAddress(bytes); address.ok())
    MG_CHECK(EncodeTlsAddress(*address) == bytes);
  // Past the checksum: the bytes as the name.
  TlsAddress address{.tls = true, .instance = 1, .host = 2, .port = 3, .name = {}};
  address.name = bytes.substr(0, 255);
  if (const Result<TlsAddress> read = DecodeTlsAddress(EncodeTlsAddress(address)); read.ok())
    MG_CHECK(read->name == address.name && read->port == address.port);
}

}  // namespace monograph::fuzz
