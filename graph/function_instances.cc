// InstantiateFunctions goes through the nodes of the graph and of its plain functions, makes an
// instance of each function with attributes that they call, and then goes through the instances
// made, until there is nothing new. An instance is a copy of the FunctionDef in which placeholders
// are values, argument lists are single arguments ("x" of N: "x_0", "x_1", ..., as TensorFlow calls
// them), and references follow. What a file says is not trusted: instances may call each other
// without end, each with other values, and a copy may be much larger than what it is made of.
#include "graph/function_instances.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/hash.h"
#include "graph/attr_proto.h"
#include "graph/graph.pb.h"
#include "graph/names.h"

namespace monograph {
namespace {

using AttrMap = google::protobuf::Map<std::string, pb::AttrValue>;
using ArgDefs = google::protobuf::RepeatedPtrField<pb::OpDef::ArgDef>;

// Bounds of what is made of a graph's functions.
constexpr size_t kMostInstances = 10'000;
constexpr uint64_t kMostInstanceBytes = uint64_t{64} << 20;
constexpr int64_t kMostListed = 65'535;  // arguments in a list

// The language's word for the kind of a value: "type", "list(int)"; "" for none.
std::string KindOf(const pb::AttrValue& value) {
  switch (value.value_case()) {
    case pb::AttrValue::kS:
      return "string";
    case pb::AttrValue::kI:
      return "int";
    case pb::AttrValue::kF:
      return "float";
    case pb::AttrValue::kB:
      return "bool";
    case pb::AttrValue::kType:
      return "type";
    case pb::AttrValue::kShape:
      return "shape";
    case pb::AttrValue::kTensor:
      return "tensor";
    case pb::AttrValue::kFunc:
      return "func";
    case pb::AttrValue::kList: {
      const auto& list = value.list();
      if (list.s_size() > 0) return "list(string)";
      if (list.i_size() > 0) return "list(int)";
      if (list.f_size() > 0) return "list(float)";
      if (list.b_size() > 0) return "list(bool)";
      if (list.type_size() > 0) return "list(type)";
      if (list.shape_size() > 0) return "list(shape)";
      if (list.tensor_size() > 0) return "list(tensor)";
      if (list.func_size() > 0) return "list(func)";
      return "list()";
    }
    default:
      return "";
  }
}

// Why the attribute cannot have the value; "": it can.
std::string Complaint(const pb::OpDef::AttrDef& attr, const pb::AttrValue& value) {
  const std::string kind = KindOf(value);
  const bool empty_list = kind == "list()" && attr.type().starts_with("list(");
  if (kind != attr.type() && !empty_list) {
    return fmt::format("must be of kind {}, but is {}", attr.type(),
                       kind.empty() ? "no value" : "of kind " + kind);
  }
  if (const Status types = CheckTypeNumbers(value); !types.ok()) return types.message();
  const bool is_list = attr.type().starts_with("list(");
  const auto& list = value.list();
  if (attr.has_minimum()) {
    const int64_t is =
        kind == "int" ? value.i()
        : is_list
            ? std::max({list.s_size(), list.i_size(), list.f_size(), list.b_size(),
                        list.type_size(), list.shape_size(), list.tensor_size(), list.func_size()})
            : attr.minimum();
    if (is < attr.minimum()) {
      return fmt::format("{} at least {}, but is {}", is_list ? "must have a length of" : "must be",
                         attr.minimum(), is);
    }
  }
  const auto& allowed = attr.allowed_values().list();
  const auto is_allowed = [](const auto& values, const auto& one) {
    return std::find(values.begin(), values.end(), one) != values.end();
  };
  bool fits = true;
  if (allowed.type_size() > 0 && kind == "type") fits = is_allowed(allowed.type(), value.type());
  if (allowed.type_size() > 0 && is_list) {
    fits = std::all_of(list.type().begin(), list.type().end(),
                       [&](int type) { return is_allowed(allowed.type(), type); });
  }
  if (allowed.s_size() > 0 && kind == "string") fits = is_allowed(allowed.s(), value.s());
  return fits ? "" : "has a value that the function does not allow";
}

// "T_float" for a name.
std::string Word(const std::string& name, const pb::AttrValue& value) {
  switch (value.value_case()) {
    case pb::AttrValue::kType:
      return name + "_" + std::string(DTypeName(static_cast<DType>(value.type())));
    case pb::AttrValue::kI:
      return fmt::format("{}_{}", name, value.i());
    case pb::AttrValue::kB:
      return fmt::format("{}_{}", name, value.b());
    default:
      return fmt::format("{}_{:016x}", name, Fnv1a(BytesOf(value)));
  }
}

// What of "^x", "x:1" or "node:output:0" comes before the first colon, without the caret.
std::string_view NameIn(std::string_view reference) {
  if (reference.starts_with('^')) reference.remove_prefix(1);
  return reference.substr(0, reference.find(':'));
}

class Instances {
 public:
  explicit Instances(GraphDef* def) : def_(def) {}

