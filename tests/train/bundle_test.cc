// TensorFlow's files: golden ones that it wrote itself (tests/golden/make_checkpoints.py) are read,
// and what is written here is the same bytes; damage to them is found by name and place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <leveldb/env.h>
#include <leveldb/options.h>
#include <leveldb/table_builder.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/checkpoint_files/disk.h"
#include "ops/checkpoint_files/table.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "tests/temporary_folder.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTypesPrefix = std::string(MG_GOLDEN_CHECKPOINTS) + "/types/model",
                  kSlicesPrefix = std::string(MG_GOLDEN_CHECKPOINTS) + "/slices/model";

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}
void PutFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

template <typename T>
Tensor Counted(const Shape& shape) {
  Tensor tensor = Tensor::Allocate(kDTypeOf<T>, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<T>()[i] = static_cast<T>(static_cast<float>(i + 1));
  return tensor;
}
template <>
Tensor Counted<bool>(const Shape& shape) {
  Tensor tensor = Tensor::Allocate(DT_BOOL, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.data<bool>()[i] = i % 2 == 0;
  return tensor;
}
Tensor Texts(const std::vector<std::string>& texts) {
  Tensor tensor = Tensor::Allocate(DT_STRING, Shape{static_cast<int64_t>(texts.size())}).value();
  std::copy(texts.begin(), texts.end(), tensor.strings());
  return tensor;
}

// What make_checkpoints.py saves, in its order.
std::vector<BundleTensor> TensorsOfTypes() {
  const Shape shape{2, 3};
  std::vector<BundleTensor> tensors;
  const auto add = [&](const std::string& name, const Tensor& value) {
    tensors.push_back({name, value.shape(), {}, value});
  };
  add("of_float32", Counted<float>(shape));
  add("of_float64", Counted<double>(shape));
  add("of_int32", Counted<int32_t>(shape));
  add("of_uint8", Counted<uint8_t>(shape));
  add("of_int16", Counted<int16_t>(shape));
  add("of_int8", Counted<int8_t>(shape));
  add("of_int64", Counted<int64_t>(shape));
  add("of_bool", Counted<bool>(shape));
  add("of_bfloat16", Counted<bfloat16>(shape));
  add("of_uint16", Counted<uint16_t>(shape));
  add("of_float16", Counted<half>(shape));
  add("of_uint32", Counted<uint32_t>(shape));
  add("of_uint64", Counted<uint64_t>(shape));
  add("scalar", Tensor::Scalar(2.5f));
  add("empty", Counted<float>({0, 4}));
  add("strings", Texts({"one", "", std::string(200, 't'), std::string("zero\0inside", 11)}));
  add("text", Tensor::String("a scalar"));
  return tensors;
}

const std::string kStrange("zero\0ff\xff", 8);

std::vector<BundleTensor> TensorsOfSlices() {
  std::vector<BundleTensor> tensors;
  const auto add = [&](const std::string& name, const std::string& slice, const Tensor& whole) {
    const ShapeAndSlice parsed = ParseShapeAndSlice(slice).value();
    const Box box = BoxOf(parsed.slice, parsed.whole).value();
    Tensor part = Tensor::Allocate(whole.dtype(), box.shape).value();
    CopyTensorBox(whole, Box::Whole(whole.shape()), &part, box);
    tensors.push_back({name, parsed.whole, parsed.slice, part});
  };
  Tensor zeros = Tensor::Allocate(DT_UINT8, Shape{20000}).value();
  std::fill_n(zeros.data<uint8_t>(), zeros.elements(), uint8_t{0});
  add("rows", "5 2 0,3:-", Counted<float>({5, 2}));
  add("rows", "5 2 3,2:-", Counted<float>({5, 2}));
  add("columns", "2 70 -:0,6", Counted<int32_t>({2, 70}));
  add("columns", "2 70 -:6,64", Counted<int32_t>({2, 70}));
  add("written_out", "4 3 0,4:0,1", Counted<float>({4, 3}));
  add("written_out", "4 3 0,4:1,2", Counted<float>({4, 3}));
  add("long", "20000 0,100", zeros);
  add("long", "20000 100,8100", zeros);
  add("long", "20000 8200,11800", zeros);
  for (const std::string slice : {"4 6 0,2:0,3", "4 6 0,2:3,3", "4 6 2,2:0,3", "4 6 2,2:3,3"})
    add(kStrange, slice, Counted<float>({4, 6}));
  return tensors;
}

TEST(Crc32c, IsTheOneOfTheStandard) {
  EXPECT_EQ(AddToCrc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(AddToCrc32c(AddToCrc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}

TEST(Bundle, OfEveryTypeIsReadAsTensorFlowWroteIt) {
  CheckpointReader reader = CheckpointReader::Open(kTypesPrefix).value();
  EXPECT_TRUE(reader.is_bundle());
  const std::vector<BundleTensor> expected = TensorsOfTypes();
  EXPECT_EQ(reader.names().size(), expected.size());
  for (const BundleTensor& tensor : expected) {
    const Result<Tensor> value = reader.Read(tensor.name);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(BitEqual(*value, tensor.value)) << tensor.name << " is " << value->ToString();
  }
}

TEST(Bundle, InSlicesIsReadAsAWholeAndInOtherSlices) {
  CheckpointReader reader = CheckpointReader::Open(kSlicesPrefix).value();
  EXPECT_THAT(reader.names(), ElementsAre("columns", "long", "rows", "written_out", kStrange));
  const std::map<std::string, Tensor> wholes = {{"rows", Counted<float>({5, 2})},
                                                {"columns", Counted<int32_t>({2, 70})},
                                                {"written_out", Counted<float>({4, 3})},
                                                {kStrange, Counted<float>({4, 6})}};
  for (const auto& [name, whole] : wholes) {
    const Result<Tensor> value = reader.Read(name);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(BitEqual(*value, whole)) << name << " is " << value->ToString();
    const Shape shape = whole.shape();
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (int64_t column = 0; column < shape[1]; ++column) {
        const Box box = BoxOf({{row, shape[0] - row}, {column, 1}}, shape).value();
        Tensor part = Tensor::Allocate(whole.dtype(), box.shape).value();
        Tensor wanted = Tensor::Allocate(whole.dtype(), box.shape).value();
        CopyTensorBox(whole, Box::Whole(shape), &wanted, box);
        const Status read = reader.Read(name, box, &part);
        ASSERT_TRUE(read.ok()) << read;
        EXPECT_TRUE(BitEqual(part, wanted)) << name << " " << row << " " << column;
      }
    }
  }
}

TEST(Bundle, IsWrittenInTheBytesThatTensorFlowWrites) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteBundle(folder.File("types"), TensorsOfTypes()).ok());
  ASSERT_TRUE(WriteBundle(folder.File("slices"), TensorsOfSlices()).ok());
  for (const std::string end : {".index", ".data-00000-of-00001"}) {
    EXPECT_EQ(FileText(folder.File("types" + end)), FileText(kTypesPrefix + end)) << end;
    EXPECT_EQ(FileText(folder.File("slices" + end)), FileText(kSlicesPrefix + end)) << end;
  }
}

// TensorFlow itself, where it is: `MONOGRAPH_TENSORFLOW` names an interpreter that has it.
TEST(Bundle, IsReadByTensorFlow) {
  const char* const python = std::getenv("MONOGRAPH_TENSORFLOW");
  if (python == nullptr || *python == '\0' || std::string(python) == "none")
    GTEST_SKIP() << "MONOGRAPH_TENSORFLOW names no interpreter that has TensorFlow";
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteBundle(folder.File("t"), TensorsOfTypes()).ok());
  ASSERT_TRUE(WriteBundle(folder.File("s"), TensorsOfSlices()).ok());
  const std::string script = folder.Write("read.py", R"(import sys
import numpy as np
import tensorflow as tf
folder = sys.argv[1]
types = tf.train.load_checkpoint(folder + "/t")
for name, dtype in types.get_variable_to_dtype_map().items():
    value = types.get_tensor(name)
    if name.startswith("of_"):
        count = np.arange(1, 7).reshape(2, 3)
        want = count % 2 == 1 if name == "of_bool" else count.astype(dtype.as_numpy_dtype)
        assert value.dtype == want.dtype and (value == want).all(), (name, value)
assert types.get_tensor("scalar") == 2.5 and types.get_tensor("empty").shape == (0, 4)
assert types.get_tensor("strings").tolist() == [b"one", b"", b"t" * 200, b"zero\0inside"]
assert types.get_tensor("text") == b"a scalar"
slices = tf.train.load_checkpoint(folder + "/s")
assert (slices.get_tensor("rows") == np.arange(1, 11).reshape(5, 2)).all()
assert (slices.get_tensor("columns") == np.arange(1, 141).reshape(2, 70)).all()
assert (slices.get_tensor("written_out") == np.arange(1, 13).reshape(4, 3)).all()
assert not slices.get_tensor("long").any()
)");
  EXPECT_EQ(std::system((std::string(python) + " " + script + " " + folder.path()).c_str()), 0);
}

TEST(Bundle, ThatIsDamagedAnywhereIsFoundByNameOrHarmless) {
  for (const auto& [golden, tensors] :
       {std::pair(kTypesPrefix, TensorsOfTypes()), std::pair(kSlicesPrefix, TensorsOfSlices())}) {
    const TemporaryFolder folder;
    const std::string prefix = folder.File("model");
    std::vector<std::string> files;
    for (const std::string& file : BundleFiles(golden)) {
      files.push_back(folder.File(fs::path(file).filename().string()));
      fs::copy_file(file, files.back());
    }
    std::map<std::string, Tensor> values;
    CheckpointReader good = CheckpointReader::Open(prefix).value();
    for (const std::string& name : good.names()) values[name] = good.Read(name).value();
    int found = 0;
    const auto check = [&](const std::string& changed, const std::string& how) {
      Status failed;
      Result<CheckpointReader> reader = CheckpointReader::Open(prefix);
      failed = reader.status();
      for (const auto& [name, value] : values) {
        if (!failed.ok()) break;
        const Result<Tensor> read = reader->Read(name);
        failed = read.status();
        if (read.ok()) {
          ASSERT_TRUE(BitEqual(*read, value)) << changed << " " << how << ": " << name;
        }
      }
      if (failed.ok()) return;
      ++found;
      ASSERT_EQ(failed.code(), Code::kDataLoss) << changed << " " << how << ": " << failed;
      ASSERT_THAT(failed.message(), HasSubstr(changed)) << how;
    };
    for (const std::string& file : files) {
      const std::string whole = FileText(file);
      const size_t step = whole.size() > 2000 ? 97 : 1;  // the tensor of zeros
      for (size_t at = 0; at < whole.size(); at += step) {
        for (int bit = 0; bit < 8; ++bit) {
          if (file != files[0] && bit != static_cast<int>(at % 8)) continue;  // bytes of tensors
          std::string changed = whole;
          changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
          PutFile(file, changed);
          check(file, "byte " + std::to_string(at) + " bit " + std::to_string(bit));
        }
        PutFile(file, whole.substr(0, at));
        check(file, "truncated to " + std::to_string(at));
        if (HasFatalFailure()) return;
      }
      fs::remove(file);
      if (file != files[0]) check(file, "missing");
      PutFile(file, whole);
    }
    EXPECT_GT(found, 4000);
  }
}

TEST(Bundle, TellsDamageWithFileTensorAndBytes) {
  const TemporaryFolder folder;
  const std::string prefix = folder.File("m"), data = prefix + ".data-00000-of-00001";
  ASSERT_TRUE(WriteBundle(prefix, TensorsOfTypes()).ok());
  std::string bytes = FileText(data);
  bytes[24 + 5] ^= 1;
  PutFile(data, bytes);
  const Status failed = CheckpointReader::Open(prefix)->Read("of_float64").status();
  EXPECT_THAT(failed.message(), HasSubstr("checkpoint '" + data +
                                          "': the bytes of 'of_float64' are damaged: the "
                                          "masked CRC-32C of bytes 24 to 72 of the file is "));
  std::string index = FileText(prefix + ".index");
  PutFile(prefix + ".index", index.substr(0, index.size() - 1));
  EXPECT_THAT(CheckpointReader::Open(prefix).status().message(),
              HasSubstr("checkpoint '" + prefix + ".index': its bytes "));
}

TEST(Bundle, RefusesWhatItCannotHold) {
  const TemporaryFolder folder;
  const Tensor two = Counted<float>({2}), three = Counted<float>({3});
  const auto write = [&](const std::vector<BundleTensor>& tensors) {
    return WriteBundle(folder.File("m"), tensors);
  };
  EXPECT_THAT(write({{"a", {2}, {}, two}, {"a", {2}, {}, two}}).message(),
              HasSubstr("two tensors of a checkpoint are called 'a'"));
  EXPECT_THAT(write({{"a", {5}, {{0, 2}}, two}, {"a", {6}, {{2, 3}}, three}}).message(),
              HasSubstr("two tensors of a checkpoint are called 'a'"));
  EXPECT_THAT(write({{"a", {5}, {{0, 2}}, three}}).message(),
              HasSubstr("'a' cannot be saved: the slice is [2] of [5], the value is [3]"));
  EXPECT_THAT(write({{"", {2}, {}, two}}).message(), HasSubstr("'' cannot be saved"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  for (const char* text : {"2", "2 3 0,2", "2 0,2:-", "2 1,2", "2 -1,1", "x 0,1", "2 0;1", "2 "})
    EXPECT_EQ(ParseShapeAndSlice(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Bundle, LacksASliceThatNobodyMerged) {
  const TemporaryFolder folder;
  std::vector<BundleTensor> tensors = TensorsOfSlices();
  tensors.erase(tensors.begin());
  ASSERT_TRUE(WriteBundle(folder.File("m"), tensors).ok());
  CheckpointReader reader = CheckpointReader::Open(folder.File("m")).value();
  EXPECT_THAT(reader.Read("rows").status().message(),
              HasSubstr("the slices of 'rows' have 4 of the 10 elements that are wanted"));
  Tensor rows = Tensor::Allocate(DT_FLOAT, {2, 2}).value();
  EXPECT_TRUE(reader.Read("rows", BoxOf({{3, 2}, {}}, {5, 2}).value(), &rows).ok());
}

TEST(Bundle, OfSeveralTasksIsMergedWithoutACopy) {
  const TemporaryFolder folder;
  const std::string a = folder.File("tmp/part-0"), b = folder.File("tmp/part-1"),
                    merged = folder.File("model");
  const Tensor rows = Counted<float>({5, 2});
  ASSERT_TRUE(WriteBundle(a, {{"rows", {5, 2}, {{0, 3}, {}}, rows.Slice(0, 3)},
                              {"a", {2, 3}, {}, Counted<int32_t>({2, 3})}})
                  .ok());
  ASSERT_TRUE(WriteBundle(b, {{"b", {1}, {}, Texts({"b"})},
                              {"rows", {5, 2}, {{3, 2}, {}}, rows.Slice(3, 5)}})
                  .ok());
  const std::string missing = folder.File("tmp/part-2");
  EXPECT_EQ(MergeBundles({a, b, missing}, merged).code(), Code::kNotFound);
  EXPECT_EQ(MergeBundles({a, a}, merged).code(), Code::kInvalidArgument);
  const Status status = MergeBundles({a, missing, b}, merged, {.allow_missing_bundles = true});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  EXPECT_THAT(files,
              ElementsAre("model.data-00000-of-00002", "model.data-00001-of-00002", "model.index"));
  CheckpointReader reader = CheckpointReader::Open(merged).value();
  EXPECT_TRUE(BitEqual(reader.Read("rows").value(), rows));
  EXPECT_TRUE(BitEqual(reader.Read("a").value(), Counted<int32_t>({2, 3})));
  EXPECT_EQ(*reader.Read("b").value().strings(), "b");
}

// A table in many small blocks, as LevelDB writes it with these options.
std::string TableOfLevelDb(const std::map<std::string, std::string>& entries,
                           leveldb::CompressionType compression) {
  const TemporaryFolder folder;
  leveldb::Options options;
  options.block_size = 256;
  options.block_restart_interval = 3;
  options.compression = compression;
  leveldb::WritableFile* file = nullptr;
  EXPECT_TRUE(leveldb::Env::Default()->NewWritableFile(folder.File("table"), &file).ok());
  leveldb::TableBuilder builder(options, file);
  for (const auto& [key, value] : entries) builder.Add(key, value);
  EXPECT_TRUE(builder.Finish().ok());
  EXPECT_TRUE(file->Close().ok());
  delete file;
  return FileText(folder.File("table"));
}

TEST(Table, OfManyBlocksIsReadWithAndWithoutCompression) {
  std::map<std::string, std::string> entries = {{"", "header"}};
  for (int i = 0; i < 500; ++i)
    entries["layer/" + std::to_string(i)] = std::string(static_cast<size_t>(i % 97), 'v');
  const std::string plain = TableOfLevelDb(entries, leveldb::kNoCompression);
  const std::string snappy = TableOfLevelDb(entries, leveldb::kSnappyCompression);
  EXPECT_LT(snappy.size(), plain.size());
  EXPECT_EQ(ParseTable(plain).value(), entries);
  EXPECT_EQ(ParseTable(snappy).value(), entries);
  const TemporaryFolder folder;
  NewFile file(folder.File("t"));
  ASSERT_TRUE(WriteTable(entries, &file).ok() && file.PutInPlace().ok());
  EXPECT_EQ(ParseTable(FileText(folder.File("t"))).value(), entries);
}

TEST(Table, WithLengthsThatLeadOutOfABlockIsRefusedThoughItsChecksumIsRight) {
  const std::map<std::string, std::string> entries = {{"a", "value"}};
  const std::string good = TableOfLevelDb(entries, leveldb::kNoCompression);
  // The first block: shared 0, added 1, value 5, 'a', "value", one restart, its number.
  constexpr size_t kBlock = 3 + 1 + 5 + 4 + 4;
  for (const size_t at : {0u, 1u, 2u, 13u}) {
    for (const int value : {6, 127, 128, 255}) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      const uint32_t crc = MaskedCrc32c(AddToCrc32c(0, bad.data(), kBlock + 1));
      bad.replace(kBlock + 1, 4, reinterpret_cast<const char*>(&crc), 4);
      const Status status = ParseTable(bad).status();
      EXPECT_EQ(status.code(), Code::kDataLoss) << at << " " << value;
      EXPECT_THAT(status.message(), HasSubstr("its bytes 0 to 17: ")) << at << " " << value;
    }
  }
}

}  // namespace
}  // namespace monograph
