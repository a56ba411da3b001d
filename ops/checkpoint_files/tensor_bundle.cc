// Bundles are written in the order of their tensors. All that needs room is written, and durable,
// before a bundle of the same name goes: a full disk costs the new one alone. They are read piece
// by piece, since TensorFlow has one checksum for all bytes of a tensor: rows of it are checked
// with the rest, which is not kept.
//
// Plain data is stored as it lies in memory. Strings are
//
//   varint64 length of each, uint32 masked CRC-32C of the lengths, the strings one after the other
//
// and their checksum is of the lengths as uint32 (uint64, if one needs that), of the stored
// checksum, and of the strings. The key of a slice is that of TensorFlow's OrderedCode:
//
//   0, name, number of dimensions, start and length (-1: all) of each dimension
#include "ops/checkpoint_files/tensor_bundle.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "base/crc32c.h"
#include "ops/checkpoint_files/damaged.h"
#include "ops/checkpoint_files/disk.h"
#include "ops/checkpoint_files/table.h"
#include "ops/checkpoint_files/tensor_bundle.pb.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

constexpr char kHeaderKey[] = "", kIndexEnd[] = ".index", kMetaEnd[] = ".meta";
constexpr int kVersion = 1;  // of the format, TensorFlow's kTensorBundleVersion
constexpr size_t kOnePiece = size_t{1} << 20;

std::string Hex(uint32_t crc) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// Numbers and strings whose bytes are in the order of the values.
void PutOrdered(uint64_t number, std::string* key) {
  std::string bytes;
  for (; number > 0; number >>= 8) bytes.insert(bytes.begin(), static_cast<char>(number & 255));
  *key += static_cast<char>(bytes.size());
  *key += bytes;
}
void PutOrdered(const std::string& text, std::string* key) {
  constexpr char kMost = '\xff';
  for (const char c : text) {
    *key += c;
    if (c == '\0') *key += kMost;
    if (c == kMost) *key += '\0';
  }
  key->append("\0\1", 2);
}
// As many leading ones as the number has bytes, then a zero, then the number; of a negative one all
// bits are turned.
void PutSigned(int64_t number, std::string* key) {
  const uint64_t magnitude = static_cast<uint64_t>(number < 0 ? ~number : number);
  const int bytes = (std::bit_width(magnitude) + 7) / 7;  // 6 bits in one, 7 more in each other
  char text[10];
  for (int i = 0; i < 10; ++i) {
    const int shift = 8 * (9 - i);
    text[i] = static_cast<char>(shift > 56 ? (number < 0 ? 255 : 0) : number >> shift);
  }
  char* const begin = text + 10 - bytes;
  for (int i = 0; i < bytes; ++i)
    begin[i / 8] = static_cast<char>(begin[i / 8] ^ (0x80 >> (i % 8)));
  key->append(begin, static_cast<size_t>(bytes));
}

std::string SliceKey(const std::string& name, const TensorSlice& slice) {
  std::string key;
  PutOrdered(0, &key);
  PutOrdered(name, &key);
  PutOrdered(slice.size(), &key);
  for (const SliceExtent& extent : slice) {
    PutSigned(extent.start, &key);
    PutSigned(extent.length, &key);
  }
  return key;
}
bool IsSliceKey(const std::string& key) { return key.starts_with('\0'); }

void PutVarint(uint64_t number, std::string* text) {
  for (; number >= 128; number >>= 7) *text += static_cast<char>(number | 128);
  *text += static_cast<char>(number);
}

// The checksum of a length goes on as TensorFlow's does.
uint32_t AddLength(uint32_t crc, uint64_t length) {
  if (length > UINT32_MAX) return AddToCrc32c(crc, &length, sizeof length);
  const auto narrow = static_cast<uint32_t>(length);
  return AddToCrc32c(crc, &narrow, sizeof narrow);
}

Status WritePlain(const Tensor& value, NewFile* file, bundle_pb::BundleEntryProto* entry,
                  const std::stop_token& stop) {
  entry->set_size(static_cast<int64_t>(value.bytes()));
  entry->set_crc32c(MaskedCrc32c(AddToCrc32c(0, value.raw(), value.bytes())));
  return file->Write(value.raw(), value.bytes(), stop);
}

