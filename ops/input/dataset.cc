#include "ops/input/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/memory_holder.h"
#include "base/mutex.h"
#include "ops/input/idx.h"
#include "ops/input/shuffle.h"

namespace monograph {
namespace {

constexpr char kFashionMnistDir[] = "/usr/share/datasets/fashion-mnist";
constexpr char kPackageHint[] =
    " (Debian's package dataset-fashion-mnist puts Fashion-MNIST into "
    "/usr/share/datasets/fashion-mnist; "
    "--data_name=synthetic needs no files)";
constexpr int64_t kSyntheticTrain = 10000, kSyntheticTest = 2000;

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

Result<IdxArray> ReadPart(const std::string& dir, const std::string& file, int rank) {
  const std::string path = dir + "/" + file;
  for (const std::string& candidate : {path, path + ".gz"}) {
    if (Exists(candidate)) return ReadIdx(candidate, rank);
  }
  return NotFound("data directory '" + dir + "' has neither " + file + " nor " + file + ".gz" +
                  kPackageHint);
}

Result<Dataset> ReadMnist(const std::string& name, const std::string& dir,
                          const std::string& split) {
  if (!Exists(dir)) return NotFound("data directory '" + dir + "' does not exist" + kPackageHint);
  const std::string prefix = split == "train" ? "train" : "t10k";
  MG_ASSIGN_OR_RETURN(IdxArray images, ReadPart(dir, prefix + "-images-idx3-ubyte", 3));
  MG_ASSIGN_OR_RETURN(const IdxArray labels, ReadPart(dir, prefix + "-labels-idx1-ubyte", 1));
  if (images.dims[0] != labels.dims[0]) {
    return DataLoss(dir + ": " + std::to_string(images.dims[0]) + " images but " +
                    std::to_string(labels.dims[0]) + " labels in split " + split);
  }
  if (images.dims[0] == 0) return DataLoss(dir + ": split " + split + " is empty");
  Dataset set;
  set.name = name + "/" + split;
  set.examples = images.dims[0];
  set.height = images.dims[1];
  set.width = images.dims[2];
  set.images = std::move(images.values);
  set.room = std::move(images.room);
  for (size_t i = 0; i < labels.values.size(); ++i) {
    if (labels.values[i] >= set.classes) {
      return DataLoss(dir + "/" + prefix + "-labels-idx1-ubyte: label " +
                      std::to_string(labels.values[i]) + " of example " + std::to_string(i) +
                      "; expected 0 to " + std::to_string(set.classes - 1));
    }
  }
  set.labels.assign(labels.values.begin(), labels.values.end());
  return set;
}

Result<Dataset> Read(const DatasetSpec& spec) {
  if (spec.split != "train" && spec.split != "test") {
    return InvalidArgument("dataset split '" + spec.split + "': there are train and test");
  }
  if (spec.name == "synthetic") {
    return SyntheticDataset(spec.seed, spec.split,
                            spec.split == "train" ? kSyntheticTrain : kSyntheticTest);
  }
  if (spec.name != "mnist" && spec.name != "fashion_mnist") {
    return InvalidArgument("dataset '" + spec.name +
                           "': there are mnist, fashion_mnist and synthetic");
  }
  std::string dir = spec.data_dir;
  if (dir.empty()) {
    if (spec.name == "mnist")
      return InvalidArgument(
          "dataset mnist needs a directory with MNIST's four files (--data_dir)");
    dir = kFashionMnistDir;
  }
  return ReadMnist(spec.name, dir, spec.split);
}

}  // namespace

Dataset SyntheticDataset(uint64_t seed, const std::string& split, int64_t examples) {
  constexpr int kSide = 28, kBlobs = 4, kMaxShift = 2;
  Dataset set;
  set.name = "synthetic/" + split;
  set.examples = examples;
  set.height = set.width = kSide;
  set.images.resize(static_cast<size_t>(examples * kSide * kSide));
  set.labels.resize(static_cast<size_t>(examples));

  SplitMix64 shape_random(MixSeeds(seed, 0x7061747465726e73));
  std::vector<float> patterns(static_cast<size_t>(set.classes) * kSide * kSide);
  for (int32_t c = 0; c < set.classes; ++c) {
    float* pattern = patterns.data() + static_cast<size_t>(c) * kSide * kSide;
    for (int blob = 0; blob < kBlobs; ++blob) {
      const float x = 5 + 18 * shape_random.Uniform(), y = 5 + 18 * shape_random.Uniform(),
                  width = 2 + 2 * shape_random.Uniform();
      for (int row = 0; row < kSide; ++row) {
        for (int column = 0; column < kSide; ++column) {
          const float dx = static_cast<float>(column) - x, dy = static_cast<float>(row) - y;
          pattern[row * kSide + column] += std::exp(-(dx * dx + dy * dy) / (2 * width * width));
        }
      }
    }
  }
  SplitMix64 random(MixSeeds(seed, split == "train" ? 1 : 2));
  for (int64_t i = 0; i < examples; ++i) {
    const auto label = static_cast<int32_t>(random.Below(static_cast<uint64_t>(set.classes)));
    set.labels[static_cast<size_t>(i)] = label;
    const float* pattern = patterns.data() + static_cast<size_t>(label) * kSide * kSide;
    const int down = static_cast<int>(random.Below(2 * kMaxShift + 1)) - kMaxShift;
    const int right = static_cast<int>(random.Below(2 * kMaxShift + 1)) - kMaxShift;
    uint8_t* image = set.images.data() + static_cast<size_t>(i) * kSide * kSide;
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        const int from_row = std::clamp(row - down, 0, kSide - 1),
                  from_column = std::clamp(column - right, 0, kSide - 1);
        const float value = 150 * pattern[from_row * kSide + from_column] + 80 * random.Uniform();
        image[row * kSide + column] = static_cast<uint8_t>(std::min(255.0f, value));
      }
    }
  }
  return set;
}

Result<std::shared_ptr<const Dataset>> LoadDataset(const DatasetSpec& spec) {
  static Mutex mutex;
  static auto* loaded MG_PT_GUARDED_BY(mutex) =
      new std::map<DatasetSpec, std::weak_ptr<const Dataset>>();
  MutexLock lock(mutex);
  if (std::shared_ptr<const Dataset> found = (*loaded)[spec].lock()) return found;
  const MemoryHolder::Scope nobody(nullptr);  // it is shared
  MG_ASSIGN_OR_RETURN(Dataset set, Read(spec));
  auto shared = std::make_shared<const Dataset>(std::move(set));
  (*loaded)[spec] = shared;
  return shared;
}

}  // namespace monograph
