// A checkpoint under one name, whatever it consists of: one .safetensors file, an index with
// shards, or TensorFlow's bundle. Which it is, is asked in that order when it is opened. Files of
// shards are opened when a tensor of theirs is asked for, and have to be of the save that the index
// names.
#include "ops/checkpoint_files/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "ops/checkpoint_files/checkpoint_index.h"

namespace monograph {

Result<CheckpointReader> CheckpointReader::Open(const std::string& prefix) {
  CheckpointReader reader;
  reader.prefix_ = prefix;
  const std::string single = IsCheckpointFileName(prefix) ? prefix : CheckpointFileName(prefix);
  Result<CheckpointFile> file = CheckpointFile::Open(single);
  if (file.ok()) {
    for (const auto& [name, entry] : file->entries()) reader.parts_[name] = {{name, single}};
    reader.files_.emplace(single, std::move(file).value());
    return reader;
  }
  if (file.status().code() != Code::kNotFound) return file.status();
  const Result<CheckpointIndex> index = ReadCheckpointIndex(prefix);
  if (index.status().code() == Code::kNotFound) {
    Result<BundleReader> bundle = BundleReader::Open(prefix);
    if (bundle.status().code() == Code::kNotFound) {
      return NotFound("there is no checkpoint '" + prefix + "': neither '" + single + "' nor '" +
                      CheckpointIndexName(prefix) + "' nor TensorFlow's '" +
                      BundleIndexName(prefix) + "'");
    }
    MG_RETURN_IF_ERROR(bundle.status());
    reader.bundle_ = std::move(bundle).value();
    return reader;
  }
  MG_RETURN_IF_ERROR(index.status());
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  const auto part = [&](const std::string& name) {
    return Part{name, (folder / index->weight_map.at(name)).string()};
  };
  reader.shards_ = index->shards;
  std::set<std::string> rows_of_others;
  for (const auto& [whole, names] : index->parts) {
    for (const std::string& name : names) {
      reader.parts_[whole].push_back(part(name));
      rows_of_others.insert(name);
    }
  }
  for (const auto& [name, in_file] : index->weight_map) {
    if (!rows_of_others.contains(name)) reader.parts_[name] = {part(name)};
  }
  return reader;
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  if (bundle_) {
    for (const auto& [name, entry] : bundle_->entries()) names.push_back(name);
  }
  for (const auto& [name, parts] : parts_) names.push_back(name);
  return names;
}

Status CheckpointReader::CheckIdentity(const CheckpointFile& file) const {
  const auto wanted = shards_.find(std::filesystem::path(file.path()).filename().string());
  const ShardIdentity is = ShardIdentity::Of(file);
  if (wanted == shards_.end() || wanted->second == is) return Status();
  const auto text = [](const ShardIdentity& shard) {
    return std::to_string(shard.bytes) + " bytes with a header of CRC-32 " + shard.header_crc;
  };
  return DataLoss("checkpoint '" + prefix_ + "': the shard '" + file.path() +
                  "' is of another save than the index: it has " + text(is) + ", the index names " +
                  text(wanted->second) + "; put the files of one save together");
}

Result<const CheckpointFile*> CheckpointReader::FileOf(const Part& part) {
  auto found = files_.find(part.file);
  if (found == files_.end()) {
    Result<CheckpointFile> file = CheckpointFile::Open(part.file);
    if (file.status().code() == Code::kNotFound) {
      return DataLoss("checkpoint '" + prefix_ + "': the shard '" + part.file + "', which has '" +
                      part.name + "', is missing");
    }
    MG_RETURN_IF_ERROR(file.status());
    MG_RETURN_IF_ERROR(CheckIdentity(*file));
    found = files_.emplace(part.file, std::move(file).value()).first;
  }
  if (!found->second.entries().contains(part.name)) {
    return DataLoss("checkpoint '" + prefix_ + "': the shard '" + part.file + "' has no '" +
                    part.name + "', which the index says is there");
  }
  return &found->second;
}

Result<CheckpointReader::Entry> CheckpointReader::Find(const std::string& name) {
  if (!Has(name)) return NotFound("Key " + name + " not found in checkpoint '" + prefix_ + "'");
  if (bundle_) {
    const BundleReader::Entry& entry = bundle_->entries().at(name);
    const auto elements = static_cast<uint64_t>(entry.shape.elements());
    return Entry{entry.dtype, entry.shape,
                 entry.sliced ? elements * DTypeSize(entry.dtype) : entry.bytes};
  }
  Entry whole;
  for (const Part& part : parts_.at(name)) {
    MG_ASSIGN_OR_RETURN(const CheckpointFile* file, FileOf(part));
    const CheckpointFile::Entry& entry = file->entries().at(part.name);
    if (whole.dtype == DT_INVALID) {
      whole = {entry.dtype, entry.shape, entry.bytes};
      continue;
    }
    const auto tail = [](const Shape& shape) { return shape.dims().subspan(1); };
    if (entry.dtype != whole.dtype || entry.shape.rank() < 1 ||
        entry.shape.rank() != whole.shape.rank() ||
        !std::ranges::equal(tail(entry.shape), tail(whole.shape))) {
      return DataLoss("checkpoint '" + prefix_ + "': the parts of '" + name +
                      "' are not rows of one tensor: '" + part.name + "' is " +
                      std::string(DTypeName(entry.dtype)) + entry.shape.ToString());
    }
    int64_t rows = 0;
    if (__builtin_add_overflow(whole.shape[0], entry.shape[0], &rows))
      return DataLoss("checkpoint '" + prefix_ + "': the parts of '" + name +
                      "' are too many rows");
    whole.shape.set_dim(0, rows);
    whole.bytes += entry.bytes;
  }
  return whole;
}

Status CheckpointReader::Read(const std::string& name, const Box& box, Tensor* to,
                              const std::stop_token& stop) {
  if (bundle_) return bundle_->Read(name, box, to, stop);
  MG_ASSIGN_OR_RETURN(const Entry whole, Find(name));
  if (box.shape == whole.shape) return ReadRows(name, {}, to->raw(), stop);
  const RowRange rows{box.begin[0], box.begin[0] + box.shape[0]};
  if (box.IsRowsOf(whole.shape)) return ReadRows(name, rows, to->raw(), stop);
  Box around = Box::Whole(whole.shape);
  around.begin[0] = rows.begin;
  around.shape.set_dim(0, box.shape[0]);
  MG_ASSIGN_OR_RETURN(Tensor read, Tensor::Allocate(whole.dtype, around.shape));
  MG_RETURN_IF_ERROR(ReadRows(name, rows, read.raw(), stop));
  CopyTensorBox(read, around, to, box);
  return Status();
}

// Rows that the tensor has, into memory for all of them.
Status CheckpointReader::ReadRows(const std::string& name, const RowRange& rows, void* to,
                                  const std::stop_token& stop) {
  char* out = static_cast<char*>(to);
  int64_t first = 0;  // of the part
  for (const Part& part : parts_.at(name)) {
    MG_ASSIGN_OR_RETURN(const CheckpointFile* file, FileOf(part));
    const CheckpointFile::Entry& entry = file->entries().at(part.name);
    if (rows.end < 0) {
      MG_RETURN_IF_ERROR(file->Read(part.name, {}, out, stop));
      out += entry.bytes;
      continue;
    }
    const int64_t has = entry.shape[0];
    const int64_t begin = std::clamp<int64_t>(rows.begin - first, 0, has);
    const int64_t end = std::clamp<int64_t>(rows.end - first, 0, has);
    first += has;
    if (begin == end) continue;
    MG_RETURN_IF_ERROR(file->Read(part.name, {begin, end}, out, stop));
    out += static_cast<size_t>(end - begin) * (entry.bytes / static_cast<size_t>(has));
  }
  return Status();
}

Result<Tensor> CheckpointReader::Read(const std::string& name) {
  MG_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(entry.dtype, entry.shape));
  MG_RETURN_IF_ERROR(Read(name, Box::Whole(entry.shape), &tensor));
  return tensor;
}

}  // namespace monograph