Status WriteStrings(const Tensor& value, NewFile* file, bundle_pb::BundleEntryProto* entry,
                    const std::stop_token& stop) {
  std::string lengths;
  uint32_t crc = 0;
  size_t size = 0;
  const std::span<const std::string> texts(value.strings(), static_cast<size_t>(value.elements()));
  for (const std::string& text : texts) {
    PutVarint(text.size(), &lengths);
    crc = AddLength(crc, text.size());
    size += text.size();
  }
  const uint32_t of_lengths = MaskedCrc32c(crc);
  lengths.append(reinterpret_cast<const char*>(&of_lengths), sizeof of_lengths);
  crc = AddToCrc32c(crc, &of_lengths, sizeof of_lengths);
  MG_RETURN_IF_ERROR(file->Write(lengths.data(), lengths.size(), stop));
  for (const std::string& text : texts) {
    crc = AddToCrc32c(crc, text.data(), text.size());
    MG_RETURN_IF_ERROR(file->Write(text.data(), text.size(), stop));
  }
  entry->set_size(static_cast<int64_t>(lengths.size() + size));
  entry->set_crc32c(MaskedCrc32c(crc));
  return Status();
}

void PutShape(const Shape& shape, bundle_pb::TensorShapeProto* proto) {
  for (const int64_t dim : shape.dims()) proto->add_dim()->set_size(dim);
}

Status CheckCanBeSaved(const BundleTensor& tensor) {
  const auto bad = [&](const std::string& why) {
    return InvalidArgument("'" + tensor.name + "' cannot be saved: " + why);
  };
  if (tensor.name.empty() || IsSliceKey(tensor.name))
    return bad("a tensor of a checkpoint has a name, which does not begin with a zero byte");
  if (!IsPlainData(tensor.value.dtype()) && tensor.value.dtype() != DT_STRING) {
    return Unimplemented("variable '" + tensor.name + "' is " +
                         std::string(DTypeName(tensor.value.dtype())) +
                         ", which a checkpoint cannot hold; leave it out");
  }
  const Result<Box> box = BoxOf(tensor.slice, tensor.whole);
  if (!box.ok()) return bad("the slice " + box.status().message());
  if (box->shape != tensor.value.shape()) {
    return bad("the slice is " + box->shape.ToString() + " of " + tensor.whole.ToString() +
               ", the value is " + tensor.value.shape().ToString());
  }
  return Status();
}

// Without place and slices.
bundle_pb::BundleEntryProto WholeOf(const BundleTensor& tensor) {
  bundle_pb::BundleEntryProto entry;
  entry.set_dtype(tensor.value.dtype());
  PutShape(tensor.whole, entry.mutable_shape());
  return entry;
}

bundle_pb::BundleHeaderProto HeaderOf(size_t shards) {
  bundle_pb::BundleHeaderProto header;
  header.set_num_shards(static_cast<int>(shards));
  header.mutable_version()->set_producer(kVersion);
  return header;
}

// From here on there is no checkpoint of this name, until its files are whole again.
void RemoveIndexFirst(const std::string& prefix) {
  std::error_code error;
  if (!fs::exists(BundleIndexName(prefix), error)) return;
  CurrentDisk().Remove(BundleIndexName(prefix));
  (void)SyncFolder(fs::path(prefix).parent_path().string());  // what follows will tell
}

Status WriteIndex(size_t shards, std::map<std::string, std::string> entries, NewFile* index) {
  entries[kHeaderKey] = HeaderOf(shards).SerializeAsString();
  MG_RETURN_IF_ERROR(WriteTable(entries, index));
  return index->MakeDurable();
}

using Table = std::map<std::string, std::string>;

Result<Table> ReadIndex(const std::string& prefix) {
  const std::string path = BundleIndexName(prefix);
  const Result<std::string> bytes = ReadInputFile("checkpoint", path, kMostTableBytes);
  if (bytes.status().code() == Code::kNotFound)
    return NotFound("there is no checkpoint '" + prefix + "': no file '" + path + "'");
  MG_RETURN_IF_ERROR(bytes.status());
  Result<Table> table = ParseTable(*bytes);
  if (!table.ok()) return table.status().WithContext("checkpoint '" + path + "'");
  return table;
}

