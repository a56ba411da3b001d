// imagenet_records: writes files of made-up pictures in the form in which ImageNet is stored for
// training, for measuring and testing input without ImageNet. The pictures are JPEGs, made by ops.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "base/record.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/image_codec/image_codec.h"
#include "tools/flags.h"

namespace monograph::examples {
namespace {

struct Settings {
  std::string out;
  int files = 2, images_per_file = 16, classes = 1000;
  int64_t height = 375, width = 500;  // of most pictures of ImageNet
  int64_t seed = 0;
};

// Protocol buffers by hand: a field's key is (number << 3 | type), and type 2 is a length and
// bytes.
void AppendVarint(uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
  to->push_back(static_cast<char>(value));
}

std::string Field(int number, const std::string& bytes) {
  std::string field;
  AppendVarint(static_cast<uint64_t>(number) << 3 | 2, &field);
  AppendVarint(bytes.size(), &field);
  return field + bytes;
}

// An entry of a Features message, whose Feature has one value in the list `list`: 1 of bytes, 3 of
// int64.
std::string Entry(const std::string& key, int list, const std::string& values) {
  return Field(1, Field(1, key) + Field(2, Field(list, values)));
}

std::string BytesEntry(const std::string& key, const std::string& value) {
  return Entry(key, 1, Field(1, value));
}

std::string IntEntry(const std::string& key, int64_t value) {
  std::string packed;
  AppendVarint(static_cast<uint64_t>(value), &packed);
  return Entry(key, 3, Field(1, packed));
}

// The features that the TensorFlow models repository's build_imagenet_data writes and trainings
// read.
std::string Example(const std::string& jpeg, int64_t label, const Settings& settings,
                    const std::string& name) {
  return Field(1, IntEntry("image/height", settings.height) +
                      IntEntry("image/width", settings.width) +
                      BytesEntry("image/colorspace", "RGB") + IntEntry("image/channels", 3) +
                      IntEntry("image/class/label", label) + BytesEntry("image/format", "JPEG") +
                      BytesEntry("image/filename", name) + BytesEntry("image/encoded", jpeg));
}

// Waves whose lengths and colours tell the class, under noise.
Tensor Picture(const Settings& settings, int64_t label, std::mt19937* random) {
  Tensor picture = Tensor::Allocate(DT_UINT8, Shape{settings.height, settings.width, 3}).value();
  uint8_t* pixel = picture.data<uint8_t>();
  for (int64_t y = 0; y < settings.height; ++y) {
    for (int64_t x = 0; x < settings.width; ++x) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        const int64_t wave = (x * (label % 7 + 1) + y * (label % 5 + 1)) * (channel + 1);
        *pixel++ = static_cast<uint8_t>(wave % 192 + static_cast<int64_t>((*random)() % 64));
      }
    }
  }
  return picture;
}

Status Write(const Settings& settings) {
  std::error_code error;
  std::filesystem::create_directories(settings.out, error);
  if (error) return FailedPrecondition("cannot make '" + settings.out + "': " + error.message());
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Output picture = Placeholder(root, DT_UINT8, {settings.height, settings.width, 3});
  const Output jpeg = EncodeJpeg(root, picture);
  MG_RETURN_IF_ERROR(root.status());
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Local(graph));
  std::mt19937 random(static_cast<uint32_t>(settings.seed));
  for (int file = 0; file < settings.files; ++file) {
    char name[64];
    std::snprintf(name, sizeof name, "train-%05d-of-%05d", file, settings.files);
    std::string records;
    for (int i = 0; i < settings.images_per_file; ++i) {
      const auto label =
          static_cast<int64_t>(random() % static_cast<uint32_t>(settings.classes)) + 1;
      MG_ASSIGN_OR_RETURN(const std::vector<Tensor> encoded,
                          session->Run({{picture, Picture(settings, label, &random)}}, {jpeg}));
      AppendRecord(Example(encoded[0].strings()[0], label, settings,
                           std::string(name) + "_" + std::to_string(i) + ".JPEG"),
                   &records);
    }
    const std::string path = settings.out + "/" + name;
    std::ofstream stream(path, std::ios::binary);
    stream.write(records.data(), static_cast<std::streamsize>(records.size()));
    stream.close();
    if (!stream) return FailedPrecondition("cannot write '" + path + "'");
  }
  return session->Close();
}

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "imagenet_records",
      "Writes TFRecords of made-up pictures, train-00000-of-00002 and so on, as ImageNet is "
      "stored for training.\n\n"
      "Examples:\n"
      "  imagenet_records --out=/tmp/imagenet --files=4 --images_per_file=256\n"
      "  cnn_benchmarks --data_dir=/tmp/imagenet --device=cpu --model=trivial\n");
  flags.AddOutputFolder("out", &settings.out, "folder of the files");
  flags.Add("files", &settings.files, "so many", 1, 99999);
  flags.Add("images_per_file", &settings.images_per_file, "pictures of each", 1, 1 << 20);
  flags.Add("height", &settings.height, "rows of a picture", 1, 4096);
  flags.Add("width", &settings.width, "columns of a picture", 1, 4096);
  flags.Add("classes", &settings.classes, "labels are 1 to so many", 1, 1000);
  flags.Add("seed", &settings.seed, "of pictures and labels: same seed, same files", 0);
  flags.AddCheck([&] {
    return settings.out.empty() ? InvalidArgument("give --out, the folder of the files") : Status();
  });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(Write(settings));
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
