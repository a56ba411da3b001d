// The format: https://github.com/huggingface/safetensors: 8 bytes, the size of the header,
// little-endian; the header, JSON, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
// [begin, end]}, "__metadata__": {"key": "text"}}; the tensors' bytes.
#include "client/checkpoint_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

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
constexpr char kCrcKey[] = "crc32:";

const char* NameOfType(DType dtype) {
  for (const TypeName& known : kTypeNames) {
    if (known.dtype == dtype) return known.name;
  }
  return nullptr;
}

std::string Crc(std::span<const Tensor> pieces) {
  uLong crc = crc32_z(0, nullptr, 0);
  for (const Tensor& piece : pieces) {
    if (piece.bytes() > 0)
      crc = crc32_z(crc, static_cast<const Bytef*>(piece.raw()), piece.bytes());
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(8, '0');
  for (size_t i = 0; i < 8; ++i) text[7 - i] = kDigits[(crc >> (4 * i)) & 15];
  return text;
}

// A file being written beside its place.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path),
        beside_(path + ".part"),
        fd_(open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status Write(const void* bytes, size_t size) {
    const char* at = static_cast<const char*>(bytes);
    while (fd_ >= 0 && size > 0) {
      const ssize_t written = write(fd_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return Failed();
      at += written;
      size -= static_cast<size_t>(written);
    }
    return fd_ < 0 ? Failed() : Status();
  }
  Status PutInPlace() {
    if (fsync(fd_) != 0 || rename(beside_.c_str(), path_.c_str()) != 0) return Failed();
    // The folder's entry, too.
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    const int entry = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (entry < 0 || fsync(entry) != 0) {
      const Status failed = Failed();
      if (entry >= 0) close(entry);
      return failed;
    }
    close(entry);
    return Status();
  }

 private:
  Status Failed() const {
    return FailedPrecondition("cannot write '" + path_ + "': " + std::strerror(errno));
  }

  const std::string path_, beside_;
  const int fd_;
};

}  // namespace

Status WriteCheckpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  Json header = Json::object(), crcs = {{"format", "monograph"}};
  size_t end = 0;
  for (const CheckpointTensor& tensor : tensors) {
    const char* type = NameOfType(tensor.dtype);
    if (type == nullptr) {
      return Unimplemented("variable '" + tensor.name + "' is " +
                           std::string(DTypeName(tensor.dtype)) +
                           ", which a checkpoint cannot hold; leave it out");
    }
    const size_t begin = end;
    for (const Tensor& piece : tensor.pieces) end += piece.bytes();
    const std::span<const int64_t> dims = tensor.shape.dims();
    header[tensor.name] = {{"dtype", type},
                           {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                           {"data_offsets", {begin, end}}};
    crcs[kCrcKey + tensor.name] = Crc(tensor.pieces);
  }
  header["__metadata__"] = crcs;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors begin at a multiple of 8
  const uint64_t size = text.size();

  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(&size, sizeof(size)));
  MG_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  for (const CheckpointTensor& tensor : tensors) {
    for (const Tensor& piece : tensor.pieces)
      MG_RETURN_IF_ERROR(file.Write(piece.raw(), piece.bytes()));
  }
  return file.PutInPlace();
}

Status WriteFileWhole(const std::string& path, const std::string& text) {
  NewFile file(path);
  MG_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.PutInPlace();
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
    const Json crcs = header.value("__metadata__", Json::object());
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      Entry entry{.crc = crcs.value(kCrcKey + name, std::string())};
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
      opened.entries_.emplace(name, std::move(entry));
    }
  } catch (const Json::exception& error) {
    return damaged(std::string("its header is damaged: ") + error.what());
  }
  return opened;
}

Result<Tensor> CheckpointFile::Read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    return NotFound("Key " + name + " not found in checkpoint '" + path_ + "'");
  const Entry& entry = found->second;
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(entry.dtype, entry.shape));
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(entry.begin));
  file.read(static_cast<char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
  if (!file) return DataLoss("checkpoint '" + path_ + "': cannot read '" + name + "'");
  if (!entry.crc.empty() && Crc({&tensor, 1}) != entry.crc)
    return DataLoss("checkpoint '" + path_ + "': the bytes of '" + name +
                    "' are damaged: their CRC-32 is not " + entry.crc);
  return tensor;
}

}  // namespace monograph
