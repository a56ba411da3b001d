// Lists of tensors one op at a time: when a list is changed in place, what lengths cost, how deep
// lists may lie in lists. What the ops compute and refuse is in tests/golden/graphs/tensor_lists.
#include <algorithm>
#include <limits>

#include "base/pool_allocator.h"
#include "tests/ops/testing.h"

namespace monograph::testing {
namespace {

class TensorListTest : public ::testing::Test {
 protected:
  TensorListTest() : runner_(&Kernels(), {.pools = nullptr, .resources = &resources_}) {}

  Result<std::vector<Tensor>> TryRun(const std::string& op, std::vector<Tensor> inputs,
                                     Attrs attrs = {}) {
    return testing::RunOp(runner_, Ops(), op, std::move(inputs), std::move(attrs));
  }
  Tensor Run(const std::string& op, std::vector<Tensor> inputs, Attrs attrs = {}) {
    auto out = TryRun(op, std::move(inputs), std::move(attrs));
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() && !out->empty() ? (*out)[0] : Tensor();
  }
  Tensor Empty(DType dtype = DT_FLOAT) {
    return Run("EmptyTensorList", {any_, Tensor::Scalar(-1)}, {{"element_dtype", dtype}});
  }
  Result<std::vector<Tensor>> TryReserve(int32_t size) {
    return TryRun("TensorListReserve", {any_, Tensor::Scalar(size)}, {{"element_dtype", DT_FLOAT}});
  }
  Result<std::vector<Tensor>> TryPush(Tensor list, const Tensor& element) {
    std::vector<Tensor> inputs(2);
    inputs[0] = std::move(list);
    inputs[1] = element;
    return TryRun("TensorListPushBack", std::move(inputs));
  }
  Tensor Push(Tensor list, const Tensor& element) {
    auto out = TryPush(std::move(list), element);
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? (*out)[0] : Tensor();
  }
  int32_t Length(const Tensor& list) { return Run("TensorListLength", {list}).scalar<int32_t>(); }
  Tensor Get(const Tensor& list, int32_t index) {
    return Run("TensorListGetItem", {list, Tensor::Scalar(index), any_},
               {{"element_dtype", DT_FLOAT}});
  }

  ResourceManager resources_;
  KernelRunner runner_;
  const Tensor any_ = Tensor::Scalar(-1), value_ = Tensor::Vector<float>({1, 2});
};

TEST_F(TensorListTest, AListThatNobodyElseHoldsIsChangedInPlaceAndAnotherOneIsCopied) {
  Tensor list = Push(Empty(), value_);
  const VariantValue* const first = list.variants()->get();
  list = Push(std::move(list), value_);
  EXPECT_EQ(list.variants()->get(), first);
  const Tensor held = list;
  const Tensor longer = Push(list, Tensor::Scalar(3.0f));
  EXPECT_NE(longer.variants()->get(), first);
  EXPECT_EQ(Length(held), 2);
  EXPECT_EQ(Length(longer), 3);
  // Another tensor with the same value.
  Tensor copy = longer.Clone().value();
  const VariantValue* const third = copy.variants()->get();
  EXPECT_NE(Push(std::move(copy), value_).variants()->get(), third);
  EXPECT_EQ(Length(longer), 3);
}

TEST_F(TensorListTest, ElementsAndRowsShareTheMemoryOfWhatTheyWereMadeOf) {
  EXPECT_EQ(Get(Push(Empty(), value_), 0).raw(), value_.raw());
  const Tensor rows = Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4});
  auto list = TryRun("TensorListFromTensor", {rows, Tensor::Vector<int32_t>({2})});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(BitEqual(Get((*list)[0], 1), Tensor::Vector<float>({3, 4})), true);
}

