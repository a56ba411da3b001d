// first_graph: the README's first program: a product of two matrices, in this process.
#include <monograph/monograph.h>

#include <cstdio>

using namespace monograph;  // NOLINT: as in the README

int main() {
  Graph graph = NewGraph();
  Scope root(&graph);
  Output x = Placeholder(root.WithOpName("x"), DT_FLOAT, {-1, 2});
  Output w = Const(root.WithOpName("w"), Shape{2, 1}, {3.0f, 4.0f});
  Output y = MatMul(root.WithOpName("y"), x, w);
  if (!root.ok()) return std::fprintf(stderr, "%s\n", root.status().ToString().c_str()), 1;

  auto session = Session::Local(graph, {.log_device_placement = PlacementLog::kFull});
  if (!session.ok()) return std::fprintf(stderr, "%s\n", session.status().ToString().c_str()), 1;
  auto values = (*session)->Run({{x, Tensor::FromValues<float>({1, 2}, {1, 1})}}, {y});
  if (!values.ok()) return std::fprintf(stderr, "%s\n", values.status().ToString().c_str()), 1;
  std::printf("%s\n", values->at(0).ToString().c_str());  // float[1,1] = 7
  return 0;
}
