// What a decoder makes of files that are not whole, and that what is written is read as it was.
#include <array>
#include <cmath>
#include <string>

#include "ops/string/siphash_cpu.h"
#include "tests/ops/testing.h"

namespace monograph {
namespace {

using namespace testing;  // NOLINT(build/namespaces)

Tensor Picture(int64_t height, int64_t width, int64_t channels) {
  Tensor image = Tensor::Allocate(DT_UINT8, Shape{height, width, channels}).value();
  for (int64_t i = 0; i < image.elements(); ++i)
    image.data<uint8_t>()[i] = static_cast<uint8_t>(128 + 100 * std::sin(static_cast<double>(i)));
  return image;
}

std::string Encoded(const char* op, const Tensor& image, Attrs attrs = {}) {
  return *Run1(op, {image}, std::move(attrs)).strings();
}

Result<std::vector<Tensor>> Decode(const std::string& file, Attrs attrs = {}) {
  return RunOp("DecodeJpeg", {Tensor::String(file)}, std::move(attrs));
}

TEST(ImageCodec, APngFileGivesTheImageThatWasWritten) {
  for (const int64_t channels : {1, 2, 3, 4}) {
    const Tensor image = Picture(19, 23, channels);
    for (const int64_t compression : {-1, 0, 9}) {
      const std::string file = Encoded("EncodePng", image, {{"compression", compression}});
      EXPECT_TRUE(BitEqual(Run1("DecodePng", {Tensor::String(file)}), image));
    }
  }
}

TEST(ImageCodec, ATruncatedJpegFileIsRefusedOrGivesTheRowsThatAreThere) {
  const Tensor picture = Picture(64, 32, 3);
  const std::string file = Encoded("EncodeJpeg", picture, {{"chroma_downsampling", false}});
  const Tensor whole = Decode(file).value()[0];
  const std::string half = file.substr(0, file.size() / 2);
  const auto refused = Decode(half);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << refused.status();
  const int64_t row = 32 * 3;
  for (const Attrs& attrs :
       {Attrs{{"try_recover_truncated", true}}, Attrs{{"acceptable_fraction", 0.1f}}}) {
    const auto part = Decode(half, attrs);
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ((*part)[0].shape(), whole.shape());
    const auto *got = (*part)[0].data<uint8_t>(), *expected = whole.data<uint8_t>();
    EXPECT_TRUE(std::equal(got, got + 16 * row, expected));
    EXPECT_FALSE(std::equal(got, got + 64 * row, expected));
  }
}

// Every byte is changed once, and every length is tried.
TEST(ImageCodec, DamagedFilesGiveAnImageOrOneClearError) {
  const Tensor picture = Picture(9, 11, 3);
  for (const std::string& file :
       {Encoded("EncodeJpeg", picture), Encoded("EncodeJpeg", picture, {{"progressive", true}}),
        Encoded("EncodePng", picture)}) {
    for (size_t i = 0; i < file.size(); ++i) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      for (const std::string& tried : {damaged, file.substr(0, i)}) {
        for (const bool recover : {false, true}) {
          const auto result = Decode(tried, {{"try_recover_truncated", recover}});
          if (result.ok()) continue;
          const Code code = result.status().code();
          EXPECT_TRUE(code == Code::kInvalidArgument || code == Code::kUnimplemented)
              << i << ": " << result.status();
        }
      }
    }
  }
}

// The vector of the paper's appendix.
TEST(StringHashes, SipHashGivesWhatItsAuthorsPublished) {
  ops::string::SipHash hash(0x0706050403020100, 0x0f0e0d0c0b0a0908);
  hash.Add({"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e", 15});
  EXPECT_EQ(hash.End(), 0xa129ca6149be45e5u);
}

TEST(Images, AHueTurnedWholeTurnsIsTheSame) {
  Tensor image = Random<float>({8, 8, 3});
  for (int64_t i = 0; i < image.elements(); ++i)
    image.data<float>()[i] = std::abs(image.data<float>()[i]);
  for (const float turns : {0.0f, 1.0f, -3.0f, 64.0f})
    ExpectNear(Run1("AdjustHue", {image, Tensor::Scalar(turns)}), AsDouble(image), 1e-4);
}

}  // namespace
}  // namespace monograph
