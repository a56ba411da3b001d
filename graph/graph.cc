// How a Graph is stored. A node is a small struct that points into pools of inputs, control inputs
// and outputs; names, shapes, devices and the results of CheckNode are kept once each in the
// Interner, so that adding a node seldom allocates. AddNode checks a node before it adds it;
// CopyNode does not check again, since its source was checked. Consumers are not stored: a pass
// that needs them builds OutEdges.
#include "graph/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/function.h"
#include "graph/names.h"
#include "graph/node_check.h"
#include "graph/op_source.h"
#include "graph/partial_eval.h"
#include "graph/references.h"
#include "graph/resource_handle.h"
#include "graph/shape_inference.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

// A few bytes may make a node of many outputs.
constexpr size_t kMostOutputs = size_t{1} << 24;

uint64_t HashName(std::string_view name) { return std::hash<std::string_view>()(name); }

// Text that lives as long as the arena, without an allocation for each.
class TextArena {
 public:
  std::string_view Add(std::string_view text) {
    if (text.size() > left_) {
      const size_t size =
          std::max<size_t>(text.size(), std::min<size_t>(kFirst << chunks_.size(), kLargest));
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(size));
      next_ = chunks_.back().get();
      left_ = size;
    }
    std::memcpy(next_, text.data(), text.size());
    const std::string_view stored(next_, text.size());
    next_ += text.size();
    left_ -= text.size();
    return stored;
  }

 private:
  static constexpr size_t kFirst = 1024, kLargest = 256 * 1024;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

