// Each node is of a kind (KindOf). A tensor is stored, which is to say that memory holds it, or a
// part of what its readers compute (Stored). The nodes are then gone through once: each makes none,
// one or two passes, whose reads are the stored tensors that its inputs follow from (Sources).
#include "bench/gpu_least.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "bench/harness.h"

namespace monograph::bench {
namespace {

enum class Kind {
  kNothing,   // shapes, constants, handles
  kView,      // gives its first input
  kElements,  // element by element
  kProduct,   // a call of a library
  kNorm,      // output 0 is, after the sums, computed element by element
  kNormGradient,
  kRowNorm,  // the same of rows so short that a pass has the sums by the way
  kRowNormGradient,
  kUpdate,
  kPass,  // anything else
};

Kind KindOf(std::string_view op) {
  static const std::map<std::string_view, Kind> kinds = [] {
    std::map<std::string_view, Kind> all;
    const auto add = [&](Kind kind, std::initializer_list<std::string_view> ops) {
      for (const std::string_view name : ops) all[name] = kind;
    };
    add(Kind::kNothing, {"Const", "Shape", "ShapeN", "Size", "Rank", "VarHandleOp", "NoOp",
                         "BroadcastGradientArgs"});
    add(Kind::kView, {"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient"});
    add(Kind::kElements,
        {"Add", "AddV2", "AddN", "Sub", "Mul", "Div", "RealDiv", "Neg", "Square", "Cast", "BiasAdd",
         "Relu", "ReluGrad", "BroadcastTo", "Fill", "ZerosLike", "OnesLike", "_Gelu", "_GeluGrad"});
    add(Kind::kProduct, {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"});
    add(Kind::kNorm, {"FusedBatchNormV3"});
    add(Kind::kNormGradient, {"FusedBatchNormGradV3"});
    add(Kind::kRowNorm, {"_FusedLayerNorm"});
    add(Kind::kRowNormGradient, {"_FusedLayerNormGrad"});
    return all;
  }();
  if (op.starts_with("ResourceApply")) return Kind::kUpdate;
  const auto found = kinds.find(op);
  return found == kinds.end() ? Kind::kPass : found->second;
}

class Ledger {
 public:
  explicit Ledger(const Graph& step) : step_(step), edges_(step), stored_(Size()) {}

  std::vector<LeastBytes> List() {
    for (NodeId id = 0; id < step_.num_nodes(); ++id) Add(id);
    return std::move(passes_);
  }

 private:
  using Tensors = std::set<std::pair<NodeId, int32_t>>;  // a variable: its handle

  size_t Size() const { return static_cast<size_t>(step_.num_nodes()); }
  Kind kind(NodeId id) const { return KindOf(step_.op(id).name()); }

  int64_t Bytes(NodeId id, int32_t output) const {
    PartialShape shape = step_.shape({id, output});
    DType dtype = step_.dtype({id, output});
    if (step_.is(id, "VarHandleOp")) {
      shape = step_.attrs(id).Get<PartialShape>("shape");
      dtype = step_.attrs(id).Get<DType>("dtype");
    }
    if (!shape.fully_known())
      Die("--plan: the shape of " + step_.TensorName({id, output}) + " is not known");
    int64_t elements = 1;
    for (const int64_t size : shape.dims()) elements *= size;
    return elements * static_cast<int64_t>(DTypeSize(dtype));
  }
  // Whether the tensor is of numbers that a GPU computes with.
  bool Counts(Endpoint e) const {
    const DType dtype = step_.dtype(e);
    return dtype == DT_FLOAT || dtype == DT_HALF || dtype == DT_BFLOAT16;
  }

  // Who reads output `e`, behind views.
  void Readers(Endpoint e, std::set<NodeId>* readers) const {
    for (const OutEdge& edge : edges_.of(e.node)) {
      if (edge.input < 0 || edge.output != e.index) continue;
      const Kind of = kind(edge.target);
      if (of == Kind::kView && edge.input == 0) Readers({edge.target, 0}, readers);
      if (of != Kind::kView && of != Kind::kNothing) readers->insert(edge.target);
    }
  }

  // Whether our own passes write the value, as far as anybody does.
  bool Ours(NodeId id) const {
    const Kind of = kind(id);
    return of == Kind::kElements || of == Kind::kNorm || of == Kind::kRowNorm;
  }

  bool Stored(NodeId id) {
    std::optional<bool>& known = stored_[static_cast<size_t>(id)];
    if (!known) known = MustStore(id);
    return *known;
  }
  bool MustStore(NodeId id) {
    std::set<NodeId> readers;
    Readers({id, 0}, &readers);
    // May be one with what follows it element by element.
    const bool joins =
        step_.is(id, "Conv2D") || step_.is(id, "MatMul") ||
        (kind(id) == Kind::kPass && step_.num_outputs(id) == 1 && !step_.inputs(id).empty());
    if ((!Ours(id) && !joins) || readers.size() != 1) return true;
    const NodeId reader = *readers.begin();
    const Kind next = kind(reader);
    // But there are fewer bytes before a cast to a larger type.
    const bool widens = step_.is(reader, "Cast") &&
                        DTypeSize(step_.dtype({reader, 0})) > DTypeSize(step_.dtype({id, 0}));
    if (joins) return next != Kind::kElements || widens;
    if (next == Kind::kElements) return false;
    // The end of a chain. What cannot be computed anew must be written here.
    return next == Kind::kProduct || BeginsInCall(id);
  }
  // Whether the value is made where a product or a pass is, which give it no tensor of their own.
  bool BeginsInCall(NodeId id) {
    if (kind(id) == Kind::kProduct || kind(id) == Kind::kPass) return !Stored(id);
    if (kind(id) != Kind::kElements) return false;
    for (const Endpoint& e : step_.inputs(id)) {
      const NodeId from = BehindViews(e).node;
      if (!Stored(from) && BeginsInCall(from)) return true;
    }
    return false;
  }
  Endpoint BehindViews(Endpoint e) const {
    while (kind(e.node) == Kind::kView) e = step_.inputs(e.node)[0];
    return e;
  }

  // The stored tensors that a pass reads to have `e`.
  void Sources(Endpoint e, Tensors* sources) {
    e = BehindViews(e);
    if (kind(e.node) == Kind::kNothing || !Counts(e)) return;
    if (step_.is(e.node, "ReadVariableOp")) {
      sources->insert({step_.inputs(e.node)[0].node, 0});
    } else if (e.index != 0 || Stored(e.node)) {
      sources->insert({e.node, e.index});
    } else if (kind(e.node) != Kind::kProduct) {  // whose values the pass has
      SourcesOfInputs(e.node, sources);
    }
  }
  // Of a normalisation: of what it normalises.
  void SourcesOfInputs(NodeId id, Tensors* sources) {
    const Kind of = kind(id);
    const size_t count = of == Kind::kNorm || of == Kind::kRowNorm ? 1
                         : of == Kind::kNormGradient || of == Kind::kRowNormGradient
                             ? 2
                             : step_.inputs(id).size();
    for (size_t i = 0; i < count; ++i) Sources(step_.inputs(id)[i], sources);
  }
  // What a pass over the node's inputs reads.
  Tensors Reads(NodeId id) {
    Tensors sources;
    SourcesOfInputs(id, &sources);
    Tensors needed = sources;
    for (const auto& source : sources) {
      if (!Ours(source.first) || BeginsInCall(source.first)) continue;
      Tensors under;
      SourcesOfInputs(source.first, &under);
      if (std::includes(sources.begin(), sources.end(), under.begin(), under.end()))
        needed.erase(source);
    }
    return needed;
  }

  void Pass(std::string name, const Tensors& reads, int64_t written) {
    const auto same = [&](const LeastBytes& one) { return one.pass == name; };
    auto found = std::find_if(passes_.begin(), passes_.end(), same);
    if (found == passes_.end()) found = passes_.insert(found, {.pass = std::move(name)});
    for (const auto& [id, output] : reads) found->read += Bytes(id, output);
    found->written += written;
  }

  void Add(NodeId id) {
    const std::string op = step_.op(id).name();
    const Kind of = kind(id);
    if (of == Kind::kNothing || of == Kind::kView || op == "ReadVariableOp") return;
    Tensors reads = Reads(id);
    int64_t written = 0;
    if (of == Kind::kUpdate) {
      for (const Endpoint& e : step_.inputs(id)) {
        if (step_.dtype(e) != DT_RESOURCE) continue;
        const NodeId handle = BehindViews(e).node;
        reads.insert({handle, 0});
        written += Bytes(handle, 0);
      }
    }
    const bool norms = of == Kind::kNorm || of == Kind::kNormGradient;
    if (norms || op == "BiasAddGrad") {
      Tensors summed = reads;
      const NodeId first = BehindViews(step_.inputs(id)[0]).node;
      if (Ours(first)) summed.erase({first, 0});
      Pass(norms ? op + " (sums)" : op, summed, 0);
      if (!norms) return;
    }
    if (!Stored(id)) {
      if (of == Kind::kProduct) Pass(op, reads, 0);
      return;
    }
    const int outputs = of == Kind::kPass ? step_.num_outputs(id) : of == Kind::kUpdate ? 0 : 1;
    for (int32_t i = 0; i < outputs; ++i) {
      if (Counts({id, i})) written += Bytes(id, i);
    }
    Pass(op, reads, written);
  }

  const Graph& step_;
  const OutEdges edges_;
  std::vector<std::optional<bool>> stored_;
  std::vector<LeastBytes> passes_;
};

}  // namespace

std::vector<LeastBytes> ListLeastBytes(const Graph& step) { return Ledger(step).List(); }

int64_t BytesReadAgain(const Graph& step, const std::string& name, const std::string& op,
                       int64_t bytes) {
  const NodeId id = step.Find(name);
  const bool of_rows = op == "_FusedLayerNormGrad";  // for the sums over rows
  if (id < 0 || (!of_rows && op.find("FusedBatchNorm") == std::string::npos)) return 0;
  int64_t value = static_cast<int64_t>(DTypeSize(step.dtype({id, 0})));
  for (const int64_t size : step.shape({id, 0}).dims()) value *= size;
  if (of_rows) return 2 * value;
  if (op.find("Grad") == std::string::npos) return value;
  // Of a fused gradient: with a side input it has the gradients of y, y, x, the side input's
  // gradient and x's, and reads the last but one and x again; without, gradient, x, y and x's
  // gradient, and needs no y.
  const bool needs_no_y = op == "_FusedBatchNormGradEx" && bytes < 5 * value;
  return needs_no_y ? value : 2 * value;
}

}  // namespace monograph::bench
