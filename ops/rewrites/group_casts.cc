// GroupCasts in two phases. Find collects, for each GPU, the casts of variables and the
// convolutions whose filter is transposed, and drops groups that would save less than two launches.
// Run then copies the graph, with each group's node at the front, directly after the variable reads
// that it needs. The values in a group depend on nothing but variables, so its node can stand there
// without making a cycle. Gradients of filters are grouped by the update that alone reads them; the
// node that transposes them stands before that.
#include "ops/rewrites/group_casts.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ops/rewrites/rewrite.h"

namespace monograph {
namespace {

class CastGrouper {
 public:
  explicit CastGrouper(const Graph& graph)
      : graph_(graph), consumers_(graph), done_(static_cast<size_t>(graph.num_nodes())) {}

  // True if there is anything to do.
  bool Find() {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (IsCast(id)) AddCast(id);
      if (TurnsFilter(id)) AddTurned(id, graph_.inputs(id)[1]);
      if (const NodeId update = UpdateByTurned(id); update >= 0) gradients_[update].push_back(id);
    }
    std::erase_if(groups_, [](const auto& group) { return group.second.spared < 2; });
    std::erase_if(gradients_, [](const auto& group) { return group.second.size() < 2; });
    return !groups_.empty() || !gradients_.empty();
  }

  // The groups' nodes come first, directly after the reads of variables that they need, which need
  // nothing else.
  Result<Graph> Run() {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    Rewrite out(graph_);
    for (auto& [device, group] : groups_) MG_RETURN_IF_ERROR(AddGroup(&group, &out));
    for (NodeId id : order) {
      if (done_[static_cast<size_t>(id)]) continue;
      const Group* group = GroupOf(id);
      if (group != nullptr && group->convolutions.contains(id)) {
        MG_RETURN_IF_ERROR(AddConvolution(id, *group, &out));
        continue;
      }
      if (gradients_.contains(UpdateByTurned(id))) {
        MG_RETURN_IF_ERROR(AddGradient(id, &out));
        continue;
      }
      if (gradients_.contains(id)) MG_RETURN_IF_ERROR(AddTurns(id, &out));
      out.Copy(id);
    }
    return out.Finish();
  }

 private:
  // One output of a group's node: the value that it copies, the type of the copy, and whether the
  // last dimension comes first in it.
  struct Copy {
    Endpoint value;
    DType type;
    bool last_first;
    friend auto operator<=>(const Copy&, const Copy&) = default;
  };
  // The group of one GPU.
  struct Group {
    std::map<Copy, int> copies;           // to the node's output
    std::vector<NodeId> casts;            // that the node replaces
    std::map<NodeId, Copy> convolutions;  // whose filter is one of its outputs
    int spared = 0;                       // launches that the node saves
    NodeId made = -1;
  };

  const Group* GroupOf(NodeId id) const {
    const auto found = groups_.find(graph_.device_index(id));
    return found == groups_.end() ? nullptr : &found->second;
  }

  // A cast of a variable to 16 bits.
  bool IsCast(NodeId id) const {
    if (!graph_.is(id, "Cast") || graph_.device(id).type != kGpu ||
        !graph_.control_inputs(id).empty())
      return false;
    const Attrs& attrs = graph_.attrs(id);
    const DType to = attrs.Get<DType>("DstT");
    return attrs.Get<DType>("SrcT") == DT_FLOAT && (to == DT_HALF || to == DT_BFLOAT16) &&
           !attrs.GetOr<bool>("Truncate", false) &&
           IsValueOfVariable(graph_.inputs(id)[0].node, graph_.device_index(id));
  }

