#include "tools/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/log.h"
#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Parsed {
  std::optional<int> exit;
  std::string error, output;
  int batch_size = 100;
  int64_t steps = 5;
  double rate = 0.5;
  bool sync = true;
  std::string name, text = "default", log = "none", hosts, file, folder;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  Flags flags("program", "Does things.\n\nExamples:\n  program --batch_size=3");
  flags.Add("batch_size", &parsed.batch_size, "global batch");
  flags.Add("sync", &parsed.sync, "wait for all");
  flags.Add("rate", &parsed.rate, "of learning");
  flags.AddChoice("name", &parsed.name, {"first", "second"}, "which");
  flags.Add("text", &parsed.text, "some text");
  flags.Add("steps", &parsed.steps, "steps to train", 1, 1000);
  flags.AddChoice("log", &parsed.log, {"none", "full", "json"}, "what to log", "full", "none");
  flags.Add("hosts", &parsed.hosts, "instead of --text");
  flags.Together({"text", "hosts"});
  flags.AddOutputFile("file", &parsed.file, "is written");
  flags.AddOutputFolder("folder", &parsed.folder, "is made");
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  parsed.exit = flags.Parse(arguments);
  parsed.error = ::testing::internal::GetCapturedStderr();
  parsed.output = ::testing::internal::GetCapturedStdout();
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

TEST(Flags, AValueThatIsMissingIsSaidAndNoOtherArgumentIsTakenForIt) {
  for (const std::string flag : {"--batch_size", "--name", "--rate"}) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{flag + "=", "--steps=7"}, {flag + "="}, {"--steps=7", flag}}) {
      const Parsed parsed = Parse(words);
      EXPECT_EQ(parsed.exit, 2) << words[0];
      EXPECT_EQ(parsed.error, "program: " + flag + ": needs a value (see --help)\n") << words[0];
    }
  }
  for (const std::string flag : {"--sync", "--nosync"}) {
    const Parsed parsed = Parse({flag + "="});
    EXPECT_EQ(parsed.exit, 2);
    EXPECT_THAT(parsed.error, HasSubstr(flag + ": '' is neither true nor false"));
  }
}

TEST(Flags, AWordThatIsNoChoiceIsToldWithTheChoices) {
  EXPECT_EQ(Parse({"--name=First"}).error,
            "program: --name: must be first or second, not 'First' (see --help)\n");
}

TEST(Flags, ANumberThatIsNotFiniteIsRefused) {
  for (const std::string value : {"inf", "1e400", "-inf"}) {
    const Parsed parsed = Parse({"--rate=" + value});
    EXPECT_EQ(parsed.exit, 2) << value;
    EXPECT_THAT(parsed.error, HasSubstr("--rate: '" + value + "' is not finite"));
  }
}

TEST(Flags, WhatIsNoFlagIsAnArgument) {
  EXPECT_THAT(Parse({"--", "x"}).error, HasSubstr("unexpected argument 'x'"));
  EXPECT_THAT(Parse({"--=3"}).error, HasSubstr("unexpected argument '--=3'"));
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
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(flags.Parse({"--first=5"}), 2);
  const std::string error = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(error.find("program: --first must fit the second"), 0u) << error;
}

TEST(Flags, HelpShowsExamplesFirstAndExitsWithZero) {
  const Parsed parsed = Parse({"--help"});
  EXPECT_EQ(parsed.exit, 0);
  EXPECT_LT(parsed.output.find("Examples"), parsed.output.find("--batch_size=N")) << parsed.output;
  EXPECT_NE(parsed.output.find("100"), std::string::npos);
}

// A variable of the environment while a test runs.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(Flags, ABooleanTakesTensorFlowsWords) {
  for (const char* word : {"True", "true", "TRUE", "1", "yes", "on"})
    EXPECT_TRUE(Parse({"--nosync", std::string("--sync=") + word}).sync) << word;
  for (const char* word : {"False", "false", "0", "no", "off"})
    EXPECT_FALSE(Parse({std::string("--sync=") + word}).sync) << word;
  const Parsed wrong = Parse({"--sync=maybe"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.error, HasSubstr("--sync: 'maybe' is neither true nor false"));
}

