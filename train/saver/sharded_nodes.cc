// Checkpoints that the tasks themselves write and read, a shard for each task. Save has three
// phases: a step writes the shards into a scratch folder, the client moves them to their names, and
// the index is written last; until then the old checkpoint is valid. Restore is one step, in which
// every task reads its tensors before any variable is assigned. The client sees names only, so
// large variables never pass through it.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "ops/checkpoint/checkpoint.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/disk.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/variable/variable.h"
#include "train/saver/nodes.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

// The CPU of the task where a variable lives, if the graph names the task.
std::string TaskCpu(const Output& variable) {
  constexpr std::string_view kPlace = "loc:@";
  const Graph& graph = *variable.graph;
  std::set<NodeId> seen;
  NodeId node = variable.node();
  while (node >= 0 && graph.device(node).empty() && seen.insert(node).second) {
    const auto groups = graph.attrs(node).GetOr<std::vector<std::string>>("_class", {});
    NodeId beside = -1;
    for (const std::string& group : groups) {
      if (beside < 0 && group.starts_with(kPlace)) beside = graph.Find(group.substr(kPlace.size()));
    }
    node = beside;
  }
  DeviceName device = node < 0 ? DeviceName() : graph.device(node);
  if (device.task >= 0 && device.replica < 0) device.replica = 0;
  device.type = kCpu;
  device.id = 0;
  return device.ToString();
}

Tensor Strings(const std::vector<std::string>& words) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{static_cast<int64_t>(words.size())}).value();
  std::copy(words.begin(), words.end(), tensor.strings());
  return tensor;
}

// What one task saves and restores.
struct TaskVariables {
  std::vector<std::string> names;  // of the tensors that it writes
  Outputs values;
  std::vector<std::string> restored, slices;  // of what it reads
  std::vector<DType> dtypes;
  Outputs handles;
};

