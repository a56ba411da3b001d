// CheckpointReader: the tensors of a checkpoint, be it one file, shards with an index
// (ops/checkpoint_files/checkpoint_index.h) or TensorFlow's files
// (ops/checkpoint_files/tensor_bundle.h). Parts are one tensor. Where several kinds are there (a
// save was interrupted), the first one that is named here holds.
//
// Reads of the files what it is asked for: the index, the headers of the shards that hold a tensor
// when it is first looked for, and the bytes that are wanted or needed to check them. Blocks. One
// thread at a time.
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/tensor_bundle.h"

namespace monograph {

class CheckpointReader {
 public:
  struct Entry {
    DType dtype = DT_INVALID;
    Shape shape;
    uint64_t bytes = 0;  // of its elements; of strings as they are stored
  };

  // `prefix`: "run1/model.ckpt-100"; or the name of one safetensors file. NotFound; the errors of
  // ReadCheckpointIndex, CheckpointFile::Open and BundleReader::Open.
  static Result<CheckpointReader> Open(const std::string& prefix);

  // TensorFlow's files.
  bool is_bundle() const { return bundle_.has_value(); }
  std::vector<std::string> names() const;
  bool Has(const std::string& name) const {
    return bundle_ ? bundle_->entries().contains(name) : parts_.contains(name);
  }
  // NotFound if there is no such tensor; DataLoss if its shard is missing or of another save than
  // the index, or its parts are not rows of one tensor.
  Result<Entry> Find(const std::string& name);
  // A box of the tensor. REQUIRES: `box` is inside of the shape that Find says; `to` has its type,
  // and the shape of `box`.
  Status Read(const std::string& name, const Box& box, Tensor* to,
              const std::stop_token& stop = {});
  // The whole tensor.
  Result<Tensor> Read(const std::string& name);

 private:
  struct Part {
    std::string name, file;  // in that file
  };
  Status ReadRows(const std::string& name, const RowRange& rows, void* to,
                  const std::stop_token& stop);
  Result<const CheckpointFile*> FileOf(const Part& part);
  Status CheckIdentity(const CheckpointFile& file) const;

  std::string prefix_;
  std::map<std::string, std::vector<Part>> parts_;  // by the tensor's name; mostly one
  std::map<std::string, ShardIdentity> shards_;     // as CheckpointIndex has them
  std::map<std::string, CheckpointFile> files_;     // that were opened, by path
  std::optional<BundleReader> bundle_;              // then the others are empty
};

}  // namespace monograph