// How many shards the index has; it takes the header out of the table.
Result<size_t> TakeHeader(const std::string& prefix, Table* table) {
  const std::string path = BundleIndexName(prefix);
  const auto found = table->find(kHeaderKey);
  bundle_pb::BundleHeaderProto header;
  if (found == table->end() || !header.ParseFromString(found->second) || header.num_shards() < 1)
    return Damaged(path, "it is a table, but not the index of a checkpoint: it has no header");
  table->erase(found);
  if (header.endianness() != bundle_pb::BundleHeaderProto::LITTLE)
    return Unimplemented("checkpoint '" + path +
                         "': a machine with big-endian numbers wrote it; save it anew on another");
  if (header.version().min_consumer() > kVersion) {
    return Unimplemented("checkpoint '" + path + "': it needs version " +
                         std::to_string(header.version().min_consumer()) +
                         " of the format; version " + std::to_string(kVersion) + " is read");
  }
  return static_cast<size_t>(header.num_shards());
}

TensorSlice SliceOf(const bundle_pb::TensorSliceProto& proto) {
  TensorSlice slice;
  for (const auto& extent : proto.extent()) {
    const bool all =
        extent.has_length_case() == bundle_pb::TensorSliceProto::Extent::HAS_LENGTH_NOT_SET;
    slice.push_back({extent.start(), all ? -1 : extent.length()});
  }
  return slice;
}

}  // namespace

std::string BundleIndexName(const std::string& prefix) { return prefix + kIndexEnd; }
std::string BundleDataName(const std::string& prefix, size_t shard, size_t shards) {
  char text[64];
  std::snprintf(text, sizeof text, ".data-%05zu-of-%05zu", shard, shards);
  return prefix + text;
}

std::string PrefixOfBundleData(const std::string& file) {
  constexpr std::string_view kTail = ".data-00000-of-00000";
  if (file.size() <= kTail.size()) return "";
  const std::string prefix = file.substr(0, file.size() - kTail.size());
  std::string tail = file.substr(prefix.size());
  for (char& c : tail) c = c >= '0' && c <= '9' ? '0' : c;
  return tail == kTail ? prefix : "";
}

Status WriteBundle(const std::string& prefix, const std::vector<BundleTensor>& tensors,
                   const std::stop_token& stop) {
  std::map<std::string, bundle_pb::BundleEntryProto> entries;
  for (const BundleTensor& tensor : tensors) MG_RETURN_IF_ERROR(CheckCanBeSaved(tensor));
  MG_RETURN_IF_ERROR(MakeFolders(fs::path(prefix).parent_path().string()));
  NewFile data(BundleDataName(prefix, 0, 1));
  int64_t end = 0;
  for (const BundleTensor& tensor : tensors) {
    std::string key = tensor.name;
    const bool sliced = tensor.value.shape() != tensor.whole;
    if (sliced) {
      bundle_pb::BundleEntryProto& whole = entries[tensor.name];
      bundle_pb::BundleEntryProto same = WholeOf(tensor);
      *same.mutable_slices() = whole.slices();
      if (whole.dtype() != DT_INVALID &&
          (whole.slices_size() == 0 || same.SerializeAsString() != whole.SerializeAsString()))
        return InvalidArgument("two tensors of a checkpoint are called '" + tensor.name + "'");
      whole = std::move(same);
      bundle_pb::TensorSliceProto* slice = whole.add_slices();
      for (const SliceExtent& extent : tensor.slice) {
        bundle_pb::TensorSliceProto::Extent* added = slice->add_extent();
        added->set_start(extent.start);
        if (extent.length >= 0) added->set_length(extent.length);
      }
      key = SliceKey(tensor.name, tensor.slice);
    }
    bundle_pb::BundleEntryProto entry;
    entry.set_dtype(tensor.value.dtype());
    PutShape(tensor.value.shape(), entry.mutable_shape());
    entry.set_offset(end);
    MG_RETURN_IF_ERROR(tensor.value.dtype() == DT_STRING
                           ? WriteStrings(tensor.value, &data, &entry, stop)
                           : WritePlain(tensor.value, &data, &entry, stop));
    end += entry.size();
    if (!entries.emplace(key, std::move(entry)).second)
      return InvalidArgument("two tensors of a checkpoint are called '" + tensor.name + "'");
  }
  Table table;
  for (const auto& [key, entry] : entries) table[key] = entry.SerializeAsString();
  NewFile index(BundleIndexName(prefix));
  MG_RETURN_IF_ERROR(WriteIndex(1, std::move(table), &index));
  MG_RETURN_IF_ERROR(data.MakeDurable());
  RemoveIndexFirst(prefix);
  Status placed = data.PutInPlace();
  if (placed.ok()) placed = index.PutInPlace();
  if (!placed.ok()) {
    RemoveBundle(prefix);
    return placed;
  }
  // Shards of an older checkpoint of this name.
  for (const std::string& file : BundleFiles(prefix)) {
    if (!PrefixOfBundleData(file).empty() && file != BundleDataName(prefix, 0, 1))
      CurrentDisk().Remove(file);
  }
  return Status();
}

