// What `monograph run` runs: a GraphDef, or a SavedModel, whose signature's names may stand for
// tensors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cluster.h"
#include "client/saved_model.h"
#include "client/session.h"

namespace monograph {

struct RunModelOptions {
  std::string path;  // .pb or .pbtxt; or the folder of a SavedModel
  // Of a SavedModel.
  std::string signature = SavedModel::kServingDefault;
  std::vector<std::string> tags = {SavedModel::kServe};
  // Where it runs.
  std::optional<ClusterSpec> cluster = {};
  SessionOptions session = {};
};

class RunModel {
 public:
  // The errors of ReadGraph and of SavedModel::Read.
  static Result<RunModel> Read(RunModelOptions options);

  const Graph& graph() const { return saved_ ? saved_->graph() : *graph_; }
  // The tensor that a name of the signature means, or of the graph.
  std::string Input(const std::string& name) const { return TensorNamed(name, signature_.inputs); }
  std::string Output(const std::string& name) const {
    return TensorNamed(name, signature_.outputs);
  }
  // What a step fetches that asks for nothing: all outputs of the signature. None of a GraphDef;
  // NotFound if the SavedModel lacks the signature.
  Result<std::vector<std::string>> AllOutputs() const;
  // Of the tensor `name` of the graph. NotFound lists near names; Unimplemented for what an op
  // gives that is not registered.
  Result<DType> TypeOf(const std::string& name) const;

  // Opens a session; of a SavedModel it restores the variables.
  Result<std::unique_ptr<Session>> Start() const;

 private:
  using TensorInfos = std::map<std::string, SavedModel::TensorInfo>;
  explicit RunModel(RunModelOptions options) : options_(std::move(options)) {}
  static std::string TensorNamed(const std::string& name, const TensorInfos& of_signature);

  RunModelOptions options_;
  std::optional<SavedModel> saved_;
  std::optional<Graph> graph_;
  SavedModel::Signature signature_;  // empty where there is none
};

}  // namespace monograph