  // Whether the node reads a variable of the device, by few nodes, and waits for nothing. A client
  // may send any number of nodes behind each other, which a recursion (CopyWithInputs) must not
  // follow.
  bool IsValueOfVariable(NodeId id, DeviceIndex device) const {
    constexpr int kMostNodes = 16;
    for (int i = 0; i < kMostNodes; ++i, id = graph_.inputs(id)[0].node) {
      if (graph_.device_index(id) != device || !graph_.control_inputs(id).empty()) return false;
      if (graph_.is(id, "VarHandleOp")) return true;
      if (!graph_.is(id, "ReadVariableOp") && !graph_.is(id, "Identity")) return false;
    }
    return false;
  }

  // Whether the node is a convolution that would transpose its filter for cuDNN, and the filter is
  // the value of a variable or a cast of it.
  bool TurnsFilter(NodeId id) const {
    const bool forward = graph_.is(id, "Conv2D") || graph_.is(id, "_FusedConv2D");
    if ((!forward && !graph_.is(id, "Conv2DBackpropInput")) || graph_.device(id).type != kGpu ||
        graph_.dtype({id, 0}) == DT_DOUBLE)
      return false;
    const Endpoint filter = graph_.inputs(id)[1];
    if (!LiesOtherwise(id, graph_.shape(filter))) return false;
    if (graph_.device_index(filter.node) != graph_.device_index(id)) return false;
    return IsCast(filter.node) || (graph_.dtype(filter) == DT_FLOAT &&
                                   IsValueOfVariable(filter.node, graph_.device_index(id)));
  }

