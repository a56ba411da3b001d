// Queues: functions that build the nodes, shape functions, definitions. A handle says nothing of a
// queue's components, so the functions that dequeue look at the queue's own node for their types
// and shapes and note the shapes in the attribute _mg_shapes, which the shape function reads. A
// graph of TensorFlow's has no such attribute, and then the shapes are unknown.
#include "ops/queue/queue.h"

#include <string>

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"

namespace monograph {
namespace {

OpBuilder QueueNode(const Scope& scope, const char* op, const std::vector<DType>& types,
                    const QueueOptions& options) {
  OpBuilder builder(scope, op);
  builder.Attr("component_types", types)
      .Attr("shapes", options.shapes)
      .Attr("capacity", options.capacity)
      .Attr("container", options.container)
      .Attr("shared_name", options.shared_name);
  return builder;
}

// Builds a dequeue node. With `n`, components get a first dimension of size `lead` (-1: unknown).
Outputs Dequeue(const Scope& scope, const char* op, const Output& queue, const Output* n,
                int64_t lead) {
  if (!scope.ok() || !queue.valid()) return {};
  Operation node = queue;
  while (node.graph->is(node.id, "Identity")) node = node.input(0);
  const auto types = node.attrs().GetOr<std::vector<DType>>("component_types", {});
  if (types.empty()) {
    scope.Fail(InvalidArgument(std::string(op) + " from '" + std::string(node.name()) +
                               "': it does not come from a queue's node, such as FIFOQueueV2"));
    return {};
  }
  OpBuilder builder(scope, op);
  builder.Input(queue).Attr("component_types", types);
  const auto shapes = node.attrs().GetOr<std::vector<PartialShape>>("shapes", {});
  if (n != nullptr) builder.Input(*n);
  if (shapes.size() == types.size()) {
    std::vector<PartialShape> outputs;
    for (const PartialShape& shape : shapes) {
      PartialShape output = n == nullptr ? shape : PartialShape{lead};
      if (n != nullptr && !shape.known_rank()) output = PartialShape();
      for (int i = 0; n != nullptr && i < shape.rank(); ++i) output.AddDim(shape.dim(i));
      outputs.push_back(output);
    }
    builder.Attr("_mg_shapes", outputs);
  }
  const Operation made = builder.Build();
  Outputs outputs;
  for (int i = 0; made.valid() && i < made.num_outputs(); ++i) outputs.push_back(made.output(i));
  return outputs;
}

Output Count(const Scope& scope, const char* op, int n) {
  return Const(scope.HelperScope(op).WithOpName("n"), n);
}

}  // namespace

Output FIFOQueue(const Scope& scope, const std::vector<DType>& component_types,
                 const QueueOptions& options) {
  return QueueNode(scope, "FIFOQueueV2", component_types, options).BuildOutput();
}

Output RandomShuffleQueue(const Scope& scope, const std::vector<DType>& component_types,
                          const RandomShuffleQueueOptions& options) {
  return QueueNode(scope, "RandomShuffleQueueV2", component_types, options.queue)
      .Attr("min_after_dequeue", options.min_after_dequeue)
      .Attr("seed", options.seed)
      .Attr("seed2", options.seed2)
      .BuildOutput();
}

Operation QueueEnqueue(const Scope& scope, const Output& queue, const Outputs& components) {
  return OpBuilder(scope, "QueueEnqueueV2").Input(queue).Inputs(components).Build();
}
Operation QueueEnqueueMany(const Scope& scope, const Output& queue, const Outputs& components) {
  return OpBuilder(scope, "QueueEnqueueManyV2").Input(queue).Inputs(components).Build();
}

Outputs QueueDequeue(const Scope& scope, const Output& queue) {
  return Dequeue(scope, "QueueDequeueV2", queue, nullptr, -1);
}
Outputs QueueDequeueMany(const Scope& scope, const Output& queue, const Output& n) {
  const auto size = n.valid() ? ConstInts(n) : std::nullopt;
  const bool known = size && size->size() == 1 && size->front() >= 0;
  return Dequeue(scope, "QueueDequeueManyV2", queue, &n, known ? size->front() : -1);
}
Outputs QueueDequeueMany(const Scope& scope, const Output& queue, int n) {
  return QueueDequeueMany(scope, queue, Count(scope, "QueueDequeueManyV2", n));
}
Outputs QueueDequeueUpTo(const Scope& scope, const Output& queue, const Output& n) {
  return Dequeue(scope, "QueueDequeueUpToV2", queue, &n, -1);
}
Outputs QueueDequeueUpTo(const Scope& scope, const Output& queue, int n) {
  return QueueDequeueUpTo(scope, queue, Count(scope, "QueueDequeueUpToV2", n));
}

Operation QueueClose(const Scope& scope, const Output& queue, bool cancel_pending_enqueues) {
  return OpBuilder(scope, "QueueCloseV2")
      .Input(queue)
      .Attr("cancel_pending_enqueues", cancel_pending_enqueues)
      .Build();
}
Output QueueSize(const Scope& scope, const Output& queue) {
  return OpBuilder(scope, "QueueSizeV2").Input(queue).BuildOutput();
}
Output QueueIsClosed(const Scope& scope, const Output& queue) {
  return OpBuilder(scope, "QueueIsClosedV2").Input(queue).BuildOutput();
}

namespace ops::queue {
namespace {

Status QueueShape(ShapeContext& c) {
  const size_t types = c.attr<std::vector<DType>>("component_types").size();
  const size_t shapes = c.attr<std::vector<PartialShape>>("shapes").size();
  if (shapes != 0 && shapes != types) {
    return InvalidArgument(std::to_string(types) + " component types, but " +
                           std::to_string(shapes) + " shapes: give one per component, or none");
  }
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

// The queue may belong to another client: shapes are known only if the attribute _mg_shapes says
// them.
Status DequeueShape(ShapeContext& c) {
  if (c.num_inputs() > 1) MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const auto shapes = c.attrs().GetOr<std::vector<PartialShape>>("_mg_shapes", {});
  for (int i = 0; i < c.num_outputs(); ++i) {
    const bool known = shapes.size() == static_cast<size_t>(c.num_outputs());
    c.set_output(i, known ? shapes[static_cast<size_t>(i)] : PartialShape());
  }
  return Status();
}

OpDef QueueDef(const char* name, const char* types = "component_types: list(type) >= 1") {
  OpDef def(name);
  def.Output("handle: resource")
      .Attr(types)
      .Attr("shapes: list(shape) >= 0 = []")
      .Attr("capacity: int = -1")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Stateful()
      .Shape(QueueShape)
      .NoGradient();
  return def;
}

OpDef EnqueueDef(const char* name) {
  OpDef def(name);
  def.Input("handle: resource")
      .Input("components: Tcomponents")
      .Attr("Tcomponents: list(type) >= 1")
      .Attr("timeout_ms: int = -1")
      .Stateful()
      .MayWait()
      .Shape(NoOutputs)
      .NoGradient();
  return def;
}

OpDef DequeueDef(const char* name, bool many) {
  OpDef def(name);
  def.Input("handle: resource");
  if (many) def.Input("n: int32");
  def.Output("components: component_types")
      .Attr("component_types: list(type) >= 1")
      .Attr("timeout_ms: int = -1")
      .Stateful()
      .MayWait()
      .Shape(DequeueShape)
      .NoGradient();
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(QueueDef("FIFOQueueV2"));
  registry->Add(QueueDef("PaddingFIFOQueueV2"));
  registry->Add(QueueDef("PriorityQueueV2", "component_types: list(type) >= 0 = []"));
  registry->Add(QueueDef("RandomShuffleQueueV2")
                    .Attr("min_after_dequeue: int = 0")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0"));
  registry->Add(EnqueueDef("QueueEnqueueV2"));
  registry->Add(EnqueueDef("QueueEnqueueManyV2"));
  registry->Add(DequeueDef("QueueDequeueV2", false));
  registry->Add(DequeueDef("QueueDequeueManyV2", true));
  registry->Add(DequeueDef("QueueDequeueUpToV2", true));
  registry->Add(OpDef("QueueCloseV2")
                    .Input("handle: resource")
                    .Attr("cancel_pending_enqueues: bool = false")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  registry->Add(OpDef("QueueSizeV2")
                    .Input("handle: resource")
                    .Output("size: int32")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("QueueIsClosedV2")
                    .Input("handle: resource")
                    .Output("is_closed: bool")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  for (const std::string name :
       {"FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue", "QueueEnqueue",
        "QueueEnqueueMany", "QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo", "QueueClose",
        "QueueSize", "QueueIsClosed"})
    registry->AddStringReferenceForm(name, name + "V2");
}

}  // namespace ops::queue
}  // namespace monograph
