// Small programs that tests of checkpoints save and restore.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/variable/variable.h"
#include "train/model_variable.h"
#include "train/saver.h"

namespace monograph::testing {

// Two variables, a number and a vector of which each element is that number. Sharded, they are in a
// shard each.
struct TwoVariables {
  explicit TwoVariables(const SaverOptions& options) : root(&graph) {
    const Scope placed = root.WithDevice("/job:localhost/replica:0/task:0/device:CPU:0");
    fed = Placeholder(root, DT_FLOAT, {1});
    fed_vector = Placeholder(root, DT_FLOAT, {5});
    const Output number = VarHandle(root, DT_FLOAT, {1}, "", "number");
    const Output vector = VarHandle(placed, DT_FLOAT, {5}, "", "vector");
    assign = {AssignVariable(root, number, fed), AssignVariable(placed, vector, fed_vector)};
    value = ReadVariable(root, number, DT_FLOAT);
    saver.emplace(root, options);
    EXPECT_TRUE(root.ok()) << root.status();
    session = Session::Local(graph).value();
  }
  Result<std::string> Save(const std::string& path, float number, int64_t step = -1) {
    const Tensor vector = Tensor::FromValues<float>({5}, std::vector<float>(5, number));
    const Tensor one = Tensor::FromValues<float>({1}, std::vector<float>(1, number));
    EXPECT_TRUE(session->Run({{fed, one}, {fed_vector, vector}}, {}, assign).ok());
    return saver->Save(session.get(), path, step);
  }
  float Value() { return session->Run({}, {value}).value()[0].data<float>()[0]; }

  Graph graph = NewGraph();
  Scope root;
  Output fed, fed_vector, value;
  std::vector<Operation> assign;
  std::optional<Saver> saver;
  std::unique_ptr<Session> session;
};

// What the latest checkpoint of a folder holds; nothing if there is none.
using Values = std::map<std::string, std::vector<float>>;
inline Result<Values> LatestValues(const std::string& folder) {
  Values values;
  MG_ASSIGN_OR_RETURN(const std::optional<std::string> latest, LatestCheckpoint(folder));
  if (!latest) return values;
  MG_ASSIGN_OR_RETURN(const std::vector<SavedVariable> names, ListVariables(*latest));
  for (const SavedVariable& variable : names) {
    MG_ASSIGN_OR_RETURN(const Tensor value, LoadVariable(*latest, variable.name));
    if (value.dtype() != DT_FLOAT)
      return InvalidArgument("'" + variable.name + "' is no longer float");
    const auto span = value.values<float>();
    values[variable.name].assign(span.begin(), span.end());
  }
  return values;
}
// Those of TwoVariables::Save.
inline Values ValuesOf(float number) {
  return {{"number", {number}}, {"vector", std::vector<float>(5, number)}};
}

inline std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace monograph::testing
