#include "tools/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace monograph {
namespace {

class NpyTest : public testing::Test {
 protected:
  NpyTest() : path_(testing::TempDir() + "npy_test_" + std::to_string(getpid()) + ".npy") {}
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

}  // namespace
}  // namespace monograph
