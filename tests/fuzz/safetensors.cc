#include "ops/checkpoint_files/checkpoint_file.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void safetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const Result<CheckpointFile> opened = CheckpointFile::Open(file.path());
  if (!opened.ok()) return;
  for (const auto& [name, entry] : opened->entries()) {
    MG_CHECK(entry.bytes <= bytes.size());
    std::string values(entry.bytes, '\0');
    (void)opened->Read(name, {}, values.data());
    if (entry.shape.rank() > 0 && entry.shape[0] > 1)
      (void)opened->Read(name, {1, 2}, values.data());
  }
}

}  // namespace monograph::fuzz