// Node ids by name: open addressing, linear probing, half full at most.
class NameIndex {
 public:
  void Reserve(size_t count) {
    size_t slots = 64;
    while (slots < count * 2) slots *= 2;
    if (slots > slots_.size()) Rehash(slots);
  }
  template <typename NameOf>
  NodeId Find(uint64_t hash, std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return -1;
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.hash == hash && name_of(slot.id) == name) return slot.id;
    }
  }
  void Add(uint64_t hash, NodeId id) {
    Reserve(count_ + 1);
    Insert(hash, id);
    ++count_;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    NodeId id = -1;
  };
  void Insert(uint64_t hash, NodeId id) {
    size_t i = hash & mask_;
    while (slots_[i].id >= 0) i = (i + 1) & mask_;
    slots_[i] = {hash, id};
  }
  void Rehash(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    mask_ = slots - 1;
    for (const Slot& slot : old) {
      if (slot.id >= 0) Insert(slot.hash, slot.id);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, count_ = 0;
};

struct ShapeHash {
  size_t operator()(const PartialShape& shape) const {
    uint64_t hash = static_cast<uint64_t>(shape.rank()) * 0x9e3779b97f4a7c15ull;
    for (int64_t dim : shape.dims())
      hash = (hash ^ static_cast<uint64_t>(dim)) * 0xff51afd7ed558ccdull;
    return hash ^ (hash >> 32);
  }
};

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

// Nodes of one op with the same given attributes and input types share what CheckNode found.
struct CheckedEntry {
  const OpDef* op;
  std::shared_ptr<const Attrs> given;
  std::vector<DType> inputs;
  CheckedNode checked;
};

bool Cacheable(const Attrs& attrs) {
  for (const auto& [name, value] : attrs.values()) {
    if (std::holds_alternative<Tensor>(value) || name.starts_with('_')) return false;
  }
  return true;
}

bool SameAttrs(const std::shared_ptr<const Attrs>& a, const std::shared_ptr<const Attrs>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

// A fixed array that grows onto the heap for the rare large node.
template <typename T, size_t kInline>
class SmallArray {
 public:
  explicit SmallArray(size_t size) : size_(size) {
    if (size > kInline) large_.resize(size);
  }
  T* data() { return size_ > kInline ? large_.data() : small_.data(); }
  const T* data() const { return size_ > kInline ? large_.data() : small_.data(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  size_t size_;
  std::array<T, kInline> small_{};
  std::vector<T> large_;
};

}  // namespace

struct Graph::Interner {
  const PartialShape* Shape(const PartialShape& shape) { return &*shapes.insert(shape).first; }

  const OpDef* Op(const OpRegistry& registry, std::string_view name) {
    const auto found = ops.find(name);
    if (found != ops.end()) return found->second;
    const OpDef* op = registry.Find(name);
    if (op != nullptr) ops.emplace(op->name(), op);
    return op;
  }

  const OpDef* StandIn(std::string_view name) {
    for (const auto& op : stand_ins) {
      if (op->name() == name) return op.get();
    }
    stand_ins.push_back(std::make_unique<OpDef>(OpDef::Unknown(std::string(name))));
    return stand_ins.back().get();
  }

  Status Check(const OpDef& op, const std::shared_ptr<const Attrs>& given,
               std::span<const DType> inputs, const CheckedNode** checked) {
    // Attributes of transfers and arguments differ from node to node: a cache of them would hardly
    // ever be hit.
    if (given != nullptr && (op.name().starts_with('_') || !Cacheable(*given))) {
      *checked = &uncached;
      return CheckNode(op, given, inputs, &uncached);
    }
    uint64_t hash = reinterpret_cast<uintptr_t>(&op) * 0x9e3779b97f4a7c15ull;
    if (given != nullptr) hash ^= given->Hash();
    for (DType dtype : inputs) hash = (hash ^ static_cast<uint64_t>(dtype)) * 0xff51afd7ed558ccdull;
    const auto [begin, end] = checks.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
      const CheckedEntry& found = entry->second;
      if (found.op == &op &&
          std::equal(inputs.begin(), inputs.end(), found.inputs.begin(), found.inputs.end()) &&
          SameAttrs(found.given, given)) {
        *checked = &found.checked;
        return Status();
      }
    }
    CheckedEntry entry{&op, given, {inputs.begin(), inputs.end()}, {}};
    MG_RETURN_IF_ERROR(CheckNode(op, given, inputs, &entry.checked));
    *checked = &checks.emplace(hash, std::move(entry))->second.checked;
    return Status();
  }

  TextArena text;
  NameIndex names;
  std::unordered_set<PartialShape, ShapeHash> shapes;
  std::unordered_map<std::string_view, const OpDef*> ops;
  std::vector<std::unique_ptr<OpDef>> stand_ins;
  std::unordered_multimap<uint64_t, CheckedEntry> checks;
  CheckedNode uncached;
  TextMap<DeviceIndex> devices;  // by any text that was used
  TextMap<bool> reserved;        // prefixes of scopes
  TextMap<int> next_suffix;      // where the search for a free suffix goes on
  // By device index of the graph that CopyNode last read: the index here; -1 if not known.
  std::vector<DeviceIndex> copied_devices;
};

namespace {

// What a node that is being added shows to its op's shape function.
class NodeShapeContext final : public ShapeContext {
 public:
  NodeShapeContext(const Graph& graph, const OpDef& op, std::span<const Endpoint> inputs,
                   const Attrs& attrs, size_t outputs)
      : graph_(graph), op_(op), inputs_(inputs), attrs_(attrs), outputs_(outputs) {}

  const OpDef& op() const { return op_; }

  int num_inputs() const override { return static_cast<int>(inputs_.size()); }
  const PartialShape& input(int i) const override { return graph_.shape(at(i)); }
  DType input_dtype(int i) const override { return graph_.dtype(at(i)); }
  const Tensor* input_value(int i) const override { return ConstantValue(graph_, at(i)); }
  std::optional<std::vector<int64_t>> PartialInts(int i) const override {
    auto value = EvaluatePartially(graph_, at(i));
    if (!value) return std::nullopt;
    return std::move(value->values);
  }
  const Function* FindFunction(std::string_view name) const override {
    return graph_.functions().Find(name);
  }
  PartialShape handle_shape(int i) const override { return HandleShape(graph_, at(i)); }
  std::string_view handle_op(int i) const override { return HandleOp(graph_, at(i)); }
  const Attrs& attrs() const override { return attrs_; }
  int num_outputs() const override { return static_cast<int>(outputs_.size()); }
  void set_output(int i, const PartialShape& shape) override {
    MG_CHECK(i >= 0 && i < num_outputs());
    outputs_[static_cast<size_t>(i)] = shape;
  }
  std::span<const PartialShape> outputs() const { return outputs_.span(); }

 private:
  Endpoint at(int i) const {
    MG_CHECK(i >= 0 && static_cast<size_t>(i) < inputs_.size());
    return inputs_[static_cast<size_t>(i)];
  }

  const Graph& graph_;
  const OpDef& op_;
  std::span<const Endpoint> inputs_;
  const Attrs& attrs_;
  SmallArray<PartialShape, 4> outputs_;
};

}  // namespace

const OpDef& OpOf(const ShapeContext& context) {
  return static_cast<const NodeShapeContext&>(context).op();
}

namespace {

// A handle by reference is two strings. Handles stand before what there may be several of.
Status ShapeStringHandles(const OpDef& op, NodeShapeContext& context) {
  const PartialShape two{2};
  for (size_t i = 0; i < op.inputs().size(); ++i) {
    if (!op.inputs()[i].is_string_handle()) continue;
    const PartialShape& shape = context.input(static_cast<int>(i));
    if (!PartialShape::Merge(shape, two).ok()) {
      return InvalidArgument(fmt::format("the handle {} must have shape {}, not {}",
                                         op.inputs()[i].name, two.ToString(), shape.ToString()));
    }
  }
  for (size_t i = 0; i < op.outputs().size(); ++i) {
    if (op.outputs()[i].is_string_handle()) context.set_output(static_cast<int>(i), two);
  }
  return Status();
}

// Whether the node only hands on, as a string, a handle that is a string under the other name of
// the op that makes it (AttrsOf).
bool HandsOnStrings(const Graph& graph, const OpDef& op, const NodeSpec& spec) {
  const bool hands_on =
      op.flow() != FlowOp::kNone || op.name() == "Identity" || op.name() == "RefIdentity";
  if (!hands_on || spec.inputs.empty() || spec.attrs == nullptr ||
      spec.attrs->GetOr<DType>("T", DT_INVALID) != DT_STRING) {
    return false;
  }
  const Attrs* source = HandleAttrs(graph, spec.inputs[0]);
  return source != nullptr && source->GetOr<bool>(kByReference, false);
}

std::shared_ptr<const Attrs> With(const std::shared_ptr<const Attrs>& attrs, std::string_view name,
                                  AttrValue value) {
  auto more = attrs == nullptr ? std::make_shared<Attrs>() : std::make_shared<Attrs>(*attrs);
  more->Set(std::string(name), std::move(value));
  return more;
}

// What a node of `name` has as a node of `op` (OpDef::AddedAs).
std::shared_ptr<const Attrs> AttrsOf(const OpDef& op, const OpDef& name,
                                     const std::shared_ptr<const Attrs>& attrs) {
  auto kept = std::make_shared<Attrs>();
  if (attrs != nullptr) {
    for (const auto& [attr, value] : attrs->values()) {
      if (attr.starts_with('_') || op.FindAttr(attr) != nullptr) kept->Set(attr, value);
    }
  }
  const bool makes_handle = !op.outputs().empty() && op.outputs()[0].dtype == DT_RESOURCE;
  if (makes_handle && name.outputs()[0].dtype == DT_STRING) kept->Set(kByReference, true);
  return kept;
}

std::string Describe(const Graph& graph, const NodeSpec& spec) {
  std::string text = "node '" + std::string(spec.name) + "' (" + std::string(spec.op) + ")";
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Endpoint input = spec.inputs[i];
    text += i == 0 ? " with inputs " : ", ";
    const DType dtype = graph.dtype(input);
    text +=
        (dtype == DT_INVALID ? "?" : std::string(DTypeName(dtype))) + graph.shape(input).ToString();
  }
  return text;
}

}  // namespace

Graph::Graph(const OpRegistry* registry)
    : registry_(registry),
      devices_(1),
      functions_(std::make_shared<FunctionLibrary>()),
      interner_(std::make_unique<Interner>()) {
  interner_->devices.emplace("", 0);
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::Reserve(int nodes) {
  const auto count = static_cast<size_t>(nodes);
  nodes_.reserve(count);
  input_pool_.reserve(count * 2);
  output_pool_.reserve(count);
  interner_->names.Reserve(count);
}

Status Graph::CheckNew(const NodeSpec& spec, std::string_view op) const {
  if (!IsNodeName(spec.name)) {
    return InvalidArgument(
        fmt::format("node '{}' ({}): the name is not valid; names are letters, digits and any of _ "
                    ". - / > and do not begin with - / or >",
                    spec.name, op));
  }
  if (const NodeId id = Find(spec.name); id >= 0) {
    return AlreadyExists(fmt::format("node '{}' ({}): there is a node ({}) of that name already",
                                     spec.name, op, this->op(id).name()));
  }
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Endpoint input = spec.inputs[i];
    const bool node = input.node >= 0 && input.node < num_nodes();
    if (node && input.index >= 0 && input.index < num_outputs(input.node)) continue;
    return InvalidArgument(
        fmt::format("node '{}' ({}): input {} is {}", spec.name, op, i,
                    node ? fmt::format("output {} of node '{}', which has {} outputs", input.index,
                                       name(input.node), num_outputs(input.node))
                         : "an output of no node of this graph"));
  }
  for (NodeId control : spec.control_inputs) {
    if (control >= 0 && control < num_nodes()) continue;
    return InvalidArgument(
        fmt::format("node '{}' ({}): a control input is no node of this graph", spec.name, op));
  }
  return Status();
}

Result<NodeId> Graph::AddNode(const NodeSpec& spec) {
  const OpDef* op = interner_->Op(*registry_, spec.op);
  if (op == nullptr) {
    return registry_->Require(spec.op).status().WithContext(fmt::format("node '{}'", spec.name));
  }
  if (!op->added_as().empty()) {
    NodeSpec other = spec;
    other.op = op->added_as();
    other.attrs = AttrsOf(*interner_->Op(*registry_, other.op), *op, spec.attrs);
    return AddNode(other);
  }
  MG_RETURN_IF_ERROR(CheckNew(spec, spec.op));
  DeviceIndex device = 0;
  if (!spec.device.empty()) {
    auto index = InternDevice(spec.device);
    if (!index.ok()) return index.status().WithContext(Describe(*this, spec));
    device = *index;
  }
  SmallArray<DType, 16> types(spec.inputs.size());
  for (size_t i = 0; i < spec.inputs.size(); ++i) types[i] = dtype(spec.inputs[i]);
  const CheckedNode* checked = nullptr;
  Status status = interner_->Check(*op, spec.attrs, types.span(), &checked);
  if (!status.ok() && HandsOnStrings(*this, *op, spec)) {
    if (op->handle_form() != nullptr) op = interner_->Op(*registry_, op->handle_form()->op);
    status = interner_->Check(*op, With(spec.attrs, "T", DT_RESOURCE), types.span(), &checked);
  }
  if (!status.ok()) {
    // Our op refuses these types; a borrowed one of that name may take them.
    const OpDef* borrowed = IsBorrowed(*op) ? nullptr : FindBorrowed(spec.op);
    if (borrowed == nullptr ||
        !interner_->Check(*borrowed, spec.attrs, types.span(), &checked).ok()) {
      return status.WithContext(Describe(*this, spec));
    }
    op = borrowed;
  }
  if (checked->outputs.size() > kMostOutputs - std::min(kMostOutputs, output_pool_.size())) {
    return ResourceExhausted(
        fmt::format("{}: the nodes of the graph have more than {} outputs up to this one",
                    Describe(*this, spec), kMostOutputs));
  }
  NodeShapeContext context(*this, *op, spec.inputs, *checked->attrs, checked->outputs.size());
  if (op->shape() != nullptr) {
    status = op->shape()(context);
    if (status.ok() && op->handle_form() != nullptr) status = ShapeStringHandles(*op, context);
    if (!status.ok()) return status.WithContext(Describe(*this, spec));
  }
  for (size_t i = 0; i < checked->outputs.size(); ++i) {
    const PartialShape& inferred = context.outputs()[i];
    const PartialShape* shape = nullptr;
    for (const Endpoint input : spec.inputs.first(std::min<size_t>(spec.inputs.size(), 2))) {
      const OutputInfo& source =
          output_pool_[at(input.node).first_output + static_cast<uint32_t>(input.index)];
      if (*source.shape == inferred) shape = source.shape;
    }
    output_pool_.push_back(
        {checked->outputs[i], shape != nullptr ? shape : interner_->Shape(inferred)});
  }
  return Commit(spec.name, op, checked->attrs, spec.inputs, spec.control_inputs, device);
}

Result<NodeId> Graph::AddUnknownNode(const NodeSpec& spec, int output_count) {
  MG_RETURN_IF_ERROR(CheckNew(spec, spec.op));
  DeviceIndex device = 0;
  if (!spec.device.empty()) {
    auto index = InternDevice(spec.device);
    if (!index.ok()) return index.status().WithContext(Describe(*this, spec));
    device = *index;
  }
  const PartialShape* unknown = interner_->Shape(PartialShape());
  for (int i = 0; i < output_count; ++i) output_pool_.push_back({DT_INVALID, unknown});
  auto attrs = spec.attrs != nullptr ? spec.attrs : std::make_shared<const Attrs>();
  return Commit(spec.name, interner_->StandIn(spec.op), std::move(attrs), spec.inputs,
                spec.control_inputs, device);
}

NodeId Graph::CopyNode(const Graph& from, NodeId node, std::string_view name,
                       std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs) {
  MG_CHECK(Find(name) < 0);
  const Node source = from.at(node);
  const PartialShape *last_from = nullptr, *last = nullptr;
  for (uint32_t i = 0; i < source.num_outputs; ++i) {
    const OutputInfo output = from.output_pool_[source.first_output + i];
    if (output.shape != last_from) {
      last_from = output.shape;
      last = interner_->Shape(*output.shape);
    }
    output_pool_.push_back({output.dtype, last});
  }
  DeviceIndex device = 0;
  if (source.device != 0) {
    const DeviceName& requested = from.devices_[static_cast<size_t>(source.device)];
    auto& copied = interner_->copied_devices;
    if (copied.size() <= static_cast<size_t>(source.device))
      copied.resize(static_cast<size_t>(source.device) + 1, -1);
    DeviceIndex& known = copied[static_cast<size_t>(source.device)];
    if (known < 0 || !(devices_[static_cast<size_t>(known)] == requested))
      known = InternDevice(requested);
    device = known;
  }
  const OpDef* op = source.op->known() ? source.op : interner_->StandIn(source.op->name());
  return Commit(name, op, source.attrs, inputs, control_inputs, device);
}

// The outputs were appended to output_pool_ already.
NodeId Graph::Commit(std::string_view name, const OpDef* op, std::shared_ptr<const Attrs> attrs,
                     std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs,
                     DeviceIndex device) {
  Node node;
  node.name = interner_->text.Add(name);
  node.op = op;
  has_flow_ops_ = has_flow_ops_ || op->flow() != FlowOp::kNone;
  has_references_ = has_references_ || op->handle_form() != nullptr;
  node.attrs = std::move(attrs);
  node.first_input = static_cast<uint32_t>(input_pool_.size());
  node.num_inputs = static_cast<uint32_t>(inputs.size());
  const bool own = std::greater_equal<>()(inputs.data(), input_pool_.data()) &&
                   std::less<>()(inputs.data(), input_pool_.data() + input_pool_.size());
  if (own) {  // the inputs of another node of this graph: the pool may move while they are copied
    const std::vector<Endpoint> copy(inputs.begin(), inputs.end());
    input_pool_.insert(input_pool_.end(), copy.begin(), copy.end());
  } else {
    for (const Endpoint input : inputs) input_pool_.push_back(input);
  }
  node.first_output = nodes_.empty() ? 0 : nodes_.back().first_output + nodes_.back().num_outputs;
  node.num_outputs = static_cast<uint32_t>(output_pool_.size()) - node.first_output;
  node.first_control = static_cast<uint32_t>(control_pool_.size());
  node.num_controls = 0;
  node.device = device;
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back(std::move(node));
  interner_->names.Add(HashName(name), id);
  if (!control_inputs.empty()) SetControlInputs(id, control_inputs);
  return id;
}

NodeId Graph::Find(std::string_view name) const {
  return interner_->names.Find(HashName(name), name, [this](NodeId id) { return at(id).name; });
}

Result<Endpoint> Graph::FindOutput(std::string_view tensor_name) const {
  std::string_view node_name = tensor_name;
  int index = 0;
  if (const size_t colon = tensor_name.rfind(':'); colon != std::string_view::npos) {
    const std::string_view digits = tensor_name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error != std::errc() || end != digits.data() + digits.size() || index < 0) {
      return InvalidArgument(
          fmt::format("'{}' is no tensor name; those are NODE or NODE:OUTPUT", tensor_name));
    }
    node_name = tensor_name.substr(0, colon);
  }
  const NodeId id = Find(node_name);
  if (id < 0) {
    NearNames near(node_name);
    for (const Node& node : nodes_) near.Offer(node.name);
    return NotFound(fmt::format("there is no node '{}' in the graph{}", node_name, near.Hint()));
  }
  if (index >= num_outputs(id)) {
    // Of an unknown op only those outputs are known that other nodes read.
    if (!op(id).known())
      return registry()
          .Require(op(id).name())
          .status()
          .WithContext(fmt::format("node '{}'", node_name));
    return NotFound(fmt::format("there is no tensor '{}': node '{}' ({}) has {}{}", tensor_name,
                                node_name, op(id).name(), num_outputs(id),
                                num_outputs(id) == 1 ? " output" : " outputs"));
  }
  return Endpoint{id, index};
}

