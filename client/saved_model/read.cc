// Reads the file once, keeps of it the graph and what is needed to run it, and gives the rest
// up. TensorFlow 1 names the initializer in a collection, TensorFlow 2 in a signature.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/input_file.h"
#include "client/saved_model.h"
#include "client/saved_model.pb.h"
#include "client/saved_model/quoted_list.h"
#include "graph/graph_def.h"
#include "graph/graph_file.h"
#include "graph/names.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;

constexpr char kModelFile[] = "saved_model.pb", kTextFile[] = "saved_model.pbtxt";
constexpr char kMainOp[] = "saved_model_main_op", kLegacyInitOp[] = "legacy_init_op",
               kInitSignature[] = "__saved_model_init_op", kAssets[] = "saved_model_assets";

std::set<std::string> TagsOf(const pb::MetaGraphDef& graph) {
  const auto& tags = graph.meta_info_def().tags();
  return {tags.begin(), tags.end()};
}

Result<std::map<std::string, SavedModel::TensorInfo>> InfosOf(
    const google::protobuf::Map<std::string, pb::TensorInfo>& protos) {
  std::map<std::string, SavedModel::TensorInfo> infos;
  for (const auto& [key, proto] : protos) {
    if (proto.name().empty()) {
      return Unimplemented(Quoted(key) +
                           " is a sparse or composite tensor; only dense ones are known here");
    }
    SavedModel::TensorInfo& info = infos[key];
    info.tensor = proto.name();
    info.dtype = static_cast<DType>(proto.dtype());
    if (proto.tensor_shape().unknown_rank() || proto.tensor_shape().dim_size() > kMaxRank) continue;
    std::vector<int64_t> dims;
    for (const auto& dim : proto.tensor_shape().dim())
      dims.push_back(std::max<int64_t>(dim.size(), -1));
    info.shape = PartialShape(dims);
  }
  return infos;
}

// "init" of the collections; "" if there is none.
std::string InitializerOf(const pb::MetaGraphDef& graph) {
  for (const char* key : {kMainOp, kLegacyInitOp}) {
    const auto found = graph.collection_def().find(key);
    if (found != graph.collection_def().end() && found->second.node_list().value_size() > 0)
      return found->second.node_list().value(0);
  }
  const auto signature = graph.signature_def().find(kInitSignature);
  if (signature == graph.signature_def().end()) return "";
  const auto output = signature->second.outputs().find(kInitSignature);
  return output == signature->second.outputs().end() ? "" : output->second.name();
}

// The files beside the model. TensorFlow 1 has them in a collection.
std::vector<pb::AssetFileDef> AssetsOf(const pb::MetaGraphDef& graph) {
  std::vector<pb::AssetFileDef> assets(graph.asset_file_def().begin(),
                                       graph.asset_file_def().end());
  const auto found = graph.collection_def().find(kAssets);
  if (!assets.empty() || found == graph.collection_def().end()) return assets;
  for (const auto& any : found->second.any_list().value()) {
    if (!assets.emplace_back().ParseFromString(any.value())) assets.pop_back();
  }
  return assets;
}

// "init" of "init", "init:0" and "^init".
std::string NodeOf(std::string name) {
  if (name.starts_with('^')) name.erase(0, 1);
  return name.substr(0, name.find(':'));
}

}  // namespace

bool SavedModel::IsFolder(const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  return fs::is_regular_file(folder / kModelFile, error) ||
         fs::is_regular_file(folder / kTextFile, error);
}

Result<SavedModel> SavedModel::Read(const std::string& folder, const OpRegistry& ops,
                                    const std::vector<std::string>& tags) {
  std::error_code error;
  const bool in_text = !fs::exists(fs::path(folder) / kModelFile, error) &&
                       fs::exists(fs::path(folder) / kTextFile, error);
  const std::string path = (fs::path(folder) / (in_text ? kTextFile : kModelFile)).string();
  const auto context = "SavedModel " + Quoted(path);
  MG_ASSIGN_OR_RETURN(const std::string bytes, ReadInputFile("SavedModel", path, kMostGraphBytes));
  pb::SavedModelProto proto;
  if (in_text) {
    MG_RETURN_IF_ERROR(ParseMessageText(bytes, context, &proto));
  } else {
    const google::protobuf::LogSilencer silence;  // the error that we return is enough
    if (!proto.ParseFromString(bytes) || proto.meta_graphs_size() == 0) {
      return InvalidArgument(context + ": these " + std::to_string(bytes.size()) +
                             " bytes are no SavedModel");
    }
  }
  pb::MetaGraphDef* wanted = nullptr;
  std::vector<std::string> there;
  for (pb::MetaGraphDef& graph : *proto.mutable_meta_graphs()) {
    const std::set<std::string> has = TagsOf(graph);
    std::string text;
    for (const std::string& tag : has) text += (text.empty() ? "" : ",") + tag;
    there.push_back(text);
    if (has == std::set<std::string>(tags.begin(), tags.end())) wanted = &graph;
  }
  if (wanted == nullptr) {
    return NotFound(context + ": it has no graph with the tags " + QuotedList(tags) +
                    "; its graphs have the tags " + QuotedList(there));
  }
  Result<Graph> graph = GraphFromDef(wanted->graph_def(), &ops);
  if (!graph.ok()) return graph.status().WithContext(context);
  SavedModel model(fs::absolute(folder, error).string(), std::move(graph).value());
  for (const auto& [name, proto_of] : wanted->signature_def()) {
    if (name == kInitSignature) continue;
    Signature& signature = model.signatures_[name];
    signature.method = proto_of.method_name();
    auto inputs = InfosOf(proto_of.inputs());
    auto outputs = InfosOf(proto_of.outputs());
    for (const Status& status : {inputs.status(), outputs.status()}) {
      if (!status.ok()) return status.WithContext(context + ": signature " + Quoted(name));
    }
    signature.inputs = std::move(inputs).value();
    signature.outputs = std::move(outputs).value();
  }
  model.filename_tensor_ = wanted->saver_def().filename_tensor_name();
  model.restore_op_ = NodeOf(wanted->saver_def().restore_op_name());
  model.initializer_ = NodeOf(InitializerOf(*wanted));
  for (const pb::AssetFileDef& asset : AssetsOf(*wanted)) {
    // Nobody's model makes us read files elsewhere.
    const std::string& file = asset.filename();
    if (file.empty() || file == ".." || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos)
      return InvalidArgument(context + ": the asset " + Quoted(file) +
                             " is no file of the folder 'assets'");
    model.assets_.emplace_back(asset.tensor_info().name(),
                               (fs::path(model.folder_) / "assets" / file).string());
  }
  return model;
}

}  // namespace monograph
