#include "tools/run_model.h"

#include <utility>

#include "client/registries.h"
#include "graph/graph_file.h"

namespace monograph {

Result<RunModel> RunModel::Read(RunModelOptions options) {
  RunModel model(std::move(options));
  if (!SavedModel::IsFolder(model.options_.path)) {
    MG_ASSIGN_OR_RETURN(model.graph_, ReadGraph(model.options_.path, &DefaultRegistries().ops));
    return model;
  }
  MG_ASSIGN_OR_RETURN(model.saved_, SavedModel::Read(model.options_.path, model.options_.tags));
  const auto& signatures = model.saved_->signatures();
  const auto found = signatures.find(model.options_.signature);
  if (found != signatures.end()) model.signature_ = found->second;
  return model;
}

std::string RunModel::TensorNamed(const std::string& name, const TensorInfos& of_signature) {
  const auto found = of_signature.find(name);
  return found == of_signature.end() ? name : found->second.tensor;
}

Result<std::vector<std::string>> RunModel::AllOutputs() const {
  std::vector<std::string> names;
  if (saved_) MG_RETURN_IF_ERROR(saved_->FindSignature(options_.signature).status());
  for (const auto& [name, info] : signature_.outputs) names.push_back(name);
  return names;
}

Result<DType> RunModel::TypeOf(const std::string& name) const {
  MG_ASSIGN_OR_RETURN(const Endpoint endpoint, graph().FindOutput(name));
  const DType dtype = graph().dtype(endpoint);
  if (dtype == DT_INVALID)
    return graph().registry().Require(graph().op(endpoint.node).name()).status();
  return dtype;
}

Result<std::unique_ptr<Session>> RunModel::Start() const {
  MG_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      options_.cluster
                          ? Session::Connect(*options_.cluster, graph(), options_.session)
                          : Session::Local(graph(), options_.session));
  if (saved_) MG_RETURN_IF_ERROR(saved_->Initialize(session.get()));
  return session;
}

}  // namespace monograph
