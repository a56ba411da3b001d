#include "executor/tensorflow/functions.h"

#include <map>

#include "base/hash.h"
#include "base/mutex.h"
#include "graph/attr_proto.h"
#include "graph/function_def.h"
#include "graph/graph.pb.h"

namespace monograph::tensorflow {
namespace {

class Adder {
 public:
  Adder(const Library& library, const FunctionLibrary& functions)
      : library_(library), functions_(functions) {}

  Result<std::string> Add(const std::string& name, int depth) {
    // Also one that many name is looked into once.
    if (const auto added = added_.find(name); added != added_.end()) return added->second;
    const Function* function = functions_.Find(name);
    if (function == nullptr) return NotFound("the graph has no function '" + name + "'");
    if (depth > kMaxCallDepth)
      return InvalidArgument("function '" + name + "' is called too deeply, or calls itself");
    pb::FunctionDef def;
    if (!def.ParseFromString(SerializeFunction(*function)))
      return Internal("function '" + name + "' cannot be written");
    for (pb::NodeDef& node : *def.mutable_node_def()) {
      node.clear_device();  // all of it runs where the node does that calls it
      for (auto& [attr, value] : *node.mutable_attr()) {
        if (value.has_func()) MG_RETURN_IF_ERROR(Rename(value.mutable_func(), depth));
        if (!value.has_list()) continue;
        for (pb::NameAttrList& one : *value.mutable_list()->mutable_func())
          MG_RETURN_IF_ERROR(Rename(&one, depth));
      }
    }
    // Its contents are its name, so that it is added once, and never another in its place.
    const std::string unique = name + "_" + std::to_string(Fnv1a(BytesOf(def)));
    if (library_->TFE_ContextHasFunction(library_.context(), unique.c_str()) != 0)
      return added_[name] = unique;
    def.mutable_signature()->set_name(unique);
    const std::string bytes = def.SerializeAsString();
    TF_Status* const status = library_->TF_NewStatus();
    library_->TFE_ContextAddFunctionDef(library_.context(), bytes.data(), bytes.size(), status);
    const Status added = library_.StatusOf(status);
    library_->TF_DeleteStatus(status);
    if (!added.ok()) return added.WithContext("function '" + name + "'");
    return added_[name] = unique;
  }

 private:
  Status Rename(pb::NameAttrList* function, int depth) {
    MG_ASSIGN_OR_RETURN(std::string unique, Add(function->name(), depth + 1));
    function->set_name(std::move(unique));
    return Status();
  }

  const Library& library_;
  const FunctionLibrary& functions_;
  std::map<std::string, std::string> added_;  // their names in the library
};

}  // namespace

Result<std::string> AddFunction(const Library& library, const FunctionLibrary& functions,
                                const std::string& name) {
  static Mutex mutex;  // from the question whether it is there to its addition
  MutexLock lock(mutex);
  return Adder(library, functions).Add(name, 0);
}

}  // namespace monograph::tensorflow