Status MergeBundles(const std::vector<std::string>& prefixes, const std::string& destination,
                    const MergeOptions& options) {
  struct Part {
    std::string prefix;
    size_t first, shards;  // first: its number among all shards
  };
  std::vector<Part> parts;
  std::map<std::string, bundle_pb::BundleEntryProto> entries;
  size_t shards = 0;
  for (const std::string& prefix : prefixes) {
    if (prefix == destination)
      return InvalidArgument("'" + prefix + "' cannot be merged into itself");
    Result<Table> table = ReadIndex(prefix);
    if (table.status().code() == Code::kNotFound && options.allow_missing_bundles) continue;
    MG_RETURN_IF_ERROR(table.status());
    MG_ASSIGN_OR_RETURN(const size_t more, TakeHeader(prefix, &*table));
    for (size_t i = 0; i < more; ++i) {
      std::error_code error;
      if (!fs::exists(BundleDataName(prefix, i, more), error))
        return Damaged(BundleDataName(prefix, i, more), "it is missing");
    }
    for (const auto& [key, value] : *table) {
      bundle_pb::BundleEntryProto entry;
      if (!entry.ParseFromString(value))
        return Damaged(BundleIndexName(prefix), "'" + key + "' is damaged");
      if (entry.shard_id() < 0 || static_cast<size_t>(entry.shard_id()) >= more ||
          shards + more > INT32_MAX) {
        return Damaged(BundleIndexName(prefix), "'" + key + "': it is in shard " +
                                                    std::to_string(entry.shard_id()) + " of " +
                                                    std::to_string(more));
      }
      entry.set_shard_id(entry.shard_id() + static_cast<int>(shards));
      const auto [known, added] = entries.try_emplace(key, entry);
      if (added) continue;
      if (known->second.slices_size() == 0 || entry.slices_size() == 0) {
        return InvalidArgument("'" + key + "' is in '" + prefix +
                               "' and in another of the checkpoints that are merged");
      }
      known->second.mutable_slices()->MergeFrom(entry.slices());
    }
    parts.push_back({prefix, shards, more});
    shards += more;
  }
  if (parts.empty())
    return NotFound("none of the checkpoints that are to be merged into '" + destination +
                    "' is there");
  const std::string folder = fs::path(destination).parent_path().string();
  MG_RETURN_IF_ERROR(MakeFolders(folder));
  Table table;
  for (const auto& [key, entry] : entries) table[key] = entry.SerializeAsString();
  NewFile index(BundleIndexName(destination));
  MG_RETURN_IF_ERROR(WriteIndex(shards, std::move(table), &index));
  RemoveBundle(destination);
  std::vector<std::pair<std::string, std::string>> moved;
  const auto move = [&]() -> Status {
    for (const Part& part : parts) {
      for (size_t i = 0; i < part.shards; ++i) {
        const std::string from = BundleDataName(part.prefix, i, part.shards),
                          to = BundleDataName(destination, part.first + i, shards);
        if (CurrentDisk().Rename(from, to) != 0) return CannotWrite(to, errno);
        moved.emplace_back(from, to);
      }
    }
    MG_RETURN_IF_ERROR(SyncFolder(folder));
    return index.PutInPlace();
  };
  if (Status merged = move(); !merged.ok()) {
    // The bundles stay what they were. Where the index is there already, it goes first.
    CurrentDisk().Remove(BundleIndexName(destination));
    for (const auto& [from, to] : moved) CurrentDisk().Rename(to, from);
    return merged;
  }
  std::set<std::string> folders;
  for (const Part& part : parts) {
    CurrentDisk().Remove(BundleIndexName(part.prefix));
    folders.insert(fs::path(part.prefix).parent_path().string());
  }
  for (const std::string& old : folders) {
    if (options.delete_old_folders && old != folder) CurrentDisk().Remove(old);  // if it is empty
  }
  return Status();
}

