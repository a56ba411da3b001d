// The format: https://github.com/huggingface/safetensors: 8 bytes, the size of the header,
// little-endian; the header, JSON, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
// [begin, end]}, "__metadata__": {"key": "text"}}; the tensors' bytes.
// Our __metadata__: {"monograph_crc32": 8 digits, the seal of the header
// (ops/checkpoint_files/checksum.h), "crc32_block_bytes": "1048576", "crc32:<name>": 8 digits for
// each block of the tensor's bytes, one at least, "format": "monograph 2"}. An older version wrote
// "format": "monograph" and no seal, and a still older one no crc32_block_bytes either: there a
// block is a whole tensor.
#include "ops/checkpoint_files/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/log.h"
#include "ops/checkpoint_files/checksum.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

using Json = nlohmann::ordered_json;

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr TypeName kTypeNames[] = {{DT_FLOAT, "F32"},     {DT_DOUBLE, "F64"}, {DT_HALF, "F16"},
                                   {DT_BFLOAT16, "BF16"}, {DT_INT8, "I8"},    {DT_UINT8, "U8"},
                                   {DT_INT16, "I16"},     {DT_UINT16, "U16"}, {DT_INT32, "I32"},
                                   {DT_UINT32, "U32"},    {DT_INT64, "I64"},  {DT_UINT64, "U64"},
                                   {DT_BOOL, "BOOL"}};
constexpr size_t kMostHeader = size_t{100} << 20;  // the format's limit
constexpr char kMetadata[] = "__metadata__", kFormatKey[] = "format", kOldFormat[] = "monograph",
               kCrcKey[] = "crc32:", kBlockKey[] = "crc32_block_bytes";
constexpr size_t kBlockBytes = size_t{1} << 20;

const char* NameOfType(DType dtype) {
  for (const TypeName& known : kTypeNames) {
    if (known.dtype == dtype) return known.name;
  }
  return nullptr;
}

Status Stopped(const std::string& path) {
  return Cancelled("'" + path + "' is not needed any more");
}

// The CRCs of a tensor, block by block; a block may lie in several pieces.
class BlockCrcs {
 public:
  void Add(const void* bytes, size_t size) {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
      if (in_block_ == kBlockBytes) EndBlock();
      const size_t more = std::min(size, kBlockBytes - in_block_);
      crc_ = AddToCrc(crc_, at, more);
      in_block_ += more;
      at += more;
      size -= more;
    }
  }
  std::string Text() {
    EndBlock();
    return text_;
  }

 private:
  void EndBlock() {
    text_ += CrcText(crc_);
    crc_ = 0;
    in_block_ = 0;
  }
  std::string text_;
  uint32_t crc_ = 0;
  size_t in_block_ = 0;
};

size_t Blocks(size_t bytes, size_t block_bytes) {
  return std::max<size_t>(1, bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0));
}

