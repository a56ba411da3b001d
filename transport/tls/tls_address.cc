#include "transport/tls/tls_address.h"

#include <algorithm>

#include "base/codec.h"
#include "transport/address_checksum.h"

namespace monograph {
namespace {

constexpr std::string_view kTlsAddressMagic = "MGTL";
constexpr uint8_t kTlsAddressVersion = 1;
constexpr size_t kMaxNameBytes = 255;

}  // namespace

std::string EncodeTlsAddress(const TlsAddress& address) {
  MG_CHECK(address.name.size() <= kMaxNameBytes);
  Encoder encoder;
  for (const char c : kTlsAddressMagic) encoder.Put(c);
  encoder.Put(kTlsAddressVersion);
  encoder.Put(static_cast<uint8_t>(address.tls));
  encoder.Put(uint16_t{0});
  encoder.Put(address.instance);
  encoder.Put(address.host);
  encoder.Put(address.port);
  encoder.Put(static_cast<uint16_t>(address.name.size()));
  encoder.Put(AddressChecksum(encoder.bytes(), address.name));
  return encoder.Take() + address.name;
}

Result<TlsAddress> DecodeTlsAddress(std::string_view bytes) {
  if (!bytes.starts_with(kTlsAddressMagic))
    return InvalidArgument("its address is not one of a TLS transport");
  Decoder decoder(bytes.substr(kTlsAddressMagic.size()));
  const auto version = decoder.Get<uint8_t>();
  const auto flags = decoder.Get<uint8_t>();
  const auto zero = decoder.Get<uint16_t>();
  TlsAddress address;
  address.tls = flags == 1;
  address.instance = decoder.Get<uint64_t>();
  address.host = decoder.Get<uint64_t>();
  address.port = decoder.Get<uint16_t>();
  const auto length = decoder.Get<uint16_t>();
  const auto crc = decoder.Get<uint32_t>();
  if (!decoder.ok() || decoder.rest().size() != length) {
    return InvalidArgument("its TLS address is cut short or too long (" +
                           std::to_string(bytes.size()) + " bytes)");
  }
  if (crc != AddressChecksum(bytes.substr(0, kAddressPrefixBytes), decoder.rest()))
    return InvalidArgument("its TLS address is damaged (the checksum differs)");
  if (version != kTlsAddressVersion) {
    return InvalidArgument("its TLS address is of version " + std::to_string(version) +
                           "; this process speaks version " + std::to_string(kTlsAddressVersion));
  }
  address.name = decoder.rest();
  const bool printable = std::all_of(address.name.begin(), address.name.end(),
                                     [](char c) { return c > ' ' && c < '\x7f'; });
  if (flags > 1 || zero != 0 || address.instance == 0 || !printable || length > kMaxNameBytes ||
      (address.port != 0) != (length != 0)) {
    return InvalidArgument("its TLS address breaks the rules (flags " + std::to_string(flags) +
                           ", instance " + std::to_string(address.instance) + ", port " +
                           std::to_string(address.port) + ", a name of " + std::to_string(length) +
                           " bytes)");
  }
  return address;
}

}  // namespace monograph
