#include "tools/tensor_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace monograph {
namespace {

TEST(FormatValues, NestsRowsAndKeepsEveryDigitThatCounts) {
  EXPECT_EQ(FormatValues(Tensor::Scalar(3.5f)), "3.5");
  EXPECT_EQ(FormatValues(Tensor::Scalar(0.1f)), "0.1");
  EXPECT_EQ(FormatValues(Tensor::Scalar(std::numeric_limits<double>::quiet_NaN())), "nan");
  EXPECT_EQ(FormatValues(Tensor::Scalar(int8_t{-7})), "-7");
  EXPECT_EQ(FormatValues(Tensor::Scalar(bfloat16(1.5f))), "1.5");
  EXPECT_EQ(FormatValues(Tensor::String("a\"b\n")), "\"a\\\"b\\n\"");
  EXPECT_EQ(FormatValues(Tensor::Vector<bool>({true, false})), "[true, false]");
  EXPECT_EQ(FormatValues(Tensor::FromValues<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6})),
            "[[1, 2, 3],\n [4, 5, 6]]");
  EXPECT_EQ(FormatValues(Tensor::FromValues<int32_t>({2, 1, 2}, {1, 2, 3, 4})),
            "[[[1, 2]],\n\n [[3, 4]]]");
  EXPECT_EQ(FormatValues(Tensor::FromValues<float>({2, 0}, {})), "[[],\n []]");
}

TEST(FormatValues, ShowsTheEndsOfWhatIsLong) {
  std::vector<int32_t> values(20);
  std::iota(values.begin(), values.end(), 0);
  const Tensor tensor = Tensor::FromValues<int32_t>({10, 2}, values);
  EXPECT_EQ(FormatValues(tensor, 19),
            "[[0, 1],\n [2, 3],\n [4, 5],\n ...,\n [14, 15],\n [16, 17],\n [18, 19]]");
  EXPECT_EQ(FormatValues(tensor.Reshaped({20}), 10), "[0, 1, 2, ..., 17, 18, 19]");
}

void ExpectParsed(const std::string& text, const Tensor& expected) {
  const Result<Tensor> parsed = ParseValues(text, expected.dtype());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(BitEqual(*parsed, expected)) << text << " gave " << parsed->ToString();
}

TEST(ParseValues, ReadsScalarsAndListsAsTheTypeThatIsAskedFor) {
  ExpectParsed("3.5", Tensor::Scalar(3.5f));
  ExpectParsed("3", Tensor::Scalar(3.0));
  ExpectParsed("3.0", Tensor::Scalar(int32_t{3}));
  ExpectParsed("-1", Tensor::Scalar(int8_t{-1}));
  ExpectParsed("18446744073709551615", Tensor::Scalar(~uint64_t{0}));
  ExpectParsed("0.5", Tensor::Scalar(half(0.5f)));
  ExpectParsed("true", Tensor::Scalar(true));
  ExpectParsed("\"text\"", Tensor::String("text"));
  ExpectParsed("[1, 2,3]", Tensor::Vector<int64_t>({1, 2, 3}));
  ExpectParsed("[[1,2],[3,4],[5,6]]", Tensor::FromValues<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  ExpectParsed("[]", Tensor::FromValues<float>({0}, {}));
  ExpectParsed("[[],[]]", Tensor::FromValues<float>({2, 0}, {}));
}

TEST(ParseValues, RefusesWhatTheTypeDoesNotHold) {
  const auto error = [](const std::string& text, DType dtype) {
    const Result<Tensor> parsed = ParseValues(text, dtype);
    return parsed.ok() ? "no error" : parsed.status().message();
  };
  EXPECT_EQ(error("300", DT_UINT8), "300 is no uint8");
  EXPECT_EQ(error("-1", DT_UINT64), "-1 is no uint64");
  EXPECT_EQ(error("1e30", DT_INT64), "1e+30 is no int64");
  EXPECT_EQ(error("1.5", DT_INT32), "1.5 is no int32");
  EXPECT_EQ(error("true", DT_FLOAT), "true is no float");
  EXPECT_EQ(error("1", DT_STRING), "1 is no string");
  EXPECT_EQ(error("[[1,2],[3]]", DT_FLOAT),
            "[3] should be a list of 2, as the first one beside it is");
  EXPECT_EQ(error("[1,[2]]", DT_FLOAT), "[2] is no float");
  EXPECT_NE(error("x.np", DT_FLOAT).find("'x.np' is no value"), std::string::npos);
  EXPECT_NE(error("1e999", DT_FLOAT).find("the number 1e999 is out of range"), std::string::npos);
  EXPECT_EQ(error("1e39", DT_FLOAT), "1e+39 is no float");
  EXPECT_EQ(error("70000", DT_HALF), "70000 is no half");
  EXPECT_EQ(error("[[0,0,0,0,0,0,0,0,0],0,0,0,0,0,0,0,0]", DT_FLOAT),
            "[[0,0,0,0,0,0,0,0,0],0,0,0,0,0,0,0,0] has lists that differ in their lengths");
  EXPECT_NE(error("1", DT_RESOURCE).find("resource"), std::string::npos);
  EXPECT_NE(error("[[[[[[[[[[[[[1]]]]]]]]]]]]]", DT_FLOAT).find("dimensions"), std::string::npos);
}

}  // namespace
}  // namespace monograph
