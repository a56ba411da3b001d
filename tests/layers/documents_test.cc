// Reads the documents and keeps what they say of the source true: a file that a document names in
// backticks exists, and so does, in that file, each function or class that stands before it:
//
//   `Prune`, `graph/prune.cc`         `A`, `B`, `dir/file.cc`         `A` (`dir/file.cc`)
//
// and so in drawings, with two or more spaces between names and file, which ends the line:
//
//   Prune, A::B   graph/prune.cc
//
// What is promised of security and reliability names tests, also without their file: these exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace monograph {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Mention {
  std::vector<std::string> names;  // "Worker::Impl::RunStep"
  std::string file;
};

// A path below one of the project's folders.
const char kPath[] =
    "`((?:base|graph|transport|executor|ops|client|train|tools|examples|tests|bench|cmake)/"
    "[A-Za-z0-9_./]+\\.(?:cc|h|cu|proto|cmake))`";
const char kName[] = "`[A-Za-z_][A-Za-z0-9_:]*`";

// What drawings mention.
std::vector<Mention> DrawnIn(const std::string& text) {
  static const std::regex line(
      "((?:[A-Za-z_][A-Za-z0-9_:]*, )*[A-Za-z_][A-Za-z0-9_:]*) "
      "{2,}([a-z]+/[a-z0-9_/]+\\.(?:cc|h))\n");
  static const std::regex name("[A-Za-z_][A-Za-z0-9_:]*");
  std::vector<Mention> mentions;
  for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it) {
    const std::string list = (*it)[1];
    Mention mention{.names = {}, .file = (*it)[2]};
    for (std::sregex_iterator one(list.begin(), list.end(), name); one != end; ++one)
      mention.names.push_back(one->str());
    mentions.push_back(std::move(mention));
  }
  return mentions;
}

std::vector<Mention> MentionsIn(const std::string& text) {
  static const std::regex names_and_file(std::string("((?:") + kName + "(?:, | and ))*" + kName +
                                         ")(?:, | \\()" + kPath);
  static const std::regex name(kName);
  std::vector<Mention> mentions;
  for (std::sregex_iterator it(text.begin(), text.end(), names_and_file), end; it != end; ++it) {
    const std::string list = (*it)[1];
    Mention mention{.names = {}, .file = (*it)[2]};
    for (std::sregex_iterator one(list.begin(), list.end(), name); one != end; ++one) {
      const std::string quoted = one->str();
      mention.names.push_back(quoted.substr(1, quoted.size() - 2));
    }
    mentions.push_back(std::move(mention));
  }
  return mentions;
}

bool HasWord(const std::string& source, const std::string& word) {
  return std::regex_search(source, std::regex("\\b" + word + "\\b"));
}

// Whether the source has the name: a member either as "Owner::Member" or, where its owner is
// defined, as a word.
bool Has(const std::string& source, const std::string& name) {
  const size_t last = name.rfind("::");
  if (last == std::string::npos) return HasWord(source, name);
  const std::string member = name.substr(last + 2);
  std::string owner = name.substr(0, last);
  if (const size_t outer = owner.rfind("::"); outer != std::string::npos)
    owner = owner.substr(outer + 2);
  if (HasWord(source, owner + "::" + member)) return true;
  const bool defined =
      std::regex_search(source, std::regex("\\b(?:class|struct) (?:\\w+::)*" + owner + "\\b"));
  return defined && HasWord(source, member);
}