  Status Run() {
    auto* const functions = def_->mutable_library()->mutable_function();
    for (const pb::FunctionDef& function : *functions) {
      const pb::OpDef& signature = function.signature();
      if (!taken_.insert(signature.name()).second) {
        return InvalidArgument(
            fmt::format("function {} is in the library twice", Quoted(signature.name())));
      }
      if (signature.attr_size() > 0) generic_.emplace(signature.name(), function);
    }
    functions->erase(std::remove_if(functions->begin(), functions->end(),
                                    [](const pb::FunctionDef& function) {
                                      return function.signature().attr_size() > 0;
                                    }),
                     functions->end());
    for (pb::NodeDef& node : *def_->mutable_node()) MG_RETURN_IF_ERROR(Rewrite("", nullptr, &node));
    for (pb::FunctionDef& function : *functions) {
      for (pb::NodeDef& node : *function.mutable_node_def())
        MG_RETURN_IF_ERROR(Rewrite(ContextOf(function.signature().name()), nullptr, &node));
    }
    while (!open_.empty()) {
      const Made made = std::move(open_.back());
      open_.pop_back();
      MG_RETURN_IF_ERROR(Make(made));
    }
    return Status();
  }

 private:
  // An instance that is to be made.
  struct Made {
    const pb::FunctionDef* generic;
    std::string name;
    AttrMap values;
  };

  static std::string ContextOf(const std::string& function) {
    return "function " + Quoted(function) + ", ";
  }

  Status Take(uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMostInstanceBytes) return Status();
    return InvalidArgument(
        fmt::format("what the graph's calls make of functions with attributes takes more than {} "
                    "bytes",
                    kMostInstanceBytes));
  }

  // Puts `values` in place of placeholders, and instances in place of functions with attributes.
  Status Bind(const std::string& context, const AttrMap* values, pb::AttrValue* value) {
    if (value->value_case() == pb::AttrValue::kPlaceholder && values != nullptr) {
      const auto found = values->find(value->placeholder());
      if (found == values->end()) {
        return InvalidArgument(fmt::format("{}: the function has no attribute {}", context,
                                           Quoted(value->placeholder())));
      }
      MG_RETURN_IF_ERROR(Take(found->second.ByteSizeLong()));
      *value = found->second;  // whose own functions are instances already
      return Status();
    }
    if (value->has_func()) return BindFunction(context, values, value->mutable_func());
    if (!value->has_list()) return Status();
    for (pb::NameAttrList& function : *value->mutable_list()->mutable_func())
      MG_RETURN_IF_ERROR(BindFunction(context, values, &function));
    return Status();
  }

  Status BindFunction(const std::string& context, const AttrMap* values,
                      pb::NameAttrList* function) {
    for (auto& [name, value] : *function->mutable_attr())
      MG_RETURN_IF_ERROR(Bind(context, values, &value));
    const auto found = generic_.find(function->name());
    if (found != generic_.end()) {
      MG_ASSIGN_OR_RETURN(*function->mutable_name(),
                          InstanceOf(context, found->second, function->attr()));
    }
    function->clear_attr();
    return Status();
  }

  // `context`: "" or "function 'f', ". `values`: of the function that the node is in; nullptr: it
  // has no attributes.
  Status Rewrite(const std::string& context, const AttrMap* values, pb::NodeDef* node) {
    const std::string here = context + "node " + Quoted(node->name()) + " (" + node->op() + ")";
    for (auto& [name, value] : *node->mutable_attr())
      MG_RETURN_IF_ERROR(Bind(here, values, &value));
    const auto found = generic_.find(node->op());
    if (found == generic_.end()) return Status();
    MG_ASSIGN_OR_RETURN(*node->mutable_op(), InstanceOf(here, found->second, node->attr()));
    return Status();
  }

