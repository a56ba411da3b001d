// CheckpointReader: the tensors of a checkpoint, be it one file or shards with an index
// (ops/checkpoint_files/checkpoint_index.h). Parts are one tensor.
//
// Reads of the files what it is asked for: the index, the headers of the shards that hold a tensor
// when it is first looked for, and the bytes of the rows. Blocks. One thread at a time.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"

namespace monograph {

class CheckpointReader {
 public:
  struct Entry {
    DType dtype = DT_INVALID;
    Shape shape;
  };

  // NotFound; the errors of ReadCheckpointIndex and CheckpointFile::Open.
  static Result<CheckpointReader> Open(const std::string& prefix);

  std::vector<std::string> names() const;
  bool Has(const std::string& name) const { return parts_.contains(name); }
  // NotFound if there is no such tensor; DataLoss if its shard is missing or of another save than
  // the index, or its parts are not rows of one tensor.
  Result<Entry> Find(const std::string& name);
  // Into memory for all of `rows`. InvalidArgument if the tensor does not have them.
  Status Read(const std::string& name, const RowRange& rows, void* to,
              const std::stop_token& stop = {});
  // The whole tensor.
  Result<Tensor> Read(const std::string& name);

 private:
  struct Part {
    std::string name, file;  // in that file
  };
  Result<const CheckpointFile*> FileOf(const Part& part);
  Status CheckIdentity(const CheckpointFile& file) const;

  std::string prefix_;
  std::map<std::string, std::vector<Part>> parts_;  // by the tensor's name; mostly one
  std::map<std::string, ShardIdentity> shards_;     // as CheckpointIndex has them
  std::map<std::string, CheckpointFile> files_;     // that were opened, by path
};

}  // namespace monograph
