// The index of a checkpoint that is made of shards, and the list of a folder's checkpoints: each
// sees all bytes.
#include "ops/checkpoint_files/checkpoint_index.h"

#include <cstdlib>
#include <filesystem>

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sealed.h"
#include "tests/fuzz/targets.h"
#include "train/saver/state_file.h"

namespace monograph::fuzz {
namespace {

// A folder with both, which are names of one file in memory.
class IndexFile {
 public:
  IndexFile() : folder_(MakeFolder()) {
    std::filesystem::create_symlink(file_.Fill(""), CheckpointIndexName(prefix()));
    std::filesystem::create_symlink(file_.Fill(""), folder_ + "/checkpoint");
  }
  ~IndexFile() { std::filesystem::remove_all(folder_); }

  void Fill(std::string_view bytes) { file_.Fill(bytes); }
  const std::string& folder() const { return folder_; }
  std::string prefix() const { return folder_ + "/model"; }

 private:
  static std::string MakeFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fuzz.XXXXXX").string();
    MG_CHECK(mkdtemp(name.data()) != nullptr);
    return name;
  }
  MemoryFile file_;
  const std::string folder_;
};

void ReadIndex(std::string_view bytes) {
  static IndexFile file;
  file.Fill(bytes);
  if (const Result<CheckpointState> state = ReadStateFile(file.folder()); state.ok())
    MG_CHECK(!state->latest.empty());
  const Result<CheckpointIndex> index = ReadCheckpointIndex(file.prefix());
  if (!index.ok()) return;
  for (const auto& [tensor, shard] : index->weight_map)
    MG_CHECK(shard.find('/') == std::string::npos && shard != "..");
  for (const auto& [whole, parts] : index->parts) {
    MG_CHECK(!parts.empty());
    for (const std::string& part : parts) MG_CHECK(index->weight_map.contains(part));
  }
}

}  // namespace

void checkpoint_index(std::string_view bytes) {
  ReadIndex(bytes);
  if (const auto sealed = Sealed(bytes)) ReadIndex(*sealed);
}

}  // namespace monograph::fuzz
