// Encodes and decodes the headers of the data plane (grammar in step_message.h) and packs the
// payloads of tensors. Decoding trusts nothing: each field is checked against the kind of the
// message, and a shape against the size of its payload before memory is taken, since a peer may be
// broken or hostile. Plain data is sent where it lies; only strings and handles are packed.
#include "executor/worker/step_message.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/codec.h"
#include "executor/step/dead_tensor.h"

namespace monograph {
namespace {

constexpr size_t kFixedBytes = 32;
constexpr size_t kMaxLostTaskBytes = 512;  // a longer name is left out

bool IsWatch(StepMessageKind kind) {
  return kind == StepMessageKind::kPing || kind == StepMessageKind::kPong;
}
bool HasBody(StepMessageKind kind) { return kind == StepMessageKind::kCollective || IsWatch(kind); }

template <typename T>
char* Put(char* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return out + sizeof value;
}

// Not of the pool, which might have no room: whoever sends could not say so.
Buffer PackedBuffer(std::string bytes) {
  auto* const text = new std::string(std::move(bytes));
  return Buffer::Wrap(text->data(), text->size(), [text] { delete text; });
}

size_t PartBytes(size_t tensor_bytes, uint64_t offset) {
  return std::min(kTensorPart, tensor_bytes - static_cast<size_t>(offset));
}

// From here on there must be room for a payload before it is unpacked; that of handles counts at
// all.
constexpr size_t kCounted = size_t{1} << 20;

}  // namespace

size_t EncodeStepMessage(const StepMessage& message, char* out) {
  char* p = out;
  const std::string& lost_task = message.status.lost_task();
  const bool names_lost = !lost_task.empty() && lost_task.size() <= kMaxLostTaskBytes;
  p = Put(p, static_cast<uint8_t>(message.kind));
  p = Put(p, static_cast<uint8_t>(message.flags | (message.status.derived() ? kDerivedFlag : 0) |
                                  (names_lost ? kLostTaskFlag : 0) |
                                  (message.iteration != 0 ? kInLoopFlag : 0)));
  p = Put(p, static_cast<uint16_t>(message.status.code()));
  p = Put(p, message.id);
  p = Put(p, message.session);
  p = Put(p, message.incarnation);
  p = Put(p, message.step);
  if (message.kind == StepMessageKind::kTensor) {
    p = Put(p, static_cast<uint8_t>(message.dtype));
    p = Put(p, static_cast<uint8_t>(message.shape.rank()));
    for (int64_t dim : message.shape.dims()) p = Put(p, dim);
    if (message.iteration != 0) p = Put(p, message.iteration);
    if ((message.flags & kPartFlag) != 0) p = Put(p, message.offset);
  } else if (HasBody(message.kind)) {
    MG_CHECK(message.body.size() <= kMaxHeaderBytes - kFixedBytes);
    std::memcpy(p, message.body.data(), message.body.size());
    p += message.body.size();
  } else if (message.count > 1) {
    p = Put(p, message.count);
    p = Put(p, message.stride);
  } else if (!message.status.ok()) {
    if (names_lost) {
      p = Put(p, static_cast<uint32_t>(lost_task.size()));
      p = std::copy(lost_task.begin(), lost_task.end(), p);
    }
    const std::string& text = message.status.message();
    const size_t left = kMaxHeaderBytes - static_cast<size_t>(p - out);
    p = std::copy_n(text.data(), std::min(text.size(), left), p);
  }
  return static_cast<size_t>(p - out);
}

size_t EncodeTensor(StepMessage message, const Tensor& tensor, char* out, Payload* payload) {
  message.kind = StepMessageKind::kTensor;
  const bool dead = IsDead(tensor), has_elements = tensor.valid() && !dead;
  if (dead) message.flags |= kDeadFlag;
  message.dtype = has_elements ? tensor.dtype() : DT_FLOAT;
  message.shape = has_elements ? tensor.shape() : Shape{0};
  if (has_elements) *payload = TensorPayload(tensor);
  if ((message.flags & kPartFlag) != 0) {
    payload->bytes = PartBytes(payload->bytes, message.offset);
    payload->offset += message.offset;
  }
  return EncodeStepMessage(message, out);
}

namespace {

Status Malformed(const std::string& what) { return DataLoss("malformed step message: " + what); }

// REQUIRES: plain data.
size_t BytesOf(const StepMessage& message) {
  return static_cast<size_t>(message.shape.elements()) * DTypeSize(message.dtype);
}

// What follows the fixed part of a tensor message.
Status DecodeTensor(Decoder* in, StepMessage* message) {
  if (message->id > INT32_MAX) return Malformed("edge " + std::to_string(message->id));
  const auto dtype = in->Get<uint8_t>();
  const int rank = in->Get<uint8_t>();
  if (!in->ok()) return Malformed("a tensor's type and rank are cut off");
  message->dtype = static_cast<DType>(dtype);
  if (DTypeSize(message->dtype) == 0 || message->dtype == DT_VARIANT)
    return Malformed("a tensor of type " + std::to_string(dtype) + ", which has no values here");
  if (rank > kMaxRank) return Malformed("a tensor of rank " + std::to_string(rank));
  int64_t dims[kMaxRank];
  for (int i = 0; i < rank; ++i) dims[i] = in->Get<int64_t>();
  if (!in->ok()) return Malformed("a tensor's " + std::to_string(rank) + " dimensions are cut off");
  Result<Shape> shape = Shape::Make({dims, static_cast<size_t>(rank)});
  if (!shape.ok()) return Malformed("a tensor's shape: " + shape.status().message());
  message->shape = shape.value();
  message->iteration = (message->flags & kInLoopFlag) != 0 ? in->Get<uint64_t>() : 0;
  if (!in->ok() || (message->iteration == 0) != ((message->flags & kInLoopFlag) == 0))
    return Malformed("a tensor's iteration is missing");
  if (message->shape.elements() > INT64_MAX / static_cast<int64_t>(DTypeSize(message->dtype))) {
    return Malformed("a tensor's shape " + message->shape.ToString() +
                     " has more bytes than memory can");
  }
  message->offset = 0;
  if ((message->flags & kPartFlag) == 0) return Status();
  message->offset = in->Get<uint64_t>();
  if (!in->ok()) return Malformed("the offset of a tensor's part is cut off");
  if ((message->flags & (kDeadFlag | kInLoopFlag)) != 0 || !IsPlainData(message->dtype))
    return Malformed("a part of a tensor that is sent as a whole");
  if (message->offset % kTensorPart != 0 || message->offset >= BytesOf(*message))
    return Malformed("a tensor's part at byte " + std::to_string(message->offset));
  return Status();
}

}  // namespace

Status DecodeStepMessage(std::string_view header, StepMessage* message) {
  Decoder in(header);
  const auto kind = in.Get<uint8_t>();
  const auto flags = in.Get<uint8_t>();
  const auto code = in.Get<uint16_t>();
  message->id = in.Get<uint32_t>();
  message->session = in.Get<uint64_t>();
  message->incarnation = in.Get<uint64_t>();
  message->step = in.Get<uint64_t>();
  if (!in.ok()) return Malformed("only " + std::to_string(header.size()) + " bytes");
  message->flags = flags;
  message->status = Status();
  if (kind < 1 || kind > 7) return Malformed("kind " + std::to_string(kind));
  message->kind = static_cast<StepMessageKind>(kind);
  if (message->step == 0 && !IsWatch(message->kind)) return Malformed("step 0");
  const bool reports =
      message->kind == StepMessageKind::kStepDone || message->kind == StepMessageKind::kAbortStep;
  const uint8_t known_flags = message->kind == StepMessageKind::kRunStep ? kTraceFlag
                              : message->kind == StepMessageKind::kPing  ? kUnheardFlag
                              : message->kind == StepMessageKind::kTensor
                                  ? kDeadFlag | kInLoopFlag | kPartFlag
                              : reports && code != 0 ? kDerivedFlag | kLostTaskFlag
                                                     : 0;
  if ((flags & ~known_flags) != 0)
    return Malformed("flags " + std::to_string(flags) + " of kind " + std::to_string(kind));
  if (code > (reports ? static_cast<uint16_t>(Code::kUnauthenticated) : 0)) {
    return Malformed("status code " + std::to_string(code) + " of kind " + std::to_string(kind));
  }
  if (message->kind == StepMessageKind::kTensor) MG_RETURN_IF_ERROR(DecodeTensor(&in, message));
  if ((flags & kDeadFlag) != 0 && (message->dtype != DT_FLOAT || message->shape != Shape{0}))
    return Malformed("a dead tensor with a type or shape");
  if (HasBody(message->kind)) {
    message->body = in.rest();
    return Status();
  }
  message->count = 1;
  message->stride = 1;
  if (message->kind == StepMessageKind::kRunStep && !in.rest().empty()) {
    message->count = in.Get<uint32_t>();
    message->stride = in.Get<uint64_t>();
    if (!in.ok()) return Malformed("a row's count and stride are cut off");
    if (message->count < 2 || message->count > kMaxStepsInRow)
      return Malformed("a row of " + std::to_string(message->count) + " steps");
    if (message->stride % 2 == 0 ||
        message->stride > (UINT64_MAX - message->step) / (message->count - 1))
      return Malformed("a row's stride is " + std::to_string(message->stride));
  }
  if (message->kind == StepMessageKind::kAbortStep && code == 0)
    return Malformed("an abort without a reason");
  if (code != 0) {
    std::string lost_task;
    if (flags & kLostTaskFlag) lost_task = in.GetBytes();
    if (!in.ok()) return Malformed("a lost task's name is cut off");
    if ((flags & kLostTaskFlag) && (lost_task.empty() || lost_task.size() > kMaxLostTaskBytes)) {
      return Malformed("a lost task's name has " + std::to_string(lost_task.size()) + " bytes");
    }
    message->status = Status(static_cast<Code>(code), std::string(in.rest()), std::move(lost_task));
    if (flags & kDerivedFlag) message->status = message->status.AsDerived();
  } else if (!in.rest().empty()) {
    return Malformed(std::to_string(in.rest().size()) + " bytes after the end of kind " +
                     std::to_string(kind));
  }
  return Status();
}

Status DecodeStepMessage(std::string_view header, size_t payload_bytes, StepMessage* message) {
  MG_RETURN_IF_ERROR(DecodeStepMessage(header, message));
  if (message->kind != StepMessageKind::kTensor) return Status();
  if ((message->flags & kPartFlag) != 0) {
    if (payload_bytes == PartBytes(BytesOf(*message), message->offset)) return Status();
    return DataLoss("the part at byte " + std::to_string(message->offset) + " of a tensor " +
                    std::string(DTypeName(message->dtype)) + message->shape.ToString() +
                    " came with a payload of " + std::to_string(payload_bytes) + " bytes");
  }
  return CheckPayload(message->dtype, message->shape, payload_bytes);
}

Status CheckPayload(DType dtype, const Shape& shape, size_t payload_bytes) {
  const auto elements = static_cast<size_t>(shape.elements());
  if (!IsPlainData(dtype)) {
    // Each element takes at least its length prefix, a handle three: a shape that promises more
    // than the bytes can hold is refused before memory is taken.
    if (elements <= payload_bytes / (dtype == DT_RESOURCE ? 12 : 4)) return Status();
  } else if (elements * DTypeSize(dtype) == payload_bytes) {
    return Status();
  }
  return DataLoss("a tensor " + std::string(DTypeName(dtype)) + shape.ToString() +
                  " came with a payload of " + std::to_string(payload_bytes) + " bytes");
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
  const size_t bytes = out.bytes().size();
  return {PackedBuffer(out.Take()), 0, bytes};
}

Result<Tensor> UnpackTensor(DType dtype, const Shape& shape, std::string_view bytes) {
  MG_RETURN_IF_ERROR(CheckPayload(dtype, shape, bytes.size()));
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  if (bytes.size() >= kCounted) MG_RETURN_IF_ERROR(tensor.CountStrings(bytes.size()));
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
  if (!in.ok() || !in.rest().empty())
    return DataLoss("packed tensor does not fit shape " + shape.ToString());
  MG_RETURN_IF_ERROR(tensor.CountStrings());  // unless it has counted
  return tensor;
}

}  // namespace monograph
