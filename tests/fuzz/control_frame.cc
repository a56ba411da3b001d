// The preamble, the head of a frame, and the bodies that this folder reads: each sees all bytes.
#include "tests/fuzz/targets.h"
#include "transport/control/frame.h"
#include "transport/control/hello.h"

namespace monograph::fuzz {

void control_frame(std::string_view bytes) {
  using namespace control;
  if (const Result<Preamble> preamble = DecodePreamble(bytes); preamble.ok())
    MG_CHECK(EncodePreamble(*preamble).size() == kPreambleBytes);
  if (bytes.size() >= kFramePrefixBytes) (void)DecodePrefix(bytes);
  Frame frame;
  if (bytes.size() <= kMaxHeadBytes && DecodeHead(bytes, &frame).ok()) {
    (void)frame.status().ToString();
    const std::string again = EncodeHead(frame);
    Frame read;
    MG_CHECK(DecodeHead(std::string_view(again).substr(kFramePrefixBytes), &read).ok());
    MG_CHECK(read.type == frame.type && read.id == frame.id && read.text == frame.text &&
             read.lost_task == frame.lost_task && read.code == frame.code);
  }
  (void)DecodePing(bytes);
  (void)DecodePong(bytes);
  const Result<Hello> hello = DecodeHello(bytes);
  if (!hello.ok()) return;
  MG_CHECK(EncodeHello(*hello) == bytes);
  (void)CheckHello(Hello(), *hello, "peer");
}

}  // namespace monograph::fuzz
