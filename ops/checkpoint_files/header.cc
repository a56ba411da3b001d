// The format: https://github.com/huggingface/safetensors: 8 bytes, the size of the header,
// little-endian; the header, JSON, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
// [begin, end]}, "__metadata__": {"key": "text"}}; the tensors' bytes.
// Our __metadata__: {"monograph_crc32": 8 digits, the seal of the header
// (ops/checkpoint_files/checksum.h), "crc32_block_bytes": "1048576", "crc32:<name>": 8 digits for
// each block of the tensor's bytes, one at least, "format": "monograph 2"}. An older version wrote
// "format": "monograph" and no seal, and a still older one no crc32_block_bytes either: there a
// block is a whole tensor.
#include "ops/checkpoint_files/header.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json.h"
#include "base/json_value.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checksum.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr TypeName kTypeNames[] = {{DT_FLOAT, "F32"},     {DT_DOUBLE, "F64"},   {DT_HALF, "F16"},
                                   {DT_BFLOAT16, "BF16"}, {DT_INT8, "I8"},      {DT_UINT8, "U8"},
                                   {DT_INT16, "I16"},     {DT_UINT16, "U16"},   {DT_INT32, "I32"},
                                   {DT_UINT32, "U32"},    {DT_INT64, "I64"},    {DT_UINT64, "U64"},
                                   {DT_BOOL, "BOOL"},     {DT_COMPLEX64, "C64"}};
constexpr char kMetadata[] = "__metadata__", kFormatKey[] = "format", kOldFormat[] = "monograph",
               kCrcKey[] = "crc32:", kBlockKey[] = "crc32_block_bytes";
constexpr size_t kBlockBytes = size_t{1} << 20;

const char* NameOfType(DType dtype) {
  for (const TypeName& known : kTypeNames) {
    if (known.dtype == dtype) return known.name;
  }
  return nullptr;
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

Status CheckCanBeWritten(const CheckpointTensor& tensor, const nlohmann::ordered_json& header) {
  if (!IsUtf8(tensor.name)) {
    return InvalidArgument("a checkpoint's tensor is called " + JsonQuoted(tensor.name) +
                           ", which is not UTF-8");
  }
  if (tensor.name == kMetadata)
    return InvalidArgument("'" + tensor.name + "' is the name of no tensor in a checkpoint's file");
  if (header.contains(tensor.name))
    return InvalidArgument("two tensors of a checkpoint are called '" + tensor.name + "'");
  if (NameOfType(tensor.dtype) == nullptr) {
    return Unimplemented("variable '" + tensor.name + "' is " +
                         std::string(DTypeName(tensor.dtype)) +
                         ", which a checkpoint cannot hold; leave it out");
  }
  return Status();
}

// The text `key` of an object; empty if there is none.
Result<std::string> TextOf(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  return DataLoss(JsonQuoted(key) + " is no text: " + JsonExcerpt(*found));
}

// The list `key` of an object.
Result<std::vector<uint64_t>> WholesOf(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array())
    return DataLoss(JsonQuoted(key) + " is no list of numbers");
  std::vector<uint64_t> numbers;
  for (const Json& value : *found) {
    MG_ASSIGN_OR_RETURN(const uint64_t number, JsonWhole(value, INT64_MAX));
    numbers.push_back(number);
  }
  return numbers;
}

// Of one tensor, in a file that has so many bytes behind its header.
Result<CheckpointEntry> EntryOf(const Json& tensor, uint64_t data_bytes) {
  CheckpointEntry entry;
  MG_ASSIGN_OR_RETURN(const std::string type, TextOf(tensor, "dtype"));
  for (const TypeName& known : kTypeNames) {
    if (type == known.name) entry.dtype = known.dtype;
  }
  if (entry.dtype == DT_INVALID)
    return DataLoss("it has type '" + type + "', which is not known here");
  MG_ASSIGN_OR_RETURN(const std::vector<uint64_t> sizes, WholesOf(tensor, "shape"));
  MG_ASSIGN_OR_RETURN(entry.shape, Shape::Make(std::vector<int64_t>(sizes.begin(), sizes.end())));
  MG_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, WholesOf(tensor, "data_offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    return DataLoss("its data_offsets are no begin and end");
  entry.begin = offsets[0];
  entry.bytes = offsets[1] - offsets[0];
  const size_t size = DTypeSize(entry.dtype);
  if (offsets[1] > data_bytes)
    return DataLoss("the file is truncated: not all of its bytes are there");
  if (entry.bytes % size != 0 ||
      entry.bytes / size != static_cast<uint64_t>(entry.shape.elements())) {
    return DataLoss("it has " + std::to_string(entry.bytes) + " bytes, which are not those of " +
                    type + entry.shape.ToString());
  }
  return entry;
}

}  // namespace