TEST(Flags, ANegatedBooleanTakesTheSameWordsAndNoNumbers) {
  EXPECT_FALSE(Parse({"--nosync=True"}).sync);
  EXPECT_FALSE(Parse({"--sync", "--nosync=1"}).sync);
  EXPECT_TRUE(Parse({"--nosync", "--nosync=off"}).sync);
  for (const std::string word :
       {"", "5", "maybe", "=", "-9223372036854775808", "99999999999999999999"}) {
    const Parsed wrong = Parse({"--nosync=" + word});
    EXPECT_EQ(wrong.exit, 2);
    EXPECT_THAT(wrong.error, HasSubstr("--nosync: '" + word + "' is neither true nor false"));
  }
  // The parser takes letters behind one dash apart: "-h", and then "--nosync=...".
  const Parsed wrong = Parse({"-h-nosync=99999999999999999999"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.error, HasSubstr("a number of more than 64 bits"));
}

TEST(Flags, WhatStandsAfterTwoDashesIsTakenAsItIs) {
  std::vector<std::string> files;
  bool sync = true;
  std::string text = "default";
  Flags flags("program", "Does things.");
  flags.Add("sync", &sync, "wait for all");
  flags.Add("text", &text, "some text");
  flags.AddPositional("FILES", &files, -1, "files");
  ASSERT_EQ(flags.Parse({"--text=", "--", "--nosync=1", "--text="}), std::nullopt);
  EXPECT_EQ(files, (std::vector<std::string>{"--nosync=1", "--text="}));
  EXPECT_TRUE(sync);
  EXPECT_EQ(text, "");
}

TEST(Flags, AChoiceThatIsABooleanTooStandsAlone) {
  const auto log = [](std::vector<std::string> arguments) {
    const Parsed parsed = Parse(std::move(arguments));
    EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
    return parsed.log;
  };
  EXPECT_EQ(log({}), "none");
  EXPECT_EQ(log({"--log"}), "full");
  EXPECT_EQ(log({"--log", "--batch_size=7"}), "full");
  for (const char* word : {"True", "true", "1"})
    EXPECT_EQ(log({std::string("--log=") + word}), "full");
  for (const char* word : {"False", "false", "0"})
    EXPECT_EQ(log({"--log", std::string("--log=") + word}), "none");
  EXPECT_EQ(log({"--log", "--nolog"}), "none");
  EXPECT_EQ(log({"--log", "json"}), "json");
  EXPECT_EQ(log({"--log=json"}), "json");
  const Parsed wrong = Parse({"--log=everything"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.error, HasSubstr("json"));
}

TEST(Flags, AValueAboveItsLimitIsRefusedWithBoth) {
  EXPECT_EQ(Parse({"--steps=1000"}).steps, 1000);
  for (const char* value : {"1001", "9223372036854775807", "99999999999999999999999"}) {
    const Parsed parsed = Parse({std::string("--steps=") + value});
    EXPECT_EQ(parsed.exit, 2);
    EXPECT_EQ(parsed.error, std::string("program: --steps: must be at most 1000, not ") + value +
                                " (see --help)\n");
  }
  EXPECT_THAT(Parse({"--batch_size=9223372036854775807"}).error,
              HasSubstr("--batch_size: must be at most 2147483647"));
  EXPECT_THAT(Parse({"--steps=1.5"}).error, HasSubstr("'1.5' is not a whole number"));
}

TEST(Flags, HelpIsAHundredColumnsWideAndShowsBooleansPlainly) {
  Flags flags("program", std::string(30, 'a') + " " + std::string(90, 'b') +
                             "\nnext.\n\nExamples:\n  program " + std::string(60, 'c') + " " +
                             std::string(60, 'd'));
  bool nccl = true, growth = false;
  flags.Add("nccl", &nccl,
            "collectives go from GPU to GPU where it can be loaded, and otherwise "
            "through the memory of the host, which takes longer");
  flags.Add("allow_growth", &growth, "as needed");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(flags.Parse(std::vector<std::string>{"--help"}), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  std::istringstream in(help);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(help, HasSubstr("--[no]nccl "));
  EXPECT_THAT(help, HasSubstr("takes longer\n" + std::string(34, ' ') + "(default: on)\n"));
  EXPECT_THAT(help, HasSubstr("--[no]allow_growth "));
  EXPECT_THAT(help, HasSubstr("as needed (default: off)"));
  EXPECT_THAT(help, Not(HasSubstr("{false}")));
  for (const char* flag : {"--config=FILE", "--log_level=WORD", "--version", "--help"})
    EXPECT_THAT(help, HasSubstr(flag));
}

TEST(Flags, EveryFlagHasAVariableThatIsCheckedAlike) {
  {
    const Variable variable("MONOGRAPH_BATCH_SIZE", "7");
    EXPECT_EQ(Parse({}).batch_size, 7);
    EXPECT_EQ(Parse({"--batch_size=8"}).batch_size, 8);
  }
  {
    const Variable variable("MONOGRAPH_BATCH_SIZE", "abc");
    const Parsed parsed = Parse({});
    EXPECT_EQ(parsed.exit, 2);
    EXPECT_EQ(parsed.error,
              "program: --batch_size: 'abc' is not a whole number (from MONOGRAPH_BATCH_SIZE) (see "
              "--help)\n");
    EXPECT_EQ(Parse({"--batch_size=8"}).batch_size, 8) << "a stronger source speaks";
  }
  const Variable no("MONOGRAPH_SYNC", "False"), empty("MONOGRAPH_TEXT", ""),
      log("MONOGRAPH_LOG", "True");
  const Parsed parsed = Parse({});
  EXPECT_FALSE(parsed.sync);
  EXPECT_EQ(parsed.text, "default");
  EXPECT_EQ(parsed.log, "full");
}

TEST(Flags, AVariableThatNoFlagHasIsWarnedAboutOnce) {
  const Variable slip("MONOGRAPH_BATCHSIZE", "7"), known("MONOGRAPH_CUDA_PLUGIN", "none"),
      launched("MONOGRAPH_CLUSTER", "{}");
  const Parsed parsed = Parse({});
  EXPECT_FALSE(parsed.exit.has_value());
  const std::string warning =
      "MONOGRAPH_BATCHSIZE is set, but program has no flag of this name; "
      "did you mean MONOGRAPH_BATCH_SIZE?\n";
  EXPECT_THAT(parsed.error, ::testing::EndsWith(warning));
  EXPECT_EQ(std::count(parsed.error.begin(), parsed.error.end(), '\n'), 1) << parsed.error;
  std::vector<std::string> command;
  Flags runs("runs", "Runs a program, whose the variable may be.");
  runs.AddCommand(&command, "the program");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(runs.Parse(std::vector<std::string>{"--log_level=info", "--", "x"}).has_value());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Flags, AVariableIsWarnedAboutByItsOwnNameAndNotIfItIsEmpty) {
  const Variable empty("MONOGRAPH_NOTHING", ""), upper("MONOGRAPH_HELP", "1");
  EXPECT_THAT(Parse({}).error, ::testing::EndsWith("has no flag of this name\n"));
  EXPECT_THAT(Parse({"--BATCH_SIZE=3"}).error, HasSubstr("did you mean --batch_size?"));
}

TEST(Flags, AFileGivesFlagsOfAllProgramsAndOfOne) {
  const TemporaryFolder folder;
  const std::string file =
      folder.Write("run.toml",
                   "# a comment\nbatch_size = 7\ntext = 'a,b c'\n\n[other]\nworkers = 3\n\n"
                   "[program]\nsync = false\nname = \"second\"\n");
  const Parsed parsed = Parse({"--config=" + file});
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_EQ(parsed.batch_size, 7);
  EXPECT_EQ(parsed.text, "a,b c");
  EXPECT_EQ(parsed.name, "second");
  EXPECT_FALSE(parsed.sync);
  EXPECT_EQ(Parse({"--config", file, "--batch_size=8"}).batch_size, 8);
  const Variable batch("MONOGRAPH_BATCH_SIZE", "9"), config("MONOGRAPH_CONFIG", file);
  const Parsed both = Parse({});
  EXPECT_EQ(both.batch_size, 9);
  EXPECT_EQ(both.name, "second");
}

TEST(Flags, AWrongFileIsNamedWithWhatIsWrong) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text) {
    const Parsed parsed = Parse({"--config=" + folder.Write("bad.ini", text)});
    EXPECT_EQ(parsed.exit, 2) << text;
    EXPECT_THAT(parsed.error, HasSubstr(folder.File("bad.ini")));
    return parsed.error;
  };
  EXPECT_THAT(refused("batchsize = 7\n"), HasSubstr("did you mean 'batch_size'?"));
  EXPECT_THAT(refused("[Program]\nsteps = 7\n"),
              HasSubstr("the section of this program is [program], not [Program]"));
  EXPECT_THAT(refused("[program]\nsteps = many\n"), HasSubstr("--steps: 'many' is not a whole"));
  EXPECT_THAT(refused("help = true\n"), HasSubstr("no flag 'help'"));
  EXPECT_THAT(refused("steps =\nsync = true\n"), HasSubstr("--steps: needs a value (from "));
  EXPECT_THAT(refused("sync =\n"), HasSubstr("--sync: '' is neither true nor false (from "));
  for (const std::string line : {"steps 7", "[program", "{\"steps\": 7}", "steps: 7"})
    EXPECT_THAT(refused(line), HasSubstr("'" + line + "' is no line 'name = value'"));
  EXPECT_THAT(refused(std::string("\xff\x01\x1b[2J = 3")), HasSubstr("'???[2J' is no line"));
  const Parsed missing = Parse({"--config=/nowhere.toml"});
  EXPECT_EQ(missing.exit, 2);
  EXPECT_THAT(missing.error, HasSubstr("--config: cannot read file of flags '/nowhere.toml': No "));
  const Variable variable("MONOGRAPH_CONFIG", "/nowhere.toml");
  EXPECT_THAT(Parse({}).error, HasSubstr("MONOGRAPH_CONFIG: cannot read file of flags"));
}

TEST(Flags, AFileMayBeOfWindowsAndHaveLists) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("run.toml",
                                        "\xef\xbb\xbf"
                                        "steps = 7\r\nhosts = [\"a:1\", \"b:2\"]\r\n");
  const Parsed parsed = Parse({"--config=" + file});
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_EQ(parsed.steps, 7);
  EXPECT_EQ(parsed.hosts, "a:1,b:2");
}

