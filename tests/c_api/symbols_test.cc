// libmonograph_c.so shows the functions of <monograph/c_api.h>, under their version, and nothing
// else; c_api_test.c calls each of them.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace monograph {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The names before a '(' in a C source, comments left out.
std::set<std::string> Called(const std::string& source) {
  static const std::regex comment("/\\*[^*]*\\*+([^/*][^*]*\\*+)*/"), name("\\b(MG_[A-Za-z]+)\\(");
  const std::string code = std::regex_replace(source, comment, "");
  std::set<std::string> names;
  for (std::sregex_iterator it(code.begin(), code.end(), name), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

TEST(CApi, TheLibraryShowsWhatTheHeaderDeclares) {
  const std::set<std::string> declared =
      Called(ReadText(MG_SOURCE_ROOT "/include/monograph/c_api.h"));
  EXPECT_GT(declared.size(), 50u);
  std::set<std::string> expected = {"MONOGRAPH_1"}, shown;
  for (const std::string& name : declared) expected.insert(name + "@@MONOGRAPH_1");
  FILE* nm = popen("nm -D --defined-only " MG_LIBRARY, "r");
  ASSERT_NE(nm, nullptr);
  char kind = 0, name[256];
  while (fscanf(nm, "%*s %c %255s", &kind, name) == 2)
    shown.insert(std::string(name).substr(0, std::string(name).find("@@MONOGRAPH_1@@")));
  ASSERT_EQ(pclose(nm), 0) << "nm, of Debian's binutils, lists the symbols";
  shown.insert("MONOGRAPH_1");  // some versions of nm list it as MONOGRAPH_1@@MONOGRAPH_1
  shown.erase("MONOGRAPH_1@@MONOGRAPH_1");
  EXPECT_EQ(shown, expected);
}

TEST(CApi, TheTestInCCallsEveryFunction) {
  const std::set<std::string> called = Called(ReadText(MG_SOURCE_ROOT "/tests/c_api/c_api_test.c"));
  for (const std::string& name : Called(ReadText(MG_SOURCE_ROOT "/include/monograph/c_api.h")))
    EXPECT_TRUE(called.contains(name)) << name;
}

}  // namespace
}  // namespace monograph
