#include "client/saver.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "client/checkpoint_file.h"
#include "client/session.h"
#include "graph/names.h"
#include "ops/constant/constant.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

constexpr char kExtension[] = ".safetensors";
constexpr char kStateFile[] = "checkpoint";
constexpr char kStateKey[] = "model_checkpoint_path: ";
constexpr size_t kMostNames = 10;  // in one error

// A variable in the task where it lives.
struct Stored {
  Output handle, read, fed;  // fed: the placeholder of what Restore assigns
  Operation assign;
  DType dtype = DT_INVALID;
  PartialShape shape;
};

// "emb" and 2 of "emb/part_2"; "emb/Adam" and 2 of "emb/part_2/Adam".
struct PartName {
  std::string whole;
  int64_t part = -1;  // no part of anything
};
PartName ParsePart(const std::string& name) {
  constexpr std::string_view kPart = "/part_";
  const size_t at = name.find(kPart);
  if (at == std::string::npos) return {name};
  const char* digits = name.data() + at + kPart.size();
  const char* end = name.data() + name.size();
  int64_t part = -1;
  const auto [after, error] = std::from_chars(digits, end, part);
  if (error != std::errc() || part < 0 || (after != end && *after != '/')) return {name};
  return {name.substr(0, at) + std::string(after, end), part};
}

// Whether the parts, in order, are the rows of one tensor.
bool FollowEachOther(const std::map<int64_t, Stored>& parts) {
  const Stored& first = parts.begin()->second;
  int64_t next = 0;
  for (const auto& [part, stored] : parts) {
    if (part != next++ || stored.dtype != first.dtype || !stored.shape.fully_known() ||
        stored.shape.rank() < 1 || stored.shape.rank() != first.shape.rank() ||
        !std::equal(stored.shape.dims().begin() + 1, stored.shape.dims().end(),
                    first.shape.dims().begin() + 1))
      return false;
  }
  return true;
}

PartialShape WholeShape(const std::vector<Stored>& parts) {
  PartialShape shape = parts[0].shape;
  for (size_t i = 1; i < parts.size(); ++i) shape.set_dim(0, shape.dim(0) + parts[i].shape.dim(0));
  return shape;
}

std::string TextAttr(const Graph& graph, NodeId node, std::string_view name) {
  const AttrValue* value = graph.attrs(node).Find(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string() : *text;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kMostNames)
    text += " and " + std::to_string(words.size() - kMostNames) + " more";
  return text;
}

}  // namespace

class Saver::Impl {
 public:
  Impl(const Scope& scope, const SaverOptions& options)
      : scope_(scope.SubScope("save")), options_(options) {}

  void AddAll() {
    Graph* graph = scope_.graph();
    std::map<std::string, std::string> containers;  // of each name
    for (NodeId node = 0, n = graph->num_nodes(); node < n; ++node) {
      if (!graph->is(node, "VarHandleOp")) continue;
      const std::string shared = TextAttr(*graph, node, "shared_name");
      const std::string name = shared.empty() ? std::string(graph->name(node)) : shared;
      const std::string container = TextAttr(*graph, node, "container");
      const auto [known, added] = containers.try_emplace(name, container);
      if (added) {
        Add(name, Output{graph, {node, 0}});
      } else if (known->second != container) {
        scope_.Fail(InvalidArgument("Saver: containers '" + known->second + "' and '" + container +
                                    "' both have a variable '" + name +
                                    "'; give it the variables to be saved"));
      }
    }
  }

  void Add(const std::string& name, const Output& handle) {
    if (!scope_.ok()) return;
    if (!handle.valid()) {
      scope_.Fail(InvalidArgument("Saver: variable '" + name + "' was never made"));
      return;
    }
    if (!single_.try_emplace(name).second) {
      scope_.Fail(InvalidArgument("Saver: two variables are called '" + name + "'"));
      return;
    }
    Stored& stored = single_[name];
    const Attrs& attrs = handle.graph->attrs(handle.node());
    stored.handle = handle;
    stored.dtype = std::get<DType>(*attrs.Find("dtype"));
    stored.shape = std::get<PartialShape>(*attrs.Find("shape"));
    const Scope beside = scope_.ColocateWith(handle);
    stored.read = ReadVariable(beside.WithOpName("read"), handle, stored.dtype);
    stored.fed = Placeholder(beside.WithOpName("restored"), stored.dtype, stored.shape);
    stored.assign = AssignVariable(beside.WithOpName("assign"), handle, stored.fed);
  }

