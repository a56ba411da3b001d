// GraphFromDef and ParseGraph. What a file says is not trusted: every reference is checked, and
// cycles are found, before a node is added.
#include <fmt/core.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph/attr_proto.h"
#include "graph/function.h"
#include "graph/function_instances.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "graph/names.h"
#include "graph/plain_nodes.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

// The last version of TensorFlow's GraphDefs in which a placeholder of unknown rank is written as a
// scalar.
constexpr int kUnknownRankIsScalar = 21;

using FunctionDefs = std::unordered_map<std::string, const pb::FunctionDef*>;

// Of an argument or result. References count as values.
Result<DType> TypeOf(const pb::OpDef::ArgDef& arg, const std::string& context) {
  if (!IsTypeNumber(arg.type())) {
    return InvalidArgument(fmt::format("{}: argument {} is of type {}, which there is not", context,
                                       Quoted(arg.name()), static_cast<int>(arg.type())));
  }
  return static_cast<DType>(arg.type() > 100 ? arg.type() - 100 : arg.type());
}

// The nodes of one GraphDef or FunctionDef on their way into a Graph.
class NodeLoader {
 public:
  using Nodes = google::protobuf::RepeatedPtrField<pb::NodeDef>;

  // `context`: "" or "function 'f', ". `producer`: the GraphDef's version. `functions`: those that
  // are being loaded; of others the graph's library tells. Arguments of a function are in `graph`
  // already, under the ids in `arguments`.
  NodeLoader(const Nodes& nodes, std::string context, bool in_function, int producer,
             const FunctionDefs& functions, const ImportOptions& options, uint64_t* expandable,
             Graph* graph)
      : nodes_(nodes),
        context_(std::move(context)),
        in_function_(in_function),
        producer_(producer),
        functions_(functions),
        options_(options),
        expandable_(expandable),
        graph_(graph) {}

  void AddArgument(const std::string& name, NodeId id) { arguments_.emplace(name, id); }

  // A tensor that is read besides the nodes' inputs: the result of a function. Before Load.
  void ExpectResult(const std::string& text) { results_.push_back(text); }

  Status Load() {
    MG_RETURN_IF_ERROR(IndexNames());
    const auto count = static_cast<size_t>(nodes_.size());
    sources_.resize(count);
    for (int i = 0; i < nodes_.size(); ++i) MG_RETURN_IF_ERROR(ReadInputs(i));
    MG_ASSIGN_OR_RETURN(const std::vector<int> order, Order());
    ids_.assign(count, -1);
    CountUnknownOutputs();
    graph_->Reserve(nodes_.size() + graph_->num_nodes());
    for (int i : order) MG_RETURN_IF_ERROR(Add(i));
    return CloseLoops();
  }

  // The tensor that `text` names, after Load; as in the input of a node.
  Result<Endpoint> Resolve(const std::string& text) {
    Source source;
    if (!ReadSource(text, &source) || source.control)
      return InvalidArgument(fmt::format("'{}' names no tensor", text));
    return Resolve(source);
  }

 private:
  struct Source {
    int node = -1;         // index in nodes_, or
    NodeId argument = -1;  // id in graph_ of what was there before
    bool control = false;
    int64_t index = 0;
    std::string_view output;  // in functions: which named output `index` counts in
  };

  std::string Describe(int i) const {
    return context_ + "node " + Quoted(nodes_[i].name()) + " (" + nodes_[i].op() + ")";
  }

  Status IndexNames() {
    index_.reserve(static_cast<size_t>(nodes_.size()));
    for (int i = 0; i < nodes_.size(); ++i) {
      const std::string& name = nodes_[i].name();
      if (!IsNodeName(name)) return InvalidArgument(Describe(i) + ": the name is not valid");
      if (nodes_[i].op().empty()) return InvalidArgument(Describe(i) + ": the node has no op");
      if (!index_.emplace(name, i).second || arguments_.contains(name) ||
          (!in_function_ && graph_->Find(name) >= 0)) {
        return InvalidArgument(Describe(i) + ": there are two nodes of that name");
      }
    }
    return Status();
  }

