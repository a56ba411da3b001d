// The body of a collective's message (kind 5 of executor/worker/step_message.h, whose id is the
// group's key and whose step is the round). Private to the executor folder.
//
//   body   = what:u8 kind:u8 meeting:u8 rank:u16 instance:i32 epoch:u64 timeout_ms:u32 index:u32
//            signature:u64 rest
//   what   = 1 whole    the sender's whole input: payload = its tensors, one after the other;
//                       index = 1 if it is empty (then there is no payload); rest = dtype:u8
//                       dims:u8 dim:i64*dims for a gather or a broadcast
//          | 2 piece    payload = a piece of the input of `rank`; index = which one
//          | 3 sum      payload = a piece of the result; index = which one
//          | 4 join     a device wants to become a member; index = group size; text = its
//                       DeviceInfo::link
//          | 5 leave    it no longer does
//          | 6 formed   the leader's answer; index = 1 if one session drives all;
//                       payload = members, in rank order, with their session and link:
//                       (length:u32 bytes session:u64 length:u32 bytes)*
//          | 7 refused  the leader's other answer; index = code
//          | 8 broken   the epoch is over; index = code; payload = but for the rounds up to these,
//                       which the sender has ended: (instance:i32 round:u64)*
//          | 9 prefix   payload = a piece of the sum of the ranks before the receiver's; index =
//                       which one
//          | 10 ask     a member whose deadline has passed asks which members of a task have begun;
//                       device = its own
//          | 11 here    the answer; text = their ranks: (rank:u16)*
//   4 to 8, 10, 11: rest = device text lost-task, each length:u32 bytes
//
// `rank` is the sender's, `kind` the operation's (CollectiveKind), `meeting` the request's.
// `signature` is a hash of what all members of an operation must agree on. `timeout_ms` is how long
// the sender waits: what comes for an operation that does not begin is kept as long, at most 1 h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "transport/transport.h"

namespace monograph {

enum class CollectiveWhat : uint8_t {
  kWhole = 1,
  kPiece = 2,
  kSum = 3,
  kJoin = 4,
  kLeave = 5,
  kFormed = 6,
  kRefused = 7,
  kBroken = 8,
  kPrefix = 9,
  kAsk = 10,
  kHere = 11,
};

struct CollectiveMessage {
  CollectiveWhat what = CollectiveWhat::kWhole;
  uint8_t kind = 0;
  uint8_t meeting = 0;
  uint16_t rank = 0;
  int32_t instance = 0;
  uint64_t epoch = 0;
  uint32_t timeout_ms = 0;
  uint32_t index = 0;
  uint64_t signature = 0;
  DType dtype = DT_INVALID;  // kWhole of a gather or a broadcast
  Shape shape;
  std::string device;     // kJoin .. kRefused, kAsk
  std::string text;       // kJoin, kRefused, kBroken, kHere
  std::string lost_task;  // kRefused, kBroken

  // What kRefused and kBroken say: `index` is the code. SetFailure REQUIRES: not OK.
  Status failure() const { return Status(static_cast<Code>(index), text, lost_task); }
  void SetFailure(const Status& status);
};

// Whether it carries a device and a text, and no part of a tensor.
inline bool IsTalk(CollectiveWhat what) {
  return what >= CollectiveWhat::kJoin && what != CollectiveWhat::kPrefix;
}

// Bytes that are sent. Not of the host's pool, which might have no room.
Payload PayloadOf(std::string bytes);

// A text is cut to fit into a header; the name of a lost task that would not fit is left out.
std::string EncodeCollective(const CollectiveMessage& message);
// DataLoss for bytes that are none.
Status DecodeCollective(std::string_view body, CollectiveMessage* message);

}  // namespace monograph