std::string Graph::UniqueName(std::string_view prefix) const {
  std::string name(prefix);
  // Although const, this changes the interner: threads that share a graph which nobody changes must
  // not both ask for names.
  const auto taken = [this](const std::string& text) {
    return Find(text) >= 0 || interner_->reserved.contains(text);
  };
  if (!taken(name)) return name;
  // Where the last search for this prefix ended: graphs have thousands of "Const".
  int& suffix = interner_->next_suffix[name];
  for (suffix = std::max(suffix, 1);; ++suffix) {
    name.resize(prefix.size());
    name += "_" + std::to_string(suffix);
    if (!taken(name)) return name;
  }
}

std::string Graph::ReserveName(std::string_view prefix) {
  std::string name = UniqueName(prefix);
  interner_->reserved.emplace(name, true);
  return name;
}

std::string Graph::NodeText(NodeId id) const {
  return Quoted(name(id)) + " (" + op(id).name() + ")";
}

std::string Graph::TensorName(Endpoint e) const {
  std::string text(name(e.node));
  if (e.index != 0) text += ":" + std::to_string(e.index);
  return text;
}

Result<DeviceIndex> Graph::InternDevice(std::string_view text) {
  if (text.empty()) return 0;
  const auto found = interner_->devices.find(text);
  if (found != interner_->devices.end()) return found->second;
  MG_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(text));
  const DeviceIndex index = InternDevice(name);
  interner_->devices.emplace(std::string(text), index);
  return index;
}

