// Encoding, decoding with a checksum, and the choice, which looks at the same facts whichever side
// asks: shared memory first, then a network that UCX may use, then TLS.
#include "transport/lanes/offer.h"

#include <netinet/in.h>
#include <zlib.h>

#include <algorithm>
#include <span>

#include "base/codec.h"

namespace monograph {
namespace {

constexpr std::string_view kOfferMagic = "MGLN";
constexpr uint8_t kOfferVersion = 1;
constexpr uint8_t kSharedMemoryFlag = 1, kTlsListensFlag = 2, kGpusFlag = 4, kGpuMemoryFlag = 8,
                  kGpuDirectFlag = 16, kGpuStagedFlag = 32;

uint32_t Checksum(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void PutNetworks(std::span<const IpNetwork> networks, Encoder* encoder) {
  encoder->Put(static_cast<uint8_t>(networks.size()));
  for (const IpNetwork& network : networks) {
    encoder->Put(static_cast<uint8_t>(network.family == AF_INET ? 4 : 6));
    encoder->Put(static_cast<uint8_t>(network.bits));
    encoder->Put(network.bytes);
  }
}

// False if one is no network.
bool GetNetworks(Decoder* decoder, std::vector<IpNetwork>* networks) {
  for (int left = decoder->Get<uint8_t>(); left > 0; --left) {
    IpNetwork& network = networks->emplace_back();
    const auto family = decoder->Get<uint8_t>();
    network.family = family == 4 ? AF_INET : AF_INET6;
    network.bits = decoder->Get<uint8_t>();
    network.bytes = decoder->Get<std::array<uint8_t, 16>>();
    if ((family != 4 && family != 6) || network.bits > (family == 4 ? 32 : 128)) return false;
  }
  return true;
}

// Whether `to` has an address that UCX's TCP of `from` may reach, and that takes it.
bool Trusts(const LanesOffer& from, const LanesOffer& to) {
  return std::any_of(to.addresses.begin(), to.addresses.end(), [&](const IpNetwork& address) {
    if (address.loopback() && (from.host != to.host || from.host == 0)) return false;
    return std::any_of(from.trusted.begin(), from.trusted.end(),
                       [&](const IpNetwork& network) { return network.Contains(address); });
  });
}

bool Share(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](uint64_t number) {
    return std::find(b.begin(), b.end(), number) != b.end();
  });
}

std::string Text(const LanesOffer& offer) {
  std::string text;
  if (!offer.ucx.empty()) {
    text = offer.names + " of UCX " + std::to_string(offer.ucx_major) + "." +
           std::to_string(offer.ucx_minor);
    for (const IpNetwork& address : offer.addresses)
      text += (&address == &offer.addresses.front() ? " (tcp at " : ", ") + address.AddressText();
    if (!offer.addresses.empty()) text += ")";
  }
  if (!offer.tls.empty()) {
    text += (text.empty() ? "" : " and ") + std::string("tls");
    if (!offer.tls_listens) text += " (to tasks that listen)";
  }
  return text.empty() ? "nothing" : text;
}

Result<LaneChoice> ChooseWay(const LanesOffer& mine, const LanesOffer& theirs) {
  const bool same_host = mine.host != 0 && mine.host == theirs.host;
  const bool ucx = !mine.ucx.empty() && !theirs.ucx.empty() && mine.ucx_major == theirs.ucx_major &&
                   mine.ucx_minor == theirs.ucx_minor;
  const bool both_share = mine.shared_memory && theirs.shared_memory;
  const bool memory = same_host && both_share && mine.memory != 0 && mine.memory == theirs.memory;
  if (ucx && memory) return LaneChoice{.way = LaneChoice::Way::kUcx};
  // On one host a UCX that has shared memory would use it, and takes no TCP of its own host.
  const bool apart = !same_host || (!mine.shared_memory && !theirs.shared_memory);
  const bool network =
      Share(mine.fabrics, theirs.fabrics) || (Trusts(mine, theirs) && Trusts(theirs, mine));
  if (ucx && apart && network) return LaneChoice{.way = LaneChoice::Way::kUcx};
  if (!mine.tls.empty() && !theirs.tls.empty() && (mine.tls_listens || theirs.tls_listens)) {
    LaneChoice choice{.way = LaneChoice::Way::kTls};
    if (same_host && both_share) {
      choice.note = memory ? "same host, but another version of UCX"
                           : "same host, but another user, container or security label";
    }
    return choice;
  }
  return FailedPrecondition(
      "no lane leads there: this task offers " + Text(mine) + ", and it offers " + Text(theirs) +
      (same_host ? ", and both are on one host" : "") +
      "; tasks of one host share memory if one user runs them, others need a key (tls) or a "
      "trusted network (tcp)");
}

// Why memory of GPUs goes through the host; empty: it need not.
std::string WhyStaged(const LanesOffer& mine, const LanesOffer& theirs, LaneChoice::Way way) {
  if (mine.gpu_staged || theirs.gpu_staged) return "--gpu_transfers=staged";
  if (way == LaneChoice::Way::kTls) return "tls";
  for (const LanesOffer* offer : {&mine, &theirs}) {
    if (!offer->gpu_memory)
      return "UCX " + std::to_string(offer->ucx_major) + "." + std::to_string(offer->ucx_minor) +
             " does not know CUDA's memory";
  }
  return "";
}

}  // namespace