  // The name of the instance for the values in `given`, which is made later if it is new.
  Result<std::string> InstanceOf(const std::string& context, const pb::FunctionDef& generic,
                                 const AttrMap& given) {
    const std::string& function = generic.signature().name();
    Made made{&generic, function + "_", {}};
    std::string key = function;  // what tells it from others
    for (const pb::OpDef::AttrDef& attr : generic.signature().attr()) {
      const auto found = given.find(attr.name());
      const bool has_value = found != given.end() && !KindOf(found->second).empty();
      if (!has_value && KindOf(attr.default_value()).empty()) {
        return InvalidArgument(fmt::format("{} calls function {} without its attribute {} ({})",
                                           context, Quoted(function), Quoted(attr.name()),
                                           attr.type()));
      }
      const pb::AttrValue& value = has_value ? found->second : attr.default_value();
      if (const std::string complaint = Complaint(attr, value); !complaint.empty()) {
        return InvalidArgument(fmt::format("{} calls function {}, whose attribute {} {}", context,
                                           Quoted(function), Quoted(attr.name()), complaint));
      }
      MG_RETURN_IF_ERROR(Take(value.ByteSizeLong()));
      made.values[attr.name()] = value;
      made.name += "_" + Word(attr.name(), value);
      key += '\0' + BytesOf(value);
    }
    // A name is in all that names the function.
    constexpr size_t kLongest = 80;
    if (made.name.size() > function.size() + kLongest)
      made.name = fmt::format("{}__{:016x}", function, Fnv1a(key));
    const auto [known, is_new] = made_.try_emplace(made.name, key);
    if (taken_.contains(made.name) || known->second != key) {
      return InvalidArgument(
          fmt::format("{} calls function {}, which would be called {}, but so is "
                      "another function",
                      context, Quoted(function), Quoted(made.name)));
    }
    if (!is_new) return made.name;
    if (made_.size() > kMostInstances) {
      return InvalidArgument(fmt::format(
          "{} calls function {}: functions with attributes are called with more than {} sets of "
          "values",
          context, Quoted(function), kMostInstances));
    }
    std::string name = made.name;
    open_.push_back(std::move(made));
    return name;
  }

  Status Make(const Made& made) {
    const pb::FunctionDef& generic = *made.generic;
    MG_RETURN_IF_ERROR(Take(generic.ByteSizeLong()));
    pb::FunctionDef* const function = def_->mutable_library()->add_function();
    *function = generic;
    function->mutable_signature()->set_name(made.name);
    function->mutable_signature()->clear_attr();
    const std::string context = "function " + Quoted(generic.signature().name());
    Lists lists;
    MG_RETURN_IF_ERROR(Flatten(context, made.values, generic.signature().input_arg(),
                               function->mutable_signature()->mutable_input_arg(), &lists));
    if (!lists.empty()) function->clear_arg_attr();  // which counts the arguments as they were
    for (pb::NodeDef& node : *function->mutable_node_def()) {
      MG_RETURN_IF_ERROR(Rewrite(context + ", ", &made.values, &node));
      MG_RETURN_IF_ERROR(FlattenInputs(lists, node.mutable_input()));
    }
    Lists results;
    MG_RETURN_IF_ERROR(Flatten(context, made.values, generic.signature().output_arg(),
                               function->mutable_signature()->mutable_output_arg(), &results));
    return FlattenResults(lists, results, function->mutable_ret());
  }

  // Lists of arguments or results, and the single ones that they became.
  using Lists = std::map<std::string, std::vector<std::string>, std::less<>>;

  // The value of an attribute that an argument names. nullptr: it has no value of that kind.
  static const pb::AttrValue* ValueFor(const AttrMap& values, const std::string& name,
                                       std::string_view kind) {
    const auto found = values.find(name);
    if (found == values.end()) return nullptr;
    const std::string is = KindOf(found->second);
    return is == kind || (is == "list()" && kind.starts_with("list(")) ? &found->second : nullptr;
  }

