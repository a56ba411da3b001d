// consumer: trains a line on two replicas, from outside of Monograph's tree.
#include <monograph/monograph.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace monograph;  // NOLINT

namespace {

// One replica: the mean squared distance of its points from the line.
Result<Outputs> Line(Scope& tower, std::span<const Output> batch, ModelVariables& variables) {
  Output w = variables.Get("w", Shape{}, Initial::Zeros());
  Output b = variables.Get("b", Shape{}, Initial::Zeros());
  Output guess = Add(tower, Mul(tower, batch[0], w), b);
  return Outputs{ReduceMean(tower, SquaredDifference(tower, guess, batch[1]))};
}

Status Train() {
  Graph graph = NewGraph();
  Scope root(&graph);
  Output x = Placeholder(root.WithOpName("x"), DT_FLOAT, {-1});
  Output y = Placeholder(root.WithOpName("y"), DT_FLOAT, {-1});
  MG_ASSIGN_OR_RETURN(ReplicatedStep step, Replicate(root, {"/device:CPU:0", "/device:CPU:1"},
                                                     {x, y}, Line, GradientDescent(0.1)));
  MG_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      Session::Local(graph, {.device_count = {{kCpu, 2}}}));
  MG_RETURN_IF_ERROR(session->Run({}, {}, {step.init}).status());

  std::vector<float> xs, ys;
  for (int i = 0; i < 21; ++i) {
    xs.push_back(static_cast<float>(i - 10) / 5);
    ys.push_back(2 * xs.back() + 1);
  }
  Tensor points = Tensor::FromValues<float>(Shape{21}, xs),
         values = Tensor::FromValues<float>(Shape{21}, ys);
  for (int i = 0; i < 100; ++i) {
    MG_RETURN_IF_ERROR(session->Run({{x, points}, {y, values}}, {}, {step.train}).status());
  }
  MG_ASSIGN_OR_RETURN(std::vector<Tensor> line,
                      session->Run({}, {step.variables[0].value, step.variables[1].value}));
  const float w = line[0].scalar<float>(), b = line[1].scalar<float>();
  std::printf("w = %.3f  b = %.3f\n", w, b);
  if (std::fabs(w - 2) > 1e-3f || std::fabs(b - 1) > 1e-3f)
    return Internal("the line was not found");
  return session->Close();
}

}  // namespace

int main() {
  const Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "consumer: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
