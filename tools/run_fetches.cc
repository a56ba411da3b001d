// `monograph run GRAPH|DIR --fetches=...`: reads feeds from .npy files, runs one step and prints or
// writes what it fetched.
#include "tools/run_fetches.h"

#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "base/printable.h"
#include "tools/npy.h"
#include "tools/output_path.h"
#include "tools/tensor_text.h"

namespace monograph {
namespace {

struct Fetch {
  std::string name, path;  // no path: printed
};

Result<std::pair<std::string, Tensor>> ReadFeed(const std::string& text, const RunModel& model) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size())
    return InvalidArgument("feed '" + text + "' is not written as x:0=x.npy or x:0=[1, 2]");
  const std::string name = model.Input(text.substr(0, equals));
  const std::string value = text.substr(equals + 1);
  const std::string context = "feed '" + text.substr(0, equals) + "'";
  const Result<DType> dtype = model.TypeOf(name);
  if (!dtype.ok()) return dtype.status().WithContext(context);
  Result<Tensor> tensor =
      value.ends_with(".npy") ? ReadNpy(value, *dtype) : ParseValues(value, *dtype);
  if (!tensor.ok()) return tensor.status().WithContext(context);
  return std::make_pair(name, std::move(tensor).value());
}

Result<std::vector<Fetch>> ReadFetches(const std::vector<std::string>& texts) {
  std::vector<Fetch> fetches;
  std::set<std::string> paths;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      fetches.push_back({text, ""});
      continue;
    }
    const std::string path = text.substr(equals + 1);
    if (!path.ends_with(".npy"))
      return InvalidArgument("fetch '" + text + "': the file must end in .npy");
    if (!paths.insert(path).second)
      return InvalidArgument("two fetches are to be written to '" + path + "'");
    fetches.push_back({text.substr(0, equals), path});
    const Status status = CheckOutputFile(path);
    if (!status.ok()) return status.WithContext("fetch '" + fetches.back().name + "'");
  }
  return fetches;
}

Status Show(const Fetch& fetch, const Tensor& value) {
  const std::string what =
      fetch.name + " " + std::string(DTypeName(value.dtype())) + value.shape().ToString();
  if (fetch.path.empty()) {
    std::printf("%s\n%s\n", Printable(what, Lines::kOne).c_str(), FormatValues(value).c_str());
    return Status();
  }
  const Status written = WriteNpy(fetch.path, value);
  if (!written.ok()) return written.WithContext("fetch '" + fetch.name + "'");
  std::printf("%s in %s\n", Printable(what, Lines::kOne).c_str(), fetch.path.c_str());
  return Status();
}

}  // namespace

std::vector<std::string> SplitArguments(const std::string& list) {
  std::vector<std::string> words(1);
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (quoted && c == '\\' && i + 1 < list.size()) {
      words.back() += list[i++];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') --depth;
      if (c == ',' && depth <= 0) {
        words.emplace_back();
        continue;
      }
    }
    words.back() += list[i];
  }
  std::erase(words, "");
  return words;
}

Status CheckFetches(const std::vector<std::string>& fetches) {
  return ReadFetches(fetches).status();
}

Status RunFetches(const RunFetchesOptions& options) {
  MG_ASSIGN_OR_RETURN(std::vector<Fetch> fetches, ReadFetches(options.fetches));
  MG_ASSIGN_OR_RETURN(const RunModel model, RunModel::Read(options.model));
  if (fetches.empty() && options.targets.empty()) {
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> all, model.AllOutputs());
    for (const std::string& name : all) fetches.push_back({name, ""});
  }
  std::vector<std::string> names;
  for (const Fetch& fetch : fetches) names.push_back(model.Output(fetch.name));
  for (const std::string& name : names) {
    const Result<Endpoint> endpoint = model.graph().FindOutput(name);
    if (!endpoint.ok()) return endpoint.status().WithContext("fetch '" + name + "'");
  }
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const std::string& text : options.feeds) {
    MG_ASSIGN_OR_RETURN(auto feed, ReadFeed(text, model));
    feeds.push_back(std::move(feed));
  }
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, model.Start());
  if (!options.init.empty()) MG_RETURN_IF_ERROR(session->RunByName({}, {}, options.init).status());
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                      session->RunByName(feeds, names, options.targets));
  for (size_t i = 0; i < values.size(); ++i) MG_RETURN_IF_ERROR(Show(fetches[i], values[i]));
  return session->Close();
}

}  // namespace monograph