std::vector<fs::path> Documents() {
  std::vector<fs::path> documents;
  for (const char* document :
       {"README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/gpu/README.md"})
    documents.push_back(fs::path(MG_SOURCE_ROOT) / document);
  for (const auto& entry : fs::directory_iterator(fs::path(MG_SOURCE_ROOT) / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  std::sort(documents.begin(), documents.end());
  return documents;
}

TEST(Documents, NameFilesThatExist) {
  // The op that docs/adding_an_op.md makes up.
  const std::string made_up = "ops/softsign/";
  const std::regex path(kPath);
  size_t named = 0;
  for (const fs::path& document : Documents()) {
    const std::string text = ReadText(document);
    for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it) {
      const std::string file = (*it)[1];
      if (file.rfind(made_up, 0) == 0) continue;
      ++named;
      EXPECT_TRUE(fs::exists(fs::path(MG_SOURCE_ROOT) / file))
          << document.filename() << ": " << file;
    }
  }
  EXPECT_GT(named, 100u) << "the documents were not read";
}

TEST(Documents, NameFunctionsThatAreInTheFilesTheyName) {
  size_t named = 0;
  for (const fs::path& document : Documents()) {
    for (const Mention& mention : MentionsIn(ReadText(document))) {
      const fs::path file = fs::path(MG_SOURCE_ROOT) / mention.file;
      if (!fs::exists(file)) continue;  // the other test says so
      const std::string source = ReadText(file);
      for (const std::string& name : mention.names) {
        ++named;
        EXPECT_TRUE(Has(source, name))
            << document.filename() << ": " << name << " is not in " << mention.file;
      }
    }
  }
  EXPECT_GT(named, 40u) << "the documents were not read";
}

TEST(Documents, DrawFunctionsThatAreInTheFilesTheyName) {
  size_t named = 0;
  for (const fs::path& document : Documents()) {
    for (const Mention& mention : DrawnIn(ReadText(document))) {
      const std::string source = ReadText(fs::path(MG_SOURCE_ROOT) / mention.file);
      EXPECT_FALSE(source.empty()) << document.filename() << ": " << mention.file;
      for (const std::string& name : mention.names) {
        ++named;
        EXPECT_TRUE(Has(source, name))
            << document.filename() << ": " << name << " is not in " << mention.file;
      }
    }
  }
  EXPECT_GT(named, 10u) << "the drawings were not read";
}

// The names of tests that a text names in backticks: sentences of four words or more, written as
// one, and files "NAME_test.cc" without their folder.
std::set<std::string> TestsNamedIn(const std::string& text) {
  static const std::regex named("`((?:[A-Z][a-z]*[0-9]*){4,}|[a-z0-9_]+_test\\.cc)`");
  std::set<std::string> tests;
  for (std::sregex_iterator it(text.begin(), text.end(), named), end; it != end; ++it)
    tests.insert((*it)[1]);
  return tests;
}

TEST(Documents, NameTestsThatExist) {
  static const std::regex test("\\b(?:TYPED_)?TEST(?:_F|_P)?\\(\\s*\\w+,\\s*(\\w+)\\)");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MG_SOURCE_ROOT) / "tests")) {
    if (entry.path().extension() != ".cc") continue;
    tests.insert(entry.path().filename());
    const std::string text = ReadText(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), test), end; it != end; ++it)
      tests.insert((*it)[1]);
  }
  EXPECT_GT(tests.size(), 1000u) << "the tests were not read";
  for (const auto& [document, at_least] :
       {std::pair("SECURITY.md", 0), std::pair("docs/security.md", 15),
        std::pair("docs/reliability.md", 60)}) {
    const std::set<std::string> named = TestsNamedIn(ReadText(fs::path(MG_SOURCE_ROOT) / document));
    EXPECT_GE(static_cast<int>(named.size()), at_least) << document << " was not read";
    for (const std::string& name : named)
      EXPECT_TRUE(tests.contains(name)) << document << ": there is no test " << name;
  }
  EXPECT_EQ(
      TestsNamedIn("`ALeaderTakesSoManyDevices`, `a_test.cc`, `SaveV2` and `tests/b_test.cc`"),
      (std::set<std::string>{"ALeaderTakesSoManyDevices", "a_test.cc"}));
}

TEST(Documents, TheReaderKnowsGoodMentionsFromBadOnes) {
  const std::vector<Mention> mentions =
      MentionsIn("| cut | `A::B`, `C`, `graph/x.cc` | and `D` (`base/y.h`), `E` → `F`, `ops/z.cc`");
  ASSERT_EQ(mentions.size(), 3u);
  EXPECT_EQ(mentions[0].names, (std::vector<std::string>{"A::B", "C"}));
  EXPECT_EQ(mentions[0].file, "graph/x.cc");
  EXPECT_EQ(mentions[1].names, std::vector<std::string>{"D"});
  EXPECT_EQ(mentions[2].names, std::vector<std::string>{"F"});

  const std::vector<Mention> drawn = DrawnIn("  client   A::B, C    graph/x.cc\n  D x/y.cc\n");
  ASSERT_EQ(drawn.size(), 1u);
  EXPECT_EQ(drawn[0].names, (std::vector<std::string>{"A::B", "C"}));
  EXPECT_EQ(drawn[0].file, "graph/x.cc");

  EXPECT_TRUE(Has("void Worker::Impl::RunStep(int x) {", "Worker::Impl::RunStep"));
  EXPECT_TRUE(Has("class Channel {\n public:\n  void Close();\n};", "Channel::Close"));
  EXPECT_TRUE(Has("Result<Graph> Prune(const Graph& graph) {", "Prune"));
  EXPECT_FALSE(Has("Result<Graph> Pruned(const Graph& graph) {", "Prune"));
  EXPECT_FALSE(Has("void Worker::Impl::RunSteps() {}", "Worker::Impl::EndStep"));
  EXPECT_FALSE(Has("class Other { void Close(); };", "Channel::Close"));
}

}  // namespace
}  // namespace monograph
