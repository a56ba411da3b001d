#include "executor/collective/message.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void collective_message(std::string_view bytes) {
  CollectiveMessage message;
  if (!DecodeCollective(bytes, &message).ok()) return;
  CollectiveMessage read;
  const std::string again = EncodeCollective(message);
  MG_CHECK(DecodeCollective(again, &read).ok());
  MG_CHECK(read.what == message.what && read.rank == message.rank &&
           read.instance == message.instance && read.epoch == message.epoch &&
           read.index == message.index && read.shape == message.shape &&
           read.device == message.device);
  MG_CHECK(EncodeCollective(read) == again);
}

}  // namespace monograph::fuzz
