// The executor knows not which ops exist: what it must know of one, the op's definition or its
// kernel says (OpDef, KernelDef, Kernel), and the ops that the graph gives meaning to have
// functions and names in graph/structural_ops.h. So no source of the executor has an op's name as a
// literal, nor that of an op of TensorFlow's: what TensorFlow's library demands of some stands in
// one table.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "ops/register.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

// "file:line: "Op"" for each literal that is the name of an op.
std::vector<std::string> OpNamesIn(const fs::path& file,
                                   const std::function<bool(const std::string&)>& is_op) {
  static const std::regex literal("\"([A-Za-z0-9_]+)\"");
  std::vector<std::string> found;
  std::ifstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find("//"));
    for (auto at = std::sregex_iterator(line.begin(), line.end(), literal);
         at != std::sregex_iterator(); ++at) {
      if (is_op((*at)[1].str()))
        found.push_back(file.string() + ":" + std::to_string(number) + ": " + (*at)[0].str());
    }
  }
  return found;
}

TEST(OpNames, StandInNoSourceOfTheExecutor) {
  OpRegistry ops;
  DefineOps(&ops);
  const fs::path root = MG_SOURCE_ROOT, table = root / "executor/tensorflow/definitions.cc";
  std::set<std::string> of_tensorflow;
  std::ifstream list(root / "tests/golden/tensorflow_1_15_ops.txt");
  for (std::string name; std::getline(list, name);) of_tensorflow.insert(name);
  EXPECT_GT(of_tensorflow.size(), 1000u);
  const auto is_op = [&](const std::string& name) {
    return of_tensorflow.contains(name) || ops.Find(name) != nullptr;
  };
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "executor")) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cc") continue;
    ++files;
    if (entry.path() == table) continue;
    EXPECT_EQ(OpNamesIn(entry.path(), is_op), std::vector<std::string>());
  }
  EXPECT_GT(files, 80u) << "the source was not found";
  // The reader sees a name where one is.
  EXPECT_FALSE(OpNamesIn(root / "graph/structural_ops.cc", is_op).empty());
  EXPECT_FALSE(OpNamesIn(table, is_op).empty());
}

}  // namespace
}  // namespace monograph
