// OpDef: what an op is: its inputs, outputs and attributes, how shapes follow, and its gradient.
// OpRegistry: all ops that a program knows.
//
// Definitions are plain values added to a registry by explicit calls (ops/CMakeLists.txt generates
// the list); there are no static initialisers, so a test can make a registry of its own.
//
//   registry.Add(OpDef("MatMul")
//       .Input("a: T").Input("b: T").Output("product: T")
//       .Attr("transpose_a: bool = false").Attr("transpose_b: bool = false")
//       .Attr("T: {bfloat16, half, float, double, int32, int64}")
//       .Shape(MatMulShape).Gradient(MatMulGradient));
//
// The small grammar of the strings is TensorFlow's:
//   argument:  name ":" ["Ref("] type [")"]
//   type:      dtype | type-attr | number-attr "*" (dtype | type-attr) | type-list-attr
//   attribute: name ":" kind [">=" minimum] ["=" default]
//   kind: "int" "float" "bool" "string" "type" "shape" "tensor" "func", "list(" kind ")",
//         a set of types "{float, int32}" or of strings "{'SAME', 'VALID'}",
//         or a list of such a set "list({float, int32})"
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attr.h"

namespace monograph {

class ShapeContext;     // graph/shape_inference.h
class GradientContext;  // graph/gradients.h

// Infers the output shapes of one node. Runs while the graph is built.
using ShapeFn = Status (*)(ShapeContext&);
// Adds the nodes that compute the gradient of one node.
using GradientFn = Status (*)(GradientContext&);

struct ArgDef {
  std::string name;
  DType dtype = DT_INVALID;    // fixed type, or
  std::string type_attr;       // attribute with the type, or
  std::string type_list_attr;  // attribute with a list of types: one tensor each
  std::string number_attr;     // attribute with the count, for a sequence of equal types
  bool is_ref = false;         // "Ref(...)": a reference to a variable, where the plain type stands

  // A reference that is no variable's but the handle of a resource: its container and name.
  bool is_string_handle() const { return is_ref && dtype == DT_STRING; }
};

struct AttrDef {
  std::string name;
  std::string kind;                  // "int", "list(type)", ...
  std::vector<DType> allowed_types;  // empty: any
  std::vector<std::string> allowed_strings;
  std::optional<int64_t> minimum;  // of an int, or of the length of a list
  std::optional<AttrValue> default_value;
};

// What an op does to the flow of control (graph/control_flow.h). The executor runs such nodes
// itself: they have no kernels.
enum class FlowOp : uint8_t {
  kNone,
  kSwitch,  // (data, pred: bool) -> (output_false, output_true): data as the one, the other is dead
  kMerge,   // (inputs: N * T) -> (output, value_index: int32): the input that is not dead
  kEnter,   // data -> output, in the first iteration of a loop, or (is_constant) in all
  kExit,    // data -> output, behind the loop
  kNextIteration,  // data -> output, in the loop's next iteration
  kLoopCond,       // input: bool -> output: whether the loop goes on
  kTrigger,        // no data: runs although what it waits for is dead
};

// What does by handles (DT_RESOURCE) what an op does by references: graph/references.h.
struct HandleForm {
  std::string op;
  // Attributes of the reference's op and what they are called there; "": they follow from inputs.
  // Others have the same name, or none there.
  std::vector<std::pair<std::string, std::string>> renamed;
};

class OpDef {
 public:
  explicit OpDef(std::string name) : name_(std::move(name)) {}

  // Builder. A malformed string is our own bug and ends the process.
  OpDef& Input(std::string_view spec);
  OpDef& Output(std::string_view spec);
  OpDef& Attr(std::string_view spec);
  // The op has effects or depends on state: it is never folded or merged, nor pruned where a target
  // needs it.
  OpDef& Stateful();
  // The op writes nothing that it is given: variables stay as they are, and no output is computed
  // in the memory of an input, though it may be the input or the variable itself.
  OpDef& ReadsOnly();
  // The op may wait for what a node that is not before it does: an element that is enqueued, a
  // gradient that is applied.
  OpDef& MayWait();
  OpDef& Commutative();  // of two inputs
  // A node that requests no job runs in the client's process.
  OpDef& InClient();
  OpDef& Flow(FlowOp flow);
  OpDef& ByHandle(HandleForm form);
  // The op is one more name of `op`: its nodes become nodes of `op` when they are added to a graph,
  // so that no pass meets them. Attributes that `op` lacks are left out.
  OpDef& AddedAs(std::string op);
  OpDef& Shape(ShapeFn fn);
  OpDef& Gradient(GradientFn fn);
  OpDef& NoGradient();  // gradients do not flow through it, and that is right (Shape, ArgMax, ...)

