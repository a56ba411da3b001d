#include "graph/function.h"

#include <fmt/core.h>

#include <algorithm>

#include "graph/op_source.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

constexpr int64_t kMaxArguments = 65536;

}  // namespace

Result<Function> Function::Make(std::string name, std::shared_ptr<const Graph> body) {
  Function function;
  const auto place = [&](NodeId id, const char* what, std::vector<NodeId>* nodes) -> Status {
    const auto index = body->attrs(id).GetOr<int64_t>("index", -1);
    if (index < 0 || index >= kMaxArguments) {
      return InvalidArgument(
          fmt::format("function '{}': {} '{}' has index {}; it must be from 0 to {}", name, what,
                      body->name(id), index, kMaxArguments - 1));
    }
    const auto i = static_cast<size_t>(index);
    if (nodes->size() <= i) nodes->resize(i + 1, -1);
    if ((*nodes)[i] >= 0) {
      return InvalidArgument(fmt::format("function '{}': {} {} is given twice, by '{}' and '{}'",
                                         name, what, index, body->name((*nodes)[i]),
                                         body->name(id)));
    }
    (*nodes)[i] = id;
    return Status();
  };
  for (NodeId id = 0; id < body->num_nodes(); ++id) {
    if (body->is(id, "_Arg")) {
      MG_RETURN_IF_ERROR(place(id, "argument", &function.args));
    } else if (body->is(id, "_Retval")) {
      MG_RETURN_IF_ERROR(place(id, "result", &function.results));
    } else {
      function.stateful |= body->op(id).stateful();
    }
  }
  const auto complete = [&](const char* what, const std::vector<NodeId>& nodes) -> Status {
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] < 0) {
        return InvalidArgument(
            fmt::format("function '{}': {} {} of {} is missing", name, what, i, nodes.size()));
      }
    }
    return Status();
  };
  MG_RETURN_IF_ERROR(complete("argument", function.args));
  MG_RETURN_IF_ERROR(complete("result", function.results));
  function.name = std::move(name);
  function.body = std::move(body);
  return function;
}

Status FunctionLibrary::Add(Function function) {
  const auto found = functions_.find(function.name);
  if (found != functions_.end()) {
    if (found->second.body == function.body) return Status();
    return AlreadyExists("function '" + function.name +
                         "' is in the library already, with another body");
  }
  std::string name = function.name;
  functions_.emplace(std::move(name), std::move(function));
  return Status();
}

const Function* FunctionLibrary::Find(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

const Function* Callee(const Graph& graph, NodeId node, const FunctionLibrary& library) {
  if (!IsCall(graph, node)) return nullptr;
  const AttrValue* value = graph.attrs(node).Find("f");
  const auto* name = value == nullptr ? nullptr : std::get_if<FunctionName>(value);
  return name == nullptr ? nullptr : library.Find(name->name);
}

std::vector<const Function*> FunctionsOf(const Graph& graph, NodeId node,
                                         const FunctionLibrary& library) {
  std::vector<const Function*> functions;
  if (!IsCall(graph, node) && !IsFunctional(graph, node) && !IsBorrowed(graph.op(node)))
    return functions;
  const auto add = [&](const FunctionName& name) {
    if (const Function* function = library.Find(name.name)) functions.push_back(function);
  };
  for (const auto& [name, value] : graph.attrs(node).values()) {
    if (const auto* one = std::get_if<FunctionName>(&value)) add(*one);
    if (const auto* list = std::get_if<std::vector<FunctionName>>(&value))
      std::for_each(list->begin(), list->end(), add);
  }
  return functions;
}

}  // namespace monograph