  // Parts become tensors.
  void Finish() {
    if (!scope_.ok()) return;
    if (single_.empty()) {
      scope_.Fail(InvalidArgument("No variables to save"));
      return;
    }
    std::map<std::string, std::map<int64_t, Stored>> parts;
    for (const auto& [name, stored] : single_) {
      const PartName parsed = ParsePart(name);
      if (parsed.part >= 0) parts[parsed.whole].emplace(parsed.part, stored);
    }
    for (const auto& [name, stored] : single_) {
      const PartName parsed = ParsePart(name);
      const auto found = parts.find(parsed.whole);
      if (parsed.part < 0 || single_.contains(parsed.whole) || !FollowEachOther(found->second)) {
        variables_[name] = {stored};
      } else if (parsed.part == 0) {
        for (const auto& [part, one] : found->second) variables_[parsed.whole].push_back(one);
      }
    }
  }

  Result<std::string> Save(Session* session, const std::string& path, int64_t global_step) {
    MG_RETURN_IF_ERROR(scope_.status());
    const std::string name = global_step < 0 ? path : path + "-" + std::to_string(global_step);
    const std::filesystem::path file(name + kExtension);
    std::error_code error;
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
    if (error) {
      return FailedPrecondition("cannot make the folder '" + file.parent_path().string() +
                                "': " + error.message());
    }
    Outputs reads;
    for (const auto& [variable, parts] : variables_) {
      for (const Stored& part : parts) reads.push_back(part.read);
    }
    Result<std::vector<Tensor>> values = session->Run({}, reads);
    if (!values.ok()) return values.status().WithContext("cannot save '" + name + "'");
    std::vector<CheckpointTensor> tensors;
    size_t next = 0;
    for (const auto& [variable, parts] : variables_) {
      CheckpointTensor& tensor = tensors.emplace_back(
          CheckpointTensor{variable, parts[0].dtype, (*values)[next].shape(), {}});
      int64_t rows = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        tensor.pieces.push_back((*values)[next++]);
        if (parts.size() > 1) rows += tensor.pieces.back().shape().dim(0);
      }
      if (parts.size() > 1) tensor.shape.set_dim(0, rows);
    }
    MG_RETURN_IF_ERROR(WriteCheckpoint(file.string(), tensors));
    MG_RETURN_IF_ERROR(Remember(name, file.parent_path()));
    return name;
  }

  Status Restore(Session* session, const std::string& path) const {
    MG_RETURN_IF_ERROR(scope_.status());
    MG_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path + kExtension));
    MG_RETURN_IF_ERROR(Check(file, path));
    std::vector<Feed> feeds;
    std::vector<Operation> assigns;
    for (const auto& [name, parts] : variables_) {
      MG_ASSIGN_OR_RETURN(const Tensor value, file.Read(name));
      int64_t begin = 0;
      for (const Stored& part : parts) {
        const int64_t rows = parts.size() > 1 ? part.shape.dim(0) : 0;
        feeds.emplace_back(part.fed, parts.size() > 1 ? value.Slice(begin, begin + rows) : value);
        assigns.push_back(part.assign);
        begin += rows;
      }
    }
    return session->Run(feeds, {}, assigns).status();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, parts] : variables_) names.push_back(name);
    return names;
  }

 private:
  // Whether the file has what Restore wants.
  Status Check(const CheckpointFile& file, const std::string& path) const {
    std::vector<std::string> missing;
    std::string hint;
    for (const auto& [name, parts] : variables_) {
      const auto found = file.entries().find(name);
      if (found == file.entries().end()) {
        if (missing.empty()) {
          NearNames near(name);
          for (const auto& [known, entry] : file.entries()) near.Offer(known);
          hint = near.Hint();
        }
        missing.push_back(name);
        continue;
      }
      const PartialShape wanted = WholeShape(parts);
      if (found->second.dtype != parts[0].dtype || !wanted.Accepts(found->second.shape)) {
        return InvalidArgument(
            "variable '" + name + "' is " + std::string(DTypeName(parts[0].dtype)) +
            wanted.ToString() + ", but in checkpoint '" + path + "' it is " +
            std::string(DTypeName(found->second.dtype)) + found->second.shape.ToString());
      }
    }
    if (missing.empty()) return Status();
    return NotFound("Key " + Joined(missing) + " not found in checkpoint '" + path +
                    "', which has " + std::to_string(file.entries().size()) + " variables" + hint);
  }

  // The state file, and what is too old.
  Status Remember(const std::string& name, const std::filesystem::path& folder) {
    std::erase(written_, name);
    written_.push_back(name);
    std::string state;
    const auto line = [&](const std::string& key, const std::string& path) {
      state += key + "\"" + std::filesystem::path(path).filename().string() + "\"\n";
    };
    std::vector<std::string> old;
    while (options_.max_to_keep > 0 &&
           written_.size() > static_cast<size_t>(options_.max_to_keep)) {
      old.push_back(written_.front());
      written_.pop_front();
    }
    line(kStateKey, name);
    for (const std::string& path : written_) {
      if (std::filesystem::path(path).parent_path() == folder)
        line("all_model_checkpoint_paths: ", path);
    }
    MG_RETURN_IF_ERROR(WriteFileWhole((folder / kStateFile).string(), state));
    std::error_code ignored;  // somebody else may have removed it
    for (const std::string& path : old) std::filesystem::remove(path + kExtension, ignored);
    return Status();
  }

  const Scope scope_;
  const SaverOptions options_;
  std::map<std::string, Stored> single_;                  // as they are in the graph
  std::map<std::string, std::vector<Stored>> variables_;  // by name in the file
  std::deque<std::string> written_;                       // oldest first
};

