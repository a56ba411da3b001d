// TensorArrays one op at a time: whose memory elements have, what lengths and indices cost, how
// long an array and its gradients live. What arrays compute in loops, and what they refuse, is in
// tests/golden/graphs/tensor_arrays.
#include "ops/tensor_array/tensor_array.h"

#include <algorithm>
#include <limits>

#include "base/pool_allocator.h"
#include "ops/constant/constant.h"
#include "tests/ops/testing.h"

namespace monograph::testing {
namespace {

class TensorArrayTest : public ::testing::Test {
 protected:
  TensorArrayTest() : runner_(&Kernels(), {.pools = nullptr, .resources = &resources_}) {}

  Result<std::vector<Tensor>> TryRun(const std::string& op, std::vector<Tensor> inputs,
                                     Attrs attrs = {}) {
    return testing::RunOp(runner_, Ops(), op, std::move(inputs), std::move(attrs));
  }
  Tensor Run(const std::string& op, std::vector<Tensor> inputs, Attrs attrs = {}) {
    auto out = TryRun(op, std::move(inputs), std::move(attrs));
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() && !out->empty() ? (*out)[0] : Tensor();
  }
  Tensor Make(int32_t size, DType dtype, const PartialShape& element_shape = {},
              bool dynamic_size = false) {
    return Run("TensorArrayV3", {Tensor::Scalar(size)},
               {{"dtype", dtype},
                {"element_shape", element_shape},
                {"dynamic_size", dynamic_size},
                {"tensor_array_name", "a"}});
  }
  Status Write(const Tensor& array, int32_t index, const Tensor& value) {
    return TryRun("TensorArrayWriteV3", {array, Tensor::Scalar(index), value, flow_}).status();
  }
  Tensor Read(const Tensor& array, int32_t index, DType dtype) {
    return Run("TensorArrayReadV3", {array, Tensor::Scalar(index), flow_}, {{"dtype", dtype}});
  }
  Tensor Gradient(const Tensor& array, const std::string& source) {
    return Run("TensorArrayGradV3", {array, flow_}, {{"source", source}});
  }

  ResourceManager resources_;
  KernelRunner runner_;
  const Tensor flow_ = Tensor::Scalar(0.0f);
};

TEST_F(TensorArrayTest, ElementsAndRowsShareTheMemoryOfWhatWasWritten) {
  const Tensor array = Make(3, DT_FLOAT), value = Tensor::Vector<float>({1, 2});
  ASSERT_TRUE(Write(array, 2, value).ok());
  EXPECT_EQ(Read(array, 2, DT_FLOAT).raw(), value.raw());
  const Tensor rows = Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4});
  Run("TensorArrayScatterV3", {array, Tensor::Vector<int32_t>({1, 0}), rows, flow_});
  EXPECT_EQ(Read(array, 0, DT_FLOAT).raw(), rows.data<float>() + 2);
  const Tensor parts = Make(2, DT_FLOAT);
  Run("TensorArraySplitV3", {parts, rows, Tensor::Vector<int64_t>({0, 2}), flow_});
  EXPECT_EQ(Read(parts, 1, DT_FLOAT).raw(), rows.raw());
}

TEST_F(TensorArrayTest, ASumHasMemoryOfItsOwn) {
  const Tensor array = Make(1, DT_INT32), one = Tensor::Vector<int32_t>({1, 2});
  const Tensor gradient = Gradient(array, "gradients");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Write(gradient, 0, one).ok());
  EXPECT_TRUE(BitEqual(Read(gradient, 0, DT_INT32), Tensor::Vector<int32_t>({3, 6})));
  EXPECT_TRUE(BitEqual(one, Tensor::Vector<int32_t>({1, 2})));
}

template <typename T>
Tensor Twos() {
  return Tensor::FromValues<T>({2}, {T(2), T(2)});
}

TEST_F(TensorArrayTest, GradientsOfEveryTypeOfNumbersAddUpAndAreZeroBefore) {
  const auto check = [&](const Tensor& one, const Tensor& two) {
    const Tensor gradient = Gradient(Make(2, one.dtype(), {2}), "gradients");
    ASSERT_TRUE(Write(gradient, 0, one).ok()) << DTypeName(one.dtype());
    ASSERT_TRUE(Write(gradient, 0, one).ok()) << DTypeName(one.dtype());
    EXPECT_TRUE(BitEqual(Read(gradient, 0, one.dtype()), two)) << DTypeName(one.dtype());
    const Tensor zero = Read(gradient, 1, one.dtype());
    ASSERT_EQ(zero.bytes(), one.bytes());
    for (size_t i = 0; i < zero.bytes(); ++i) EXPECT_EQ(zero.data<char>()[i], 0);
  };
#define CHECK(T) check(Tensor::FromValues<T>({2}, {T(1), T(1)}), Twos<T>());
  MG_NUMBER_TYPES(CHECK)
  CHECK(uint8_t)
  CHECK(int8_t)
  CHECK(int16_t)
  CHECK(uint16_t)
  CHECK(uint32_t)
  CHECK(uint64_t)
#undef CHECK
  const Tensor flags = Gradient(Make(1, DT_BOOL), "gradients");
  const Tensor flag = Tensor::Vector<bool>({true});
  ASSERT_TRUE(Write(flags, 0, flag).ok());
  EXPECT_NE(Write(flags, 0, flag).message().find("AddToTensor type not supported: bool"),
            std::string::npos);
}

