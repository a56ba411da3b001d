// In three phases: the script and the model are read, the steps run in one session, each with its
// feeds read just before, and result.json says how each ended. What a step has wrong is its
// outcome and not the end of the others.
#include "tools/run_script.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/input_file.h"
#include "base/json_value.h"
#include "base/printable.h"
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

// A feed's value: a .npy file, or a string.
Result<Tensor> ReadFeed(const Json& value, DType dtype, const std::filesystem::path& folder) {
  const auto text_of = [&](const char* key) -> const std::string* {
    if (!value.is_object() || value.size() != 1 || !value.contains(key)) return nullptr;
    return value[key].get_ptr<const std::string*>();
  };
  if (const auto* file = value.get_ptr<const std::string*>())
    return ReadNpy((folder / *file).string(), dtype);
  if (const std::string* text = text_of("string")) return Tensor::String(*text);
  if (const std::string* file = text_of("bytes_file")) {
    MG_ASSIGN_OR_RETURN(std::string bytes,
                        ReadInputFile("file of bytes", (folder / *file).string(), kMostDataBytes));
    return Tensor::String(std::move(bytes));
  }
  return InvalidArgument(
      "it must be the name of a .npy file, {\"string\": \"text\"} or "
      "{\"bytes_file\": \"path\"}, not " +
      JsonExcerpt(value));
}

Result<RunOptions> OptionsOf(const Json& step, const std::string& where) {
  RunOptions options;
  if (!step.contains("timeout_ms")) return options;
  const Json& limit = step["timeout_ms"];
  if (!limit.is_number_integer() || limit < 1 || limit > INT32_MAX) {
    return InvalidArgument(where + ": 'timeout_ms' must be a number of milliseconds from 1 to " +
                           std::to_string(INT32_MAX) + ", not " + JsonExcerpt(limit));
  }
  options.timeout = std::chrono::milliseconds(limit.get<int64_t>());
  return options;
}

Status RunStep(Session& session, const RunModel& model, const Json& step, const std::string& where,
               const std::filesystem::path& folder, const std::filesystem::path& out, size_t index,
               Json* outputs) {
  if (!step.is_object()) return InvalidArgument(where + " is not an object");
  MG_ASSIGN_OR_RETURN(const std::vector<std::string> targets, Names(step, "targets", where));
  MG_ASSIGN_OR_RETURN(std::vector<std::string> fetches, Names(step, "fetches", where));
  MG_ASSIGN_OR_RETURN(const RunOptions options, OptionsOf(step, where));
  if (fetches.empty() && targets.empty()) {
    MG_ASSIGN_OR_RETURN(fetches, model.AllOutputs());
  }
  for (std::string& fetch : fetches) fetch = model.Output(fetch);
  std::vector<std::pair<std::string, Tensor>> feeds;
  if (step.contains("feeds")) {
    if (!step["feeds"].is_object())
      return InvalidArgument(where + ": 'feeds' must be an object {\"x:0\": \"x.npy\"}");
    for (const auto& [name, value] : step["feeds"].items()) {
      const std::string tensor = model.Input(name);
      const Result<DType> dtype = model.TypeOf(tensor);
      Result<Tensor> fed = dtype.ok() ? ReadFeed(value, *dtype, folder) : dtype.status();
      if (!fed.ok()) return fed.status().WithContext("feed '" + name + "'");
      feeds.emplace_back(tensor, std::move(fed).value());
    }
  }
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                      session.RunByName(feeds, fetches, targets, options));
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
  const Result<RunModel> model = RunModel::Read(options.model);
  result["load"] = Outcome("load", model.status());
  result["steps"] = Json::array();
  if (model.ok()) {
    const Result<std::unique_ptr<Session>> session = model->Start();
    if (!session.ok()) return session.status();
    const std::filesystem::path folder = std::filesystem::path(options.script).parent_path();
    for (size_t i = 0; i < script["steps"].size(); ++i) {
      Json outputs = Json::array();
      const std::string where = "step " + std::to_string(i);
      const Status status =
          RunStep(**session, *model, script["steps"][i], where, folder, options.out, i, &outputs);
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
