// `monograph checkpoint list` and `convert`, on files that TensorFlow wrote.
#include <filesystem>

#include "tests/multiprocess/command.h"
#include "tests/temporary_folder.h"
#include "train/saver.h"

namespace monograph {
namespace {

std::string OfTensorFlow(const std::string& name) {
  return std::string(MG_GOLDEN_CHECKPOINTS) + "/" + name;
}

TEST(CheckpointCommand, ListsEitherFormatAndTheLatestOfAFolder) {
  const Ran job = RunMonograph({"checkpoint", "list", OfTensorFlow("job")});
  EXPECT_EQ(job.code, 0) << job.error;
  ExpectText(job.output,
             {"table/Adam    float  [5,2]     40\n", "global_step   int64  []         8\n",
              "job/model.ckpt-3: 9 tensors, 160 bytes, TensorFlow's files\n"});
  const Ran types = RunMonograph({"checkpoint", "list", OfTensorFlow("types/model")});
  EXPECT_EQ(types.code, 0) << types.error;
  ExpectText(types.output,
             {"of_bfloat16  bfloat16  [2,3]     12\n", "empty        float     [0,4]      0\n"});
}

TEST(CheckpointCommand, ConvertsBothWaysWithEveryBit) {
  const TemporaryFolder folder;
  const std::string ours = folder.File("new/ours"), theirs = folder.File("theirs");
  Ran ran = RunMonograph({"checkpoint", "convert", OfTensorFlow("types/model"), ours});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"'strings' is string", "leave it out by --skip='strings'"});
  ran = RunMonograph(
      {"checkpoint", "convert", OfTensorFlow("types/model"), ours, "--skip=strings,text"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"new/ours.safetensors: 15 tensors of "});
  ran = RunMonograph({"checkpoint", "convert", ours, theirs});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"theirs.index: 15 tensors of "});
  const auto variables = ListVariables(theirs).value();
  EXPECT_EQ(variables.size(), 15u);
  for (const SavedVariable& variable : variables) {
    const Tensor wanted = LoadVariable(OfTensorFlow("types/model"), variable.name).value();
    EXPECT_TRUE(BitEqual(LoadVariable(ours, variable.name).value(), wanted)) << variable.name;
    EXPECT_TRUE(BitEqual(LoadVariable(theirs, variable.name).value(), wanted)) << variable.name;
  }
  ran = RunMonograph({"checkpoint", "convert", OfTensorFlow("slices/model"), theirs});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"there is a checkpoint '" + theirs + "' already"});
}

TEST(CheckpointCommand, NamesWhatIsNotThere) {
  const TemporaryFolder folder;
  Ran ran = RunMonograph({"checkpoint", "list", folder.File("m")});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"there is no checkpoint '" + folder.File("m") + "': neither '"});
  ran = RunMonograph({"checkpoint", "list", folder.path()});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"has no file 'checkpoint'"});
  ran = RunMonograph(
      {"checkpoint", "convert", OfTensorFlow("types/model"), folder.File("m"), "--skip=no"});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"Key no not found in checkpoint"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace monograph