TEST_F(TensorArrayTest, StringsAreKeptScatteredSplitAndJoined) {
  const Tensor words = Tensor::Allocate(DT_STRING, {3}).value();
  Tensor mutable_words = words;
  for (int i = 0; i < 3; ++i)
    mutable_words.strings()[i] = std::string(40, static_cast<char>('a' + i));
  const Tensor array = Make(3, DT_STRING);
  Run("TensorArrayScatterV3", {array, Tensor::Vector<int32_t>({2, 1, 0}), words, flow_});
  const Tensor turned =
      Run("TensorArrayGatherV3", {array, Tensor::Vector<int32_t>({0, 1, 2}), flow_},
          {{"dtype", DT_STRING}, {"element_shape", PartialShape()}});
  ASSERT_EQ(turned.elements(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(turned.strings()[i], words.strings()[2 - i]);
  const Tensor parts = Make(2, DT_STRING);
  Run("TensorArraySplitV3", {parts, words, Tensor::Vector<int64_t>({1, 2}), flow_});
  const auto joined = TryRun("TensorArrayConcatV3", {parts, flow_}, {{"dtype", DT_STRING}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(BitEqual((*joined)[0], words));
  EXPECT_TRUE(BitEqual((*joined)[1], Tensor::Vector<int64_t>({1, 2})));
}

TEST_F(TensorArrayTest, AnArrayTakesMemoryForWhatWasWrittenAndRefusesWhatWouldPassTheLimit) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(HostPool().bytes_in_use() + (64 << 20));
  const Tensor value = Tensor::Scalar(1.0f);
  const Tensor fixed = Make(kMost, DT_FLOAT, PartialShape::Scalar());
  EXPECT_TRUE(Write(fixed, 1000, value).ok());
  const Tensor gradient = Gradient(fixed, "gradients");
  EXPECT_EQ(Read(gradient, 1000, DT_FLOAT).scalar<float>(), 0.0f);
  for (const Tensor& array : {fixed, Make(0, DT_FLOAT, {}, true)}) {
    const Status status = Write(array, kMost - 1, value);
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
    EXPECT_NE(status.message().find("has no room for 2147483647 elements"), std::string::npos)
        << status;
    EXPECT_TRUE(Write(array, 2, value).ok());
  }
  const auto zeros = TryRun("TensorArrayReadV3", {gradient, Tensor::Scalar(kMost - 1), flow_},
                            {{"dtype", DT_FLOAT}});
  EXPECT_EQ(zeros.status().code(), Code::kResourceExhausted) << zeros.status();
  const auto all = TryRun("TensorArrayConcatV3", {fixed, flow_}, {{"dtype", DT_FLOAT}});
  EXPECT_EQ(all.status().code(), Code::kResourceExhausted) << all.status();
  HostPool().SetLimit(limit);
}

TEST_F(TensorArrayTest, LengthsThatNobodyCanMeanAreRefused) {
  const Tensor array = Make(2, DT_FLOAT), rows = Tensor::FromValues<float>({2, 1}, {1, 2});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& lengths : {Tensor::Vector<int64_t>({-1, 3}), Tensor::Vector<int64_t>({kMost, 3}),
                              Tensor::Vector<int64_t>({2})}) {
    const auto split = TryRun("TensorArraySplitV3", {array, rows, lengths, flow_});
    EXPECT_EQ(split.status().code(), Code::kInvalidArgument) << split.status();
  }
  const auto negative =
      TryRun("TensorArrayV3", {Tensor::Scalar<int32_t>(-1)}, {{"dtype", DT_FLOAT}});
  EXPECT_NE(negative.status().message().find("Size should be >= 0."), std::string::npos);
}

TEST_F(TensorArrayTest, AnArrayAndItsGradientsGoWithTheLastHandleOfThem) {
  Tensor array = Make(2, DT_FLOAT);
  Tensor gradient = Gradient(array, "gradients");
  EXPECT_EQ(resources_.All().size(), 2u);
  ASSERT_TRUE(Write(gradient, 0, Tensor::Scalar(1.0f)).ok());
  gradient.Reset();
  EXPECT_EQ(resources_.All().size(), 2u);
  gradient = Gradient(array, "gradients");
  ASSERT_TRUE(Write(gradient, 0, Tensor::Scalar(1.0f)).ok());
  const Tensor other = Gradient(array, "gradients_1");
  EXPECT_EQ(resources_.All().size(), 3u);
  array.Reset();
  EXPECT_EQ(Read(gradient, 0, DT_FLOAT).scalar<float>(), 2.0f);
  gradient.Reset();
  EXPECT_EQ(resources_.All().size(), 3u);
}

TEST_F(TensorArrayTest, NothingIsLeftBehindAHandle) {
  {
    const Tensor array = Make(2, DT_FLOAT);
    const Tensor gradient = Gradient(array, "gradients");
  }
  EXPECT_TRUE(resources_.All().empty());
}

TEST_F(TensorArrayTest, ShapesOfElementsAreKnownFromTheArraysNode) {
  Graph graph(&Ops());
  const Scope root(&graph);
  const TensorArrayOutputs array =
      TensorArray(root, Const(root, 3), DT_FLOAT, {.element_shape = {2, -1}});
  const Output read = TensorArrayRead(root, array.handle, Const(root, 0), array.flow, DT_FLOAT);
  EXPECT_EQ(read.shape(), (PartialShape{2, -1}));
  const Output indices = Placeholder(root, DT_INT32, {-1});
  const Output rows = TensorArrayGather(root, array.handle, indices, array.flow, DT_FLOAT, {-1, 5});
  EXPECT_EQ(rows.shape(), (PartialShape{-1, 2, 5}));
  EXPECT_EQ(TensorArrayConcat(root, array.handle, array.flow, DT_FLOAT, {5}).value.shape(),
            (PartialShape{-1, 5}));
  ASSERT_TRUE(root.ok()) << root.status();
  TensorArrayWrite(root, array.handle, Const(root, 0), Placeholder(root, DT_FLOAT, {3, 3}),
                   array.flow);
  EXPECT_EQ(root.status().code(), Code::kInvalidArgument) << root.status();
}

TEST_F(TensorArrayTest, AnElementThatIsGatheredMoreOftenThanMemoryAllowsIsRefused) {
  const Tensor array =
      Run("TensorArrayV3", {Tensor::Scalar(1)}, {{"dtype", DT_FLOAT}, {"clear_after_read", false}});
  ASSERT_TRUE(Write(array, 0, Tensor::Scalar(1.0f)).ok());
  Tensor indices = Tensor::Allocate(DT_INT32, Shape{1 << 20}).value();
  std::fill_n(indices.data<int32_t>(), indices.elements(), 0);
  const auto gather = [&] {
    return TryRun("TensorArrayGatherV3", {array, indices, flow_}, {{"dtype", DT_FLOAT}}).status();
  };
  EXPECT_TRUE(gather().ok());
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(64 << 20);
  const Status refused = gather();
  HostPool().SetLimit(limit);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("no room for 1048576 tensors"), std::string::npos) << refused;
}

TEST_F(TensorArrayTest, AnArrayOfHandlesIsRefusedAsItCouldHoldItsOwn) {
  const Status refused =
      TryRun("TensorArrayV3", {Tensor::Scalar(1)}, {{"dtype", DT_RESOURCE}}).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused;
}

TEST_F(TensorArrayTest, ListsOfHandlesAreRefusedAsAnArrayCouldSoHoldItsOwn) {
  Tensor array = Make(1, DT_VARIANT);
  const Tensor none = Tensor::Scalar(-1);
  Tensor handles = Run("EmptyTensorList", {none, none}, {{"element_dtype", DT_RESOURCE}});
  handles = Run("TensorListPushBack", {handles, array});
  Tensor lists = Run("EmptyTensorList", {none, none}, {{"element_dtype", DT_VARIANT}});
  lists = Run("TensorListPushBack", {lists, handles});
  const Tensor optional = Run("OptionalFromValue", {array});
  for (const Tensor* held : {&std::as_const(handles), &std::as_const(lists), &optional}) {
    const Status status = Write(array, 0, *held);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("cannot hold resource handles"), std::string::npos) << status;
  }
  const Tensor list = Run("EmptyTensorList", {none, none}, {{"element_dtype", DT_FLOAT}});
  EXPECT_TRUE(Write(array, 0, list).ok());
}

TEST_F(TensorArrayTest, AChainOfStacksThatHoldEachOthersHandlesGoesWithoutADeepStack) {
  const auto make = [&] {
    return Run("StackV2", {Tensor::Scalar(-1)}, {{"elem_type", DT_RESOURCE}});
  };
  Tensor stack = make();
  for (int i = 0; i < 50'000; ++i) {
    const Tensor next = make();
    ASSERT_TRUE(TryRun("StackPushV2", {next, stack}).ok());
    stack = next;
  }
  stack.Reset();
  EXPECT_TRUE(resources_.All().empty());
}

}  // namespace
}  // namespace monograph::testing