  bool ReadSource(std::string_view text, Source* source) const {
    if (text.starts_with('^')) {
      source->control = true;
      text.remove_prefix(1);
    }
    std::string_view name = text;
    if (const size_t colon = text.find(':'); colon != std::string_view::npos && !source->control) {
      name = text.substr(0, colon);
      std::string_view rest = text.substr(colon + 1);
      if (const size_t second = rest.find(':'); second != std::string_view::npos) {
        if (!in_function_) return false;
        source->output = rest.substr(0, second);
        rest = rest.substr(second + 1);
      } else if (in_function_ && !rest.empty() &&
                 !std::isdigit(static_cast<unsigned char>(rest[0]))) {
        source->output = rest;  // "node:output" is short for "node:output:0"
        rest = "0";
      }
      const auto [end, error] =
          std::from_chars(rest.data(), rest.data() + rest.size(), source->index);
      if (error != std::errc() || end != rest.data() + rest.size()) return false;
      if (source->index < 0 || source->index > 65'535) return false;
    }
    if (const auto argument = arguments_.find(name); argument != arguments_.end()) {
      source->argument = argument->second;
      return true;
    }
    if (const auto found = index_.find(name); found != index_.end()) {
      source->node = found->second;
      return true;
    }
    // In functions all that is in the graph before is an argument.
    source->argument = in_function_ ? -1 : graph_->Find(name);
    return source->argument >= 0;
  }

  Status ReadInputs(int i) {
    const std::string* control = nullptr;
    for (const std::string& input : nodes_[i].input()) {
      Source source;
      if (ReadSource(input, &source)) {
        if (source.control) {
          control = &input;
        } else if (control != nullptr) {
          return InvalidArgument(
              fmt::format("{}: input '{}' comes after control input '{}'; control inputs come last",
                          Describe(i), input, *control));
        }
        sources_[static_cast<size_t>(i)].push_back(source);
        continue;
      }
      const std::string_view bare = std::string_view(input).substr(input.starts_with('^') ? 1 : 0);
      const std::string_view name = bare.substr(0, bare.find(':'));
      if (index_.contains(name) || arguments_.contains(name)) {
        return InvalidArgument(fmt::format("{}: input '{}' is not written as NODE, {} or ^NODE",
                                           Describe(i), input,
                                           in_function_ ? "NODE:OUTPUT:INDEX" : "NODE:OUTPUT"));
      }
      NearNames near(name);
      for (const auto& [known, index] : index_) near.Offer(known);
      return InvalidArgument(fmt::format("{}: input '{}' is not in the {}{}", Describe(i), input,
                                         in_function_ ? "function" : "graph", near.Hint()));
    }
    return Status();
  }

  // nullptr for the name of a function, too.
  const OpDef* OpOf(const std::string& name) const {
    return IsFunction(name) ? nullptr : graph_->registry().Find(name);
  }
  bool IsFunction(const std::string& name) const {
    return graph_->functions().Find(name) != nullptr || functions_.contains(name);
  }

  FlowOp Flow(int i) const {
    const OpDef* op = OpOf(nodes_[i].op());
    return op == nullptr ? FlowOp::kNone : op->flow();
  }
  // As Graph::IsBackEdge; `source` is an input of node `i`.
  bool IsBackEdge(const Source& source, int i) const {
    return source.node >= 0 && !source.control && Flow(i) == FlowOp::kMerge &&
           Flow(source.node) == FlowOp::kNextIteration;
  }

  // Every source before its target, but for back edges of loops; otherwise as in the file.
  Result<std::vector<int>> Order() const {
    const auto count = sources_.size();
    std::vector<std::vector<int>> targets(count);
    for (size_t i = 0; i < count; ++i) {
      for (const Source& source : sources_[i]) {
        if (source.node >= 0 && !IsBackEdge(source, static_cast<int>(i)))
          targets[static_cast<size_t>(source.node)].push_back(static_cast<int>(i));
      }
    }
    const auto for_each_target = [&targets](int i, const auto& visit) {
      for (int target : targets[static_cast<size_t>(i)]) visit(target);
    };
    std::vector<int> order = TopologicalSort(count, NextReady::kSmallest, for_each_target);
    if (order.size() == count) return order;
    return InvalidArgument(fmt::format(
        "{}the graph has a cycle: {}", context_,
        CycleText(count, order, for_each_target, [this](int i) { return nodes_[i].name(); })));
  }

  Result<Endpoint> Resolve(const Source& source) {
    if (source.argument >= 0)
      return Endpoint{source.argument, in_function_ ? 0 : static_cast<int32_t>(source.index)};
    const NodeId id = ids_[static_cast<size_t>(source.node)];
    if (source.output.empty()) return Endpoint{id, static_cast<int32_t>(source.index)};
    if (!graph_->op(id).known()) return Endpoint{id, UnknownOutput(source)};
    if (const std::string& op = nodes_[source.node].op(); IsFunction(op)) {
      MG_ASSIGN_OR_RETURN(const int32_t index, ResultOf(op, source));
      return Endpoint{id, index};
    }
    int64_t first = 0;
    for (const ArgDef& arg : graph_->op(id).outputs()) {
      int64_t count = 1;
      if (!arg.number_attr.empty()) count = graph_->attrs(id).Get<int64_t>(arg.number_attr);
      if (!arg.type_list_attr.empty()) {
        count = static_cast<int64_t>(
            graph_->attrs(id).Get<std::vector<DType>>(arg.type_list_attr).size());
      }
      if (arg.name == source.output) {
        if (source.index < count) return Endpoint{id, static_cast<int32_t>(first + source.index)};
        return InvalidArgument(fmt::format("output '{}' of node '{}' has {} tensors, not {}",
                                           arg.name, graph_->name(id), count, source.index + 1));
      }
      first += count;
    }
    return InvalidArgument(fmt::format("op {} of node '{}' has no output '{}'",
                                       graph_->op(id).name(), graph_->name(id), source.output));
  }

  // The number of a function's result, by its name there; a list of results has become single ones
  // (graph/function_instances.h).
  Result<int32_t> ResultOf(const std::string& function, const Source& source) const {
    std::vector<std::string> names;
    if (const auto found = functions_.find(function); found != functions_.end()) {
      for (const auto& result : found->second->signature().output_arg())
        names.push_back(result.name());
    } else {
      const Function& known = *graph_->functions().Find(function);
      for (NodeId result : known.results) names.emplace_back(known.body->name(result));
    }
    const std::string name(source.output);
    auto at = std::find(names.begin(), names.end(), fmt::format("{}_{}", name, source.index));
    if (at == names.end() && source.index == 0) at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) return static_cast<int32_t>(at - names.begin());
    return InvalidArgument(
        fmt::format("function '{}' has no result '{}:{}'", function, name, source.index));
  }