  // Whether cuDNN wants a filter of this shape in another layout for the convolution `id`.
  bool LiesOtherwise(NodeId id, const PartialShape& shape) const {
    const Attrs& attrs = graph_.attrs(id);
    if (attrs.GetOr<std::string>("data_format", "NHWC") != "NHWC" ||
        attrs.GetOr<bool>("filter_last_first", false))
      return false;
    if (!shape.fully_known() || shape.rank() != 4) return false;
    const auto strides = attrs.Get<std::vector<int64_t>>("strides");
    const bool one = std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 1; });
    return shape.dim(0) != 1 || shape.dim(1) != 1 || !one;
  }

  // The update of many variables that alone reads the gradient of a filter, if `id` is one that
  // cuDNN lays otherwise; -1 if not.
  NodeId UpdateByTurned(NodeId id) const {
    if (!graph_.is(id, "Conv2DBackpropFilter") || graph_.device(id).type != kGpu ||
        graph_.dtype({id, 0}) == DT_DOUBLE || !LiesOtherwise(id, graph_.shape({id, 0})))
      return -1;
    const auto edges = consumers_.of(id);
    if (edges.size() != 1 || edges[0].input < 0) return -1;
    const NodeId update = edges[0].target;
    const bool here = graph_.is(update, "_MultiResourceApply") &&
                      graph_.device_index(update) == graph_.device_index(id);
    return here ? update : -1;
  }

  Group& GroupAt(NodeId id) { return groups_[graph_.device_index(id)]; }

  void AddCast(NodeId id) {
    Group& group = GroupAt(id);
    group.casts.push_back(id);
    ++group.spared;
    const auto edges = consumers_.of(id);
    const bool only_turned = !edges.empty() && std::ranges::all_of(edges, [&](const OutEdge& edge) {
      return edge.input == 1 && TurnsFilter(edge.target);
    });
    if (!only_turned) group.copies[{graph_.inputs(id)[0], graph_.dtype({id, 0}), false}] = 0;
  }

  void AddTurned(NodeId id, Endpoint filter) {
    Group& group = GroupAt(id);
    const Copy copy{graph_.is(filter.node, "Cast") ? graph_.inputs(filter.node)[0] : filter,
                    graph_.dtype(filter), true};
    group.copies[copy] = 0;
    group.convolutions[id] = copy;
    ++group.spared;
  }

  void CopyWithInputs(NodeId id, Rewrite* out) {
    if (done_[static_cast<size_t>(id)]) return;
    for (const Endpoint& input : graph_.inputs(id)) CopyWithInputs(input.node, out);
    out->Copy(id);
    done_[static_cast<size_t>(id)] = true;
  }

  Status AddGroup(Group* group, Rewrite* out) {
    std::vector<Endpoint> inputs;
    std::vector<DType> types;
    std::vector<bool> last_first;
    for (auto& [copy, output] : group->copies) {
      output = static_cast<int>(inputs.size());
      CopyWithInputs(copy.value.node, out);
      inputs.push_back(out->Map(copy.value));
      types.push_back(copy.type);
      last_first.push_back(copy.last_first);
    }
    auto attrs = std::make_shared<const Attrs>(Attrs{{"SrcT", std::vector(types.size(), DT_FLOAT)},
                                                     {"DstT", std::move(types)},
                                                     {"last_first", std::move(last_first)}});
    const NodeId like = group->copies.begin()->first.value.node;
    MG_ASSIGN_OR_RETURN(group->made, out->Add(like, "_MultiCast", inputs, std::move(attrs), {},
                                              "_casts_of_" + std::string(graph_.name(like))));
    for (NodeId id : group->casts) {
      done_[static_cast<size_t>(id)] = true;
      const auto plain = group->copies.find({graph_.inputs(id)[0], graph_.dtype({id, 0}), false});
      if (plain != group->copies.end()) out->Replace(id, group->made, plain->second);
    }
    return Status();
  }

  Status AddConvolution(NodeId id, const Group& group, Rewrite* out) {
    const bool backward = graph_.is(id, "Conv2DBackpropInput");
    std::vector<Endpoint> inputs;
    for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
      inputs.push_back(i == 1 ? Endpoint{group.made, group.copies.at(group.convolutions.at(id))}
                              : out->Map(graph_.inputs(id)[i]));
    }
    auto attrs = std::make_shared<Attrs>(graph_.attrs(id));
    attrs->Set("filter_last_first", true);
    if (graph_.is(id, "Conv2D")) attrs->Set("num_args", int64_t{0});
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(id, backward ? "_Conv2DBackpropInput" : "_FusedConv2D", inputs,
                                 std::move(attrs), std::array{id}));
    out->Replace(id, made);
    return Status();
  }

  Status AddGradient(NodeId id, Rewrite* out) {
    auto attrs = std::make_shared<Attrs>(graph_.attrs(id));
    attrs->Set("filter_last_first", true);
    MG_ASSIGN_OR_RETURN(turned_[id], out->Add(id, "_Conv2DBackpropFilter", out->Inputs(id),
                                              std::move(attrs), std::array{id}));
    return Status();
  }

  // What transposes the gradients that `update` reads.
  Status AddTurns(NodeId update, Rewrite* out) {
    const std::vector<NodeId>& gradients = gradients_.at(update);
    std::vector<Endpoint> inputs;
    std::vector<DType> types;
    for (const NodeId id : gradients) {
      inputs.push_back({turned_.at(id), 0});
      types.push_back(graph_.dtype({id, 0}));
    }
    auto attrs =
        std::make_shared<const Attrs>(Attrs{{"SrcT", types},
                                            {"DstT", types},
                                            {"last_first", std::vector<bool>(types.size(), true)},
                                            {"back", true}});
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(update, "_MultiCast", inputs, std::move(attrs), {},
                                 "_filters_of_" + std::string(graph_.name(update))));
    for (size_t i = 0; i < gradients.size(); ++i)
      out->Replace(gradients[i], made, static_cast<int>(i));
    return Status();
  }

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<bool> done_;
  std::map<DeviceIndex, Group> groups_;
  std::map<NodeId, std::vector<NodeId>> gradients_;  // of filters, by the update that reads them
  std::map<NodeId, NodeId> turned_;  // of gradients_: the new node, out_channels first
};

}  // namespace

Result<Graph> GroupCasts(Graph graph) {
  if (MentionsGpu(graph)) {
    CastGrouper grouper(graph);
    if (grouper.Find()) return grouper.Run();
  }
  return graph;
}

}  // namespace monograph
