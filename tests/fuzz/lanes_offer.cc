// What a task offers of its lanes, and the choice between that and an offer of this task's.
#include <zlib.h>

#include "base/codec.h"
#include "tests/fuzz/targets.h"
#include "transport/lanes/offer.h"

namespace monograph::fuzz {
namespace {

void ReadOffer(std::string_view bytes) {
  const Result<LanesOffer> offer = DecodeLanesOffer(bytes);
  if (!offer.ok()) {
    MG_CHECK(offer.status().code() == Code::kInvalidArgument);
    return;
  }
  const std::string again = EncodeLanesOffer(*offer);
  const Result<LanesOffer> read = DecodeLanesOffer(again);
  MG_CHECK(read.ok() && EncodeLanesOffer(*read) == again);
  LanesOffer mine;
  mine.host = mine.memory = 1;
  mine.shared_memory = mine.tls_listens = (bytes.size() & 1) != 0;
  mine.ucx = mine.tls = "address";
  mine.ucx_major = 1;
  mine.fabrics = {7};
  const Result<LaneChoice> here = ChooseLane(mine, *offer), there = ChooseLane(*offer, mine);
  MG_CHECK(here.ok() == there.ok() && (!here.ok() || here->way == there->way));
}

}  // namespace

void lanes_offer(std::string_view bytes) {
  ReadOffer(bytes);
  // Past the checksum: the bytes as all that stands before it.
  Encoder encoder;
  for (const char c : bytes) encoder.Put(c);
  encoder.Put(static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())));
  ReadOffer(encoder.bytes());
}

}  // namespace monograph::fuzz