Result<std::string> MakeCheckpointHeader(const std::vector<CheckpointTensor>& tensors,
                                         const std::stop_token& stop) {
  // In the order in which the tensors follow each other.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  nlohmann::ordered_json metadata = {{kSealWord, kSealDigits},
                                     {kBlockKey, std::to_string(kBlockBytes)}};
  header[kMetadata] = {};  // the first, so that no tensor's name stands before the seal
  size_t end = 0;
  for (const CheckpointTensor& tensor : tensors) {
    MG_RETURN_IF_ERROR(CheckCanBeWritten(tensor, header));
    const size_t begin = end;
    BlockCrcs crcs;
    for (const Tensor& piece : tensor.pieces) {
      if (stop.stop_requested()) return Cancelled("the checkpoint is not needed any more");
      crcs.Add(piece.raw(), piece.bytes());
      end += piece.bytes();
    }
    const std::span<const int64_t> dims = tensor.shape.dims();
    header[tensor.name] = {{"dtype", NameOfType(tensor.dtype)},
                           {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                           {"data_offsets", {begin, end}}};
    metadata[kCrcKey + tensor.name] = crcs.Text();
  }
  metadata[kFormatKey] = kSealedFormat;
  header[kMetadata] = metadata;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors begin at a multiple of 8
  if (text.size() > kMostCheckpointHeader) {
    return InvalidArgument("the names and checksums of its tensors have " +
                           std::to_string(text.size()) +
                           " bytes; a checkpoint's file has at most " +
                           std::to_string(kMostCheckpointHeader) + " of them: save it sharded");
  }
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + Seal(std::move(text));
}

Result<CheckpointHeader> ParseCheckpointHeader(std::string_view text, uint64_t file_bytes) {
  const uint64_t data = sizeof(uint64_t) + text.size();
  const std::string where = "its header (bytes 0 to " + std::to_string(data) + ")";
  const auto damaged = [&](const Status& why) { return DataLoss(where + ": " + why.message()); };
  CheckpointHeader header;
  const Result<bool> sealed = CheckSeal(text);
  if (!sealed.ok()) return damaged(sealed.status());
  header.sealed = *sealed;
  const Result<Json> json = ParseJson(text, where);
  if (!json.ok()) return DataLoss(json.status().message());
  const Json metadata = json->is_object() ? json->value(kMetadata, Json::object()) : Json();
  if (!metadata.is_object()) return DataLoss(where + ": it is no object with tensors");
  const Result<std::string> block = TextOf(metadata, kBlockKey);
  const Result<std::string> format = TextOf(metadata, kFormatKey);
  for (const auto* read : {&block, &format}) {
    if (!read->ok()) return damaged(read->status());
  }
  const bool ours = header.sealed || *format == kOldFormat;
  header.block_bytes = std::max<size_t>(1, file_bytes);
  const char* const end = block->data() + block->size();
  if (!block->empty()) {
    const auto [after, error] = std::from_chars(block->data(), end, header.block_bytes);
    if (error != std::errc() || after != end || header.block_bytes == 0)
      return DataLoss(std::string("its ") + kBlockKey + " is '" + *block + "'");
  }
  uint64_t most = data;  // where the last tensor ends
  for (const auto& [name, tensor] : json->items()) {
    if (name == kMetadata) continue;
    Result<CheckpointEntry> entry = EntryOf(tensor, file_bytes - data);
    if (!entry.ok()) return DataLoss("'" + name + "': " + entry.status().message());
    entry->begin += data;
    most = std::max(most, entry->begin + entry->bytes);
    Result<std::string> crcs = TextOf(metadata, kCrcKey + name);
    if (!crcs.ok()) return damaged(crcs.status());
    entry->crcs = *std::move(crcs);
    const size_t digits = kCrcDigits * Blocks(entry->bytes, header.block_bytes);
    if ((ours || !entry->crcs.empty()) && entry->crcs.size() != digits)
      return DataLoss("'" + name + "' has " + std::to_string(entry->crcs.size()) +
                      " digits of CRC-32 instead of " + std::to_string(digits));
    header.entries.emplace(name, *std::move(entry));
  }
  if (ours && most != file_bytes) {
    return DataLoss("it has " + std::to_string(file_bytes) + " bytes instead of " +
                    std::to_string(most));
  }
  return header;
}

}  // namespace monograph
