#include "tools/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace monograph {
namespace {

class NpyTest : public ::testing::Test {
 protected:
  NpyTest() : path_(::testing::TempDir() + "npy_test_" + std::to_string(getpid()) + ".npy") {}
  ~NpyTest() override { std::filesystem::remove(path_); }
  const std::string path_;
};

TEST_F(NpyTest, WhatIsWrittenIsRead) {
  for (const Tensor& tensor :
       {Tensor::FromValues<float>({2, 3}, {1, 2, 3, 4, 5, 6}), Tensor::Scalar<int64_t>(7),
        Tensor::Vector<bool>({true, false}), Tensor::Vector<half>({half(1.5f)}),
        Tensor::Vector<bfloat16>({bfloat16(2.5f)}), Tensor::FromValues<double>({0, 4}, {})}) {
    ASSERT_TRUE(WriteNpy(path_, tensor).ok());
    EXPECT_EQ(std::filesystem::file_size(path_) % 64,
              tensor.bytes() % 64);  // data begins on a 64-byte boundary
    auto read = ReadNpy(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(BitEqual(tensor, read.value())) << tensor.ToString() << " / " << read->ToString();
  }
}

TEST_F(NpyTest, DamagedFilesAreNamed) {
  EXPECT_EQ(ReadNpy("/no/such.npy").status().code(), Code::kNotFound);
  ASSERT_TRUE(WriteNpy(path_, Tensor::Vector<float>({1, 2, 3})).ok());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_EQ(ReadNpy(path_).status().code(), Code::kDataLoss);
  EXPECT_NE(ReadNpy(path_).status().message().find(path_), std::string::npos);
  std::ofstream(path_) << "not a tensor at all";
  EXPECT_EQ(ReadNpy(path_).status().code(), Code::kInvalidArgument);
}

// A file with this header and these bytes of data.
std::string Npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + ")}";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  return bytes + header + data;
}

TEST(Npy, WhatAHeaderPromisesIsCheckedBeforeMemoryIsTaken) {
  const auto code = [](const std::string& bytes) {
    return ParseNpy(bytes, "x.npy").status().code();
  };
  EXPECT_TRUE(ParseNpy(Npy("<f4", "2,", "12345678"), "x.npy").ok());
  EXPECT_TRUE(ParseNpy(Npy("|S4", "2,", "12345678"), "x.npy").ok());
  // 2^61 numbers of 8 bytes are 2^64 bytes, which wraps to none.
  EXPECT_EQ(code(Npy("<f8", "2305843009213693952,", "")), Code::kDataLoss);
  EXPECT_EQ(code(Npy("|S16", "1152921504606846976,", "")), Code::kDataLoss);
  EXPECT_EQ(code(Npy("|S0", "1152921504606846976,", "")), Code::kInvalidArgument);
  EXPECT_EQ(code(Npy("|Sx", "2,", "")), Code::kInvalidArgument);
  EXPECT_EQ(code(Npy("<f4", "99999999999999999999,", "")), Code::kInvalidArgument);
  EXPECT_EQ(code(Npy("<f4", "1,1,1,1,1,1,1,1,1,1,1,1,1,", "1234")), Code::kInvalidArgument);
}

TEST(Npy, WhatIsNoFileIsNamedAndNotWaitedFor) {
  EXPECT_EQ(ReadNpy("/dev/zero").status().message(),
            "cannot read .npy file '/dev/zero': it is a device; a file is expected");
}

}  // namespace
}  // namespace monograph
