// The executor knows not which ops exist: what it must know of one, the op's definition or its
// kernel says (OpDef, KernelDef, Kernel), and the ops that the graph gives meaning to have
// functions and names in graph/structural_ops.h. So no source of the executor has an op's name as a
// literal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "ops/register.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

// "file:line: "Op"" for each literal that is the name of an op.
std::vector<std::string> OpNamesIn(const fs::path& file, const OpRegistry& ops) {
  static const std::regex literal("\"([A-Za-z0-9_]+)\"");
  std::vector<std::string> found;
  std::ifstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find("//"));
    for (auto at = std::sregex_iterator(line.begin(), line.end(), literal);
         at != std::sregex_iterator(); ++at) {
      if (ops.Find((*at)[1].str()) != nullptr)
        found.push_back(file.string() + ":" + std::to_string(number) + ": " + (*at)[0].str());
    }
  }
  return found;
}

TEST(OpNames, StandInNoSourceOfTheExecutor) {
  OpRegistry ops;
  DefineOps(&ops);
  const fs::path root = MG_SOURCE_ROOT;
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "executor")) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cc") continue;
    ++files;
    EXPECT_EQ(OpNamesIn(entry.path(), ops), std::vector<std::string>());
  }
  EXPECT_GT(files, 80u) << "the source was not found";
  // The reader sees a name where one is.
  EXPECT_FALSE(OpNamesIn(root / "graph/structural_ops.cc", ops).empty());
}

}  // namespace
}  // namespace monograph