  const std::string& name() const { return name_; }
  const std::vector<ArgDef>& inputs() const { return inputs_; }
  const std::vector<ArgDef>& outputs() const { return outputs_; }
  const std::vector<AttrDef>& attrs() const { return attrs_; }
  const AttrDef* FindAttr(std::string_view name) const;
  bool stateful() const { return stateful_; }
  bool reads_only() const { return reads_only_; }
  bool may_wait() const { return may_wait_; }
  bool commutative() const { return commutative_; }
  bool in_client() const { return in_client_; }
  FlowOp flow() const { return flow_; }
  // nullptr: the op has nothing to do with references.
  const HandleForm* handle_form() const { return handle_form_ ? &*handle_form_ : nullptr; }
  const std::string& added_as() const { return added_as_; }  // "": it stays what it is
  ShapeFn shape() const { return shape_; }
  GradientFn gradient() const { return gradient_; }
  bool no_gradient() const { return no_gradient_; }
  // False for the stand-in that an imported graph holds for an op that the registry lacks.
  bool known() const { return known_; }
  static OpDef Unknown(std::string name);

  // Output types under `attrs`. InvalidArgument names the attribute that is missing or wrong.
  Status OutputTypes(const Attrs& attrs, std::vector<DType>* types) const;

  // The op `name` that does by references what this op does by handles: each handle is a reference
  // to a variable of type `type_attr`, and the first of them is the output, too.
  OpDef ReferenceForm(std::string name, std::string type_attr, ShapeFn fn) const;
  // The op `name` whose handles are references to two strings, a resource's container and name, as
  // TensorFlow's first queues, readers and tables have them.
  OpDef StringReferenceForm(std::string name) const;
  // The op `name`, which is one more name of this one. Handles are strings there, as they were
  // before this op came; an op that gave out a handle gave out nothing else.
  OpDef OtherName(std::string name) const;

  // "MatMul(a: T, b: T) -> (product: T); transpose_a: bool = false, ..."
  std::string ToString() const;

 private:
  std::string name_;
  std::vector<ArgDef> inputs_, outputs_;
  std::vector<AttrDef> attrs_;
  bool stateful_ = false, reads_only_ = false, commutative_ = false, no_gradient_ = false;
  bool in_client_ = false, may_wait_ = false;
  bool known_ = true;
  FlowOp flow_ = FlowOp::kNone;
  std::optional<HandleForm> handle_form_;
  std::string added_as_;
  ShapeFn shape_ = nullptr;
  GradientFn gradient_ = nullptr;
};

// Not thread-safe while ops are added; afterwards read-only and shared.
class OpRegistry {
 public:
  OpRegistry();  // holds the structural ops of graph/structural_ops.h
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  void Add(OpDef def);  // REQUIRES: no op of that name yet
  void AddStringReferenceForm(std::string name, std::string_view of);  // REQUIRES: `of` is there
  void AddOtherName(std::string name, std::string_view of);            // REQUIRES: `of` is there
  const OpDef* Find(std::string_view name) const;                      // nullptr if there is none
  // Unimplemented "op 'Foo' is not registered; did you mean 'Fool'?"
  Result<const OpDef*> Require(std::string_view name) const;
  std::vector<const OpDef*> All() const;  // sorted by name
  // A hash over all definitions: peers compare it at connection. Computed once; by any thread.
  uint64_t fingerprint() const;

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
  mutable std::atomic<uint64_t> fingerprint_ = 0;  // 0: not computed since the last Add
};

}  // namespace monograph
