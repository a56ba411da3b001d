#include "tools/run_script.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/input_file.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "client/registries.h"
#include "graph/graph_file.h"
#include "tools/npy.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

// The list of strings at `key`; empty if there is none.
Result<std::vector<std::string>> Names(const Json& step, const char* key,
                                       const std::string& where) {
  std::vector<std::string> names;
  if (!step.contains(key)) return names;
  if (!step[key].is_array())
    return InvalidArgument(where + ": '" + key + "' must be a list of names");
  for (const Json& name : step[key]) {
    if (!name.is_string())
      return InvalidArgument(where + ": '" + key + "' must be a list of names, not of " +
                             JsonExcerpt(name));
    names.push_back(name.get<std::string>());
  }
  return names;
}

// A failure is said at once, too: result.json is for programs.
Json Outcome(const std::string& what, const Status& status) {
  if (!status.ok())
    std::fprintf(stderr, "%s\n", Printable(what + ": " + status.ToString()).c_str());
  return {{"code", status.ok() ? "OK" : std::string(CodeName(status.code()))},
          {"message", status.message()}};
}

Status RunStep(Session& session, const Graph& graph, const Json& step, const std::string& where,
               const std::filesystem::path& folder, const std::filesystem::path& out, size_t index,
               Json* outputs) {
  if (!step.is_object()) return InvalidArgument(where + " is not an object");
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> targets, Names(step, "targets", where));
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> fetches, Names(step, "fetches", where));
  std::vector<std::pair<std::string, Tensor>> feeds;
  if (step.contains("feeds")) {
    if (!step["feeds"].is_object())
      return InvalidArgument(where + ": 'feeds' must be an object {\"x:0\": \"x.npy\"}");
    for (const auto& [name, file] : step["feeds"].items()) {
      if (!file.is_string())
        return InvalidArgument(where + ": feed '" + name + "' must name a .npy file");
      MG_ASSIGN_OR_RETURN(const Endpoint endpoint, graph.FindOutput(name));
      Result<Tensor> value =
          ReadNpy((folder / file.get<std::string>()).string(), graph.dtype(endpoint));
      if (!value.ok()) return value.status().WithContext("feed '" + name + "'");
      feeds.emplace_back(name, std::move(value).value());
    }
  }
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session.RunByName(feeds, fetches, targets));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string file = std::to_string(index) + "_" + std::to_string(i) + ".npy";
    MG_RETURN_IF_ERROR(WriteNpy((out / file).string(), values[i]));
    outputs->push_back(file);
  }
  return Status();
}

}  // namespace

Result<bool> RunScript(const RunScriptOptions& options) {
  MG_ASSIGN_OR_RETURN(const std::string text, ReadInputFile("script", options.script));
  MG_ASSIGN_OR_RETURN(const Json script, ParseJson(text, options.script));
  if (!script.is_object() || !script.contains("steps") || !script["steps"].is_array()) {
    return InvalidArgument(
        options.script +
        ": expected {\"steps\": [{\"targets\": [], \"feeds\": {}, \"fetches\": []}]}");
  }
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error)
    return FailedPrecondition("cannot make folder '" + options.out + "': " + error.message());

  Json result;
  bool good = true;
  Result<Graph> graph = ReadGraph(options.graph, &DefaultRegistries().ops);
  result["load"] = Outcome("load", graph.status());
  result["steps"] = Json::array();
  if (graph.ok()) {
    Result<std::unique_ptr<Session>> session =
        options.cluster ? Session::Connect(*options.cluster, graph.value(), options.session)
                        : Session::Local(graph.value(), options.session);
    if (!session.ok()) return session.status();
    const std::filesystem::path folder = std::filesystem::path(options.script).parent_path();
    for (size_t i = 0; i < script["steps"].size(); ++i) {
      Json outputs = Json::array();
      const std::string where = "step " + std::to_string(i);
      const Status status = RunStep(**session, graph.value(), script["steps"][i], where, folder,
                                    options.out, i, &outputs);
      Json outcome = Outcome(where, status);
      outcome["outputs"] = status.ok() ? outputs : Json::array();
      result["steps"].push_back(outcome);
      good = good && status.ok();
    }
    good = (*session)->Close().ok() && good;
  } else {
    good = false;
  }
  std::ofstream file(std::filesystem::path(options.out) / "result.json");
  file << JsonText(result, 2) << '\n';
  file.close();
  if (!file) return ResourceExhausted("cannot write result.json in '" + options.out + "'");
  return good;
}

}  // namespace monograph
