#include "base/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;

std::string Refused(const std::string& path) {
  const Result<std::string> text = ReadTextFile("recipe", path, milliseconds(100));
  return text.ok() ? "read " + std::to_string(text->size()) + " bytes" : text.status().message();
}

TEST(TextFile, AFileIsReadWhole) {
  const TemporaryFolder folder;
  const std::string long_text(100000, 'x');
  EXPECT_EQ(ReadTextFile("recipe", folder.Write("a", long_text)).value(), long_text);
  EXPECT_EQ(ReadTextFile("recipe", "/dev/null").value(), "");
}

TEST(TextFile, APipeIsReadToItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe"; });
  EXPECT_EQ(ReadTextFile("recipe", path).value(), "from a pipe");
  writer.join();
}

TEST(TextFile, WhatCannotBeReadIsNamedAndNothingIsWaitedForWithoutEnd) {
  const TemporaryFolder folder;
  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Refused(pipe),
            "cannot read recipe '" + pipe + "': it has not ended in time; who writes it?");
  EXPECT_EQ(Refused(folder.path()), "cannot read recipe '" + folder.path() + "': Is a directory");
  EXPECT_EQ(Refused("/nowhere"), "cannot read recipe '/nowhere': No such file or directory");
  EXPECT_EQ(Refused("/dev/zero"), "cannot read recipe '/dev/zero': it is larger than 4 MiB");
}

}  // namespace
}  // namespace monograph