  // In a function the outputs of an unknown op have names, and nothing says in which order the op
  // has them. "output", by which we write them, keeps its index, so that what we write is read as
  // it was; outputs of other names get the numbers that are left, as they are met.
  static bool IsNumbered(const Source& source) {
    return source.output.empty() || source.output == kUnknownOutput;
  }
  int32_t UnknownOutput(const Source& source) const {
    if (IsNumbered(source)) return static_cast<int32_t>(source.index);
    return unknown_outputs_.at(source.node).at({std::string(source.output), source.index});
  }

  // Which outputs of the nodes of unknown ops are read: nothing else says how many there are.
  void CountUnknownOutputs() {
    unknown_counts_.assign(sources_.size(), 0);
    std::map<int, std::set<int64_t>> numbered;
    std::vector<Source> named;
    const auto look = [&](const Source& source) {
      if (source.node < 0 || source.control || OpOf(nodes_[source.node].op()) != nullptr) return;
      if (!IsNumbered(source)) {
        named.push_back(source);
        return;
      }
      int64_t& count = unknown_counts_[static_cast<size_t>(source.node)];
      count = std::max(count, source.index + 1);
      if (in_function_) numbered[source.node].insert(source.index);
    };
    for (const auto& sources : sources_) {
      for (const Source& source : sources) look(source);
    }
    for (const std::string& text : results_) {
      if (Source source; ReadSource(text, &source)) look(source);
    }
    std::map<int, int32_t> next;
    for (const Source& source : named) {
      auto [output, added] =
          unknown_outputs_[source.node].try_emplace({std::string(source.output), source.index});
      if (!added) continue;
      int32_t& number = next[source.node];
      while (numbered[source.node].contains(number)) ++number;
      output->second = number++;
      int64_t& count = unknown_counts_[static_cast<size_t>(source.node)];
      count = std::max(count, int64_t{number});
    }
  }

  int UnknownOutputs(int i) const {
    return static_cast<int>(unknown_counts_[static_cast<size_t>(i)]);
  }

