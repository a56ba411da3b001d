#include "base/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/pool_allocator.h"

namespace monograph {
namespace {

TEST(Tensor, SlicesAndReshapesShareTheBuffer) {
  Tensor tensor = Tensor::FromValues<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  Tensor rows = tensor.Slice(1, 3);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_EQ(rows.data<float>()[0], 2.0f);
  EXPECT_TRUE(rows.buffer() == tensor.buffer());
  EXPECT_FALSE(tensor.unique());
  EXPECT_EQ(rows.Reshaped({4}).ToString(), "float[4] = 2 3 4 5");
}

TEST(Tensor, PrintsEachNumberAsTheShortestTextThatMeansIt) {
  EXPECT_EQ(Tensor::Vector<float>({0.1f, 1e-10f, 1e10f, -0.0f}).ToString(),
            "float[4] = 0.1 1e-10 1e+10 -0");
  EXPECT_EQ(Tensor::Vector<double>({1.0 / 3}).ToString(), "double[1] = 0.3333333333333333");
  EXPECT_EQ(Tensor::Vector<half>({half(1.5f)}).ToString(), "half[1] = 1.5");
  EXPECT_EQ(Tensor::Vector<bool>({true, false}).ToString(), "bool[2] = 1 0");
  EXPECT_EQ(Tensor::Vector<int8_t>({-3, 65}).ToString(), "int8[2] = -3 65");
}

TEST(Tensor, CloneOwnsItsBytes) {
  Tensor tensor = Tensor::Vector<int32_t>({1, 2});
  Tensor copy = tensor.Clone().value();
  copy.data<int32_t>()[0] = 7;
  EXPECT_EQ(tensor.data<int32_t>()[0], 1);
  EXPECT_FALSE(BitEqual(tensor, copy));
}

TEST(Tensor, StringsCountOnceForEachBufferUntilItGoes) {
  constexpr size_t kSize = size_t{5} << 20;
  const int64_t before = HostPool().bytes_reserved();
  const auto counted = [before] { return HostPool().bytes_reserved() - before; };
  {
    Tensor texts = Tensor::Allocate(DT_STRING, Shape{2}).value();
    texts.strings()[0].assign(kSize, 'a');
    texts.strings()[1] = "short";
    ASSERT_TRUE(texts.Slice(1, 2).CountStrings().ok());  // all of the buffer
    EXPECT_NEAR(static_cast<double>(counted()), kSize, 64);
    const Tensor same = texts.Reshaped({2, 1});
    ASSERT_TRUE(same.CountStrings().ok());
    EXPECT_NEAR(static_cast<double>(counted()), kSize, 64);
    const Tensor copy = texts.Clone().value();
    EXPECT_NEAR(static_cast<double>(counted()), 2 * kSize, 64);
    ASSERT_TRUE(copy.CountStrings().ok());
    EXPECT_NEAR(static_cast<double>(counted()), 2 * kSize, 64);
    ASSERT_TRUE(Tensor::String("short").CountStrings().ok());
    EXPECT_NEAR(static_cast<double>(counted()), 2 * kSize, 64);
  }
  EXPECT_EQ(counted(), 0);
}

TEST(Tensor, StringsThatPassTheLimitAreRefusedButForSmallOnes) {
  const Tensor large = Tensor::String(std::string(size_t{5} << 20, 'a'));
  const Tensor small = Tensor::String(std::string(1000, 'a'));
  const int64_t limit = HostPool().limit(), before = HostPool().bytes_reserved();
  HostPool().SetLimit(1 << 20);
  const Status refused = large.CountStrings();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("--memory_limit"), std::string::npos) << refused;
  EXPECT_EQ(large.Clone().status().code(), Code::kResourceExhausted);
  EXPECT_EQ(HostPool().bytes_reserved(), before);
  EXPECT_TRUE(small.CountStrings().ok());
  EXPECT_GT(HostPool().bytes_reserved(), before);
  HostPool().SetLimit(limit);
  EXPECT_TRUE(large.CountStrings().ok());
}

TEST(Tensor, HoldsStringsAndHandles) {
  Tensor text = Tensor::String("hello");
  EXPECT_TRUE(BitEqual(text, text.Clone().value()));
  Tensor handle = Tensor::Allocate(DT_RESOURCE, Shape()).value();
  handle.handles()->name = "weights";
  EXPECT_EQ(handle.Clone()->handles()->name, "weights");
}

class Named : public VariantValue {
 public:
  std::string_view type_name() const override { return "Name"; }
};

TEST(Tensor, HoldsVariantsWhoseValuesAreShared) {
  Tensor variants = Tensor::Allocate(DT_VARIANT, Shape{2}).value();
  variants.variants()[1] = std::make_shared<Named>();
  EXPECT_EQ(variants.ToString(), "variant[2] = <empty> <Name>");
  const Tensor copy = variants.Clone().value();
  EXPECT_EQ(copy.variants()[1], variants.variants()[1]);
  EXPECT_TRUE(BitEqual(copy, variants));
  variants.variants()[1] = std::make_shared<Named>();
  EXPECT_FALSE(BitEqual(copy, variants));
  EXPECT_EQ(copy.variants()[1].use_count(), 1);
  const Status sum = copy.variants()[1]->Add(*variants.variants()[1], nullptr).status();
  EXPECT_EQ(sum.code(), Code::kUnimplemented);
  EXPECT_EQ(sum.message(), "a Name cannot be added to another");
}

TEST(Tensor, ComplexAndQuantizedOnesArePlainBytes) {
  Tensor complex = Tensor::Allocate(DT_COMPLEX64, Shape{2}).value();
  const float parts[] = {1, -2.5f, 0, 3};
  ASSERT_EQ(complex.bytes(), sizeof parts);
  std::copy_n(parts, 4, complex.data<float>());
  EXPECT_EQ(complex.ToString(), "complex64[2] = (1,-2.5) (0,3)");
  EXPECT_EQ(DTypeSize(DT_COMPLEX128), 16u);
  Tensor quantized = Tensor::Allocate(DT_QINT8, Shape{2}).value();
  quantized.data<int8_t>()[0] = -3;
  quantized.data<int8_t>()[1] = 4;
  EXPECT_EQ(quantized.ToString(), "qint8[2] = -3 4");
  for (const DType dtype :
       {DT_COMPLEX64, DT_COMPLEX128, DT_QINT8, DT_QUINT8, DT_QINT16, DT_QUINT16, DT_QINT32}) {
    EXPECT_TRUE(IsPlainData(dtype));
    EXPECT_FALSE(IsInteger(dtype) || IsFloating(dtype));
    EXPECT_EQ(ParseDType(DTypeName(dtype)).value(), dtype);
    EXPECT_EQ(DTypeSize(StoredAs(dtype)), DTypeSize(dtype));
  }
}

TEST(Tensor, AnUnsupportedTypeIsNamed) {
  Result<Tensor> tensor = Tensor::Allocate(static_cast<DType>(99), Shape{1});
  EXPECT_EQ(tensor.status().code(), Code::kUnimplemented);
  EXPECT_NE(tensor.status().message().find("unknown"), std::string::npos);
}

TEST(Tensor, OneThatNoMemoryHoldsIsRefusedWithItsSize) {
  // 2^61 doubles are 2^64 bytes, which wraps to none.
  const Shape wraps{int64_t{1} << 61}, more{int64_t{1} << 32, int64_t{1} << 32};
  for (const DType dtype : {DT_DOUBLE, DT_STRING, DT_RESOURCE, DT_BOOL}) {
    for (const Shape& shape : {wraps, more}) {
      if (dtype == DT_BOOL && shape == wraps) continue;
      const Result<Tensor> tensor = Tensor::Allocate(dtype, shape);
      EXPECT_EQ(tensor.status().code(), Code::kResourceExhausted) << shape.ToString();
      EXPECT_NE(tensor.status().message().find("more than 2^63 bytes"), std::string::npos);
    }
  }
  EXPECT_EQ(Tensor::Allocate(DT_STRING, Shape{int64_t{1} << 50}).status().code(),
            Code::kResourceExhausted);
  EXPECT_TRUE(Tensor::Allocate(DT_DOUBLE, Shape{int64_t{1} << 40, 1 << 30, 0}).ok());
}

}  // namespace
}  // namespace monograph
