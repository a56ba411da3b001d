// SavedModel: a model as TensorFlow's saved_model functions write it, a folder with saved_model.pb
// (or .pbtxt), the variables' checkpoint and files beside it (tf.saved_model.load, loader.load).
//
//   MG_ASSIGN_OR_RETURN(SavedModel model, SavedModel::Read("export/1"));
//   MG_ASSIGN_OR_RETURN(auto session, Session::Local(model.graph()));
//   MG_RETURN_IF_ERROR(model.Initialize(session.get()));
//   MG_ASSIGN_OR_RETURN(auto outputs, model.Run(session.get(), {{"x", x}}));
//
// Where the session has a cluster, the tasks that hold variables see the folder by the same path.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"
#include "graph/graph.h"

namespace monograph {

class Session;

class SavedModel {
 public:
  static constexpr char kServe[] = "serve", kServingDefault[] = "serving_default";

  // A tensor of the graph, which a signature calls by a name of its own.
  struct TensorInfo {
    std::string tensor;  // "x:0"
    DType dtype = DT_INVALID;
    PartialShape shape;
  };
  struct Signature {
    std::map<std::string, TensorInfo> inputs, outputs;
    std::string method;
  };

  // The graph of `folder` that has these tags and no others. NotFound: there is no such folder, or
  // no graph of these tags (the message lists what there is); InvalidArgument for what is no
  // SavedModel; the errors of GraphFromDef (graph/graph_def.h). Ops that are missing here are kept:
  // a step that needs one fails, and names it.
  static Result<SavedModel> Read(const std::string& folder,
                                 const std::vector<std::string>& tags = {kServe});
  // Over these ops, which outlive it, and not those of DefaultRegistries.
  static Result<SavedModel> Read(const std::string& folder, const OpRegistry& ops,
                                 const std::vector<std::string>& tags);

  // Whether `path` is a folder with a saved_model.pb or saved_model.pbtxt.
  static bool IsFolder(const std::string& path);

  const Graph& graph() const { return graph_; }
  const std::map<std::string, Signature>& signatures() const { return signatures_; }
  // NotFound lists those that there are.
  Result<const Signature*> FindSignature(const std::string& name) const;

  // Restores the variables and runs the model's initializer. Once per session, before it computes.
  Status Initialize(Session* session) const;

  // One step: all outputs of the signature, by their names. InvalidArgument names an input that is
  // missing, is not of the signature, or has another type.
  Result<std::map<std::string, Tensor>> Run(Session* session,
                                            const std::map<std::string, Tensor>& inputs,
                                            const std::string& signature = kServingDefault) const;

 private:
  SavedModel(std::string folder, Graph graph)
      : folder_(std::move(folder)), graph_(std::move(graph)) {}

  std::string folder_;
  Graph graph_;
  std::map<std::string, Signature> signatures_;
  std::string filename_tensor_, restore_op_, initializer_;
  std::vector<std::pair<std::string, std::string>> assets_;  // tensor, file
};

}  // namespace monograph
