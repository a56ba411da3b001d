#include "base/printable.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

TEST(Printable, TextStaysAsItIs) {
  EXPECT_EQ(Printable("weights/Läyer_1 → 層"), "weights/Läyer_1 → 層");
  EXPECT_EQ(Printable(""), "");
}

TEST(Printable, WhatSteersATerminalIsShownAsItsBytes) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\a\x7f"), "a\\x1b[2Jb\\x0d\\x07\\x7f");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI in one character
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "txt"),
            "\\xe2\\x80\\xaetxt");  // written backwards
}

TEST(Printable, BytesThatAreNoUtf8AreShownEach) {
  EXPECT_EQ(Printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(Printable("\xc0\xaf/"), "\\xc0\\xaf/");
}

TEST(Printable, LinesStayUnlessOneIsAsked) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(Printable("a\tb\nc", Lines::kOne), "a\\x09b\\x0ac");
}

}  // namespace
}  // namespace monograph