Saver::Saver(const Scope& scope, const SaverOptions& options)
    : impl_(std::make_unique<Impl>(scope, options)) {
  impl_->AddAll();
  impl_->Finish();
}

Saver::Saver(const Scope& scope, std::span<const ModelVariable> variables,
             const SaverOptions& options)
    : impl_(std::make_unique<Impl>(scope, options)) {
  for (const ModelVariable& variable : variables) impl_->Add(variable.name, variable.handle);
  impl_->Finish();
}

Saver::~Saver() = default;
Saver::Saver(Saver&&) noexcept = default;
Saver& Saver::operator=(Saver&&) noexcept = default;

Result<std::string> Saver::Save(Session* session, const std::string& path, int64_t global_step) {
  return impl_->Save(session, path, global_step);
}
Status Saver::Restore(Session* session, const std::string& path) const {
  return impl_->Restore(session, path);
}
std::vector<std::string> Saver::names() const { return impl_->names(); }

Result<std::optional<std::string>> LatestCheckpoint(const std::string& folder) {
  const std::filesystem::path state = std::filesystem::path(folder) / kStateFile;
  std::ifstream file(state);
  if (!file) return std::optional<std::string>();
  std::string line;
  std::getline(file, line);
  const std::string key = std::string(kStateKey) + "\"";
  if (!line.starts_with(key) || line.back() != '"' || line.size() <= key.size() + 1)
    return DataLoss("'" + state.string() + "' does not begin with " + kStateKey + "\"...\"");
  const std::string name = line.substr(key.size(), line.size() - key.size() - 1);
  return std::optional<std::string>((std::filesystem::path(folder) / name).string());
}

Result<std::vector<SavedVariable>> ListVariables(const std::string& path) {
  MG_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path + kExtension));
  std::vector<SavedVariable> variables;
  for (const auto& [name, entry] : file.entries())
    variables.push_back({name, entry.dtype, entry.shape});
  return variables;
}

Result<Tensor> LoadVariable(const std::string& path, const std::string& name) {
  MG_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path + kExtension));
  return file.Read(name);
}

}  // namespace monograph
