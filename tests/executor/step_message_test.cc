// The headers of the data plane: what is written is read back, and nothing else is taken.
#include "executor/worker/step_message.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>

#include "executor/step/dead_tensor.h"

namespace monograph {
namespace {

std::string Encoded(const StepMessage& message) {
  std::string header(kMaxHeaderBytes, '\0');
  header.resize(EncodeStepMessage(message, header.data()));
  return header;
}

StepMessage TensorMessage(DType dtype, Shape shape) {
  StepMessage message;
  message.kind = StepMessageKind::kTensor;
  message.id = 3;
  message.session = 5;
  message.incarnation = 6;
  message.step = 7;
  message.dtype = dtype;
  message.shape = shape;
  return message;
}

template <typename T>
std::string With(std::string header, size_t at, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof value>>(value);
  for (size_t i = 0; i < bytes.size(); ++i) header.at(at + i) = bytes[i];
  return header;
}

void ExpectRefused(const std::string& header, const std::string& part) {
  StepMessage message;
  const Status status = DecodeStepMessage(header, &message);
  EXPECT_EQ(status.code(), Code::kDataLoss) << part;
  EXPECT_NE(status.message().find(part), std::string::npos) << "no '" << part << "' in: " << status;
}

TEST(StepMessage, WhatIsWrittenIsReadBack) {
  StepMessage abort;
  abort.kind = StepMessageKind::kAbortStep;
  abort.id = kFromClient;
  abort.step = 1;
  abort.status = Unavailable("worker/1 is gone").AsDerived();
  StepMessage lost = abort;
  lost.status = TaskLost("/job:worker/replica:0/task:1", "it is gone");
  StepMessage long_text = lost;
  long_text.status = lost.status.WithMessage(std::string(2 * kMaxHeaderBytes, 'x'));
  StepMessage run;
  run.flags = kTraceFlag;
  run.step = 9;
  StepMessage row = run;
  row.flags = 0;
  row.count = 16;
  row.stride = (uint64_t{1} << 20) + 1;
  for (const StepMessage& message : {run, row, abort, lost, TensorMessage(DT_INT64, Shape{2, 0, 3}),
                                     TensorMessage(DT_STRING, Shape{})}) {
    StepMessage read;
    const Status status = DecodeStepMessage(Encoded(message), &read);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(read.kind, message.kind);
    EXPECT_EQ(read.id, message.id);
    EXPECT_EQ(read.step, message.step);
    EXPECT_EQ(read.count, message.count);
    EXPECT_EQ(read.stride, message.stride);
    EXPECT_EQ(read.dtype, message.dtype);
    EXPECT_EQ(read.shape, message.shape);
    EXPECT_EQ(read.status, message.status);
    EXPECT_EQ(read.status.derived(), message.status.derived());
    EXPECT_EQ(read.status.lost_task(), message.status.lost_task());
  }
  StepMessage read;
  ASSERT_TRUE(DecodeStepMessage(Encoded(long_text), &read).ok());
  EXPECT_EQ(read.status.lost_task(), long_text.status.lost_task()) << "only the text is cut";
  EXPECT_EQ(Encoded(long_text).size(), kMaxHeaderBytes);
  StepMessage long_name = abort;
  long_name.status = TaskLost(std::string(kMaxHeaderBytes, 'x'), "it is gone");
  ASSERT_TRUE(DecodeStepMessage(Encoded(long_name), &read).ok());
  EXPECT_EQ(read.status.ToString() + read.status.lost_task(), "UNAVAILABLE: it is gone");
}

TEST(StepMessage, AQuestionAndItsAnswerNameTheirSenderAndMayBeAboutNoStep) {
  for (const auto kind : {StepMessageKind::kPing, StepMessageKind::kPong}) {
    for (const uint64_t step : {uint64_t{0}, uint64_t{7}}) {
      StepMessage message;
      message.kind = kind;
      message.flags = kind == StepMessageKind::kPing ? kUnheardFlag : 0;
      message.id = 4;
      message.step = step;
      message.body = "/job:ps/replica:0/task:0";
      const std::string bytes = Encoded(message);
      StepMessage read;
      ASSERT_TRUE(DecodeStepMessage(bytes, &read).ok());
      EXPECT_EQ(read.kind, kind);
      EXPECT_EQ(read.flags, message.flags);
      EXPECT_EQ(read.id, 4u);
      EXPECT_EQ(read.step, step);
      EXPECT_EQ(read.body, message.body);
      ExpectRefused(With<uint8_t>(bytes, 1, 1), "flags 1");
      ExpectRefused(With<uint16_t>(bytes, 2, 1), "status code 1");
    }
  }
}

TEST(StepMessage, EachFieldThatCannotBeIsNamed) {
  const std::string tensor = Encoded(TensorMessage(DT_FLOAT, Shape{2, 3}));
  ExpectRefused("", "0 bytes");
  ExpectRefused(tensor.substr(0, 31), "31 bytes");
  ExpectRefused(With<uint8_t>(tensor, 0, 8), "kind 8");
  ExpectRefused(With<uint8_t>(tensor, 0, 0), "kind 0");
  ExpectRefused(With<uint8_t>(tensor, 1, 4), "flags 4");
  ExpectRefused(With<uint16_t>(tensor, 2, 1), "status code 1");
  ExpectRefused(With<uint32_t>(tensor, 4, 0x80000000u), "edge 2147483648");
  ExpectRefused(With<uint64_t>(tensor, 24, 0), "step 0");
  ExpectRefused(With<uint8_t>(tensor, 32, 0), "type 0");
  ExpectRefused(With<uint8_t>(tensor, 32, 24), "type 24");
  ExpectRefused(With<uint8_t>(tensor, 32, 200), "type 200");
  ExpectRefused(With<uint8_t>(tensor, 33, kMaxRank + 1), "rank 13");
  ExpectRefused(With<uint8_t>(tensor, 33, 3), "cut off");
  ExpectRefused(With<uint8_t>(tensor, 33, 1), "8 bytes after the end");
  ExpectRefused(With<int64_t>(tensor, 34, -1), "shape");
  ExpectRefused(With<int64_t>(With<int64_t>(tensor, 34, int64_t{1} << 40), 42, int64_t{1} << 40),
                "shape");
  ExpectRefused(With<int64_t>(With<int64_t>(tensor, 34, int64_t{1} << 31), 42, int64_t{1} << 31),
                "memory");
  StepMessage run;
  run.step = 9;
  run.count = 2;
  const std::string row = Encoded(run);
  ExpectRefused(With<uint32_t>(row, 32, 1), "a row of 1 steps");
  ExpectRefused(With<uint32_t>(row, 32, 17), "a row of 17 steps");
  ExpectRefused(With<uint64_t>(row, 36, 0), "stride is 0");
  ExpectRefused(With<uint64_t>(row, 36, 4), "stride is 4");
  ExpectRefused(With<uint64_t>(row, 36, UINT64_MAX), "stride is 18446744073709551615");
  ExpectRefused(row.substr(0, 40), "cut off");
  ExpectRefused(row + "text", "4 bytes after the end");
  StepMessage done;
  done.kind = StepMessageKind::kStepDone;
  done.step = 1;
  ExpectRefused(With<uint16_t>(Encoded(done), 2, 17), "status code 17");
  ExpectRefused(Encoded(done) + "text", "4 bytes after the end");
  ExpectRefused(With<uint8_t>(Encoded(done), 1, kLostTaskFlag), "flags 4 of kind 3");
  done.kind = StepMessageKind::kAbortStep;
  ExpectRefused(Encoded(done), "reason");
  done.status = TaskLost("/job:ps/replica:0/task:0", "it is gone");
  ExpectRefused(With<uint32_t>(Encoded(done), 32, 1000), "lost task's name is cut off");
  ExpectRefused(With<uint32_t>(Encoded(done), 32, 0), "lost task's name has 0 bytes");
}

TEST(StepMessage, APayloadThatDoesNotFitIsRefusedWithItsNumbers) {
  EXPECT_TRUE(CheckPayload(DT_FLOAT, Shape{2, 3}, 24).ok());
  EXPECT_TRUE(CheckPayload(DT_FLOAT, Shape{0}, 0).ok());
  EXPECT_TRUE(CheckPayload(DT_STRING, Shape{2}, 8).ok());
  const Status status = CheckPayload(DT_FLOAT, Shape{2, 3}, 20);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("float[2,3]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("20 bytes"), std::string::npos) << status;
  EXPECT_FALSE(CheckPayload(DT_FLOAT, Shape{0}, 1).ok());
  EXPECT_FALSE(CheckPayload(DT_STRING, Shape{3}, 8).ok());
  EXPECT_FALSE(CheckPayload(DT_RESOURCE, Shape{1}, 8).ok());
  EXPECT_FALSE(UnpackTensor(DT_STRING, Shape{1},
                            std::string_view("\xff\xff\xff\x7f"
                                             "abc",
                                             7))
                   .ok());
}

TEST(StepMessage, DamagedHeadersAreRefusedOrReadAsSomethingSound) {
  std::mt19937 random(20261121);
  std::vector<std::string> seeds = {
      Encoded(TensorMessage(DT_FLOAT, Shape{2, 3})),
      Encoded(TensorMessage(DT_STRING, Shape{1, 2, 3, 4, 5, 6, 7, 8}))};
  StepMessage done;
  done.kind = StepMessageKind::kStepDone;
  done.step = 4;
  done.status = Internal("a kernel failed");
  seeds.push_back(Encoded(done));
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string header = seeds[static_cast<size_t>(i) % seeds.size()];
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < changes; ++change) {
      header[random() % header.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) header.resize(random() % (header.size() + 8));
    StepMessage read;
    const Status status = DecodeStepMessage(header, &read);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kDataLoss);
      ++refused;
      continue;
    }
    ASSERT_NE(read.step, 0u);
    if (read.kind != StepMessageKind::kTensor) continue;
    ASSERT_GT(DTypeSize(read.dtype), 0u);
    ASSERT_LE(read.id, static_cast<uint32_t>(INT32_MAX));
    ASSERT_GE(read.shape.elements(), 0);
    // What is sound is written as it was read.
    ASSERT_EQ(Encoded(read), header);
  }
  EXPECT_GT(refused, 10'000);
}

TEST(StepMessage, ATensorOfALoopNamesItsIteration) {
  for (const Tensor& tensor : {DeadTensor(), Tensor(), Tensor::Vector<float>({1.0f, 2.0f})}) {
    StepMessage of_loop = TensorMessage(DT_INVALID, {});
    of_loop.iteration = 0x1234567890abcdef;
    std::string header(kMaxHeaderBytes, '\0');
    Payload payload;
    header.resize(EncodeTensor(of_loop, tensor, header.data(), &payload));
    StepMessage message;
    ASSERT_TRUE(DecodeStepMessage(header, payload.bytes, &message).ok());
    EXPECT_EQ(message.iteration, of_loop.iteration);
    EXPECT_EQ((message.flags & kDeadFlag) != 0, IsDead(tensor));
    ExpectRefused(header.substr(0, header.size() - 1), "a tensor's iteration is missing");
    header.replace(header.size() - 8, 8, 8, '\0');
    ExpectRefused(header, "a tensor's iteration is missing");
  }
}

TEST(StepMessage, APartOfATensorSaysWhereItBegins) {
  const Tensor tensor = Tensor::Allocate(DT_FLOAT, Shape{(kTensorPart + 400) / 4}).value();
  for (const uint64_t offset : {size_t{0}, kTensorPart}) {
    StepMessage part = TensorMessage(DT_INVALID, {});
    part.flags = kPartFlag;
    part.offset = offset;
    std::string header(kMaxHeaderBytes, '\0');
    Payload payload;
    header.resize(EncodeTensor(part, tensor, header.data(), &payload));
    EXPECT_EQ(payload.data(), static_cast<const char*>(tensor.raw()) + offset);
    EXPECT_EQ(payload.bytes, offset == 0 ? kTensorPart : 400);
    StepMessage read;
    ASSERT_TRUE(DecodeStepMessage(header, payload.bytes, &read).ok());
    EXPECT_EQ(read.offset, offset);
    EXPECT_EQ(read.shape, tensor.shape());
    const Status other = DecodeStepMessage(header, payload.bytes + 4, &read);
    EXPECT_EQ(other.code(), Code::kDataLoss);
    EXPECT_NE(other.message().find("at byte " + std::to_string(offset)), std::string::npos)
        << other;
    ExpectRefused(header.substr(0, header.size() - 1), "the offset of a tensor's part is cut off");
    for (const uint64_t nowhere : {uint64_t{4}, uint64_t{2 * kTensorPart}, ~uint64_t{0}})
      ExpectRefused(With(header, header.size() - 8, nowhere), "a tensor's part at byte ");
  }
  StepMessage strings = TensorMessage(DT_STRING, Shape{kTensorPart}),
              of_loop = TensorMessage(DT_FLOAT, Shape{kTensorPart}),
              dead = TensorMessage(DT_FLOAT, Shape{0});
  of_loop.iteration = 1;
  dead.flags = kDeadFlag;
  for (StepMessage* message : {&strings, &of_loop, &dead}) {
    message->flags |= kPartFlag;
    ExpectRefused(Encoded(*message), "a part of a tensor that is sent as a whole");
  }
}

TEST(StepMessage, ADeadTensorIsToldApartFromATensorAndFromABareSignal) {
  for (const Tensor& tensor : {DeadTensor(), Tensor(), Tensor::Vector<bool>({})}) {
    std::string header(kMaxHeaderBytes, '\0');
    Payload payload;
    header.resize(EncodeTensor(TensorMessage(DT_INVALID, {}), tensor, header.data(), &payload));
    EXPECT_EQ(payload.bytes, 0u);
    StepMessage message;
    ASSERT_TRUE(DecodeStepMessage(header, 0, &message).ok());
    EXPECT_EQ((message.flags & kDeadFlag) != 0, IsDead(tensor));
  }
  StepMessage dead = TensorMessage(DT_BOOL, Shape{0});
  dead.flags = kDeadFlag;
  ExpectRefused(Encoded(dead), "a dead tensor with a type or shape");
}

}  // namespace
}  // namespace monograph
