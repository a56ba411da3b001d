#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;

std::string Said(const Result<std::string>& text) {
  return text.ok() ? "read " + std::to_string(text->size()) + " bytes" : text.status().ToString();
}
std::string FromFile(const std::string& path) { return Said(ReadInputFile("recipe", path, 1000)); }
std::string FromPipe(const std::string& path) {
  return Said(ReadFileOrPipe("recipe", path, 1000, milliseconds(100)));
}

TEST(InputFile, AFileIsReadWhole) {
  const TemporaryFolder folder;
  const std::string long_text(100000, 'x');
  EXPECT_EQ(ReadInputFile("recipe", folder.Write("a", long_text)).value(), long_text);
  EXPECT_EQ(ReadFileOrPipe("recipe", folder.Write("a", long_text)).value(), long_text);
  EXPECT_EQ(ReadInputFile("recipe", folder.Write("b", "")).value(), "");
}

TEST(InputFile, PartsOfAFileAreReadWhereTheyAre) {
  const TemporaryFolder folder;
  const InputFile file = InputFile::Open("recipe", folder.Write("a", "flour, eggs")).value();
  EXPECT_EQ(file.size(), 11u);
  char eggs[4];
  ASSERT_TRUE(file.Read(7, sizeof eggs, eggs).ok());
  EXPECT_EQ(std::string(eggs, sizeof eggs), "eggs");
  EXPECT_EQ(file.Read(8, sizeof eggs, eggs).ToString(),
            "DATA_LOSS: cannot read recipe '" + folder.File("a") + "': it is truncated");
}

TEST(InputFile, APipeIsReadToItsEndWhereOneIsAllowed) {
  const TemporaryFolder folder;
  const std::string path = folder.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  EXPECT_EQ(ReadFileOrPipe("recipe", path).value(), "from a pipe");
  writer.join();
  EXPECT_EQ(FromPipe("/dev/null"), "read 0 bytes");
}

TEST(InputFile, WhatIsNoFileIsNamedAndNothingIsWaitedForWithoutEnd) {
  const TemporaryFolder folder;
  const auto cannot = [](const std::string& code, const std::string& path, const char* why) {
    return code + ": cannot read recipe '" + path + "': " + why;
  };
  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(FromFile(pipe),
            cannot("FAILED_PRECONDITION", pipe, "it is a pipe; a file is expected"));
  EXPECT_EQ(FromPipe(pipe),
            cannot("FAILED_PRECONDITION", pipe, "it has not ended in time; who writes it?"));
  EXPECT_EQ(FromFile("/dev/zero"),
            cannot("FAILED_PRECONDITION", "/dev/zero", "it is a device; a file is expected"));
  EXPECT_EQ(FromPipe("/dev/zero"),
            cannot("RESOURCE_EXHAUSTED", "/dev/zero", "it has more bytes, at most 1000 are read"));
  const std::string large = folder.Write("large", std::string(1001, 'x'));
  EXPECT_EQ(FromFile(large),
            cannot("RESOURCE_EXHAUSTED", large, "it has 1001 bytes, at most 1000 are read"));
  EXPECT_EQ(FromFile(folder.path()),
            cannot("FAILED_PRECONDITION", folder.path(), "it is a folder; a file is expected"));
  EXPECT_EQ(FromFile("/nowhere"), cannot("NOT_FOUND", "/nowhere", "No such file or directory"));
  EXPECT_EQ(FromFile(large + "/x"), cannot("NOT_FOUND", large + "/x", "Not a directory"));
}

TEST(InputFile, AFileOfTheKernelIsReadThoughItSaysThatItIsEmpty) {
  EXPECT_NE(ReadInputFile("status", "/proc/self/status").value().find("Pid:"), std::string::npos);
}

}  // namespace
}  // namespace monograph
