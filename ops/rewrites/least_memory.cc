// One pass over the nodes adds up what lives throughout (constants), finds the node whose inputs
// and outputs are the most, and notes what updates leave. Check compares the sums with the limit
// and with the session's share, and names the largest tensors in the error.
#include "ops/rewrites/least_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/memory_holder.h"
#include "base/pool_allocator.h"
#include "graph/partial_eval.h"

namespace monograph {
namespace {

// Ops whose outputs are always new memory.
constexpr std::array<std::string_view, 22> kMakers = {"ArgMax",
                                                      "ArgMin",
                                                      "AvgPool",
                                                      "AvgPoolGrad",
                                                      "BatchMatMulV2",
                                                      "Conv2D",
                                                      "Conv2DBackpropFilter",
                                                      "Conv2DBackpropInput",
                                                      "Fill",
                                                      "GatherV2",
                                                      "MatMul",
                                                      "MaxPool",
                                                      "MaxPoolGrad",
                                                      "OneHot",
                                                      "RandomStandardNormal",
                                                      "RandomUniform",
                                                      "RandomUniformInt",
                                                      "Range",
                                                      "StridedSliceGrad",
                                                      "TruncatedNormal",
                                                      "UnsortedSegmentSum",
                                                      "SparseSoftmaxCrossEntropyWithLogits"};

bool Makes(std::string_view op) {
  return std::find(kMakers.begin(), kMakers.end(), op) != kMakers.end();
}

// Ops after which the variables among their inputs have memory of their own.
bool Updates(std::string_view op) {
  return op.starts_with("ResourceApply") || op.starts_with("ResourceSparseApply") ||
         op.starts_with("ResourceScatter") || op == "AssignAddVariableOp" ||
         op == "AssignSubVariableOp";
}

class LeastMemory {
 public:
  explicit LeastMemory(const Graph& graph) : graph_(graph) {
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      if (graph.device(id).type != kCpu) continue;
      if (graph.is(id, kConstOp)) AddConstant(id);
      AddVariables(id);
      const double bytes = NodeBytes(id);
      if (bytes <= node_bytes_) continue;
      node_bytes_ = bytes;
      node_ = id;
    }
  }

  Status Check() const {
    const auto limit = static_cast<double>(HostPool().limit());
    double variables = 0;
    for (const auto& [bytes, name] : variables_) variables += bytes;
    const MemoryHolder* const holder = MemoryHolder::Current();
    if (constants_ + node_bytes_ > limit) return TooMuch(Node(), node_bytes_, "");
    if (constants_ + variables > limit) return TooMuch(Variables(), variables, "");
    const bool shares = holder != nullptr && holder->bounded() && MemoryHolder::sharing() > 1;
    if (!shares || constants_ + node_bytes_ <= PoolAllocator::kShare * limit) return Status();
    return TooMuch(Node(), node_bytes_, "three quarters of ");
  }

 private:
  void AddConstant(NodeId id) {
    const auto* const value = std::get_if<Tensor>(graph_.attrs(id).Find("value"));
    if (value == nullptr || !IsPlainData(value->dtype())) return;
    if (seen_.insert(value->buffer().data()).second)
      constants_ += static_cast<double>(value->buffer().size());
  }

  // Adds those that the node updates or gives a new value.
  void AddVariables(NodeId id) {
    const std::string& op = graph_.op(id).name();
    const auto inputs = graph_.inputs(id);
    if (op == "AssignVariableOp" && inputs.size() == 2 && IsNew(inputs[1])) {
      if (assigned_.insert(inputs[1]).second) AddVariable(inputs[0].node);
    } else if (Updates(op)) {
      for (const Endpoint& input : inputs) {
        if (graph_.is(input.node, "VarHandleOp")) AddVariable(input.node);
      }
    }
  }
  void AddVariable(NodeId handle) {
    if (!graph_.is(handle, "VarHandleOp")) return;
    const Attrs& attrs = graph_.attrs(handle);
    std::string name = attrs.GetOr<std::string>("shared_name", "");
    if (name.empty()) name = graph_.name(handle);
    const double bytes =
        Bytes(attrs.GetOr<DType>("dtype", DT_INVALID), attrs.GetOr<PartialShape>("shape", {}));
    if (names_.emplace(attrs.GetOr<std::string>("container", ""), name).second)
      variables_.emplace_back(bytes, std::move(name));
  }

  // 0 if it is not known.
  static double Bytes(DType dtype, const PartialShape& shape) {
    if (!shape.fully_known() || !IsPlainData(dtype)) return 0;
    return static_cast<double>(shape.elements()) * static_cast<double>(DTypeSize(dtype));
  }
  bool IsNew(Endpoint e) const {
    return Makes(graph_.op(e.node).name()) && graph_.device(e.node).type == kCpu;
  }
  double NodeBytes(NodeId id) const {
    std::vector<Endpoint> tensors(graph_.inputs(id).begin(), graph_.inputs(id).end());
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    // Outputs that nobody reads may not be made, if there are several.
    if (graph_.num_outputs(id) == 1) tensors.push_back({id, 0});
    double total = 0;
    for (const Endpoint& e : tensors) {
      const double bytes = IsNew(e) ? Bytes(graph_.dtype(e), graph_.shape(e)) : 0;
      // The plan says so, with the shape.
      if (bytes > static_cast<double>(HostPool().limit())) return 0;
      total += bytes;
    }
    return total;
  }

  std::string Node() const {
    return "node " + graph_.NodeText(node_) + " on " + graph_.device(node_).ToString() +
           ": its inputs and its output, which are in memory at the same time, have ";
  }
  std::string Variables() const {
    constexpr size_t kMostNamed = 3;
    std::vector<std::pair<double, std::string>> largest = variables_;
    std::sort(largest.rbegin(), largest.rend());
    std::string names;
    for (size_t i = 0; i < std::min(largest.size(), kMostNamed); ++i)
      names += (i == 0 ? "'" : "', '") + largest[i].second;
    return "the " + std::to_string(largest.size()) + " variables that the graph updates (" + names +
           (largest.size() > kMostNamed ? "', ...) have " : "') have ");
  }
  Status TooMuch(const std::string& who, double bytes, const char* part) const {
    const auto text = [](double size) {
      return BytesText(static_cast<int64_t>(std::min(size, 0x1p62)));
    };
    const std::string beside =
        constants_ > 0 ? ", beside constants of " + text(constants_) : std::string();
    return ResourceExhausted(
        who + text(bytes) + beside + ", more than the " + part + BytesText(HostPool().limit()) +
        " that this process may take (--memory_limit)" +
        (*part == 0 ? "" : ", which a session may hold while others are open"));
  }

  const Graph& graph_;
  double constants_ = 0, node_bytes_ = 0;
  NodeId node_ = -1;
  std::set<const void*> seen_;  // memory of constants
  std::set<Endpoint> assigned_;
  std::set<std::pair<std::string, std::string>> names_;    // of variables, with their containers
  std::vector<std::pair<double, std::string>> variables_;  // with their bytes
};

}  // namespace

Status CheckLeastMemory(const Graph& graph) { return LeastMemory(graph).Check(); }

}  // namespace monograph