  Result<Attrs> ReadAttrs(int i, const OpDef* op) const {
    Attrs attrs;
    for (const auto& [name, proto] : nodes_[i].attr()) {
      const bool declared = op != nullptr && op->FindAttr(name) != nullptr;
      const bool wanted = op == nullptr || declared || IsKeptAttr(name) ||
                          (op->name() == "_Arg" && name == "_output_shapes");
      if (!wanted) continue;
      auto value = AttrFromProto(proto, expandable_);
      Status status = value.status();
      if (status.ok()) status = declared ? CheckHasValue(proto) : CheckTypeNumbers(proto);
      if (!declared && status.ok()) status = CheckKeptAttr(name, *value);
      if (!status.ok()) {
        if (!declared && !value.ok()) continue;
        return status.WithContext(fmt::format("attribute '{}'", name));
      }
      if (!std::holds_alternative<std::monostate>(*value)) attrs.Set(name, std::move(*value));
    }
    if (op != nullptr && op->name() == "Placeholder" && producer_ <= kUnknownRankIsScalar &&
        attrs.GetOr<PartialShape>("shape", PartialShape()) == PartialShape::Scalar()) {
      attrs.Set("shape", PartialShape());
    }
    if (op != nullptr) SetDefaults(*op, &attrs);
    return attrs;
  }

  Status Add(int i) {
    const pb::NodeDef& def = nodes_[i];
    std::vector<Endpoint> inputs;
    std::vector<NodeId> control;
    for (const Source& source : sources_[static_cast<size_t>(i)]) {
      if (source.control) {
        control.push_back(source.argument >= 0 ? source.argument
                                               : ids_[static_cast<size_t>(source.node)]);
        continue;
      }
      if (IsBackEdge(source, i)) {
        back_edges_.push_back({i, static_cast<int>(inputs.size()), source});
        inputs.emplace_back();
        continue;
      }
      auto input = Resolve(source);
      if (!input.ok()) return input.status().WithContext(Describe(i));
      inputs.push_back(*input);
    }
    const bool loops = std::any_of(inputs.begin(), inputs.end(),
                                   [](const Endpoint& input) { return !input.valid(); });
    if (loops) MG_RETURN_IF_ERROR(FillBackEdges(i, &inputs));
    NodeSpec spec{def.name(), def.op(), inputs, control, nullptr, def.device()};
    const OpDef* op = OpOf(def.op());
    auto attrs = ReadAttrs(i, op);
    if (!attrs.ok()) return attrs.status().WithContext(Describe(i));
    if (op == nullptr) {
      if (const Function* function =
              graph_->functions().Find(def.op())) {  // the old way to write a call
        spec.op = function->stateful ? "StatefulPartitionedCall" : "PartitionedCall";
        *attrs = CallAttrs(*function);
        op = graph_->registry().Find(spec.op);
      } else if (const auto found = functions_.find(def.op()); found != functions_.end()) {
        const pb::OpDef& signature = found->second->signature();  // of a function around this node
        spec.op = signature.is_stateful() ? "StatefulPartitionedCall" : "PartitionedCall";
        MG_ASSIGN_OR_RETURN(*attrs, CallAttrs(signature));
        op = graph_->registry().Find(spec.op);
      }
    }
    if (!attrs->empty()) spec.attrs = std::make_shared<const Attrs>(std::move(*attrs));
    if (op == nullptr && !options_.keep_unknown_ops) {
      return graph_->registry().Require(def.op()).status().WithContext(
          fmt::format("{}node '{}'", context_, def.name()));
    }
    auto added =
        op != nullptr ? graph_->AddNode(spec) : graph_->AddUnknownNode(spec, UnknownOutputs(i));
    if (!added.ok())
      return context_.empty() ? added.status() : added.status().WithContext(context_ + "body");
    ids_[static_cast<size_t>(i)] = *added;
    // What later iterations bring is not known yet: any shape.
    if (loops) graph_->SetShape({*added, 0}, PartialShape());
    return Status();
  }

  // Until the loop is closed, what enters it stands for what its next iterations bring.
  Status FillBackEdges(int i, std::vector<Endpoint>* inputs) const {
    const auto enters = std::find_if(inputs->begin(), inputs->end(),
                                     [](const Endpoint& input) { return input.valid(); });
    if (enters == inputs->end())
      return InvalidArgument(Describe(i) + ": nothing enters this loop, all inputs come from it");
    const Endpoint first = *enters;
    for (Endpoint& input : *inputs) {
      if (!input.valid()) input = first;
    }
    return Status();
  }

