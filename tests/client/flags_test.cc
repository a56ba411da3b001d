#include "client/flags.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

struct Parsed {
  std::optional<int> exit;
  std::string error, output;
  int batch_size = 100;
  int64_t steps = 5;
  bool sync = true;
  std::string name, text = "default";
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  Flags flags("program", "Does things.\n\nExamples:\n  program --batch_size=3");
  flags.Add("batch_size", &parsed.batch_size, "global batch");
  flags.Add("sync", &parsed.sync, "wait for all");
  flags.AddChoice("name", &parsed.name, {"first", "second"}, "which");
  flags.Add("text", &parsed.text, "some text");
  flags.Add("steps", &parsed.steps, "steps to train", 1);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  parsed.exit = flags.Parse(arguments);
  parsed.error = testing::internal::GetCapturedStderr();
  parsed.output = testing::internal::GetCapturedStdout();
  return parsed;
}

TEST(Flags, TakesValuesInBothForms) {
  EXPECT_EQ(Parse({"--batch_size=7"}).batch_size, 7);
  EXPECT_EQ(Parse({"--batch_size", "8"}).batch_size, 8);
  EXPECT_FALSE(Parse({"--sync=false"}).sync);
  EXPECT_FALSE(Parse({"--nosync"}).sync);
  EXPECT_EQ(Parse({}).batch_size, 100);
}

TEST(Flags, AnEmptyValueIsAValueAndDoesNotTakeTheNextArgument) {
  const Parsed parsed = Parse({"--text=", "--batch_size=7"});
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_EQ(parsed.text, "");
  EXPECT_EQ(parsed.batch_size, 7);
  const Parsed extra = Parse({"--text=", "surplus"});
  EXPECT_EQ(extra.exit, 2);
  EXPECT_NE(extra.error.find("surplus"), std::string::npos) << extra.error;
  EXPECT_NE(Parse({"--batch_size="}).error.find("--batch_size"), std::string::npos);
}

TEST(Flags, OfAFlagGivenTwiceTheLastCounts) {
  const Parsed parsed = Parse(
      {"--batch_size=7", "--name=first", "--nosync", "--batch_size=8", "--sync", "--name=second"});
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_EQ(parsed.batch_size, 8);
  EXPECT_TRUE(parsed.sync);
  EXPECT_EQ(parsed.name, "second");
}

TEST(Flags, AnUnknownFlagGetsTheNearestName) {
  const Parsed parsed = Parse({"--batchsize=7"});
  EXPECT_EQ(parsed.exit, 2);
  EXPECT_NE(parsed.error.find("unknown flag --batchsize; did you mean --batch_size?"),
            std::string::npos)
      << parsed.error;
}

TEST(Flags, AWrongValueNamesTheFlag) {
  EXPECT_EQ(Parse({"--batch_size=many"}).exit, 2);
  EXPECT_NE(Parse({"--batch_size=many"}).error.find("batch_size"), std::string::npos);
  EXPECT_NE(Parse({"--name=third"}).error.find("second"), std::string::npos)
      << Parse({"--name=third"}).error;
}

TEST(Flags, AValueBelowItsLimitIsRefusedWithBoth) {
  EXPECT_EQ(Parse({"--steps=1"}).steps, 1);
  for (const char* value : {"0", "-4"}) {
    const Parsed parsed = Parse({std::string("--steps=") + value});
    EXPECT_EQ(parsed.exit, 2);
    EXPECT_EQ(parsed.error, std::string("program: --steps: must be at least 1, not ") + value +
                                " (see --help)\n");
  }
  EXPECT_EQ(Parse({"--steps=many"}).exit, 2);
}

TEST(Flags, AFlagWithoutADefaultIsEmptyUntilItIsGiven) {
  std::optional<int> task;
  Flags flags("program", "");
  flags.Add("task", &task, "index");
  EXPECT_EQ(flags.Parse({}), std::nullopt);
  EXPECT_EQ(task, std::nullopt);
  EXPECT_EQ(flags.Parse({"--task=3"}), std::nullopt);
  EXPECT_EQ(task, 3);
}

TEST(Flags, WhatACheckRefusesIsAWrongFlag) {
  int first = 0;
  Flags flags("program", "");
  flags.Add("first", &first, "one");
  flags.AddCheck(
      [&] { return first < 5 ? Status() : InvalidArgument("--first must fit the second"); });
  EXPECT_EQ(flags.Parse({"--first=4"}), std::nullopt);
  testing::internal::CaptureStderr();
  EXPECT_EQ(flags.Parse({"--first=5"}), 2);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_EQ(error.find("program: --first must fit the second"), 0u) << error;
}

TEST(Flags, HelpShowsExamplesFirstAndExitsWithZero) {
  const Parsed parsed = Parse({"--help"});
  EXPECT_EQ(parsed.exit, 0);
  EXPECT_LT(parsed.output.find("Examples"), parsed.output.find("--batch_size TEXT"))
      << parsed.output;
  EXPECT_NE(parsed.output.find("100"), std::string::npos);
}

}  // namespace
}  // namespace monograph