TEST(Flags, AnEndWithoutErrorIsOneOnlyIfStandardOutputTookEverything) {
  const auto end = [] {
    if (std::freopen("/dev/full", "w", stdout) == nullptr) std::_Exit(9);
    Flags flags("program", "Does things.");
    if (flags.Parse(std::vector<std::string>())) std::_Exit(8);
    std::printf("a result\n");
    std::_Exit(flags.Exit(Status()));
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(1), "standard output could not be written");
}

TEST(Flags, OfFlagsThatBelongTogetherOnlyTheStrongestSourceCounts) {
  const Variable variable("MONOGRAPH_TEXT", "from the environment");
  EXPECT_EQ(Parse({}).text, "from the environment");
  const Parsed parsed = Parse({"--hosts=a:1"});
  EXPECT_EQ(parsed.hosts, "a:1");
  EXPECT_EQ(parsed.text, "default");
}

TEST(Flags, AnOutputThatCannotBeWrittenIsRefusedAndNothingIsMade) {
  const TemporaryFolder folder;
  const std::string plain = folder.Write("plain", "text");
  struct Case {
    std::string flag, part;
  };
  const Case wrong[] = {
      {"--file=/nope/x.json", "--file: cannot write '/nope/x.json': there is no folder '/nope'"},
      {"--file=" + folder.path(), "is a folder"},
      {"--file=" + plain + "/x", "'" + plain + "' is not a folder"},
      {"--folder=" + plain, "--folder: cannot write '" + plain + "'"},
      {"--folder=" + plain + "/a/b", "'" + plain + "' is not a folder"},
  };
  for (const Case& c : wrong) {
    const Parsed parsed = Parse({c.flag});
    EXPECT_EQ(parsed.exit, 2) << c.flag;
    EXPECT_THAT(parsed.error, HasSubstr(c.part));
  }
  for (const std::string& flag :
       {"--file=" + folder.File("new"), "--file=" + plain, std::string("--file=/dev/null"),
        std::string("--file=relative"), "--folder=" + folder.File("a/b/c/"),
        "--folder=" + folder.path(), std::string("--folder=relative")}) {
    const Parsed parsed = Parse({flag});
    EXPECT_FALSE(parsed.exit.has_value()) << flag << ": " << parsed.error;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.File("new")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("a")));
}