  Status CloseLoops() {
    for (const BackEdge& edge : back_edges_) {
      const NodeId merge = ids_[static_cast<size_t>(edge.target)];
      auto source = Resolve(edge.source);
      if (source.ok() && (source->index >= graph_->num_outputs(source->node) ||
                          graph_->dtype(*source) != graph_->dtype({merge, 0}))) {
        source = InvalidArgument(fmt::format("input {} must be {}, but '{}' is not", edge.input,
                                             DTypeName(graph_->dtype({merge, 0})),
                                             nodes_[edge.target].input(edge.input)));
      }
      if (!source.ok()) return source.status().WithContext(Describe(edge.target));
      graph_->ReplaceInput(merge, edge.input, *source);
    }
    return Status();
  }

  static Attrs CallAttrs(const Function& function) {
    std::vector<DType> in, out;
    for (NodeId arg : function.args) in.push_back(function.body->attrs(arg).Get<DType>("T"));
    for (NodeId result : function.results)
      out.push_back(function.body->attrs(result).Get<DType>("T"));
    return Attrs{
        {"f", FunctionName{function.name}}, {"Tin", std::move(in)}, {"Tout", std::move(out)}};
  }

  static Result<Attrs> CallAttrs(const pb::OpDef& signature) {
    const auto types_of = [&](const auto& args) -> Result<std::vector<DType>> {
      std::vector<DType> types;
      for (const auto& arg : args) {
        MG_ASSIGN_OR_RETURN(const DType type, TypeOf(arg, "function " + Quoted(signature.name())));
        types.push_back(type);
      }
      return types;
    };
    MG_ASSIGN_OR_RETURN(std::vector<DType> in, types_of(signature.input_arg()));
    MG_ASSIGN_OR_RETURN(std::vector<DType> out, types_of(signature.output_arg()));
    return Attrs{
        {"f", FunctionName{signature.name()}}, {"Tin", std::move(in)}, {"Tout", std::move(out)}};
  }

  const Nodes& nodes_;
  const std::string context_;
  const bool in_function_;
  const int producer_;
  const FunctionDefs& functions_;
  const ImportOptions& options_;
  uint64_t* const expandable_;  // graph/attr_proto.h
  Graph* graph_;
  std::unordered_map<std::string_view, int> index_;
  std::unordered_map<std::string_view, NodeId> arguments_;
  std::vector<std::vector<Source>> sources_;
  std::vector<NodeId> ids_;
  // By node, name and index there: the number of the output.
  std::unordered_map<int, std::map<std::pair<std::string, int64_t>, int32_t>> unknown_outputs_;
  std::vector<int64_t> unknown_counts_;
  std::vector<std::string> results_;
  struct BackEdge {
    int target, input;  // index in nodes_, and which of its inputs
    Source source;
  };
  std::vector<BackEdge> back_edges_;
};

// That what nodes from `first` on are to be with is in the graph.
Status CheckColocations(const Graph& graph, NodeId first) {
  constexpr std::string_view kPrefix = "loc:@";
  for (NodeId node = first; node < graph.num_nodes(); ++node) {
    const AttrValue* value = graph.attrs(node).Find("_class");
    const auto* classes = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
    if (classes == nullptr) continue;
    for (const std::string_view text : *classes) {
      if (!text.starts_with(kPrefix)) continue;
      const std::string_view anchor = text.substr(kPrefix.size());
      if (graph.Find(anchor) >= 0) continue;
      NearNames near(anchor);
      for (NodeId other = 0; other < graph.num_nodes(); ++other) near.Offer(graph.name(other));
      return InvalidArgument(fmt::format(
          "node {} ({}): attribute '_class': it is to be colocated with node {}, which "
          "is not in the graph{}",
          Quoted(graph.name(node)), graph.op(node).name(), Quoted(anchor), near.Hint()));
    }
  }
  return Status();
}

class GraphLoader {
 public:
  GraphLoader(const GraphDef& def, const OpRegistry* registry, const ImportOptions& options)
      : GraphLoader(def, options, Graph(registry)) {}
  // Adds to `graph`.
  GraphLoader(const GraphDef& def, const ImportOptions& options, Graph graph)
      : def_(def),
        options_(options),
        expandable_(options.most_expanded_bytes),
        graph_(std::move(graph)) {
    for (const auto& [name, function] : graph_.functions().all()) started_.insert(name);
  }

