#include "tools/checkpoint_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/checkpoint_files/disk.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "tools/columns.h"
#include "tools/command_table.h"
#include "tools/flags.h"
#include "train/saver.h"

namespace monograph {
namespace {

using Arguments = std::vector<std::string>;

constexpr char kPrefixHelp[] =
    "the checkpoint, as run1/model.ckpt-100, without the ends of its files; or a folder, whose "
    "latest is meant";

// What the user names: a checkpoint, or a folder with several.
Result<std::string> PrefixOf(const std::string& named) {
  std::error_code error;
  if (!std::filesystem::is_directory(named, error)) return named;
  MG_ASSIGN_OR_RETURN(const std::optional<std::string> latest, LatestCheckpoint(named));
  if (latest) return *latest;
  return NotFound("the folder '" + named + "' has no file 'checkpoint', which names the latest");
}

Status PrintList(const std::string& named) {
  MG_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(named));
  MG_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(prefix));
  std::vector<std::vector<std::string>> rows = {{"tensor", "type", "shape", "bytes"}};
  uint64_t bytes = 0;
  for (const std::string& name : reader.names()) {
    MG_ASSIGN_OR_RETURN(const CheckpointReader::Entry entry, reader.Find(name));
    bytes += entry.bytes;
    rows.push_back({name, std::string(DTypeName(entry.dtype)), entry.shape.ToString(),
                    std::to_string(entry.bytes)});
  }
  std::fputs(AlignColumns(rows, 3).c_str(), stdout);
  std::printf("%s: %zu tensors, %llu bytes, %s\n", prefix.c_str(), rows.size() - 1,
              static_cast<unsigned long long>(bytes),
              reader.is_bundle() ? "TensorFlow's files" : "safetensors");
  return Status();
}

int List(const Arguments& arguments) {
  std::vector<std::string> named;
  Flags flags(
      "monograph checkpoint list",
      "Lists the tensors of a checkpoint, ours or TensorFlow's: name, type, shape, bytes.\n\n"
      "Examples:\n"
      "  monograph checkpoint list run1/model.ckpt-100\n"
      "  monograph checkpoint list run1\n");
  flags.AddPositional("CHECKPOINT", &named, 1, kPrefixHelp);
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  return flags.Exit(PrintList(named[0]));
}

Status ConvertCheckpoint(const std::string& named, const std::string& to,
                         const std::vector<std::string>& skipped, std::string format) {
  MG_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(named));
  MG_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(prefix));
  if (CheckpointExists(to))
    return AlreadyExists("there is a checkpoint '" + to + "' already; remove it, or name another");
  if (format == "auto") format = reader.is_bundle() ? "safetensors" : "tensorflow";
  std::set<std::string> left_out(skipped.begin(), skipped.end());
  for (const std::string& name : left_out) MG_RETURN_IF_ERROR(reader.Find(name).status());
  std::vector<CheckpointTensor> tensors;
  for (const std::string& name : reader.names()) {
    if (left_out.contains(name)) continue;
    MG_ASSIGN_OR_RETURN(const CheckpointReader::Entry entry, reader.Find(name));
    if (entry.dtype == DT_STRING && format == "safetensors") {
      return Unimplemented("'" + name +
                           "' is string, which safetensors files do not have; leave "
                           "it out by --skip='" +
                           name + "'");
    }
    MG_ASSIGN_OR_RETURN(Tensor value, reader.Read(name));
    tensors.push_back({name, value.dtype(), value.shape(), {std::move(value)}});
  }
  std::string made = BundleIndexName(to);
  if (format == "safetensors") {
    made = CheckpointFileName(to);
    MG_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(to).parent_path().string()));
    MG_RETURN_IF_ERROR(WriteCheckpointFile(made, tensors));
  } else {
    std::vector<BundleTensor> wholes;
    for (const CheckpointTensor& tensor : tensors)
      wholes.push_back({tensor.name, tensor.shape, {}, tensor.pieces[0]});
    MG_RETURN_IF_ERROR(WriteBundle(to, wholes));
  }
  std::printf("%s: %zu tensors of %s\n", made.c_str(), tensors.size(), prefix.c_str());
  return Status();
}

int Convert(const Arguments& arguments) {
  std::vector<std::string> names, skip;
  std::string format = "auto";
  Flags flags("monograph checkpoint convert",
              "Writes a checkpoint anew in the other format: of TensorFlow's files one safetensors "
              "file, of safetensors TensorFlow's files.\n"
              "Parts become whole tensors; all of it passes through memory.\n\n"
              "Examples:\n"
              "  monograph checkpoint convert run1/model.ckpt-100 exported/model\n"
              "  monograph checkpoint convert tf_run converted/model "
              "--skip=_CHECKPOINTABLE_OBJECT_GRAPH\n");
  flags.AddPositional("CHECKPOINT TO", &names, 2,
                      "what is read, named as for list, and the name of what is written");
  flags.AddChoice("format", &format, {"auto", "tensorflow", "safetensors"},
                  "of what is written; auto: the one that CHECKPOINT does not have");
  flags.Add("skip", &skip, "tensors that are left out, separated by commas");
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  return flags.Exit(ConvertCheckpoint(names[0], names[1], skip, format));
}

}  // namespace

int CheckpointCommand(const std::vector<std::string>& arguments) {
  static const CommandTable words{
      .program = "monograph checkpoint",
      .noun = "word",
      .usage = "Usage: monograph checkpoint WORD ... ; each has --help.\n\nWords:\n",
      .missing = "say what: list or convert",
      .width = 8,
      .commands = {
          {"convert", {Convert, "TensorFlow's files to safetensors, or safetensors to those"}},
          {"list", {List, "names, types, shapes and bytes of its tensors"}},
      }};
  return words.Run(arguments);
}

}  // namespace monograph