std::vector<std::string> BundleFiles(const std::string& prefix) {
  std::error_code error;
  std::vector<std::string> files;
  const fs::path folder = fs::path(prefix).parent_path();
  const std::string name = fs::path(prefix).filename().string();
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string file = entry.path().filename().string();
    if (PrefixOfBundleData(file) == name) files.push_back((folder / file).string());
  }
  if (fs::exists(BundleIndexName(prefix), error))
    files.insert(files.begin(), BundleIndexName(prefix));
  if (!files.empty() && fs::exists(prefix + kMetaEnd, error)) files.push_back(prefix + kMetaEnd);
  return files;
}

void RemoveBundle(const std::string& prefix) {
  for (const std::string& file : BundleFiles(prefix)) CurrentDisk().Remove(file);
}

Result<BundleReader> BundleReader::Open(const std::string& prefix) {
  BundleReader reader;
  reader.prefix_ = prefix;
  MG_ASSIGN_OR_RETURN(Table table, ReadIndex(prefix));
  MG_ASSIGN_OR_RETURN(reader.shards_, TakeHeader(prefix, &table));
  for (const auto& [key, value] : table) MG_RETURN_IF_ERROR(reader.AddEntry(key, value));
  return reader;
}

Status BundleReader::AddEntry(const std::string& key, const std::string& value) {
  const auto bad = [&](const std::string& why) {
    return Damaged(BundleIndexName(prefix_), "'" + key + "': " + why);
  };
  bundle_pb::BundleEntryProto proto;
  if (!proto.ParseFromString(value)) return bad("it is no entry");
  Entry entry;
  entry.dtype = static_cast<DType>(proto.dtype());
  std::vector<int64_t> dims;
  for (const auto& dim : proto.shape().dim()) dims.push_back(dim.size());
  const Result<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return bad(shape.status().message());
  entry.shape = *shape;
  if (proto.shard_id() < 0 || static_cast<size_t>(proto.shard_id()) >= shards_)
    return bad("it is in shard " + std::to_string(proto.shard_id()) + " of " +
               std::to_string(shards_));
  entry.shard = static_cast<size_t>(proto.shard_id());
  if (proto.offset() < 0 || proto.size() < 0) return bad("it has no place");
  entry.begin = static_cast<uint64_t>(proto.offset());
  entry.bytes = static_cast<uint64_t>(proto.size());
  entry.crc = proto.crc32c();
  for (const auto& slice : proto.slices()) entry.slices.push_back(SliceOf(slice));
  entry.sliced = !entry.slices.empty();
  const auto elements = static_cast<uint64_t>(entry.shape.elements());
  const size_t size = DTypeSize(entry.dtype);
  if (!entry.sliced && IsPlainData(entry.dtype) &&
      (entry.bytes % size != 0 || entry.bytes / size != elements)) {
    return bad("it has " + std::to_string(entry.bytes) + " bytes, which are not those of " +
               std::string(DTypeName(entry.dtype)) + entry.shape.ToString());
  }
  // Each string has a byte at least.
  if (!entry.sliced && entry.dtype == DT_STRING &&
      (entry.bytes < sizeof(uint32_t) || entry.bytes - sizeof(uint32_t) < elements)) {
    return bad("it has " + std::to_string(entry.bytes) + " bytes, too few for " +
               std::to_string(elements) + " strings");
  }
  (IsSliceKey(key) ? slices_ : entries_).emplace(key, std::move(entry));
  return Status();
}

std::string BundleReader::FileOf(const Entry& entry) const {
  return BundleDataName(prefix_, entry.shard, shards_);
}

Result<const InputFile*> BundleReader::Shard(const std::string& name, const Entry& entry) {
  const std::string path = FileOf(entry);
  auto found = files_.find(entry.shard);
  if (found == files_.end()) {
    Result<InputFile> file = InputFile::Open("checkpoint", path);
    if (file.status().code() == Code::kNotFound) {
      return DataLoss("checkpoint '" + prefix_ + "': the file '" + path + "', which has '" + name +
                      "', is missing");
    }
    MG_RETURN_IF_ERROR(file.status());
    found = files_.emplace(entry.shard, std::move(file).value()).first;
  }
  if (entry.begin > found->second.size() || entry.bytes > found->second.size() - entry.begin) {
    return Damaged(path, "'" + name + "': the file is truncated: it has " +
                             std::to_string(found->second.size()) + " bytes, and not all of " +
                             std::to_string(entry.begin) + " to " +
                             std::to_string(entry.begin + entry.bytes));
  }
  return &found->second;
}

