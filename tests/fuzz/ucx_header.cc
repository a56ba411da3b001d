// What UCX hands over of one message, and all that is read of it before it means something.
// Bytes: the number of the active message (u8), the payload's length (u16), the header.
#include "transport/ucx/ucx_header.h"

#include "base/codec.h"
#include "executor/collective/message.h"
#include "executor/worker/step_message.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void ucx_header(std::string_view bytes) {
  Decoder in(bytes);
  const bool has_payload = (in.Get<uint8_t>() & 1) != 0;
  const auto payload_bytes = in.Get<uint16_t>();
  std::string_view text = in.rest();
  if (has_payload) {
    const auto header = DecodeUcxHeader(text);
    MG_CHECK(header.has_value() == (text.size() >= 8 && text.size() <= 8 + kMaxHeaderBytes));
    if (!header) return;
    MG_CHECK(header->text == text.substr(8));
    text = header->text;
  } else if (text.size() > kMaxHeaderBytes) {
    return;
  }
  StepMessage message;
  if (!DecodeStepMessage(text, has_payload ? payload_bytes : 0, &message).ok()) return;
  if (message.kind != StepMessageKind::kCollective) return;
  CollectiveMessage collective;
  if (DecodeCollective(message.body, &collective).ok())
    MG_CHECK(EncodeCollective(collective).size() <= kMaxHeaderBytes);
}

}  // namespace monograph::fuzz
