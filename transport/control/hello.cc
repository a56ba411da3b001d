// Grammar of a hello's body, all integers little-endian, bytes := length:u32 byte[length]:
//
//   hello := purpose:u8 token:u64 incarnation:u64
//            software:bytes task:bytes fingerprint:bytes extra:bytes
//
// The protocol version travels in the preamble.
#include "transport/control/hello.h"

#include "base/codec.h"
#include "base/random.h"

namespace monograph::control {
namespace {

std::string ShortHex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes.substr(0, 8)) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

}  // namespace

std::string SoftwareVersion() { return MG_VERSION; }

uint64_t ProcessIncarnation() {
  static const uint64_t incarnation = RandomNonZero();
  return incarnation;
}

std::string EncodeHello(const Hello& hello) {
  Encoder encoder;
  encoder.Put(static_cast<uint8_t>(hello.purpose));
  encoder.Put(hello.token);
  encoder.Put(hello.incarnation);
  encoder.PutBytes(hello.software_version);
  encoder.PutBytes(hello.task_name);
  encoder.PutBytes(hello.fingerprint);
  encoder.PutBytes(hello.extra);
  return encoder.Take();
}

Result<Hello> DecodeHello(std::string_view bytes) {
  Decoder decoder(bytes);
  Hello hello;
  const auto purpose = decoder.Get<uint8_t>();
  hello.token = decoder.Get<uint64_t>();
  hello.incarnation = decoder.Get<uint64_t>();
  hello.software_version = decoder.GetBytes();
  hello.task_name = decoder.GetBytes();
  hello.fingerprint = decoder.GetBytes();
  hello.extra = decoder.GetBytes();
  if (!decoder.ok() || !decoder.rest().empty() || purpose > 1 || hello.incarnation == 0) {
    return InvalidArgument("it sent a malformed hello");
  }
  hello.purpose = static_cast<Hello::Purpose>(purpose);
  return hello;
}

Status CheckPreamble(const Preamble& own, const Preamble& theirs, const std::string& peer) {
  if (own.protocol_version != theirs.protocol_version) {
    return FailedPrecondition(peer + " runs Monograph " + theirs.software_version +
                              " (control protocol " + std::to_string(theirs.protocol_version) +
                              "), this process runs Monograph " + own.software_version +
                              " (control protocol " + std::to_string(own.protocol_version) +
                              "); install the same version on both");
  }
  if (own.security == Security::kPlain && theirs.security == Security::kTls) {
    return Unauthenticated(peer +
                           " was started with a key and this process without one; start both with "
                           "the same --key_file");
  }
  if (own.security == Security::kTls && theirs.security == Security::kPlain) {
    return Unauthenticated(
        peer +
        " does not speak TLS: it was started without a key; start both with the same --key_file");
  }
  return Status();
}

Status CheckHello(const Hello& own, const Hello& theirs, const std::string& peer) {
  if (own.software_version != theirs.software_version) {
    return FailedPrecondition(peer + " runs Monograph " + theirs.software_version +
                              ", this process runs Monograph " + own.software_version +
                              "; install the same version on both");
  }
  if (!own.fingerprint.empty() && !theirs.fingerprint.empty() &&
      own.fingerprint != theirs.fingerprint) {
    return FailedPrecondition(
        peer + " knows other ops than this process, although both run Monograph " +
        own.software_version + " (op registry " + ShortHex(theirs.fingerprint) + " there, " +
        ShortHex(own.fingerprint) + " here); build both from the same sources");
  }
  return Status();
}

}  // namespace monograph::control
