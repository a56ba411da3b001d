// A Saver collects variables, joins the parts of partitioned ones into tensors (saver/variables.h),
// and leaves reading and writing to SaverNodes, of which there are two kinds. Save writes the
// checkpoint, then the state file that names it, and then removes old checkpoints: a process that
// dies in between leaves a state file that names a checkpoint that is there. RestoreLatest tries
// checkpoints from the newest on: only a restore reads, and so checks, every byte.
#include "train/saver.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "client/session.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/disk.h"
#include "train/saver/nodes.h"
#include "train/saver/state_file.h"

namespace monograph {
namespace {

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

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
    const std::string folder = FolderOf(name);
    MG_RETURN_IF_ERROR(MakeFolders(folder));
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

  Result<std::optional<std::string>> RestoreLatest(Session* session, const std::string& named,
                                                   const RestoreLatestOptions& options) {
    // As it stands in the names of checkpoints: without a slash at the end.
    const std::string folder = FolderOf((std::filesystem::path(named) / "any").string());
    MG_ASSIGN_OR_RETURN(std::vector<std::string> newest_first, NewestFirst(folder, options));
    Status first_failure;
    for (auto at = newest_first.begin(); at != newest_first.end(); ++at) {
      const std::string text = "Restoring parameters from " + *at;
      options.say ? options.say(text) : LogInfo(text);
      // A name without files, too: they were there when the state file was written.
      const Status status = CheckpointExists(*at)
                                ? Restore(session, *at)
                                : DataLoss("checkpoint '" + *at + "' is not there any more");
      if (status.ok()) {
        std::erase_if(written_, [&](const auto& path) { return FolderOf(path) == folder; });
        written_.insert(written_.end(), std::make_reverse_iterator(newest_first.end()),
                        std::make_reverse_iterator(at));
        std::erase_if(written_, [](const auto& path) { return !CheckpointExists(path); });
        if (!first_failure.ok()) RememberAfterDamage(folder);
        return std::optional(*at);
      }
      if (status.code() != Code::kDataLoss || options.refuse_damaged) return status;
      LeaveDamagedAside(*at, status);
      if (first_failure.ok()) first_failure = status;
    }
    if (newest_first.empty()) return std::optional<std::string>();
    return DataLoss("no checkpoint of '" + folder + "' can be restored, of " +
                    std::to_string(newest_first.size()) +
                    " that were tried; the newest: " + first_failure.message() +
                    "; put a good copy there, or begin in another folder");
  }

 private:
  // The checkpoints that the state file names or, if it is damaged, those that are there.
  static Result<std::vector<std::string>> NewestFirst(const std::string& folder,
                                                      const RestoreLatestOptions& options) {
    const Result<CheckpointState> state = ReadStateFile(folder);
    std::vector<std::string> names;
    if (state.ok()) {
      names.assign(state->all.rbegin(), state->all.rend());
      std::erase(names, state->latest);
      names.insert(names.begin(), state->latest);
    } else if (state.status().code() == Code::kDataLoss && !options.refuse_damaged) {
      LogWarning(state.status().message() + "; the checkpoints of the folder are tried instead");
      names = CheckpointsIn(folder);
      if (names.empty()) return state.status();
    } else if (state.status().code() != Code::kNotFound) {
      return state.status();
    } else if (const auto there = CheckpointsIn(folder); !there.empty()) {
      LogWarning("'" + folder + "' has checkpoints, the newest '" + there.front() +
                 "', but no list of them, the file 'checkpoint': none is restored");
    }
    return names;
  }

  static void LeaveDamagedAside(const std::string& path, const Status& why) {
    const Result<std::string> moved = LeaveAside(path);
    LogWarning("'" + path + "' cannot be restored: " + why.message() +
               (moved.ok() ? "; its files are in '" + *moved + "' now"
                           : "; its files stay where they are: " + moved.status().message()) +
               "; the one before it is tried");
  }

  void RememberAfterDamage(const std::string& folder) {
    const Status status = WriteStateFile(folder, {written_.back(), written_});
    if (!status.ok()) LogWarning(status.message());
  }

  // Writes the state file, and removes checkpoints beyond max_to_keep.
  Status Remember(const std::string& name, const std::string& folder) {
    std::erase(written_, name);
    written_.push_back(name);
    const auto most = static_cast<size_t>(options_.max_to_keep);
    const size_t too_many = most > 0 && written_.size() > most ? written_.size() - most : 0;
    const auto kept = written_.begin() + static_cast<ptrdiff_t>(too_many);
    MG_RETURN_IF_ERROR(WriteStateFile(folder, {name, {kept, written_.end()}}));
    std::for_each(written_.begin(), kept, RemoveCheckpoint);
    written_.erase(written_.begin(), kept);
    return Status();
  }

  const Scope scope_;
  const SaverOptions options_;
  std::map<std::string, GraphVariable> variables_;
  SavedTensors tensors_;
  std::unique_ptr<SaverNodes> nodes_;
  std::vector<std::string> written_;  // that are to be kept or removed; oldest first
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
Result<std::optional<std::string>> Saver::RestoreLatest(Session* session, const std::string& folder,
                                                        const RestoreLatestOptions& options) {
  return impl_->RestoreLatest(session, folder, options);
}
std::vector<std::string> Saver::names() const { return impl_->names(); }

Result<std::optional<std::string>> LatestCheckpoint(const std::string& folder) {
  const Result<CheckpointState> state = ReadStateFile(folder);
  if (state.status().code() == Code::kNotFound) return std::optional<std::string>();
  MG_RETURN_IF_ERROR(state.status());
  return std::optional(state->latest);
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
