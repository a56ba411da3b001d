#include "executor/collective/message.h"

#include <array>

#include "base/codec.h"

namespace monograph {
namespace {

constexpr size_t kMaxText = 512, kMaxLostTask = 128;  // with the rest, below a header's limit

bool HasShape(const CollectiveMessage& message) {
  return message.what == CollectiveWhat::kWhole && message.kind != 1;
}

}  // namespace

void CollectiveMessage::SetFailure(const Status& status) {
  index = static_cast<uint32_t>(status.code());
  text = status.message();
  lost_task = status.lost_task();
}

Payload PayloadOf(std::string bytes) {
  auto* const text = new std::string(std::move(bytes));
  return {Buffer::Wrap(text->data(), text->size(), [text] { delete text; }), 0, text->size()};
}

std::string EncodeCollective(const CollectiveMessage& message) {
  Encoder out;
  out.Put(static_cast<uint8_t>(message.what));
  out.Put(message.kind);
  out.Put(message.meeting);
  out.Put(message.rank);
  out.Put(message.instance);
  out.Put(message.epoch);
  out.Put(message.timeout_ms);
  out.Put(message.index);
  out.Put(message.signature);
  if (HasShape(message)) {
    out.Put(static_cast<uint8_t>(message.dtype));
    out.Put(static_cast<uint8_t>(message.shape.rank()));
    for (const int64_t dim : message.shape.dims()) out.Put(dim);
  } else if (IsTalk(message.what)) {
    out.PutBytes(message.device);
    out.PutBytes(std::string_view(message.text).substr(0, kMaxText));
    out.PutBytes(message.lost_task.size() <= kMaxLostTask ? message.lost_task : std::string_view());
  }
  return out.Take();
}

Status DecodeCollective(std::string_view body, CollectiveMessage* message) {
  Decoder in(body);
  const auto what = in.Get<uint8_t>();
  message->what = static_cast<CollectiveWhat>(what);
  message->kind = in.Get<uint8_t>();
  message->meeting = in.Get<uint8_t>();
  message->rank = in.Get<uint16_t>();
  message->instance = in.Get<int32_t>();
  message->epoch = in.Get<uint64_t>();
  message->timeout_ms = in.Get<uint32_t>();
  message->index = in.Get<uint32_t>();
  message->signature = in.Get<uint64_t>();
  if (!in.ok() || what < 1 || what > static_cast<int>(CollectiveWhat::kHere))
    return DataLoss("malformed message of a collective");
  const bool fails =
      message->what == CollectiveWhat::kRefused || message->what == CollectiveWhat::kBroken;
  if (fails &&
      (message->index == 0 || message->index > static_cast<uint32_t>(Code::kUnauthenticated)))
    return DataLoss("status code " + std::to_string(message->index) + " of a collective");
  if (HasShape(*message)) {
    message->dtype = static_cast<DType>(in.Get<uint8_t>());
    const int rank = in.Get<uint8_t>();
    if (rank > kMaxRank)
      return DataLoss("collective with a tensor of rank " + std::to_string(rank));
    std::array<int64_t, kMaxRank> dims;
    for (int i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = in.Get<int64_t>();
    if (!in.ok()) return DataLoss("message of a collective is cut off");
    Result<Shape> shape = Shape::Make({dims.data(), static_cast<size_t>(rank)});
    if (!shape.ok()) return DataLoss("message of a collective: " + shape.status().message());
    message->shape = shape.value();
    const auto size = static_cast<int64_t>(DTypeSize(message->dtype));
    if (size == 0 || message->shape.elements() > INT64_MAX / size)
      return DataLoss("collective with a tensor that cannot be");
  } else if (IsTalk(message->what)) {
    message->device = in.GetBytes();
    message->text = in.GetBytes();
    message->lost_task = in.GetBytes();
    if (!in.ok()) return DataLoss("message of a collective is cut off");
  }
  return Status();
}

}  // namespace monograph
