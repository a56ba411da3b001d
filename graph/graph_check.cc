// Looks at each NodeDef by itself: its op, then each attribute. Types, shapes and references are
// left to the import, which gets the GraphDef with harmless nodes in place of those that are
// lacking.
#include "graph/graph_check.h"

#include <algorithm>
#include <string_view>

#include "graph/attr_proto.h"
#include "graph/function_instances.h"
#include "graph/graph.pb.h"
#include "graph/graph_file.h"
#include "graph/node_check.h"

namespace monograph {
namespace {

// Notes that TensorFlow's passes and debuggers leave at a node, and that change no result.
constexpr std::string_view kNotes[] = {"debug_name", "grad_a", "grad_b", "grad_x", "grad_y"};

// Whether a reader that does not know the attribute may pass over it: what a later TensorFlow adds
// to an op has a default, which is false, 0 or empty.
bool MeansNothing(const AttrValue& value) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (requires { v.empty(); }) return v.empty();
        if constexpr (std::is_arithmetic_v<T>) return v == T{};
        return std::is_same_v<T, std::monostate> || std::is_same_v<T, EmptyList>;
      },
      value);
}

// Why `node` cannot be a node of `op`; "" if nothing speaks against it.
std::string AttrProblem(const NodeDef& node, const OpDef& op) {
  for (const AttrDef& def : op.attrs()) {
    const auto given = node.attr().find(def.name);
    if (given == node.attr().end()) continue;
    const Result<AttrValue> value = AttrFromProto(given->second);
    if (!value.ok()) return "attribute '" + def.name + "': " + value.status().message();
    if (std::holds_alternative<std::monostate>(*value)) continue;
    if (Status status = CheckAttr(def, *value); !status.ok()) return status.message();
  }
  std::set<std::string> names;  // sorted, as a map of protobuf is not
  for (const auto& [name, proto] : node.attr()) {
    const bool note = name.starts_with('_') || std::ranges::count(kNotes, name) > 0;
    if (!note && op.FindAttr(name) == nullptr) names.insert(name);
  }
  for (const std::string& name : names) {
    const Result<AttrValue> value = AttrFromProto(node.attr().at(name));
    if (value.ok() && MeansNothing(*value)) continue;
    return "attribute '" + name + "' is not known here" +
           (value.ok() ? ", and is " + AttrToString(*value) : "");
  }
  return "";
}

class Checker {
 public:
  Checker(const OpRegistry* registry, GraphCheck* check) : registry_(registry), check_(check) {}

  void Run(GraphDef* def) {
    for (const auto& function : def->library().function())
      functions_.insert(function.signature().name());
    Look(def->mutable_node(), "");
    for (auto& function : *def->mutable_library()->mutable_function())
      Look(function.mutable_node_def(), function.signature().name());
  }

 private:
  void Look(google::protobuf::RepeatedPtrField<NodeDef>* nodes, const std::string& function) {
    for (NodeDef& node : *nodes) {
      ++check_->nodes;
      if (functions_.contains(node.op())) continue;
      const OpDef* op = registry_->Find(node.op());
      check_->ops.insert(node.op());
      const std::string why = op == nullptr ? "no such op" : AttrProblem(node, *op);
      if (why.empty()) continue;
      check_->problems.push_back({node.op(), why, node.name(), function});
      node.clear_input();
      node.clear_attr();
      if (op != nullptr) node.set_op("Unusable" + node.op());
    }
  }

  const OpRegistry* const registry_;
  GraphCheck* const check_;
  std::set<std::string> functions_;
};

}  // namespace

Result<GraphCheck> CheckGraph(const std::string& path, const OpRegistry* registry) {
  GraphDef def;
  MG_RETURN_IF_ERROR(ReadGraphDef(path, &def));
  GraphCheck check{.graph = Graph(registry)};
  if (const Status made = InstantiateFunctions(&def); !made.ok()) {
    check.graph = made;
    return check;
  }
  Checker(registry, &check).Run(&def);
  check.graph = GraphFromDef(def, registry);
  return check;
}

}  // namespace monograph