  // Single arguments of certain types in place of `args`.
  Status Flatten(const std::string& context, const AttrMap& values, const ArgDefs& args,
                 ArgDefs* flat, Lists* lists) {
    flat->Clear();
    for (const pb::OpDef::ArgDef& arg : args) {
      const auto wrong = [&](const std::string& attr, std::string_view kind) {
        return InvalidArgument(fmt::format("{}: argument {} counts on an attribute {} of kind {}",
                                           context, Quoted(arg.name()), Quoted(attr), kind));
      };
      std::vector<int> types{static_cast<int>(arg.type())};
      const bool is_list = !arg.type_list_attr().empty() || !arg.number_attr().empty();
      if (!arg.type_attr().empty()) {
        const pb::AttrValue* type = ValueFor(values, arg.type_attr(), "type");
        if (type == nullptr) return wrong(arg.type_attr(), "type");
        types = {static_cast<int>(type->type())};
      }
      if (!arg.type_list_attr().empty()) {
        const pb::AttrValue* list = ValueFor(values, arg.type_list_attr(), "list(type)");
        if (list == nullptr) return wrong(arg.type_list_attr(), "list(type)");
        types.assign(list->list().type().begin(), list->list().type().end());
      } else if (!arg.number_attr().empty()) {
        const pb::AttrValue* number = ValueFor(values, arg.number_attr(), "int");
        if (number == nullptr) return wrong(arg.number_attr(), "int");
        if (number->i() < 0 || number->i() > kMostListed) {
          return InvalidArgument(
              fmt::format("{}: argument {} is a list of {}; it may have 0 to {} elements", context,
                          Quoted(arg.name()), number->i(), kMostListed));
        }
        types.assign(static_cast<size_t>(number->i()), types[0]);
      }
      std::vector<std::string> names;
      for (size_t i = 0; i < types.size(); ++i) {
        names.push_back(types.size() == 1 ? arg.name() : fmt::format("{}_{}", arg.name(), i));
        pb::OpDef::ArgDef* const one = flat->Add();
        MG_RETURN_IF_ERROR(Take(names.back().size() + 16));
        one->set_name(names.back());
        one->set_type(static_cast<pb::DataType>(types[i]));
      }
      if (is_list) (*lists)[arg.name()] = std::move(names);
    }
    return Status();
  }

  // The single arguments that the reference means; nothing: it means no list.
  static std::optional<std::vector<std::string>> Meant(const Lists& lists,
                                                       const std::string& reference) {
    const auto found = lists.find(NameIn(reference));
    if (found == lists.end()) return std::nullopt;
    const std::vector<std::string>& all = found->second;
    const size_t colon = reference.find(':');
    if (colon == std::string::npos) return all;
    size_t index = all.size();
    const char* const end = reference.data() + reference.size();
    const auto read = std::from_chars(reference.data() + colon + 1, end, index);
    if (read.ec != std::errc() || read.ptr != end || index >= all.size()) return std::nullopt;
    return std::vector{all[index]};
  }

  Status FlattenInputs(const Lists& lists,
                       google::protobuf::RepeatedPtrField<std::string>* inputs) {
    if (lists.empty()) return Status();
    google::protobuf::RepeatedPtrField<std::string> flat;
    for (const std::string& input : *inputs) {
      const auto meant = Meant(lists, input);
      if (!meant) {
        *flat.Add() = input;
        continue;
      }
      for (const std::string& name : *meant) {
        MG_RETURN_IF_ERROR(Take(name.size() + 16));
        *flat.Add() = (input.starts_with('^') ? "^" : "") + name;
      }
    }
    inputs->Swap(&flat);
    return Status();
  }

  // A list of results comes from a list of arguments, "x", or of outputs, "node:output".
  static Status FlattenResults(const Lists& arguments, const Lists& results,
                               google::protobuf::Map<std::string, std::string>* ret) {
    for (auto& [name, source] : *ret) {
      if (results.contains(name)) continue;
      if (const auto meant = Meant(arguments, source); meant && meant->size() == 1)
        source = meant->front();
    }
    for (const auto& [name, flat] : results) {
      const auto found = ret->find(name);
      if (found == ret->end()) continue;  // whoever reads the function says so
      const std::string source = found->second;
      ret->erase(found);
      const auto meant = Meant(arguments, source);
      for (size_t i = 0; i < flat.size(); ++i) {
        const bool whole = std::count(source.begin(), source.end(), ':') == 1;
        (*ret)[flat[i]] = meant   ? (i < meant->size() ? (*meant)[i] : std::string())
                          : whole ? fmt::format("{}:{}", source, i)
                                  : source;
      }
    }
    return Status();
  }

  GraphDef* const def_;
  std::map<std::string, pb::FunctionDef, std::less<>> generic_;
  std::set<std::string> taken_;              // by functions of the library
  std::map<std::string, std::string> made_;  // of what, by the instance's name
  std::vector<Made> open_;
  uint64_t bytes_ = 0;
};

}  // namespace

bool HasFunctionAttributes(const pb::FunctionDefLibrary& library) {
  return std::any_of(
      library.function().begin(), library.function().end(),
      [](const pb::FunctionDef& function) { return function.signature().attr_size() > 0; });
}

Status InstantiateFunctions(GraphDef* def) { return Instances(def).Run(); }

}  // namespace monograph
