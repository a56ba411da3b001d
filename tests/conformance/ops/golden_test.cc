// Every reference case, three times: with inputs that are constants, of known shape, and unknown
// altogether.
#include "tests/conformance/ops/golden.h"

#include <gtest/gtest.h>

#include "graph/attr_proto.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "ops/register.h"
#include "tests/conformance/ops/evaluator.h"

namespace monograph::optest {
namespace {

enum class Known { kValues, kShapes, kNothing };

const char* Describe(Known known) {
  return known == Known::kValues   ? "inputs are constants"
         : known == Known::kShapes ? "input shapes are known"
                                   : "nothing is known of the inputs";
}

// The outputs of the case's node.
Result<std::vector<Tensor>> RunCase(const OpCase& op_case, Known known) {
  GraphDef def;
  std::vector<Tensor> inputs;
  for (int i = 0; i < op_case.inputs_size(); ++i) {
    MG_ASSIGN_OR_RETURN(Tensor value, TensorFromProto(op_case.inputs(i)));
    NodeDef* node = def.add_node();
    node->set_name("in" + std::to_string(i));
    node->set_op(known == Known::kValues ? "Const" : "Placeholder");
    (*node->mutable_attr())["dtype"].set_type(op_case.inputs(i).dtype());
    if (known == Known::kValues) {
      *(*node->mutable_attr())["value"].mutable_tensor() = op_case.inputs(i);
    } else if (known == Known::kShapes) {
      *(*node->mutable_attr())["shape"].mutable_shape() = op_case.inputs(i).tensor_shape();
    } else {
      (*node->mutable_attr())["shape"].mutable_shape()->set_unknown_rank(true);
    }
    inputs.push_back(std::move(value));
  }
  *def.add_node() = op_case.node();
  MG_ASSIGN_OR_RETURN(const Graph graph, GraphFromDef(def, &Ops(), {.keep_unknown_ops = false}));
  KernelRunner runner(&Kernels());
  // The first variant gives its inputs away, so that kernels may write in place; the others keep
  // theirs.
  std::vector<Tensor> kept = inputs;
  if (known == Known::kValues) kept.clear();
  return runner.Run(graph, graph.Find(op_case.node().name()), std::move(inputs));
}

std::string Check(const OpCase& op_case, Known known) {
  const auto outputs = RunCase(op_case, known);
  if (!op_case.error().empty()) {
    return outputs.ok() ? "succeeds, but TensorFlow says: " + op_case.error() : "";
  }
  if (!outputs.ok()) return outputs.status().ToString();
  if (static_cast<int>(outputs->size()) != op_case.outputs_size()) {
    return "has " + std::to_string(outputs->size()) + " outputs";
  }
  for (int i = 0; i < op_case.outputs_size(); ++i) {
    const auto expected = TensorFromProto(op_case.outputs(i));
    if (!expected.ok()) return expected.status().ToString();
    const std::string difference =
        Difference((*outputs)[static_cast<size_t>(i)], *expected,
                   static_cast<double>(op_case.rtol()), static_cast<double>(op_case.atol()));
    if (!difference.empty()) return "output " + std::to_string(i) + " " + difference;
  }
  return "";
}

TEST(GoldenOps, GiveWhatTensorFlowGives) {
  int checked = 0;
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) {
      for (Known known : {Known::kValues, Known::kShapes, Known::kNothing}) {
        const std::string difference = Check(op_case, known);
        ++checked;
        if (!difference.empty()) {
          ADD_FAILURE() << family.file << ": " << op_case.name() << " (" << Describe(known)
                        << "): " << difference;
        }
      }
    }
  }
  EXPECT_GT(checked, 500);
}

}  // namespace
}  // namespace monograph::optest