TEST_F(TensorListTest, WordsAreSplitScatteredAndJoined) {
  Tensor words = Tensor::Allocate(DT_STRING, {3}).value();
  for (int i = 0; i < 3; ++i) words.strings()[i] = std::string(40, static_cast<char>('a' + i));
  const Tensor parts = Run("TensorListSplit", {words, any_, Tensor::Vector<int64_t>({1, 2})});
  const auto joined = TryRun("TensorListConcatV2", {parts, any_, Tensor::Vector<int64_t>({})},
                             {{"element_dtype", DT_STRING}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(BitEqual((*joined)[0], words));
  const Tensor turned = Run("TensorListScatterV2",
                            {words, Tensor::Vector<int32_t>({2, 1, 0}), any_, Tensor::Scalar(-1)});
  const Tensor stacked = Run("TensorListStack", {turned, any_}, {{"element_dtype", DT_STRING}});
  ASSERT_EQ(stacked.elements(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stacked.strings()[i], words.strings()[2 - i]);
}

TEST_F(TensorListTest, AListThatWouldPassTheLimitOfMemoryIsRefused) {
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(HostPool().bytes_in_use() + (64 << 20));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const auto reserved = TryReserve(kMost);
  EXPECT_EQ(reserved.status().code(), Code::kResourceExhausted) << reserved.status();
  EXPECT_NE(reserved.status().message().find("no room for a list of 2147483647 tensors"),
            std::string::npos)
      << reserved.status();
  const Tensor list =
      Run("TensorListReserve", {any_, Tensor::Scalar(10)}, {{"element_dtype", DT_FLOAT}});
  EXPECT_EQ(TryRun("TensorListResize", {list, Tensor::Scalar(kMost)}).status().code(),
            Code::kResourceExhausted);
  const Tensor rows = Tensor::FromValues<float>({1, 2}, {1, 2});
  for (const char* op : {"TensorListScatterV2", "TensorListScatter"}) {
    std::vector<Tensor> inputs{rows, Tensor::Vector<int32_t>({kMost}), any_};
    if (op == std::string("TensorListScatterV2")) inputs.push_back(Tensor::Scalar(-1));
    EXPECT_EQ(TryRun(op, std::move(inputs)).status().code(), Code::kResourceExhausted);
  }
  HostPool().SetLimit(limit);
}

TEST_F(TensorListTest, AnElementThatIsGatheredMoreOftenThanMemoryAllowsIsRefused) {
  const Tensor list = Push(Empty(), Tensor::Scalar(1.0f));
  Tensor indices = Tensor::Allocate(DT_INT32, Shape{1 << 20}).value();
  std::fill_n(indices.data<int32_t>(), indices.elements(), 0);
  const auto gather = [&] {
    return TryRun("TensorListGather", {list, indices, any_}, {{"element_dtype", DT_FLOAT}})
        .status();
  };
  EXPECT_TRUE(gather().ok());
  const int64_t limit = HostPool().limit();
  HostPool().SetLimit(64 << 20);
  const Status refused = gather();
  HostPool().SetLimit(limit);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("no room for 1048576 tensors"), std::string::npos) << refused;
}

TEST_F(TensorListTest, ListsThatHoldEachOtherInMoreWaysThanCanBeGoneHaveNoZerosAndNoSum) {
  Tensor list = Push(Empty(), value_);
  for (int depth = 2; depth <= 60; ++depth) list = Push(Push(Empty(DT_VARIANT), list), list);
  for (const bool sum : {false, true}) {
    const auto out = sum ? TryRun("AddN", {list, list}, {{"N", 2}, {"T", DT_VARIANT}})
                         : TryRun("ZerosLike", {list});
    EXPECT_EQ(out.status().code(), Code::kInvalidArgument) << out.status();
    EXPECT_NE(out.status().message().find("more than 1048576 values"), std::string::npos)
        << out.status();
  }
}

TEST_F(TensorListTest, ListsLieInListsAHundredDeepAtMost) {
  Tensor list = Push(Empty(), value_);
  for (int depth = 2; depth <= 100; ++depth) list = Push(Empty(DT_VARIANT), list);
  const auto deeper = TryPush(Empty(DT_VARIANT), list);
  EXPECT_EQ(deeper.status().code(), Code::kInvalidArgument);
  EXPECT_NE(deeper.status().message().find("more than 100 deep"), std::string::npos)
      << deeper.status();
  const auto optional = TryRun("OptionalFromValue", {list});
  EXPECT_NE(optional.status().message().find("more than 100 deep"), std::string::npos)
      << optional.status();
}

TEST_F(TensorListTest, WhatIsNoListOrNoOptionalIsNamed) {
  const Tensor optional = Run("OptionalFromValue", {value_}), nothing = Run("OptionalNone", {});
  const Tensor list = Push(Empty(), value_);
  const Status length = TryRun("TensorListLength", {optional}).status();
  EXPECT_NE(length.message().find("Input handle is not a list. Saw: 'tensorflow::data::Optional'"),
            std::string::npos)
      << length;
  const Status unset =
      TryRun("TensorListLength", {Tensor::Allocate(DT_VARIANT, Shape()).value()}).status();
  EXPECT_NE(unset.message().find("Input handle is not a list. Saw: ''"), std::string::npos)
      << unset;
  const Status has = TryRun("OptionalHasValue", {list}).status();
  EXPECT_NE(has.message().find("input must be a scalar optional, not variant[] = "
                               "<tensorflow::TensorList>"),
            std::string::npos)
      << has;
  for (const auto& [a, b] : {std::pair(list, optional), {optional, list}, {optional, nothing}})
    EXPECT_EQ(TryRun("AddN", {a, b}).status().code(), Code::kInvalidArgument);
  const Status types =
      TryRun("TensorListGetItem", {list, Tensor::Scalar(0), any_}, {{"element_dtype", DT_INT32}})
          .status();
  EXPECT_NE(types.message().find("op elements int32 but list elements float"), std::string::npos)
      << types;
}

TEST_F(TensorListTest, OptionalValuesAddUpAndHaveZeros) {
  const Tensor optional = Run("OptionalFromValue", {value_, Push(Empty(), value_)});
  const Tensor sum = Run("AddN", {optional, optional, Run("ZerosLike", {optional})});
  const auto values =
      TryRun("OptionalGetValue", {sum},
             {{"output_types", std::vector<DType>{DT_FLOAT, DT_VARIANT}},
              {"output_shapes", std::vector<PartialShape>{{2}, PartialShape::Scalar()}}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(BitEqual((*values)[0], Tensor::Vector<float>({2, 4})));
  EXPECT_TRUE(BitEqual(Get((*values)[1], 0), Tensor::Vector<float>({2, 4})));
}

}  // namespace
}  // namespace monograph::testing
