// Tensor bundles: TensorFlow's checkpoints of version 2.
//
//   model.ckpt-100.index                    a table (ops/checkpoint_files/table.h): of each tensor its
//                                           type, shape, place and checksum (tensor_bundle.proto)
//   model.ckpt-100.data-00000-of-00002      the tensors' bytes, one file or several shards
//   model.ckpt-100.data-00001-of-00002
//
// All functions block. One that takes a stop token ends soon after the stop is asked for, with
// Cancelled. Errors name the file, and the tensor and bytes of it that are meant.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/input_file.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "ops/checkpoint_files/tensor_slice.h"

namespace monograph {

// Of the bundle `prefix` ("run1/model.ckpt-100").
std::string BundleIndexName(const std::string& prefix);
std::string BundleDataName(const std::string& prefix, size_t shard, size_t shards);
// "model.ckpt-100" of "model.ckpt-100.data-00001-of-00002"; "" if it is no such name.
std::string PrefixOfBundleData(const std::string& file);

// A tensor of a bundle, or a slice of one.
struct BundleTensor {
  std::string name;
  Shape whole;        // of the tensor
  TensorSlice slice;  // of it, that `value` is; none: all
  Tensor value;       // plain data or strings
};

// Writes a bundle of one shard, each file beside its place first, the index last; makes the folder
// if it is not there. A bundle of this name is gone before its files are replaced, so that an index
// never names bytes of another save. InvalidArgument: two tensors of one name, a value that is not
// its slice's shape; Unimplemented: a type that has no bytes; ResourceExhausted and
// FailedPrecondition as of NewFile (ops/checkpoint_files/disk.h). A disk without room costs the new
// bundle alone.
Status WriteBundle(const std::string& prefix, const std::vector<BundleTensor>& tensors,
                   const std::stop_token& stop = {});

struct MergeOptions {
  bool delete_old_folders = true;      // that the merged bundles were in, if nothing is left there
  bool allow_missing_bundles = false;  // but not all
};
// Makes one bundle of several, whose data files get its name: nothing is copied. NotFound for a
// bundle that is not there; InvalidArgument for a tensor that two have, but for slices. After a
// failure the bundles are what they were.
Status MergeBundles(const std::vector<std::string>& prefixes, const std::string& destination,
                    const MergeOptions& options = {});

// The files of a bundle that are there, the index first; TensorFlow's `prefix`.meta, too.
std::vector<std::string> BundleFiles(const std::string& prefix);
void RemoveBundle(const std::string& prefix);

// Reads a bundle. Reads the index when it is opened, and of a tensor what is asked for, and what is
// needed to check it: all of the tensor, or of its slices that are touched. One thread at a time.
class BundleReader {
 public:
  struct Entry {
    DType dtype = DT_INVALID;
    Shape shape;
    bool sliced = false;
    size_t shard = 0;
    uint64_t begin = 0, bytes = 0;
    uint32_t crc = 0;  // masked
    std::vector<TensorSlice> slices;
  };

  // NotFound if there is no index; DataLoss for one that is damaged.
  static Result<BundleReader> Open(const std::string& prefix);

  // By name. The slices of a tensor are not in here.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // REQUIRES: `name` is an entry; `to` has its type, and the shape of `box`, which is inside of it.
  Status Read(const std::string& name, const Box& box, Tensor* to,
              const std::stop_token& stop = {});

 private:
  BundleReader() = default;
  Result<const InputFile*> Shard(const std::string& name, const Entry& entry);
  Status ReadStored(const std::string& name, const Entry& entry, uint64_t begin, uint64_t end,
                    void* to, const std::stop_token& stop);
  Status ReadStrings(const std::string& name, const Entry& entry, Tensor* to,
                     const std::stop_token& stop);
  Status ReadSlices(const std::string& name, const Entry& entry, const Box& box, Tensor* to,
                    const std::stop_token& stop);
  Status ReadBox(const std::string& name, const Entry& entry, const Box& box, Tensor* to,
                 const std::stop_token& stop);
  std::string FileOf(const Entry& entry) const;
  Status AddEntry(const std::string& key, const std::string& value);

  std::string prefix_;
  size_t shards_ = 0;
  std::map<std::string, Entry> entries_, slices_;  // slices_: by key
  std::map<size_t, InputFile> files_;              // that were opened
};

}  // namespace monograph
