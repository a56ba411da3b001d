#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace monograph {
namespace {

TEST(DType, NamesRoundTrip) {
  for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BOOL, DT_BFLOAT16, DT_HALF,
                      DT_UINT8, DT_STRING}) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)).value(), dtype);
  }
  EXPECT_EQ(ParseDType("DT_FLOAT").value(), DT_FLOAT);
  EXPECT_EQ(ParseDType("float32").value(), DT_FLOAT);
  EXPECT_FALSE(ParseDType("floaty").ok());
}

TEST(DType, EveryHalfSurvivesTheTripThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = half::HalfBitsToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(half::FloatToHalfBits(value), bits);
  }
}

TEST(DType, SixteenBitFloatsRoundToNearestEven) {
  EXPECT_EQ(half(1.0f + 0x1p-11f).bits, half(1.0f).bits);      // tie, to even
  EXPECT_EQ(half(1.0f + 0x3p-11f).bits, half(1.0f).bits + 2);  // tie, to even
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);                      // past the largest half
  EXPECT_EQ(half(0x1p-25f).bits, 0);                           // tie at half the smallest subnormal
  EXPECT_EQ(half(0x1.8p-25f).bits, 1);
  EXPECT_EQ(bfloat16(1.0f + 0x1p-8f).bits, bfloat16(1.0f).bits);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(half(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace monograph
