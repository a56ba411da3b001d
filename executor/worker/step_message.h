// The messages of the data plane: what the client and the executors say to each other during steps.
//
// Grammar (little-endian, fixed widths; a message is one transport header, and a payload where
// noted):
//   message  = kind:u8 flags:u8 code:u16 id:u32 session:u64 incarnation:u64 step:u64 body
//   kind     = 1 run-step    id = graph handle; body = nothing, or count:u32 stride:u64, 2 or
//                            more and odd: so many steps in a row, the first is `step`
//            | 2 tensor      id = edge; body = dtype:u8 rank:u8 dim:i64*rank; payload = the elements, row-major.
//                            Strings: payload = (length:u32 bytes)*. Resource handles: the same, three strings each.
//            | 3 step-done   id = sender's index in the session; code = status; body = failure.
//                            Of a row, `step` is the last one. Code DeadlineExceeded, derived: the
//                            answer to an abort with that code, its text is executor/step/unfinished.h's
//            | 4 abort-step  id = 2^32-1: only the client says this; code = status; body = failure
//            | 5 collective  id = group key; step = round; body as in executor/collective/message.h
//            | 6 ping        step = 0, or the step that is asked about; body = sender's task
//            | 7 pong        the answer: id = state of the sender's part of that step (PartState in
//                            executor/worker/step_sight.h), 0 for step 0; body = sender's task
//   failure  = nothing if the status is OK; else [lost task:(length:u32 bytes)] message text
//   flags    = 1 trace this step (run-step) | 2 the failure is derived | 4 it names a lost task
//            | 8 the sender hears nothing from the receiver, and gives it up (ping)
//            | 16 there is no tensor: it is dead (tensor; then float[0])
//            | 32 it belongs to an iteration of a loop (tensor; then body ends with iteration:u64)
//            | 64 the payload is a part of it (tensor; then body ends with offset:u64, of the part's
//              first byte, a multiple of kTensorPart; a part has kTensorPart bytes, the last one
//              what is left)
//
// What is not named has to be zero, and a header ends where its grammar does. `step` is an id
// (executor/worker/step_ids.h).
//
// `session` is the client's random nonce and `incarnation` the receiver's: a message for another
// life of a process, or for a step that is over, is dropped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "executor/worker/step_ids.h"
#include "transport/transport.h"

namespace monograph {

enum class StepMessageKind : uint8_t {
  kRunStep = 1,
  kTensor = 2,
  kStepDone = 3,
  kAbortStep = 4,
  kCollective = 5,
  kPing = 6,
  kPong = 7
};

inline constexpr uint8_t kTraceFlag = 1;
inline constexpr uint8_t kDerivedFlag = 2;
inline constexpr uint8_t kLostTaskFlag = 4;
inline constexpr uint8_t kUnheardFlag = 8;
inline constexpr uint8_t kDeadFlag = 16;
inline constexpr uint8_t kInLoopFlag = 32;
inline constexpr uint8_t kPartFlag = 64;
inline constexpr uint32_t kFromClient = UINT32_MAX;  // the id of an abort-step
inline constexpr size_t kTensorPart = size_t{1} << 20;

struct StepMessage {
  StepMessageKind kind = StepMessageKind::kRunStep;
  uint8_t flags = 0;
  uint32_t id = 0;
  uint64_t session = 0;
  uint64_t incarnation = 0;
  uint64_t step = 0;
  uint32_t count = 1;        // kRunStep
  uint64_t stride = 1;       // kRunStep; between the numbers of a row
  DType dtype = DT_INVALID;  // kTensor
  Shape shape;               // kTensor
  uint64_t iteration = 0;    // kTensor; as StepSink::OnSend's
  uint64_t offset = 0;       // kTensor with kPartFlag
  Status status;             // kStepDone, kAbortStep
  std::string_view body;     // kCollective, kPing, kPong; decoded: a view of the header
};

// Writes the header into `out`, at least kMaxHeaderBytes long, and returns its length. A status
// text is cut to fit.
size_t EncodeStepMessage(const StepMessage& message, char* out);
// The same for the message of a tensor, whose type and shape it sets; an invalid tensor is a
// control edge, and a dead one (executor/step/dead_tensor.h) says so. `*payload` gets the elements,
// or the part's bytes.
size_t EncodeTensor(StepMessage message, const Tensor& tensor, char* out, Payload* payload);
// DataLoss for bytes that are no step message, saying what is wrong with them. If `message->step`
// is not 0 then, the header's fixed part was there.
Status DecodeStepMessage(std::string_view header, StepMessage* message);
// The same of a message with a payload of so many bytes, which has to fit its type and shape.
Status DecodeStepMessage(std::string_view header, size_t payload_bytes, StepMessage* message);

// OK if so many bytes of payload can be a tensor of that type and shape; else DataLoss with the
// numbers.
Status CheckPayload(DType dtype, const Shape& shape, size_t payload_bytes);

// The payload of a tensor message. Plain data is lent by reference; strings and handles are packed
// into a buffer of their own.
Payload TensorPayload(const Tensor& tensor);
// Unpacks strings or handles. DataLoss if the bytes do not fit the shape.
Result<Tensor> UnpackTensor(DType dtype, const Shape& shape, std::string_view bytes);

}  // namespace monograph
