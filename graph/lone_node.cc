#include "graph/lone_node.h"

#include "graph/attr_proto.h"
#include "graph/graph.pb.h"
#include "graph/op_source.h"
#include "graph/partial_eval.h"
#include "graph/shape_inference.h"

namespace monograph {
namespace {

constexpr int kProducer = 134;  // of TensorFlow 1.15's graphs: its ops mean what they mean there
constexpr int64_t kMostConstant = 1024;  // elements that a shape may depend on

void SetType(DType dtype, const std::string& name, pb::NodeDef* node) {
  (*node->mutable_attr())[name].set_type(static_cast<pb::DataType>(dtype));
}

}  // namespace

std::string AloneInGraph(const ShapeContext& c, const std::string& name) {
  pb::GraphDef graph;
  graph.mutable_versions()->set_producer(kProducer);
  for (int i = 0; i < c.num_inputs(); ++i) {
    pb::NodeDef* const input = graph.add_node();
    input->set_name("input_" + std::to_string(i));
    const Tensor* const value = c.input_value(i);
    if (value != nullptr && value->elements() <= kMostConstant) {
      input->set_op(std::string(kConstOp));
      SetType(value->dtype(), "dtype", input);
      TensorToProto(*value, (*input->mutable_attr())["value"].mutable_tensor());
    } else {
      input->set_op("Placeholder");
      SetType(c.input_dtype(i), "dtype", input);
      AttrToProto(c.input(i), &(*input->mutable_attr())["shape"]);
    }
  }
  const OpDef& op = OpOf(c);
  pb::NodeDef* const node = graph.add_node();
  node->set_name(name);
  node->set_op(op.name());
  for (int i = 0; i < c.num_inputs(); ++i) node->add_input("input_" + std::to_string(i));
  for (const auto& [attr, value] : c.attrs().values()) {
    if (op.FindAttr(attr) != nullptr) AttrToProto(value, &(*node->mutable_attr())[attr]);
  }
  return graph.SerializeAsString();
}

}  // namespace monograph
