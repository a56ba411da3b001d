// Bytes: the header's length (u8), the header, the payload.
#include "executor/worker/step_message.h"

#include <algorithm>

#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void step_message(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t length = std::min<size_t>(static_cast<unsigned char>(bytes[0]), bytes.size() - 1);
  const std::string_view header = bytes.substr(1, length), payload = bytes.substr(1 + length);
  StepMessage message;
  if (!DecodeStepMessage(header, payload.size(), &message).ok()) return;
  if (message.kind == StepMessageKind::kTensor && !IsPlainData(message.dtype)) {
    const Result<Tensor> tensor = UnpackTensor(message.dtype, message.shape, payload);
    if (tensor.ok()) {
      const Payload packed = TensorPayload(*tensor);
      MG_CHECK(std::string_view(static_cast<const char*>(packed.data()), packed.bytes) == payload);
    }
  }
  // What was understood is what is written again.
  char again[kMaxHeaderBytes];
  const size_t size = EncodeStepMessage(message, again);
  StepMessage read;
  MG_CHECK(DecodeStepMessage({again, size}, payload.size(), &read).ok());
  MG_CHECK(read.kind == message.kind && read.id == message.id && read.step == message.step &&
           read.count == message.count && read.stride == message.stride &&
           read.shape == message.shape && read.offset == message.offset &&
           read.status == message.status && read.body == message.body);
}

}  // namespace monograph::fuzz