// Bytes [offset, offset + size) of the file: why they are not to be had; empty: they are at `to`.
std::string ReadBytes(int file, size_t offset, size_t size, char* to) {
  while (size > 0) {
    const ssize_t got = pread(file, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "the file ends at byte " + std::to_string(offset);
    to += got;
    offset += static_cast<size_t>(got);
    size -= static_cast<size_t>(got);
  }
  return "";
}

std::string BytesText(size_t begin, size_t end) {
  return "bytes " + std::to_string(begin) + " to " + std::to_string(end);
}

Status Damaged(const std::string& path, const std::string& why) {
  return DataLoss("checkpoint '" + path + "': " + why);
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
  Json header = Json::object();
  Json metadata = {{kSealWord, kSealDigits}, {kBlockKey, std::to_string(kBlockBytes)}};
  header[kMetadata] = {};  // the first, so that no tensor's name stands before the seal
  size_t end = 0;
  for (const CheckpointTensor& tensor : tensors) {
    const char* type = NameOfType(tensor.dtype);
    if (type == nullptr) {
      return Unimplemented("variable '" + tensor.name + "' is " +
                           std::string(DTypeName(tensor.dtype)) +
                           ", which a checkpoint cannot hold; leave it out");
    }
    const size_t begin = end;
    BlockCrcs crcs;
    for (const Tensor& piece : tensor.pieces) {
      if (stop.stop_requested()) return Stopped(path);
      crcs.Add(piece.raw(), piece.bytes());
      end += piece.bytes();
    }
    const std::span<const int64_t> dims = tensor.shape.dims();
    header[tensor.name] = {{"dtype", type},
                           {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                           {"data_offsets", {begin, end}}};
    metadata[kCrcKey + tensor.name] = crcs.Text();
  }
  metadata[kFormatKey] = kSealedFormat;
  header[kMetadata] = metadata;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors begin at a multiple of 8
  text = Seal(std::move(text));
  const uint64_t size = text.size();

  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(&size, sizeof(size)));
  MG_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  for (const CheckpointTensor& tensor : tensors) {
    for (const Tensor& piece : tensor.pieces)
      MG_RETURN_IF_ERROR(file.Write(piece.raw(), piece.bytes(), stop));
  }
  return file.PutInPlace();
}

Result<CheckpointFile> CheckpointFile::Open(const std::string& path) {
  CheckpointFile opened;
  opened.path_ = path;
  opened.file_ = std::make_shared<Descriptor>(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (opened.file_->get() < 0 || fstat(opened.file_->get(), &about) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return NotFound("there is no checkpoint '" + path + "'");
    return FailedPrecondition("cannot read checkpoint '" + path + "': " + std::strerror(errno));
  }
  opened.bytes_ = static_cast<uint64_t>(about.st_size);
  MG_RETURN_IF_ERROR(opened.ReadHeader());
  return opened;
}

Status CheckpointFile::ReadHeader() {
  const auto damaged = [&](const std::string& why) { return Damaged(path_, why); };
  uint64_t size = 0;
  const bool has_size =
      ReadBytes(file_->get(), 0, sizeof(size), reinterpret_cast<char*>(&size)).empty();
  if (!has_size || size > kMostHeader || bytes_ < sizeof(size) || size > bytes_ - sizeof(size))
    return damaged("it is truncated, or no checkpoint");
  const size_t data = sizeof(size) + size;
  std::string text(size, '\0');
  const std::string unread = ReadBytes(file_->get(), sizeof(size), size, text.data());
  if (!unread.empty()) return damaged("cannot read its header: " + unread);
  const std::string where = "its header (" + BytesText(0, data) + "): ";
  const Result<bool> sealed = CheckSeal(text);
  if (!sealed.ok()) return damaged(where + sealed.status().message());
  if (!*sealed) SayThatThereIsNoSeal(path_);
  header_crc_ = CrcText(AddToCrc(0, text.data(), text.size()));
  size_t most = data;  // where the last tensor ends
  try {
    const Json header = Json::parse(text);
    const Json metadata = header.value(kMetadata, Json::object());
    const std::string block = metadata.value(kBlockKey, std::string());
    const bool ours = *sealed || metadata.value(kFormatKey, std::string()) == kOldFormat;
    block_bytes_ =
        block.empty() ? std::max<size_t>(1, bytes_) : std::strtoull(block.c_str(), nullptr, 10);
    if (block_bytes_ == 0) return damaged(std::string("its ") + kBlockKey + " is '" + block + "'");
    for (const auto& [name, tensor] : header.items()) {
      if (name == kMetadata) continue;
      Entry entry{.crcs = metadata.value(kCrcKey + name, std::string())};
      const auto type = tensor.at("dtype").get<std::string>();
      for (const TypeName& known : kTypeNames) {
        if (type == known.name) entry.dtype = known.dtype;
      }
      if (entry.dtype == DT_INVALID)
        return damaged("'" + name + "' has type '" + type + "', which is not known here");
      const Result<Shape> shape = Shape::Make(tensor.at("shape").get<std::vector<int64_t>>());
      if (!shape.ok()) return damaged("'" + name + "': " + std::string(shape.status().message()));
      entry.shape = *shape;
      const auto [begin, end] = tensor.at("data_offsets").get<std::pair<uint64_t, uint64_t>>();
      if (begin > end || end > bytes_ - data ||
          end - begin != static_cast<size_t>(shape->elements()) * DTypeSize(entry.dtype))
        return damaged("it is truncated: the bytes of '" + name + "' are not all there");
      entry.begin = data + begin;
      entry.bytes = end - begin;
      most = std::max(most, data + end);
      const size_t digits = kCrcDigits * Blocks(entry.bytes, block_bytes_);
      if ((ours || !entry.crcs.empty()) && entry.crcs.size() != digits)
        return damaged("'" + name + "' has " + std::to_string(entry.crcs.size()) +
                       " digits of CRC-32 instead of " + std::to_string(digits));
      entries_.emplace(name, std::move(entry));
    }
    if (ours && most != bytes_)
      return damaged("it has " + std::to_string(bytes_) + " bytes instead of " +
                     std::to_string(most));
  } catch (const Json::exception& error) {
    return damaged(where + "it is damaged: " + error.what());
  }
  return Status();
}

Status CheckpointFile::Read(const std::string& name, const RowRange& rows, void* to,
                            const std::stop_token& stop) const {
  const Entry& entry = entries_.at(name);
  const bool all = rows.end < 0;
  const size_t row =
      all || entry.shape[0] == 0 ? 0 : entry.bytes / static_cast<size_t>(entry.shape[0]);
  const size_t end = all ? entry.bytes : row * static_cast<size_t>(rows.end);
  size_t at = all ? 0 : row * static_cast<size_t>(rows.begin);
  char* out = static_cast<char*>(to);
  std::vector<char> around;  // a block of which we want a part
  const size_t block_bytes = entry.crcs.empty() ? kBlockBytes : block_bytes_;
  while (at < end) {
    if (stop.stop_requested()) return Stopped(path_);
    const size_t block = at / block_bytes, block_begin = block * block_bytes;
    const size_t block_end = std::min(entry.bytes, block_begin + block_bytes);
    const size_t wanted = std::min(end, block_end) - at;
    const bool direct = entry.crcs.empty() || wanted == block_end - block_begin;
    const size_t from = direct ? at : block_begin, size = direct ? wanted : block_end - block_begin;
    if (!direct) around.resize(size);
    char* const bytes = direct ? out : around.data();
    const size_t first = entry.begin + from;  // in the file
    const std::string unread = ReadBytes(file_->get(), first, size, bytes);
    if (!unread.empty()) {
      return Damaged(path_, "cannot read " + BytesText(first, first + size) + ", of '" + name +
                                "': " + unread);
    }
    if (!entry.crcs.empty()) {
      const std::string says = entry.crcs.substr(block * kCrcDigits, kCrcDigits);
      const std::string is = CrcText(AddToCrc(0, bytes, size));
      if (is != says) {
        return Damaged(path_, "the bytes of '" + name + "' are damaged: the CRC-32 of " +
                                  BytesText(first, first + size) + " of the file is " + is +
                                  ", and the header says " + says);
      }
    }
    if (!direct) std::memcpy(out, bytes + (at - block_begin), wanted);
    out += wanted;
    at += wanted;
  }
  return Status();
}

}  // namespace monograph