  Result<Graph> Load() {
    for (const pb::FunctionDef& function : def_.library().function()) {
      const std::string& name = function.signature().name();
      if (!functions_.emplace(name, &function).second) {
        return InvalidArgument(fmt::format("function '{}' is in the library twice", name));
      }
    }
    for (const pb::FunctionDef& function : def_.library().function())
      MG_RETURN_IF_ERROR(LoadFunction(function));
    NodeLoader nodes(def_.node(), "", false, producer(), functions_, options_, &expandable_,
                     &graph_);
    const NodeId first = graph_.num_nodes();
    MG_RETURN_IF_ERROR(nodes.Load());
    if (!options_.keep_lost_colocations) MG_RETURN_IF_ERROR(CheckColocations(graph_, first));
    return std::move(graph_);
  }
  // What of ImportOptions::most_expanded_bytes Load has left.
  uint64_t expandable() const { return expandable_; }

 private:
  // Called functions first, so that calls know their shapes; of a function that calls itself they
  // do not.
  Status LoadCalled(const pb::FunctionDef& def) {
    for (const pb::NodeDef& node : def.node_def()) {
      MG_RETURN_IF_ERROR(LoadNamed(node.op()));
      for (const auto& [name, value] : node.attr()) {
        if (value.has_func()) MG_RETURN_IF_ERROR(LoadNamed(value.func().name()));
        for (const auto& branch : value.list().func()) MG_RETURN_IF_ERROR(LoadNamed(branch.name()));
      }
    }
    return Status();
  }
  Status LoadNamed(const std::string& name) {
    const auto found = functions_.find(name);
    return found == functions_.end() ? Status() : LoadFunction(*found->second);
  }

  Status LoadFunction(const pb::FunctionDef& def) {
    const pb::OpDef& signature = def.signature();
    const std::string context = "function " + Quoted(signature.name());
    if (!started_.insert(signature.name()).second) return Status();
    if (++depth_ > 100) return InvalidArgument(context + ": functions call each other too deeply");
    MG_RETURN_IF_ERROR(LoadCalled(def));
    --depth_;
    Graph body(&graph_.registry());
    body.ShareFunctions(graph_.shared_functions());
    NodeLoader nodes(def.node_def(), context + ", ", true, producer(), functions_, options_,
                     &expandable_, &body);
    for (int i = 0; i < signature.input_arg_size(); ++i) {
      const auto& arg = signature.input_arg(i);
      MG_ASSIGN_OR_RETURN(const DType type, TypeOf(arg, context));
      Attrs attrs{{"T", type}, {"index", int64_t{i}}};
      if (const auto extra = def.arg_attr().find(static_cast<uint32_t>(i));
          extra != def.arg_attr().end()) {
        const auto shapes = extra->second.attr().find("_output_shapes");
        if (shapes != extra->second.attr().end()) {
          auto value = AttrFromProto(shapes->second, &expandable_);
          if (value.ok()) attrs.Set("_output_shapes", std::move(*value));
        }
      }
      auto added = body.AddNode({.name = arg.name(),
                                 .op = "_Arg",
                                 .attrs = std::make_shared<const Attrs>(std::move(attrs))});
      if (!added.ok()) return added.status().WithContext(context);
      nodes.AddArgument(arg.name(), *added);
    }
    for (const auto& [name, source] : def.ret()) nodes.ExpectResult(source);
    MG_RETURN_IF_ERROR(nodes.Load());
    for (int i = 0; i < signature.output_arg_size(); ++i) {
      const auto& output = signature.output_arg(i);
      const auto found = def.ret().find(output.name());
      if (found == def.ret().end()) {
        return InvalidArgument(
            fmt::format("{}: result '{}' comes from nowhere", context, output.name()));
      }
      auto source = nodes.Resolve(found->second);
      if (!source.ok())
        return source.status().WithContext(fmt::format("{}: result '{}'", context, output.name()));
      const Endpoint input[] = {*source};
      MG_ASSIGN_OR_RETURN(const DType type, TypeOf(output, context));
      Attrs attrs{{"T", type}, {"index", int64_t{i}}};
      auto added = body.AddNode(
          {.name = body.UniqueName(IsNodeName(output.name()) ? output.name() : "result"),
           .op = "_Retval",
           .inputs = input,
           .attrs = std::make_shared<const Attrs>(std::move(attrs))});
      if (!added.ok()) return added.status().WithContext(context);
    }
    // A body must not own the library that owns it.
    body.ShareFunctions(std::make_shared<FunctionLibrary>());
    MG_ASSIGN_OR_RETURN(
        Function function,
        Function::Make(signature.name(), std::make_shared<const Graph>(std::move(body))));
    return graph_.functions().Add(std::move(function));
  }