// Reads all stored bytes of the tensor, checks them, and keeps [begin, end).
Status BundleReader::ReadStored(const std::string& name, const Entry& entry, uint64_t begin,
                                uint64_t end, void* to, const std::stop_token& stop) {
  MG_ASSIGN_OR_RETURN(const InputFile* file, Shard(name, entry));
  std::vector<char> around;
  char* const out = static_cast<char*>(to);
  uint32_t crc = 0;
  for (uint64_t at = 0; at < entry.bytes;) {
    if (stop.stop_requested()) return Cancelled("'" + FileOf(entry) + "' is not needed any more");
    const size_t size = std::min<uint64_t>(kOnePiece, entry.bytes - at);
    const uint64_t wanted = std::clamp(at, begin, end), until = std::clamp(at + size, begin, end);
    const bool direct = until - wanted == size;
    if (!direct) around.resize(kOnePiece);
    char* const bytes = direct ? out + (at - begin) : around.data();
    MG_RETURN_IF_ERROR(file->Read(entry.begin + at, size, bytes));
    crc = AddToCrc32c(crc, bytes, size);
    if (!direct && wanted < until)
      std::memcpy(out + (wanted - begin), bytes + (wanted - at), until - wanted);
    at += size;
  }
  if (MaskedCrc32c(crc) == entry.crc) return Status();
  return Damaged(FileOf(entry), "the bytes of '" + name + "' are damaged: the masked CRC-32C of " +
                                    "bytes " + std::to_string(entry.begin) + " to " +
                                    std::to_string(entry.begin + entry.bytes) + " of the file is " +
                                    Hex(MaskedCrc32c(crc)) + ", and the index says " +
                                    Hex(entry.crc));
}

Status BundleReader::ReadStrings(const std::string& name, const Entry& entry, Tensor* to,
                                 const std::stop_token& stop) {
  const auto bad = [&](const std::string& why) {
    return Damaged(FileOf(entry), "the bytes of '" + name + "' are damaged: bytes " +
                                      std::to_string(entry.begin) + " to " +
                                      std::to_string(entry.begin + entry.bytes) + ": " + why);
  };
  MG_ASSIGN_OR_RETURN(const InputFile* file, Shard(name, entry));
  MG_ASSIGN_OR_RETURN(Tensor bytes,
                      Tensor::Allocate(DT_UINT8, Shape{static_cast<int64_t>(entry.bytes)}));
  for (uint64_t at = 0; at < entry.bytes; at += kOnePiece) {
    if (stop.stop_requested()) return Cancelled("'" + FileOf(entry) + "' is not needed any more");
    MG_RETURN_IF_ERROR(file->Read(entry.begin + at, std::min<uint64_t>(kOnePiece, entry.bytes - at),
                                  static_cast<char*>(bytes.raw()) + at));
  }
  std::string_view rest(static_cast<const char*>(bytes.raw()), entry.bytes);
  std::vector<uint64_t> lengths(static_cast<size_t>(to->elements()));
  uint32_t crc = 0;
  for (uint64_t& length : lengths) {
    int shift = 0;
    for (bool more = true; more; shift += 7) {
      if (rest.empty() || shift > 63) return bad("a string has no length");
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      length |= uint64_t{byte & 127u} << shift;
      more = byte >= 128;
    }
    crc = AddLength(crc, length);
  }
  uint32_t of_lengths = 0;
  if (rest.size() < sizeof of_lengths) return bad("the checksum of the lengths is missing");
  std::memcpy(&of_lengths, rest.data(), sizeof of_lengths);
  rest.remove_prefix(sizeof of_lengths);
  if (MaskedCrc32c(crc) != of_lengths)
    return bad("the masked CRC-32C of the lengths is " + Hex(MaskedCrc32c(crc)) +
               ", and the file says " + Hex(of_lengths));
  crc = AddToCrc32c(crc, &of_lengths, sizeof of_lengths);
  crc = MaskedCrc32c(AddToCrc32c(crc, rest.data(), rest.size()));
  if (crc != entry.crc)
    return bad("the masked CRC-32C is " + Hex(crc) + ", and the index says " + Hex(entry.crc));
  size_t left = rest.size(), owned = 0;
  for (const uint64_t length : lengths) {
    if (length > left) return bad("the strings are not as long as their lengths");
    left -= length;
    owned += StringBytes(length);
  }
  if (left > 0) return bad("the strings are not as long as their lengths");
  MG_RETURN_IF_ERROR(to->CountStrings(owned));
  for (size_t i = 0; i < lengths.size(); ++i) {
    to->strings()[i].assign(rest.substr(0, lengths[i]));
    rest.remove_prefix(lengths[i]);
  }
  return Status();
}

