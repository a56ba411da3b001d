// SerializeGraph and GraphToDef. Nodes are written straight in wire format, the attributes of nodes
// that share them encoded once: a graph of 100,000 nodes has a few dozen different sets.
#include <cctype>
#include <charconv>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/attr_proto.h"
#include "graph/function.h"
#include "graph/function_def.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "graph/names.h"
#include "graph/wire.h"

namespace monograph {
namespace {

constexpr int kProducer = 27;  // of TensorFlow 1.x; older and newer readers accept it

void PutAttr(std::string* out, std::string_view name, const AttrValue& value) {
  pb::AttrValue proto;
  AttrToProto(value, &proto);
  std::string entry;
  wire_format::PutBytes(&entry, 1, name);
  wire_format::PutBytes(&entry, 2, BytesOf(proto));
  wire_format::PutBytes(out, 5, entry);
}

// The fields `attr` of a NodeDef.
class AttrEncoder {
 public:
  const std::string& Encode(const std::shared_ptr<const Attrs>& attrs) {
    const auto [found, added] = encoded_.try_emplace(attrs.get());
    if (added) {
      for (const auto& [name, value] : attrs->values()) PutAttr(&found->second, name, value);
    }
    return found->second;
  }

 private:
  std::unordered_map<const Attrs*, std::string> encoded_;
};

// Appends nodes of one graph; `input_text` appends the text of one data input.
template <typename InputText>
class NodeWriter {
 public:
  NodeWriter(const Graph& graph, AttrEncoder* attrs, InputText input_text)
      : graph_(graph), attrs_(attrs), input_text_(std::move(input_text)) {
    for (const DeviceName& device : graph.devices()) devices_.push_back(device.ToString());
  }

  // `field`: of the message that holds the nodes.
  void Put(NodeId id, int field, std::string* out) {
    node_.clear();
    wire_format::PutBytes(&node_, 1, graph_.name(id));
    wire_format::PutBytes(&node_, 2, graph_.op(id).name());
    for (const Endpoint input : graph_.inputs(id)) {
      text_.clear();
      input_text_(input, &text_);
      wire_format::PutBytes(&node_, 3, text_);
    }
    for (NodeId control : graph_.control_inputs(id)) {
      text_ = "^";
      text_ += graph_.name(control);
      wire_format::PutBytes(&node_, 3, text_);
    }
    const std::string& device = devices_[static_cast<size_t>(graph_.device_index(id))];
    if (!device.empty()) wire_format::PutBytes(&node_, 4, device);
    const std::string& attrs = attrs_->Encode(graph_.shared_attrs(id));
    out->push_back(static_cast<char>(field << 3 | 2));
    wire_format::PutVarint(out, node_.size() + attrs.size());
    *out += node_;
    *out += attrs;
  }

 private:
  const Graph& graph_;
  AttrEncoder* attrs_;
  InputText input_text_;
  std::vector<std::string> devices_;
  std::string node_, text_;
};

void AppendNumber(std::string* out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out->append(digits, end);
}

// Arguments and results of TensorFlow's functions are named like "x_1": lower case, no slashes.
class ArgNames {
 public:
  // Names of body nodes are taken: both stand in one namespace.
  explicit ArgNames(const Graph& body) {
    for (NodeId id = 0; id < body.num_nodes(); ++id) {
      if (!body.is(id, "_Arg") && !body.is(id, "_Retval")) taken_.emplace(body.name(id));
    }
  }
  std::string Make(std::string_view wanted) {
    std::string name;
    for (char c : wanted) {
      const auto u = static_cast<unsigned char>(c);
      name += std::isalnum(u) ? static_cast<char>(std::tolower(u)) : '_';
    }
    if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0]))) name = "arg_" + name;
    const std::string base = name;
    for (int i = 1; !taken_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }

 private:
  std::unordered_set<std::string> taken_;
};

