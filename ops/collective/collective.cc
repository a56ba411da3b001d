// Collectives: functions that build the nodes, shape functions, definitions. TensorFlow's ops take
// the group's size, its key and the instance key as inputs; MonographAllReduce, which is ours, has
// them as attributes. The members' names travel as the attribute _mg_members (or members), which
// TensorFlow's ops do not have.
#include "ops/collective/collective.h"

#include <algorithm>

#include "base/device_name.h"
#include "graph/function.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"

namespace monograph {
namespace {

// Full names of the members; the scope fails if one is no device name.
std::vector<std::string> FullNames(const Scope& scope, const CollectiveGroup& group) {
  if (!group.members.empty() && static_cast<int>(group.members.size()) != group.size) {
    scope.Fail(InvalidArgument("collective group " + std::to_string(group.key) + " of size " +
                               std::to_string(group.size) + " has " +
                               std::to_string(group.members.size()) + " members"));
  }
  std::vector<std::string> names;
  for (const std::string& member : group.members) {
    const Result<DeviceName> device = DeviceName::Parse(member);
    if (!device.ok()) {
      scope.Fail(
          device.status().WithContext("member of collective group " + std::to_string(group.key)));
      return {};
    }
    names.push_back(
        MergeScope(*device, {.job = "localhost", .replica = 0, .task = 0, .type = kCpu, .id = 0})
            .ToString());
  }
  return names;
}

// The inputs and attributes that the ops of TensorFlow share.
OpBuilder Begin(const Scope& scope, std::string_view op, const Output* input,
                const CollectiveGroup& group, int instance_key) {
  const Scope helper = scope.HelperScope(op);
  OpBuilder builder(scope, op);
  if (input != nullptr) builder.Input(*input);
  builder.Input(Const(helper.WithOpName("group_size"), int32_t{group.size}))
      .Input(Const(helper.WithOpName("group_key"), int32_t{group.key}))
      .Input(Const(helper.WithOpName("instance_key"), int32_t{instance_key}))
      .Attr("timeout_seconds", AttrValue(static_cast<float>(group.timeout_seconds)));
  if (std::vector<std::string> members = FullNames(scope, group); !members.empty())
    builder.Attr("_mg_members", AttrValue(std::move(members)));
  return builder;
}

}  // namespace

Output CollectiveReduce(const Scope& scope, const Output& input, const CollectiveGroup& group,
                        int instance_key, std::string_view merge_op, std::string_view final_op) {
  return Begin(scope, "CollectiveReduceV2", &input, group, instance_key)
      .Attr("merge_op", AttrValue(std::string(merge_op)))
      .Attr("final_op", AttrValue(std::string(final_op)))
      .BuildOutput();
}

Output CollectiveGather(const Scope& scope, const Output& input, const CollectiveGroup& group,
                        int instance_key) {
  return Begin(scope, "CollectiveGatherV2", &input, group, instance_key).BuildOutput();
}

Output CollectiveBroadcastSend(const Scope& scope, const Output& input,
                               const CollectiveGroup& group, int instance_key) {
  return Begin(scope, "CollectiveBcastSendV2", &input, group, instance_key).BuildOutput();
}

Output CollectiveBroadcastRecv(const Scope& scope, DType dtype, const Shape& shape,
                               const CollectiveGroup& group, int instance_key) {
  const Output dims =
      IntsConst(scope.HelperScope("CollectiveBcastRecvV2").WithOpName("shape"), shape.dims());
  return Begin(scope, "CollectiveBcastRecvV2", nullptr, group, instance_key)
      .Input(dims)
      .Attr("T", AttrValue(dtype))
      .BuildOutput();
}

Outputs MonographAllReduce(const Scope& scope, const Outputs& inputs, const CollectiveGroup& group,
                           int instance_key, std::string_view merge_op, std::string_view final_op) {
  const Operation node =
      OpBuilder(scope, "MonographAllReduce")
          .Inputs(inputs)
          .Attr("group_size", AttrValue(int64_t{group.size}))
          .Attr("group_key", AttrValue(int64_t{group.key}))
          .Attr("instance_key", AttrValue(int64_t{instance_key}))
          .Attr("merge_op", AttrValue(std::string(merge_op)))
          .Attr("final_op", AttrValue(std::string(final_op)))
          .Attr("timeout_seconds", AttrValue(static_cast<float>(group.timeout_seconds)))
          .Attr("members", AttrValue(FullNames(scope, group)))
          .Build();
  Outputs outputs;
  for (size_t i = 0; i < inputs.size(); ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

bool HasCollectives(const Graph& graph) {
  const auto meets = [](const Graph& nodes) {
    for (NodeId node = 0; node < nodes.num_nodes(); ++node) {
      const std::string& op = nodes.op(node).name();
      if (op.starts_with("Collective") || op == "MonographAllReduce") return true;
    }
    return false;
  };
  return meets(graph) || std::ranges::any_of(graph.functions().all(), [&](const auto& named) {
           return meets(*named.second.body);
         });
}

namespace ops::collective {
namespace {

Status ScalarFrom(ShapeContext& c, int first) {
  for (int i = first; i < first + 3; ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  return Status();
}

Status ReduceShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(ScalarFrom(c, 1));
  c.set_output(0, c.input(0));
  return Status();
}

Status GatherShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(ScalarFrom(c, 1));
  PartialShape shape = c.input(0);
  if (shape.known_rank()) {
    if (shape.rank() == 0)
      return InvalidArgument("input must have a first dimension, it is a scalar");
    shape.set_dim(0, -1);
  }
  c.set_output(0, shape);
  return Status();
}

Status RecvShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(ScalarFrom(c, 0));
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(3));
  c.set_output(0, shape);
  return Status();
}

Status EachUnchanged(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_output(i, c.input(i));
  return Status();
}

OpDef Group(OpDef def) {
  return def.Input("group_size: int32")
      .Input("group_key: int32")
      .Input("instance_key: int32")
      .Attr("communication_hint: string = 'auto'")
      .Attr("timeout_seconds: float = 0")
      .Stateful()
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(Group(OpDef("CollectiveReduceV2").Input("input: T"))
                    .Input("ordering_token: Nordering_token * resource")
                    .Output("data: T")
                    .Attr("T: {bfloat16, float, half, double, int32, int64}")
                    .Attr("merge_op: {'Min', 'Max', 'Mul', 'Add'}")
                    .Attr("final_op: {'Id', 'Div'}")
                    .Attr("is_stateless: bool = false")
                    .Attr("Nordering_token: int >= 0 = 0")
                    .Attr("max_subdivs_per_device: int = -1")
                    .Shape(ReduceShape));
  registry->Add(Group(OpDef("CollectiveGatherV2").Input("input: T"))
                    .Input("ordering_token: Nordering_token * resource")
                    .Output("data: T")
                    .Attr("T: {bfloat16, float, half, double, int32, int64}")
                    .Attr("is_stateless: bool = false")
                    .Attr("Nordering_token: int >= 0 = 0")
                    .Shape(GatherShape));
  registry->Add(Group(OpDef("CollectiveBcastSendV2").Input("input: T"))
                    .Output("data: T")
                    .Attr("T: {bool, float, half, double, int32, int64}")
                    .Shape(ReduceShape));
  registry->Add(Group(OpDef("CollectiveBcastRecvV2"))
                    .Input("shape: Tshape")
                    .Output("data: T")
                    .Attr("T: {bool, float, half, double, int32, int64}")
                    .Attr("Tshape: {int32, int64} = DT_INT32")
                    .Shape(RecvShape));
  registry->Add(OpDef("MonographAllReduce")
                    .Input("input: N * T")
                    .Output("data: N * T")
                    .Attr("N: int >= 1")
                    .Attr("T: {bfloat16, float, half, double, int32, int64, uint8}")
                    .Attr("group_size: int >= 1")
                    .Attr("group_key: int")
                    .Attr("instance_key: int")
                    .Attr("merge_op: {'Min', 'Max', 'Mul', 'Add'} = 'Add'")
                    .Attr("final_op: {'Id', 'Div'} = 'Id'")
                    .Attr("timeout_seconds: float = 0")
                    .Attr("members: list(string) = []")
                    .Stateful()
                    .NoGradient()
                    .Shape(EachUnchanged));
}

}  // namespace ops::collective
}  // namespace monograph