Status BundleReader::ReadBox(const std::string& name, const Entry& entry, const Box& box,
                             Tensor* to, const std::stop_token& stop) {
  const bool all = box.shape == entry.shape;
  if (entry.dtype == DT_STRING) {
    if (all) return ReadStrings(name, entry, to, stop);
    MG_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(DT_STRING, entry.shape));
    MG_RETURN_IF_ERROR(ReadStrings(name, entry, &whole, stop));
    CopyTensorBox(whole, Box::Whole(entry.shape), to, box);
    return Status();
  }
  if (all) return ReadStored(name, entry, 0, entry.bytes, to->raw(), stop);
  // The rows that hold the box.
  Box rows = Box::Whole(entry.shape);
  rows.begin[0] = box.begin[0];
  rows.shape.set_dim(0, box.shape[0]);
  const uint64_t row =
      entry.shape[0] == 0 ? 0 : entry.bytes / static_cast<uint64_t>(entry.shape[0]);
  const uint64_t begin = row * static_cast<uint64_t>(rows.begin[0]);
  const uint64_t end = begin + row * static_cast<uint64_t>(rows.shape[0]);
  if (box.IsRowsOf(entry.shape)) return ReadStored(name, entry, begin, end, to->raw(), stop);
  MG_ASSIGN_OR_RETURN(Tensor around, Tensor::Allocate(entry.dtype, rows.shape));
  MG_RETURN_IF_ERROR(ReadStored(name, entry, begin, end, around.raw(), stop));
  CopyTensorBox(around, rows, to, box);
  return Status();
}

Status BundleReader::ReadSlices(const std::string& name, const Entry& entry, const Box& box,
                                Tensor* to, const std::stop_token& stop) {
  // Slices of a wrong index may overlap, and leave elements that nobody writes.
  if (to->dtype() != DT_STRING) std::memset(to->raw(), 0, to->bytes());
  int64_t copied = 0;
  for (const TensorSlice& slice : entry.slices) {
    const auto bad = [&](const std::string& why) {
      return Damaged(BundleIndexName(prefix_), "'" + name + "': a slice " + why);
    };
    const Result<Box> place = BoxOf(slice, entry.shape);
    if (!place.ok()) return bad(place.status().message());
    if (CopyShared(*place, box, [](int64_t, int64_t, int64_t) {}) == 0) continue;
    const auto stored = slices_.find(SliceKey(name, slice));
    if (stored == slices_.end()) return bad("has no entry");
    if (stored->second.dtype != entry.dtype || stored->second.shape != place->shape ||
        stored->second.sliced)
      return bad("is of another type or shape than its entry");
    MG_ASSIGN_OR_RETURN(Tensor part, Tensor::Allocate(entry.dtype, place->shape));
    MG_RETURN_IF_ERROR(ReadBox(name, stored->second, Box::Whole(place->shape), &part, stop));
    copied += CopyTensorBox(part, *place, to, box);
  }
  if (copied == box.shape.elements()) return Status();
  return Damaged(BundleIndexName(prefix_),
                 "the slices of '" + name + "' have " + std::to_string(copied) + " of the " +
                     std::to_string(box.shape.elements()) + " elements that are wanted");
}

Status BundleReader::Read(const std::string& name, const Box& box, Tensor* to,
                          const std::stop_token& stop) {
  const Entry& entry = entries_.at(name);
  if (!IsPlainData(entry.dtype) && entry.dtype != DT_STRING) {
    return Unimplemented("'" + name + "' in checkpoint '" + prefix_ + "' is " +
                         std::string(DTypeName(entry.dtype)) + ", which is not known here");
  }
  return entry.sliced ? ReadSlices(name, entry, box, to, stop)
                      : ReadBox(name, entry, box, to, stop);
}

}  // namespace monograph