DeviceIndex Graph::InternDevice(const DeviceName& name) {
  const auto [entry, added] =
      interner_->devices.emplace(name.ToString(), static_cast<DeviceIndex>(devices_.size()));
  if (added) devices_.push_back(name);
  return entry->second;
}

void Graph::SetShape(Endpoint e, const PartialShape& shape) {
  output_pool_[at(e.node).first_output + static_cast<uint32_t>(e.index)].shape =
      interner_->Shape(shape);
}

void Graph::ReplaceInput(NodeId id, int input, Endpoint source) {
  MG_CHECK(input >= 0 && static_cast<uint32_t>(input) < at(id).num_inputs);
  input_pool_[at(id).first_input + static_cast<uint32_t>(input)] = source;
}

void Graph::ReplaceOp(NodeId id, const OpDef& op, std::shared_ptr<const Attrs> attrs,
                      std::span<const Endpoint> inputs, std::span<const NodeId> control_inputs) {
  Node& node = at(id);
  node.op = &op;
  node.attrs = std::move(attrs);
  node.first_input = static_cast<uint32_t>(input_pool_.size());
  node.num_inputs = static_cast<uint32_t>(inputs.size());
  input_pool_.insert(input_pool_.end(), inputs.begin(), inputs.end());
  SetControlInputs(id, control_inputs);
}

