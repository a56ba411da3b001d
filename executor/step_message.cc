#include "executor/step_message.h"

#include <algorithm>
#include <cstring>

#include "base/codec.h"

namespace monograph {
namespace {

constexpr size_t kFixedBytes = 32;

template <typename T>
char* Put(char* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return out + sizeof value;
}

Buffer PackedBuffer(const std::string& bytes) {
  Buffer buffer = Buffer::Allocate(HostAllocator(), bytes.size());
  if (buffer && !bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

}  // namespace

size_t EncodeStepMessage(const StepMessage& message, char* out) {
  char* p = out;
  p = Put(p, static_cast<uint8_t>(message.kind));
  p = Put(p, static_cast<uint8_t>(message.flags | (message.status.derived() ? kDerivedFlag : 0)));
  p = Put(p, static_cast<uint16_t>(message.status.code()));
  p = Put(p, message.id);
  p = Put(p, message.session);
  p = Put(p, message.incarnation);
  p = Put(p, message.step);
  if (message.kind == StepMessageKind::kTensor) {
    p = Put(p, static_cast<uint8_t>(message.dtype));
    p = Put(p, static_cast<uint8_t>(message.shape.rank()));
    for (int64_t dim : message.shape.dims()) p = Put(p, dim);
  } else if (!message.status.ok()) {
    const std::string& text = message.status.message();
    const size_t length = std::min(text.size(), kMaxHeaderBytes - kFixedBytes);
    std::memcpy(p, text.data(), length);
    p += length;
  }
  return static_cast<size_t>(p - out);
}

Status DecodeStepMessage(std::string_view header, StepMessage* message) {
  Decoder in(header);
  const auto kind = in.Get<uint8_t>();
  const auto flags = in.Get<uint8_t>();
  const auto code = in.Get<uint16_t>();
  message->id = in.Get<uint32_t>();
  message->session = in.Get<uint64_t>();
  message->incarnation = in.Get<uint64_t>();
  message->step = in.Get<uint64_t>();
  if (!in.ok() || kind < 1 || kind > 4) return DataLoss("malformed step message of " + std::to_string(header.size()) + " bytes");
  message->kind = static_cast<StepMessageKind>(kind);
  message->flags = flags;
  message->status = Status();
  if (message->kind == StepMessageKind::kTensor) {
    message->dtype = static_cast<DType>(in.Get<uint8_t>());
    const int rank = in.Get<uint8_t>();
    if (rank > kMaxRank) return DataLoss("tensor message of rank " + std::to_string(rank));
    int64_t dims[kMaxRank];
    for (int i = 0; i < rank; ++i) dims[i] = in.Get<int64_t>();
    if (!in.ok()) return DataLoss("tensor message is cut off");
    Result<Shape> shape = Shape::Make({dims, static_cast<size_t>(rank)});
    if (!shape.ok()) return DataLoss("tensor message: " + shape.status().message());
    message->shape = shape.value();
  } else if (code != 0) {
    message->status = Status(static_cast<Code>(code), std::string(in.rest()));
    if (flags & kDerivedFlag) message->status = message->status.AsDerived();
  }
  return Status();
}

Payload TensorPayload(const Tensor& tensor) {
  if (IsPlainData(tensor.dtype())) return {tensor.buffer(), tensor.offset(), tensor.bytes()};
  Encoder out;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (tensor.dtype() == DT_STRING) {
      out.PutBytes(tensor.strings()[i]);
    } else {
      const ResourceHandle& handle = tensor.handles()[i];
      out.PutBytes(handle.device);
      out.PutBytes(handle.container);
      out.PutBytes(handle.name);
    }
  }
  return {PackedBuffer(out.bytes()), 0, out.bytes().size()};
}

Result<Tensor> UnpackTensor(DType dtype, const Shape& shape, std::string_view bytes) {
  // Each element takes at least its length prefix: a shape that promises more elements than bytes is refused before memory is taken.
  const size_t strings_per_element = dtype == DT_RESOURCE ? 3 : 1;
  if (static_cast<size_t>(shape.elements()) > bytes.size() / (4 * strings_per_element)) {
    return DataLoss("packed tensor of shape " + shape.ToString() + " in only " + std::to_string(bytes.size()) + " bytes");
  }
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  Decoder in(bytes);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (dtype == DT_STRING) {
      tensor.strings()[i] = in.GetBytes();
    } else {
      ResourceHandle& handle = tensor.handles()[i];
      handle.device = in.GetBytes();
      handle.container = in.GetBytes();
      handle.name = in.GetBytes();
    }
  }
  if (!in.ok() || !in.rest().empty()) return DataLoss("packed tensor does not fit shape " + shape.ToString());
  return tensor;
}

}  // namespace monograph