class ShardedNodes : public SaverNodes {
 public:
  ShardedNodes(const Scope& scope, const SavedTensors& tensors) : tensors_(tensors) {
    std::map<std::string, TaskVariables> tasks;  // by device
    for (const auto& [name, parts] : tensors) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const GraphVariable& part = parts[i];
        TaskVariables& task = tasks[TaskCpu(part.handle)];
        const Scope beside = scope.ColocateWith(part.handle);
        task.names.push_back(parts.size() > 1 ? part.name : name);
        task.values.push_back(ReadVariable(beside.WithOpName("read"), part.handle, part.dtype));
        task.restored.push_back(name);
        task.slices.push_back("");
        if (parts.size() > 1) {
          task.slices.back() = RowsOfShape(WholeShape(parts).AsShape(), RowsOfPart(parts, i));
          parts_[name].push_back(part.name);
        }
        task.dtypes.push_back(part.dtype);
        task.handles.push_back(part.handle);
      }
    }
    prefix_ = Placeholder(scope.WithOpName("prefix"), DT_STRING, PartialShape::Scalar());
    for (const auto& [device, task] : tasks) AddSave(scope.WithDevice(device), device, task);
    AddRestore(scope, tasks);
  }

  Status Save(Session* session, const std::string& prefix, const std::string& scratch) override {
    const fs::path folder = fs::absolute(scratch);
    RemoveAll(folder.string());  // left by a client that ended while it saved
    MG_RETURN_IF_ERROR(MakeFolders(folder.string()));
    Status status = WriteShards(session, folder / fs::path(prefix).filename());
    if (status.ok()) status = PutInPlace(prefix, folder / fs::path(prefix).filename());
    RemoveAll(folder.string());
    return status;
  }

  Status Restore(Session* session, const std::string& prefix,
                 CheckpointReader* reader) const override {
    std::vector<Feed> feeds = {{prefix_, Tensor::String(fs::absolute(prefix).string())}};
    for (const Restored& task : restored_) {
      std::vector<std::string> sources;
      for (const std::string& name : task.tensors)
        sources.push_back(SourceOf(*reader, name, tensors_.at(name)));
      feeds.emplace_back(task.sources, Strings(sources));
    }
    return session->Run(feeds, {}, assigns_).status();
  }

 private:
  struct Shard {
    std::string device;
    std::vector<std::string> names;
    Output prefix;
    Operation save;
  };
  // What one task restores, and from which tensors of the checkpoint.
  struct Restored {
    std::vector<std::string> tensors;
    Output sources;
  };

  void AddSave(const Scope& cpu, const std::string& device, const TaskVariables& task) {
    const Scope helpers = cpu.HelperScope("SaveV2");
    const Output prefix =
        Placeholder(cpu.WithOpName("filename"), DT_STRING, PartialShape::Scalar());
    const Output names = Const(helpers.WithOpName("tensor_names"), Strings(task.names));
    const Output slices = Const(helpers.WithOpName("shape_and_slices"),
                                Strings(std::vector<std::string>(task.names.size())));
    shards_.push_back(
        {device, task.names, prefix, SaveV2(cpu, prefix, names, slices, task.values)});
  }

  // No variable is assigned before every task has read all that it needs.
  void AddRestore(const Scope& scope, const std::map<std::string, TaskVariables>& tasks) {
    std::vector<Operation> reads;
    Outputs values, handles;
    for (const auto& [device, task] : tasks) {
      const Scope cpu = scope.WithDevice(device), helpers = cpu.HelperScope("RestoreV2");
      const auto count = static_cast<int64_t>(task.restored.size());
      restored_.push_back(
          {task.restored, Placeholder(helpers.WithOpName("tensor_names"), DT_STRING, {count})});
      const Outputs read = RestoreV2(
          cpu, prefix_, restored_.back().sources,
          Const(helpers.WithOpName("shape_and_slices"), Strings(task.slices)), task.dtypes);
      if (!scope.ok()) return;
      reads.push_back(read[0]);
      values.insert(values.end(), read.begin(), read.end());
      handles.insert(handles.end(), task.handles.begin(), task.handles.end());
    }
    const Operation all_read =
        Group(scope.WithDevice(tasks.begin()->first).WithOpName("all_read"), reads);
    for (size_t i = 0; i < values.size(); ++i) {
      const Scope beside = scope.ColocateWith(handles[i]).WithControlDependencies({all_read});
      assigns_.push_back(AssignVariable(beside.WithOpName("Assign"), handles[i], values[i]));
    }
  }

  // Runs the step that writes the shards, with the prefix `to`.
  Status WriteShards(Session* session, const fs::path& to) const {
    std::vector<Feed> feeds;
    std::vector<Operation> saves;
    for (size_t i = 0; i < shards_.size(); ++i) {
      feeds.emplace_back(
          shards_[i].prefix,
          Tensor::String(CheckpointFileName(ShardPrefix(to.string(), i, shards_.size()))));
      saves.push_back(shards_[i].save);
    }
    return session->Run(feeds, {}, saves).status();
  }

  // Moves the shards `from` to their final names and writes the index, with which they become the
  // checkpoint `prefix`.
  Status PutInPlace(const std::string& prefix, const fs::path& from) const {
    const size_t count = shards_.size();
    const auto file_of = [count](const std::string& base, size_t i) {
      return fs::path(CheckpointFileName(ShardPrefix(base, i, count)));
    };
    CheckpointIndex index;
    index.parts = parts_;
    // The shards of an older checkpoint `prefix` stay until the new index is written; if they have
    // the names that the new shards need, these get other ones.
    std::set<std::string> files = ShardsOf(prefix);
    const bool taken = files.contains(file_of(prefix, 0).filename().string());
    const std::string base = taken ? PrefixAgain(prefix) : prefix;
    for (size_t i = 0; i < count; ++i) {
      const std::string file = file_of(base, i).filename().string();
      MG_RETURN_IF_ERROR(CheckShard(i, file_of(from.string(), i).string(), file, &index));
    }
    Status status;
    for (size_t i = 0; i < count && status.ok(); ++i) {
      const fs::path file = file_of(base, i);
      files.insert(file.filename().string());
      if (CurrentDisk().Rename(file_of(from.string(), i).string(), file.string()) != 0)
        status = CannotWrite(file.string(), errno);
    }
    const fs::path folder = fs::path(prefix).parent_path();
    if (status.ok()) status = SyncFolder(folder.string());
    if (status.ok()) status = WriteCheckpointIndex(prefix, index);
    if (status.ok()) {
      CurrentDisk().Remove(CheckpointFileName(prefix));
      RemoveBundle(prefix);
    }
    // Removes the shards that the index does not name: the old ones, or the new ones if this
    // failed.
    for (const std::string& named : ShardsOf(prefix)) files.erase(named);
    for (const std::string& file : files) CurrentDisk().Remove((folder / file).string());
    return status;
  }

  // Adds shard i, which lies at `path` and is to be called `file`. Fails if this process does not
  // see what the task has written.
  Status CheckShard(size_t i, const std::string& path, const std::string& file,
                    CheckpointIndex* index) const {
    const Result<CheckpointFile> shard = CheckpointFile::Open(path);
    if (shard.status().code() == Code::kNotFound) {
      return FailedPrecondition("the task of '" + shards_[i].device + "' has written '" + path +
                                "', but the client does not see it; a checkpoint lies in a " +
                                "folder that every task and the client see");
    }
    MG_RETURN_IF_ERROR(shard.status());
    index->shards[file] = ShardIdentity::Of(*shard);
    for (const auto& [name, entry] : shard->entries()) index->total_size += entry.bytes;
    for (const std::string& name : shards_[i].names) index->weight_map[name] = file;
    return Status();
  }

  const SavedTensors tensors_;
  std::vector<Shard> shards_;
  std::vector<Restored> restored_;
  std::map<std::string, std::vector<std::string>> parts_;  // as CheckpointIndex has them
  Output prefix_;                                          // of what is restored
  std::vector<Operation> assigns_;
};

}  // namespace

std::unique_ptr<SaverNodes> MakeShardedNodes(const Scope& scope, const SavedTensors& tensors) {
  return std::make_unique<ShardedNodes>(scope, tensors);
}

}  // namespace monograph
