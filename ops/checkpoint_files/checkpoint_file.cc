// The format: https://github.com/huggingface/safetensors: 8 bytes, the size of the header,
// little-endian; the header, JSON, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
// [begin, end]}, "__metadata__": {"key": "text"}}; the tensors' bytes.
// Our __metadata__: {"format": "monograph", "crc32_block_bytes": "1048576", "crc32:<name>": 8
// digits for each block of the tensor's bytes, one at least}. Without crc32_block_bytes a block is
// a whole tensor.
#include "ops/checkpoint_files/checkpoint_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/descriptor.h"

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
constexpr char kMetadata[] = "__metadata__",
               kCrcKey[] = "crc32:", kBlockKey[] = "crc32_block_bytes";
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kCrcDigits = 8;

const char* NameOfType(DType dtype) {
  for (const TypeName& known : kTypeNames) {
    if (known.dtype == dtype) return known.name;
  }
  return nullptr;
}

Status Stopped(const std::string& path) {
  return Cancelled("'" + path + "' is not needed any more");
}

uint32_t AddToCrc(uint32_t crc, const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(bytes), size));
}
std::string CrcText(uint32_t crc) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kCrcDigits, '0');
  for (size_t i = 0; i < kCrcDigits; ++i) text[kCrcDigits - 1 - i] = kDigits[(crc >> (4 * i)) & 15];
  return text;
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
  return std::max<size_t>(1, (bytes + block_bytes - 1) / block_bytes);
}

Status CannotWrite(const std::string& path) {
  return FailedPrecondition("cannot write '" + path + "': " + std::strerror(errno));
}

// A file being written beside its place; gone unless it was put there.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path),
        beside_(path + ".part"),
        fd_(open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~NewFile() {
    if (fd_.get() >= 0 && !in_place_) unlink(beside_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status Write(const void* bytes, size_t size, const std::stop_token& stop = {}) {
    const char* at = static_cast<const char*>(bytes);
    while (fd_.get() >= 0 && size > 0) {
      if (stop.stop_requested()) return Stopped(path_);
      const ssize_t written = write(fd_.get(), at, std::min(size, kBlockBytes));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return Failed();
      at += written;
      size -= static_cast<size_t>(written);
    }
    return fd_.get() < 0 ? Failed() : Status();
  }
  Status PutInPlace() {
    if (fsync(fd_.get()) != 0 || rename(beside_.c_str(), path_.c_str()) != 0) return Failed();
    in_place_ = true;
    return SyncFolder(std::filesystem::path(path_).parent_path().string());
  }

 private:
  Status Failed() const { return CannotWrite(path_); }

  const std::string path_, beside_;
  const Descriptor fd_;
  bool in_place_ = false;
};

// A file being read.
class OldFile {
 public:
  explicit OldFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  // False if they are not all there.
  bool Read(size_t offset, size_t size, char* to) const {
    while (size > 0) {
      const ssize_t got = pread(fd_.get(), to, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      offset += static_cast<size_t>(got);
      size -= static_cast<size_t>(got);
    }
    return true;
  }

 private:
  const Descriptor fd_;
};

}  // namespace

Status WriteCheckpointFile(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                           const std::stop_token& stop) {
  Json header = Json::object();
  Json metadata = {{"format", "monograph"}, {kBlockKey, std::to_string(kBlockBytes)}};
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
  header[kMetadata] = metadata;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors begin at a multiple of 8
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

Status WriteFileWhole(const std::string& path, const std::string& text) {
  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.PutInPlace();
}

Status SyncFolder(const std::string& folder) {
  const Descriptor entry(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC));
  return entry.get() < 0 || fsync(entry.get()) != 0 ? CannotWrite(folder) : Status();
}

Result<CheckpointFile> CheckpointFile::Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound("there is no checkpoint '" + path + "'");
  const auto damaged = [&](const std::string& why) {
    return DataLoss("checkpoint '" + path + "': " + why);
  };
  const auto bytes = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  uint64_t size = 0;
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&size), sizeof(size));
  if (!file || size > kMostHeader || size > bytes - sizeof(size))
    return damaged("it is truncated, or no checkpoint");
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  const size_t data = sizeof(size) + size;

  CheckpointFile opened;
  opened.path_ = path;
  try {
    const Json header = Json::parse(text);
    const Json metadata = header.value(kMetadata, Json::object());
    const std::string block = metadata.value(kBlockKey, std::string());
    opened.block_bytes_ = block.empty() ? bytes : std::strtoull(block.c_str(), nullptr, 10);
    if (opened.block_bytes_ == 0)
      return damaged(std::string("its ") + kBlockKey + " is '" + block + "'");
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
      if (begin > end || end > bytes - data ||
          end - begin != static_cast<size_t>(shape->elements()) * DTypeSize(entry.dtype))
        return damaged("it is truncated: the bytes of '" + name + "' are not all there");
      entry.begin = data + begin;
      entry.bytes = end - begin;
      const size_t digits = kCrcDigits * Blocks(entry.bytes, opened.block_bytes_);
      if (!entry.crcs.empty() && entry.crcs.size() != digits)
        return damaged("'" + name + "' has " + std::to_string(entry.crcs.size()) +
                       " digits of CRC-32 instead of " + std::to_string(digits));
      opened.entries_.emplace(name, std::move(entry));
    }
  } catch (const Json::exception& error) {
    return damaged(std::string("its header is damaged: ") + error.what());
  }
  return opened;
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
  const OldFile file(path_);
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
    if (!file.Read(entry.begin + from, size, bytes))
      return DataLoss("checkpoint '" + path_ + "': cannot read '" + name + "'");
    if (!entry.crcs.empty()) {
      const std::string crc = entry.crcs.substr(block * kCrcDigits, kCrcDigits);
      if (CrcText(AddToCrc(0, bytes, size)) != crc)
        return DataLoss("checkpoint '" + path_ + "': the bytes of '" + name +
                        "' are damaged: their CRC-32 is not " + crc);
    }
    if (!direct) std::memcpy(out, bytes + (at - block_begin), wanted);
    out += wanted;
    at += wanted;
  }
  return Status();
}

}  // namespace monograph
