// Whole files are written from a header that was made before, with the CRCs of all bytes; a read
// goes block by block, and through a block in pieces, so that neither a huge block of an older file
// nor a sparse one takes memory.
#include "ops/checkpoint_files/checkpoint_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "ops/checkpoint_files/checksum.h"
#include "ops/checkpoint_files/damaged.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

std::string BytesText(size_t begin, size_t end) {
  return "bytes " + std::to_string(begin) + " to " + std::to_string(end);
}

// Once for all files of this process.
void SayThatThereIsNoSeal(const std::string& path) {
  static std::atomic<bool> said = false;  // default order: once per file
  if (said.exchange(true)) return;
  LogWarning("checkpoint '" + path +
             "' has no checksum of its header: an older version or another program wrote it. It is "
             "read; damage to its header may not be found. (Said once.)");
}

}  // namespace

Status WriteCheckpointFile(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                           const std::stop_token& stop) {
  MG_ASSIGN_OR_RETURN(const std::string header, MakeCheckpointHeader(tensors, stop));
  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(header.data(), header.size()));
  for (const CheckpointTensor& tensor : tensors) {
    for (const Tensor& piece : tensor.pieces)
      MG_RETURN_IF_ERROR(file.Write(piece.raw(), piece.bytes(), stop));
  }
  return file.PutInPlace();
}

CheckpointFile::CheckpointFile(std::string path, InputFile file)
    : path_(std::move(path)),
      file_(std::make_shared<const InputFile>(std::move(file))),
      bytes_(file_->size()) {}

Result<CheckpointFile> CheckpointFile::Open(const std::string& path) {
  Result<InputFile> file = InputFile::Open("checkpoint", path);
  if (file.status().code() == Code::kNotFound)
    return NotFound("there is no checkpoint '" + path + "'");
  MG_RETURN_IF_ERROR(file.status());
  CheckpointFile opened(path, std::move(file).value());
  MG_RETURN_IF_ERROR(opened.ReadHeader());
  return opened;
}

Status CheckpointFile::ReadHeader() {
  uint64_t size = 0;
  if (bytes_ < sizeof size || !file_->Read(0, sizeof size, &size).ok() ||
      size > kMostCheckpointHeader || size > bytes_ - sizeof size)
    return Damaged(path_, "it is truncated, or no checkpoint");
  std::string text(size, '\0');
  MG_RETURN_IF_ERROR(file_->Read(sizeof size, size, text.data()));
  Result<CheckpointHeader> header = ParseCheckpointHeader(text, bytes_);
  if (!header.ok()) return Damaged(path_, header.status().message());
  if (!header->sealed) SayThatThereIsNoSeal(path_);
  header_crc_ = CrcText(AddToCrc(0, text.data(), text.size()));
  header_ = std::move(header).value();
  return Status();
}

Status CheckpointFile::Read(const std::string& name, const RowRange& rows, void* to,
                            const std::stop_token& stop) const {
  const Entry& entry = header_.entries.at(name);
  const bool all = rows.end < 0;
  const size_t row =
      all || entry.shape[0] == 0 ? 0 : entry.bytes / static_cast<size_t>(entry.shape[0]);
  const size_t end = all ? entry.bytes : row * static_cast<size_t>(rows.end);
  size_t at = all ? 0 : row * static_cast<size_t>(rows.begin);
  char* out = static_cast<char*>(to);
  std::vector<char> around;  // a piece of which we want a part
  while (at < end) {
    const size_t block = at / header_.block_bytes, begin = block * header_.block_bytes;
    const size_t until = std::min(end, begin + std::min(header_.block_bytes, entry.bytes - begin));
    MG_RETURN_IF_ERROR(ReadBlock(name, block, at, until, out, &around, stop));
    out += until - at;
    at = until;
  }
  return Status();
}

// Bytes [begin, end) of the tensor, which lie in one block.
Status CheckpointFile::ReadBlock(const std::string& name, size_t block, size_t begin, size_t end,
                                 char* to, std::vector<char>* around,
                                 const std::stop_token& stop) const {
  const Entry& entry = header_.entries.at(name);
  // Without a CRC nothing but the wanted bytes is read.
  const bool checked = !entry.crcs.empty();
  const size_t first = checked ? block * header_.block_bytes : begin;
  const size_t last = checked ? first + std::min(header_.block_bytes, entry.bytes - first) : end;
  uint32_t crc = 0;
  for (size_t at = first; at < last;) {
    if (stop.stop_requested()) return Cancelled("'" + path_ + "' is not needed any more");
    const size_t size = std::min(kPiece, last - at);
    const size_t wanted = std::clamp(at, begin, end), until = std::clamp(at + size, begin, end);
    const bool direct = until - wanted == size;
    if (!direct) around->resize(kPiece);
    char* const bytes = direct ? to + (at - begin) : around->data();
    const size_t in_file = entry.begin + at;
    const Status read = file_->Read(in_file, size, bytes);
    if (!read.ok())
      return read.WithContext(BytesText(in_file, in_file + size) + ", of '" + name + "'");
    if (checked) crc = AddToCrc(crc, bytes, size);
    if (!direct && wanted < until)
      std::memcpy(to + (wanted - begin), bytes + (wanted - at), until - wanted);
    at += size;
  }
  if (!checked) return Status();
  const std::string says = entry.crcs.substr(block * kCrcDigits, kCrcDigits), is = CrcText(crc);
  if (is == says) return Status();
  return Damaged(path_, "the bytes of '" + name + "' are damaged: the CRC-32 of " +
                            BytesText(entry.begin + first, entry.begin + last) +
                            " of the file is " + is + ", and the header says " + says);
}

}  // namespace monograph
