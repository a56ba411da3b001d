// Models that TensorFlow wrote (tests/golden/make_saved_models.py) are loaded by tag and run by
// signature.
#include "client/saved_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/registries.h"
#include "client/saved_model.pb.h"
#include "client/session.h"
#include "graph/graph_file.h"
#include "tests/temporary_folder.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Model(const std::string& name) {
  return std::string(MG_GOLDEN_SAVED_MODELS) + "/" + name;
}
Tensor Inputs() { return Tensor::FromValues<float>({2, 2}, {1, 2, 3, 4}); }
constexpr float kFirst = 1 * 2 + 2 * 3 + 0.5f, kSecond = 3 * 2 + 4 * 3 + 0.5f;

TEST(SavedModel, OfResourceVariablesRunsByItsSignatures) {
  const SavedModel model = SavedModel::Read(Model("resource_variables")).value();
  const auto session = Session::Local(model.graph()).value();
  const Status initialized = model.Initialize(session.get());
  ASSERT_TRUE(initialized.ok()) << initialized;
  auto outputs = model.Run(session.get(), {{"input", Inputs()}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->size(), 1u);
  EXPECT_THAT(outputs->at("output").values<float>(), ElementsAre(kFirst, kSecond));
  outputs =
      model.Run(session.get(), {{"input", Inputs()}, {"scale", Tensor::Scalar(2.0f)}}, "scaled");
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("output").values<float>(), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(outputs->at("scaled").values<float>(), ElementsAre(2 * kFirst, 2 * kSecond));
  // The initializer ran with the path of the file beside the model.
  outputs = model.Run(session.get(), {}, "asset");
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(*outputs->at("path").strings(),
            fs::absolute(Model("resource_variables/assets/words.txt")));
  EXPECT_EQ(model.FindSignature("scaled").value()->method, "tensorflow/serving/predict");
  EXPECT_EQ(model.FindSignature("scaled").value()->inputs.at("input").shape.ToString(), "[?,2]");
}

TEST(SavedModel, OfVersionTwoRunsByItsSignatures) {
  const SavedModel model = SavedModel::Read(Model("version_2")).value();
  const auto session = Session::Local(model.graph()).value();
  const Status initialized = model.Initialize(session.get());
  ASSERT_TRUE(initialized.ok()) << initialized;
  const auto outputs = model.Run(session.get(), {{"input", Inputs()}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("output").values<float>(), ElementsAre(kFirst, kSecond));
}

TEST(SavedModel, IsFoundByAllItsTags) {
  const SavedModel train =
      SavedModel::Read(Model("resource_variables"), {"train", "serve"}).value();
  EXPECT_TRUE(train.signatures().contains("train"));
  const Status other = SavedModel::Read(Model("resource_variables"), {"train"}).status();
  EXPECT_EQ(other.code(), Code::kNotFound);
  EXPECT_THAT(other.message(), HasSubstr("it has no graph with the tags 'train'; its graphs have "
                                         "the tags 'serve', 'serve,train'"));
}

TEST(SavedModel, NamesWhatIsWrongWithACall) {
  const SavedModel model = SavedModel::Read(Model("resource_variables")).value();
  const auto session = Session::Local(model.graph()).value();
  const auto error = [&](const std::map<std::string, Tensor>& inputs,
                         const std::string& signature) {
    return model.Run(session.get(), inputs, signature).status().message();
  };
  EXPECT_THAT(error({}, "none"), HasSubstr("has no signature 'none'; it has 'asset', 'scaled', "
                                           "'serving_default'"));
  EXPECT_THAT(error({}, "serving_default"), HasSubstr("input 'input' is missing"));
  EXPECT_THAT(error({{"input", Tensor::Scalar<int32_t>(1)}}, "serving_default"),
              HasSubstr("input 'input' is int32, not float"));
  EXPECT_THAT(error({{"input", Inputs()}, {"inptu", Inputs()}}, "serving_default"),
              HasSubstr("input 'inptu' is not one of its: 'input'"));
}

TEST(SavedModel, ThatIsNoneOrDamagedIsRefusedByName) {
  const TemporaryFolder folder;
  EXPECT_EQ(SavedModel::Read(folder.path()).status().code(), Code::kNotFound);
  EXPECT_FALSE(SavedModel::IsFolder(folder.path()));
  folder.Write("saved_model.pb", "no model");
  EXPECT_TRUE(SavedModel::IsFolder(folder.path()));
  const Status none = SavedModel::Read(folder.path()).status();
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr(folder.File("saved_model.pb") + "': these 8 bytes are no "
                                                                        "SavedModel"));
  std::ifstream file(Model("version_2/saved_model.pb"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::ofstream(folder.File("saved_model.pb"), std::ios::binary) << whole.substr(0, at);
    (void)SavedModel::Read(folder.path());  // an error or what is left of it: never an end
  }
  // Its variables are damaged.
  fs::remove(folder.File("saved_model.pb"));
  fs::copy(Model("resource_variables"), folder.path(), fs::copy_options::recursive);
  fs::resize_file(folder.File("variables/variables.data-00000-of-00001"), 4);
  const SavedModel model = SavedModel::Read(folder.path()).value();
  const auto session = Session::Local(model.graph()).value();
  const Status damaged = model.Initialize(session.get());
  EXPECT_EQ(damaged.code(), Code::kDataLoss) << damaged;
  EXPECT_THAT(damaged.message(), HasSubstr("restoring its variables"));
}

TEST(SavedModel, InTextIsReadAsTheSame) {
  TemporaryFolder folder;
  fs::copy(Model("resource_variables"), folder.path(), fs::copy_options::recursive);
  pb::SavedModelProto proto;
  std::ifstream file(folder.File("saved_model.pb"), std::ios::binary);
  ASSERT_TRUE(proto.ParseFromIstream(&file));
  proto.DiscardUnknownFields();
  std::string text;
  google::protobuf::TextFormat::PrintToString(proto, &text);
  fs::remove(folder.File("saved_model.pb"));
  std::ofstream(folder.File("saved_model.pbtxt")) << text;
  ASSERT_TRUE(SavedModel::IsFolder(folder.path()));
  const Result<SavedModel> model = SavedModel::Read(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto session = Session::Local(model->graph()).value();
  ASSERT_TRUE(model->Initialize(session.get()).ok());
  const auto outputs = model->Run(session.get(), {{"input", Inputs()}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("output").values<float>(), ElementsAre(kFirst, kSecond));

  std::ofstream(folder.File("saved_model.pbtxt")) << "meta_graphs {\n  graph_def [\n";
  const Status broken = SavedModel::Read(folder.path()).status();
  EXPECT_EQ(broken.code(), Code::kInvalidArgument);
  EXPECT_THAT(broken.message(), HasSubstr("saved_model.pbtxt':2:"));
}

TEST(SavedModel, OfVariablesByReferenceRunsByItsSignatures) {
  const SavedModel model = SavedModel::Read(Model("ref_variables")).value();
  const auto session = Session::Local(model.graph()).value();
  const Status initialized = model.Initialize(session.get());
  ASSERT_TRUE(initialized.ok()) << initialized;
  const auto outputs = model.Run(session.get(), {{"input", Inputs()}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("output").values<float>(), ElementsAre(kFirst, kSecond));
}

TEST(SavedModel, ThatIsFrozenIsAGraph) {
  const Graph graph = ReadGraph(Model("frozen.pb"), &DefaultRegistries().ops).value();
  const auto session = Session::Local(graph).value();
  const auto values = session->RunByName({{"x:0", Inputs()}}, {"scaled:0"});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->at(0).values<float>(), ElementsAre(10 * kFirst, 10 * kSecond));
}

}  // namespace
}  // namespace monograph