  int producer() const { return def_.versions().producer(); }

  const GraphDef& def_;
  const ImportOptions& options_;
  uint64_t expandable_;
  Graph graph_;
  FunctionDefs functions_;
  std::set<std::string> started_;
  int depth_ = 0;
};

}  // namespace

Result<Graph> GraphFromDef(const GraphDef& def, const OpRegistry* registry,
                           const ImportOptions& options) {
  if (!HasFunctionAttributes(def.library())) return GraphLoader(def, registry, options).Load();
  GraphDef plain = def;
  MG_RETURN_IF_ERROR(InstantiateFunctions(&plain));
  return GraphLoader(plain, registry, options).Load();
}

Result<Graph> ExtendGraph(const Graph& graph, const GraphDef& def, const ImportOptions& options) {
  if (HasFunctionAttributes(def.library())) {
    GraphDef plain = def;
    MG_RETURN_IF_ERROR(InstantiateFunctions(&plain));
    return ExtendGraph(graph, plain, options);
  }
  Graph copy(&graph.registry());
  // Steps may be reading the library of the graph as it was.
  copy.ShareFunctions(std::make_shared<FunctionLibrary>(graph.functions()));
  copy.Reserve(graph.num_nodes() + def.node_size());
  for (NodeId id = 0; id < graph.num_nodes(); ++id)
    copy.CopyNode(graph, id, graph.name(id), graph.inputs(id), graph.control_inputs(id));
  return GraphLoader(def, options, std::move(copy)).Load();
}

namespace {

// A graph whose nodes come in order and hold no surprise; nothing for others. The library, of which
// each daemon has one per model, is read by way of messages.
std::optional<Graph> ParsePlainGraph(std::string_view bytes, const OpRegistry* registry,
                                     const ImportOptions& options) {
  const auto fields = SplitGraphDef(bytes);
  if (!fields || fields->library.size() > INT32_MAX || fields->producer <= kUnknownRankIsScalar)
    return std::nullopt;
  GraphDef library;
  library.mutable_versions()->set_producer(fields->producer);
  if (!fields->library.empty() &&
      !library.mutable_library()->ParseFromArray(fields->library.data(),
                                                 static_cast<int>(fields->library.size()))) {
    return std::nullopt;
  }
  if (HasFunctionAttributes(library.library())) return std::nullopt;
  GraphLoader loader(library, registry, options);
  auto graph = loader.Load();
  if (!graph.ok() || !AddPlainNodes(fields->nodes, loader.expandable(), &*graph))
    return std::nullopt;
  if (!options.keep_lost_colocations && !CheckColocations(*graph, 0).ok()) return std::nullopt;
  return std::move(*graph);
}

Status ParseDef(std::string_view bytes, GraphDef* def) {
  if (bytes.size() <= INT32_MAX &&
      def->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Status();
  return InvalidArgument(fmt::format("these {} bytes are no GraphDef", bytes.size()));
}

}  // namespace

Result<Graph> ParseGraph(std::string_view bytes, const OpRegistry* registry,
                         const ImportOptions& options) {
  const google::protobuf::LogSilencer silence;  // the error that we return is enough
  if (auto plain = ParsePlainGraph(bytes, registry, options)) return std::move(*plain);
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<GraphDef>(&arena);
  MG_RETURN_IF_ERROR(ParseDef(bytes, def));
  return GraphFromDef(*def, registry, options);
}

Result<Graph> ExtendGraph(const Graph& graph, std::string_view bytes,
                          const ImportOptions& options) {
  const google::protobuf::LogSilencer silence;
  google::protobuf::Arena arena;
  auto* def = google::protobuf::Arena::CreateMessage<GraphDef>(&arena);
  MG_RETURN_IF_ERROR(ParseDef(bytes, def));
  return ExtendGraph(graph, *def, options);
}

}  // namespace monograph
