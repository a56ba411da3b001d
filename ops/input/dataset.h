// Dataset: labelled images in memory: MNIST's files, or made up from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct Dataset {
  std::string name;  // for messages
  int64_t examples = 0;
  int64_t height = 0, width = 0;
  std::vector<uint8_t> images;                   // [examples, height, width]
  std::vector<int32_t> labels;                   // [examples], each in [0, classes)
  std::vector<std::shared_ptr<void>> room = {};  // of the host's pool, for the images
  int32_t classes = 10;

  int64_t pixels() const { return height * width; }
};

// Where a dataset comes from. Two equal specs give equal datasets, in any process that sees the
// same files.
struct DatasetSpec {
  // "mnist", "fashion_mnist": MNIST's four files, in `data_dir`; "synthetic": made up.
  std::string name = "fashion_mnist";
  // Empty: for fashion_mnist, where Debian's package dataset-fashion-mnist puts it.
  std::string data_dir;
  std::string split = "train";  // or "test"
  uint64_t seed = 0;            // of a synthetic set

  friend bool operator==(const DatasetSpec&, const DatasetSpec&) = default;
  friend auto operator<=>(const DatasetSpec&, const DatasetSpec&) = default;
};

// A set that is in memory already, in this process, is shared. Thread-safe; reads files on the
// calling thread. NotFound says which file is missing where, and which Debian package has it;
// DataLoss as of ReadIdx, for images and labels that differ in number, and for a label that is no
// class; InvalidArgument for a name or split that there is none of.
Result<std::shared_ptr<const Dataset>> LoadDataset(const DatasetSpec& spec);

// Ten blurred patterns, one per class, shifted and under noise: a small CNN learns them within some
// tens of steps. Train and test share the patterns.
Dataset SyntheticDataset(uint64_t seed, const std::string& split, int64_t examples);

}  // namespace monograph