std::string EncodeLanesOffer(const LanesOffer& offer) {
  Encoder encoder;
  for (const char c : kOfferMagic) encoder.Put(c);
  encoder.Put(kOfferVersion);
  encoder.Put(static_cast<uint8_t>(
      (offer.shared_memory ? kSharedMemoryFlag : 0) | (offer.tls_listens ? kTlsListensFlag : 0) |
      (offer.gpus ? kGpusFlag : 0) | (offer.gpu_memory ? kGpuMemoryFlag : 0) |
      (offer.gpu_direct ? kGpuDirectFlag : 0) | (offer.gpu_staged ? kGpuStagedFlag : 0)));
  encoder.Put(offer.ucx_major);
  encoder.Put(offer.ucx_minor);
  encoder.Put(offer.host);
  encoder.Put(offer.memory);
  encoder.Put(static_cast<uint8_t>(offer.fabrics.size()));
  for (const uint64_t fabric : offer.fabrics) encoder.Put(fabric);
  PutNetworks(offer.addresses, &encoder);
  PutNetworks(offer.trusted, &encoder);
  for (const std::string& bytes : {offer.names, offer.ucx, offer.tls}) encoder.PutBytes(bytes);
  encoder.Put(Checksum(encoder.bytes()));
  return encoder.Take();
}

Result<LanesOffer> DecodeLanesOffer(std::string_view bytes) {
  if (!bytes.starts_with(kOfferMagic))
    return InvalidArgument("its address is not one of a Monograph data plane");
  Decoder decoder(bytes.substr(kOfferMagic.size()));
  if (const auto version = decoder.Get<uint8_t>(); decoder.ok() && version != kOfferVersion) {
    return InvalidArgument("its address is of version " + std::to_string(version) +
                           "; this process speaks version " + std::to_string(kOfferVersion));
  }
  LanesOffer offer;
  const auto flags = decoder.Get<uint8_t>();
  offer.shared_memory = (flags & kSharedMemoryFlag) != 0;
  offer.tls_listens = (flags & kTlsListensFlag) != 0;
  offer.gpus = (flags & kGpusFlag) != 0;
  offer.gpu_memory = (flags & kGpuMemoryFlag) != 0;
  offer.gpu_direct = (flags & kGpuDirectFlag) != 0;
  offer.gpu_staged = (flags & kGpuStagedFlag) != 0;
  offer.ucx_major = decoder.Get<uint8_t>();
  offer.ucx_minor = decoder.Get<uint8_t>();
  offer.host = decoder.Get<uint64_t>();
  offer.memory = decoder.Get<uint64_t>();
  for (int left = decoder.Get<uint8_t>(); left > 0; --left)
    offer.fabrics.push_back(decoder.Get<uint64_t>());
  const bool networks =
      GetNetworks(&decoder, &offer.addresses) && GetNetworks(&decoder, &offer.trusted);
  for (std::string* part : {&offer.names, &offer.ucx, &offer.tls}) *part = decoder.GetBytes();
  const size_t covered = bytes.size() - decoder.rest().size();
  const auto crc = decoder.Get<uint32_t>();
  if (!decoder.ok() || !decoder.rest().empty()) {
    return InvalidArgument("its address is cut short or too long (" + std::to_string(bytes.size()) +
                           " bytes)");
  }
  if (crc != Checksum(bytes.substr(0, covered)) || !networks)
    return InvalidArgument("its address is damaged (the checksum differs)");
  return offer;
}

Result<LaneChoice> ChooseLane(const LanesOffer& mine, const LanesOffer& theirs) {
  MG_ASSIGN_OR_RETURN(LaneChoice choice, ChooseWay(mine, theirs));
  // UCX never ends a transfer from CUDA's memory to a UCX that does not know that (1.22).
  if (!mine.gpus || !theirs.gpus) return choice;
  const std::string why = WhyStaged(mine, theirs, choice.way);
  if (why.empty()) {
    choice.gpu_memory = true;
    choice.gpu_note = "GPU memory directly";
    return choice;
  }
  choice.gpu_note = "GPU memory through the host (" + why + ")";
  if (mine.gpu_direct || theirs.gpu_direct) {
    return FailedPrecondition("--gpu_transfers=direct, but between these two tasks it would be: " +
                              choice.gpu_note);
  }
  return choice;
}

}  // namespace monograph