// "product:0" for output k of a node: which named output it belongs to.
void AppendOutputName(const Graph& body, Endpoint e, std::string* out) {
  int64_t first = 0;
  for (const ArgDef& arg : body.op(e.node).outputs()) {
    int64_t count = 1;
    const Attrs& attrs = body.attrs(e.node);
    if (!arg.number_attr.empty()) count = attrs.GetOr<int64_t>(arg.number_attr, 0);
    if (!arg.type_list_attr.empty()) {
      count = static_cast<int64_t>(attrs.GetOr<std::vector<DType>>(arg.type_list_attr, {}).size());
    }
    if (e.index < first + count) {
      *out += arg.name + ":";
      AppendNumber(out, e.index - first);
      return;
    }
    first += count;
  }
  *out += kUnknownOutput;  // an op that we do not know: its names are lost
  *out += ':';
  AppendNumber(out, e.index);
}

}  // namespace

std::string SerializeFunction(const Function& function) {
  const Graph& body = *function.body;
  ArgNames names(body);
  std::unordered_map<NodeId, std::string> arg_names;
  pb::FunctionDef def;
  auto* signature = def.mutable_signature();
  signature->set_name(function.name);
  signature->set_is_stateful(function.stateful);
  for (size_t i = 0; i < function.args.size(); ++i) {
    const Endpoint arg{function.args[i], 0};
    auto* input = signature->add_input_arg();
    input->set_name(names.Make(body.name(arg.node)));
    input->set_type(static_cast<pb::DataType>(body.dtype(arg)));
    arg_names[arg.node] = input->name();
    if (body.shape(arg).known_rank()) {
      auto& attrs = (*def.mutable_arg_attr())[static_cast<uint32_t>(i)];
      AttrToProto(std::vector<PartialShape>{body.shape(arg)},
                  &(*attrs.mutable_attr())["_output_shapes"]);
    }
  }
  const auto input_text = [&](Endpoint e, std::string* out) {
    const auto arg = arg_names.find(e.node);
    if (arg != arg_names.end()) {
      *out += arg->second;
      return;
    }
    *out += body.name(e.node);
    *out += ':';
    AppendOutputName(body, e, out);
  };
  for (const NodeId result : function.results) {
    auto* output = signature->add_output_arg();
    output->set_name(names.Make(body.name(result)));
    const Endpoint source = body.inputs(result)[0];
    output->set_type(
        static_cast<pb::DataType>(body.attrs(result).GetOr<DType>("T", body.dtype(source))));
    input_text(source, &(*def.mutable_ret())[output->name()]);
  }
  AttrEncoder attrs;
  NodeWriter writer(body, &attrs, input_text);
  std::string nodes;
  for (NodeId id = 0; id < body.num_nodes(); ++id) {
    if (body.is(id, "_Arg") || body.is(id, "_Retval")) continue;
    writer.Put(id, 3, &nodes);
    if (body.op(id).stateful()) {
      const std::string name(body.name(id));
      signature->add_control_output(name);
      (*def.mutable_control_ret())[name] = name;
    }
  }
  return BytesOf(def) + nodes;  // concatenated messages are one message
}

std::string SerializeGraph(const Graph& graph) {
  AttrEncoder attrs;
  NodeWriter writer(graph, &attrs, [&graph](Endpoint e, std::string* out) {
    *out += graph.name(e.node);
    if (e.index == 0) return;
    *out += ':';
    AppendNumber(out, e.index);
  });
  std::string bytes;
  bytes.reserve(static_cast<size_t>(graph.num_nodes()) * 128);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) writer.Put(id, 1, &bytes);
  if (!graph.functions().empty()) {
    std::string library;
    for (const auto& [name, function] : graph.functions().all()) {
      wire_format::PutBytes(&library, 1, SerializeFunction(function));
    }
    wire_format::PutBytes(&bytes, 2, library);
  }
  std::string versions;
  versions.push_back(1 << 3);
  wire_format::PutVarint(&versions, kProducer);
  wire_format::PutBytes(&bytes, 4, versions);
  return bytes;
}

void GraphToDef(const Graph& graph, GraphDef* def) {
  const bool parsed = def->ParseFromString(SerializeGraph(graph));
  MG_CHECK(parsed);
}

}  // namespace monograph
