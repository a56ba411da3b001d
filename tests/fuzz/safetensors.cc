#include "base/codec.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sealed.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

void ReadCheckpoint(std::string_view bytes) {
  static MemoryFile file;
  const Result<CheckpointFile> opened = CheckpointFile::Open(file.Fill(bytes));
  if (!opened.ok()) return;
  for (const auto& [name, entry] : opened->entries()) {
    MG_CHECK(entry.bytes <= bytes.size());
    std::string values(entry.bytes, '\0');
    (void)opened->Read(name, {}, values.data());
    if (entry.shape.rank() > 0 && entry.shape[0] > 1)
      (void)opened->Read(name, {1, 2}, values.data());
  }
}

}  // namespace

void safetensors(std::string_view bytes) {
  ReadCheckpoint(bytes);
  const auto header_bytes = Decoder(bytes).Get<uint64_t>();
  if (bytes.size() < 8 || header_bytes > bytes.size() - 8) return;
  const std::string_view data = bytes.substr(8 + header_bytes);
  if (const auto header = Sealed(bytes.substr(8, header_bytes)))
    ReadCheckpoint(std::string(bytes.substr(0, 8)).append(*header).append(data));
}

}  // namespace monograph::fuzz