void Graph::AddControlInput(NodeId id, NodeId source) {
  const auto old = control_inputs(id);
  if (std::find(old.begin(), old.end(), source) != old.end()) return;
  Node& node = at(id);
  if (node.first_control + node.num_controls != control_pool_.size()) {
    // Others follow in the pool: move the list to the end, where there is room.
    const std::vector<NodeId> moved(old.begin(), old.end());
    node.first_control = static_cast<uint32_t>(control_pool_.size());
    control_pool_.insert(control_pool_.end(), moved.begin(), moved.end());
  }
  control_pool_.push_back(source);
  ++node.num_controls;
}

void Graph::SetControlInputs(NodeId id, std::span<const NodeId> sources) {
  std::vector<NodeId> unique(sources.begin(), sources.end());
  if (unique.size() > 1) {
    std::unordered_set<NodeId> seen;
    std::erase_if(unique, [&](NodeId source) { return !seen.insert(source).second; });
  }
  Node& node = at(id);
  if (unique.size() > node.num_controls) {
    node.first_control = static_cast<uint32_t>(control_pool_.size());
    control_pool_.resize(control_pool_.size() + unique.size());
  }
  std::copy(unique.begin(), unique.end(), control_pool_.begin() + node.first_control);
  node.num_controls = static_cast<uint32_t>(unique.size());
}

