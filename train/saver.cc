// A Saver collects variables, joins the parts of partitioned ones into tensors (saver/variables.h),
// and leaves reading and writing to SaverNodes, of which there are two kinds. Save writes the
// checkpoint, then the state file that names it, and then removes old checkpoints: a process that
// dies in between leaves a state file that names a checkpoint that is there.
#include "train/saver.h"

#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "client/session.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "train/saver/nodes.h"

namespace monograph {
namespace {

constexpr char kStateFile[] = "checkpoint";
constexpr char kStateKey[] = "model_checkpoint_path: ";

std::string TextAttr(const Graph& graph, NodeId node, std::string_view name) {
  const AttrValue* value = graph.attrs(node).Find(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string() : *text;
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
    const Attrs& attrs = handle.graph->attrs(handle.node());
    const GraphVariable variable{name, handle, std::get<DType>(*attrs.Find("dtype")),
                                 std::get<PartialShape>(*attrs.Find("shape")),
                                 TextAttr(*handle.graph, handle.node(), kSameValueAttr)};
    if (!variables_.emplace(name, variable).second)
      scope_.Fail(InvalidArgument("Saver: two variables are called '" + name + "'"));
  }

  // Adds the nodes.
  void Finish() {
    if (scope_.ok() && variables_.empty()) scope_.Fail(InvalidArgument("No variables to save"));
    if (!scope_.ok()) return;
    tensors_ = JoinParts(variables_);
    nodes_ =
        options_.sharded ? MakeShardedNodes(scope_, tensors_) : MakeClientNodes(scope_, tensors_);
  }

  Result<std::string> Save(Session* session, const std::string& path, int64_t global_step) {
    MG_RETURN_IF_ERROR(scope_.status());
    const std::string name = global_step < 0 ? path : path + "-" + std::to_string(global_step);
    const std::filesystem::path folder = std::filesystem::path(name).parent_path();
    std::error_code error;
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error) {
      return FailedPrecondition("cannot make the folder '" + folder.string() +
                                "': " + error.message());
    }
    const Status saved = nodes_->Save(session, name, path + "_temp");
    if (!saved.ok()) return saved.WithContext("cannot save '" + name + "'");
    MG_RETURN_IF_ERROR(Remember(name, folder));
    return name;
  }

  Status Restore(Session* session, const std::string& path) const {
    MG_RETURN_IF_ERROR(scope_.status());
    MG_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
    MG_RETURN_IF_ERROR(CheckHasAll(&reader, path, tensors_));
    return nodes_->Restore(session, path, &reader);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, parts] : tensors_) names.push_back(name);
    return names;
  }

 private:
  // Writes the state file, and removes checkpoints beyond max_to_keep.
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
    for (const std::string& path : old) RemoveCheckpoint(path);
    return Status();
  }

  const Scope scope_;
  const SaverOptions options_;
  std::map<std::string, GraphVariable> variables_;
  SavedTensors tensors_;
  std::unique_ptr<SaverNodes> nodes_;
  std::deque<std::string> written_;  // oldest first
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
  MG_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  std::vector<SavedVariable> variables;
  for (const std::string& name : reader.names()) {
    MG_ASSIGN_OR_RETURN(const CheckpointReader::Entry entry, reader.Find(name));
    variables.push_back({name, entry.dtype, entry.shape});
  }
  return variables;
}

Result<Tensor> LoadVariable(const std::string& path, const std::string& name) {
  MG_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  return reader.Read(name);
}

}  // namespace monograph