TEST(Flags, APositionalThatIsMissingIsNamed) {
  const auto parse = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> words;
    Flags flags("program", "Reads a graph.");
    flags.AddPositional("GRAPH", &words, 1, "the GraphDef");
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const std::optional<int> exit = flags.Parse(arguments);
    return std::pair(
        exit, ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout());
  };
  EXPECT_EQ(parse({"g.pb"}).first, std::nullopt);
  EXPECT_EQ(parse({}).first, 2);
  EXPECT_THAT(parse({}).second, HasSubstr("the argument GRAPH is missing: the GraphDef"));
  EXPECT_THAT(parse({"a", "b"}).second, HasSubstr("unexpected argument 'b'"));
  EXPECT_EQ(parse({"--help"}).first, 0);
  EXPECT_THAT(parse({"--help"}).second, HasSubstr("Usage: program [FLAGS] GRAPH"));
}

TEST(Flags, ACheckThatFailsIsAnErrorOfUsageAndSaysWhereTheValueWasGiven) {
  const Variable variable("MONOGRAPH_RATE", "-1");
  double rate = 1;
  Flags flags("program", "Trains.");
  flags.Add("rate", &rate, "of learning");
  flags.AddCheck(
      [&] { return rate > 0 ? Status() : InvalidArgument("--rate must be greater than 0"); });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(flags.Parse(std::vector<std::string>{}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "program: --rate must be greater than 0 (from MONOGRAPH_RATE) (see --help)\n");
}

// The arguments of the second call are those of the first but for what they change, and it gives
// what a call of its own gives.
TEST(Flags, ASecondCallBeginsWithTheDefaults) {
  struct Values {
    std::string text = "default", word = "one";
    int small = 1;
    int64_t large = 2;
    double real = 0.5;
    bool yes = false;
    std::optional<int> maybe;
    std::vector<std::string> words = {"a"}, files, positional, command;
    std::chrono::milliseconds time{1500};
    std::chrono::microseconds wait{3};
    std::string parsed;
    bool operator==(const Values&) const = default;
  } values;
  Flags flags("program", "Does things.");
  flags.Add("text", &values.text, "a text");
  flags.Add("small", &values.small, "a number");
  flags.Add("large", &values.large, "a number");
  flags.Add("real", &values.real, "a number");
  flags.Add("yes", &values.yes, "a boolean");
  flags.Add("maybe", &values.maybe, "a number or none");
  flags.Add("words", &values.words, "words");
  flags.Add("time", &values.time, "a time");
  flags.Add("wait", &values.wait, "a time");
  flags.AddParsed(
      "parsed",
      [&](const std::string& text) {
        values.parsed = text;
        return Status();
      },
      "a text");
  flags.AddChoice("word", &values.word, {"one", "two"}, "a word", "two", "one");
  flags.AddRepeated("file", &values.files, "files");
  flags.AddPositional("NAMES", &values.positional, -1, "names");
  flags.AddCommand(&values.command, "what runs");
  const std::vector<std::string> all = {
      "--text=x",    "--small=7", "--large=8", "--real=9",        "--yes",  "--maybe=4",
      "--words=b,c", "--time=2",  "--wait=5",  "--parsed=p",      "--word", "--file",
      "f",           "--file=g",  "name",      "--log_level=off", "--",     "command"};
  const Values defaults = values;
  ASSERT_EQ(flags.Parse(all), std::nullopt);
  const Values set = values;
  EXPECT_EQ(set.files, (std::vector<std::string>{"f", "g"}));
  EXPECT_TRUE(flags.given("text"));

  for (const std::vector<std::string>& others :
       {std::vector<std::string>{}, {"--small=x"}, {"--unknown"}, {"--config=/nowhere"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(flags.Parse(others), others.empty() ? std::nullopt : std::optional<int>(2));
    ::testing::internal::GetCapturedStderr();
    Values expected = defaults;
    expected.parsed = "p";  // no flag's target: an empty text is not parsed
    EXPECT_EQ(flags.Parse({}), std::nullopt);
    EXPECT_EQ(values, expected);
    EXPECT_FALSE(flags.given("text"));
    ASSERT_EQ(flags.Parse(all), std::nullopt);
    EXPECT_EQ(values, set);
  }
  SetLogLevel(LogLevel::kInfo);
}

}  // namespace
}  // namespace monograph