Result<std::vector<NodeId>> Graph::TopologicalOrder() const {
  std::vector<NodeId> order;
  bool in_order = true;
  for (NodeId id = 0; in_order && id < num_nodes(); ++id) {
    for (const Endpoint input : inputs(id))
      in_order &= input.node < id || IsBackEdge(input.node, id);
    for (NodeId control : control_inputs(id)) in_order &= control < id;
  }
  if (in_order) {
    order.resize(nodes_.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const OutEdges edges(*this);
  const auto for_each_target = [this, &edges](NodeId id, const auto& visit) {
    for (const OutEdge& edge : edges.of(id)) {
      if (edge.input < 0 || !IsBackEdge(id, edge.target)) visit(edge.target);
    }
  };
  order = TopologicalSort(nodes_.size(), NextReady::kFirstIn, for_each_target);
  if (order.size() == nodes_.size()) return order;
  return InvalidArgument(
      "the graph has a cycle: " +
      CycleText(nodes_.size(), order, for_each_target, [this](NodeId id) { return name(id); }));
}

OutEdges::OutEdges(const Graph& graph) {
  const auto count = static_cast<size_t>(graph.num_nodes());
  offsets_.assign(count + 1, 0);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    for (const Endpoint input : graph.inputs(id)) ++offsets_[static_cast<size_t>(input.node) + 1];
    for (NodeId control : graph.control_inputs(id)) ++offsets_[static_cast<size_t>(control) + 1];
  }
  for (size_t i = 0; i < count; ++i) offsets_[i + 1] += offsets_[i];
  edges_.resize(offsets_[count]);
  std::vector<uint32_t> next(offsets_.begin(), offsets_.end() - 1);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    int32_t index = 0;
    for (const Endpoint input : graph.inputs(id)) {
      edges_[next[static_cast<size_t>(input.node)]++] = {id, index++, input.index};
    }
    for (NodeId control : graph.control_inputs(id))
      edges_[next[static_cast<size_t>(control)]++] = {id, -1, -1};
  }
}

}  // namespace monograph
