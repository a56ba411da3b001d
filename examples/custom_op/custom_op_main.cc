// custom_op: runs Swish and its gradient, and compares both with numbers.
#include <cmath>
#include <cstdio>
#include <vector>

#include "swish.h"

using namespace monograph;  // NOLINT

namespace {

Status Run() {
  custom_op::DefineSwish(&DefaultRegistries().ops);
  custom_op::RegisterSwishCpu(&DefaultRegistries().kernels);

  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root.WithOpName("x"), DT_FLOAT, {-1});
  const Output y = custom_op::Swish(root.WithOpName("y"), x);
  MG_RETURN_IF_ERROR(root.status());
  MG_ASSIGN_OR_RETURN(const Outputs slopes, AddGradients(root, {&y, 1}, {&x, 1}));

  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Local(graph));
  const std::vector<float> points = {-3, -1, -0.5f, 0, 0.5f, 1, 3};
  const Tensor fed = Tensor::FromValues<float>(Shape{static_cast<int64_t>(points.size())}, points);
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session->Run({{x, fed}}, {y, slopes[0]}));
  for (size_t i = 0; i < points.size(); ++i) {
    auto swish = [](double v) { return v / (1 + std::exp(-v)); };
    const double expected = swish(points[i]),
                 slope = (swish(points[i] + 1e-5) - swish(points[i] - 1e-5)) / 2e-5;
    const double got = values[0].data<float>()[i], got_slope = values[1].data<float>()[i];
    std::printf("swish(%4.1f) = %8.5f  slope %8.5f\n", points[i], got, got_slope);
    if (std::fabs(got - expected) > 1e-5 || std::fabs(got_slope - slope) > 1e-4)
      return Internal("that is not Swish");
  }
  return session->Close();
}

}  // namespace

int main() {
  const Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "custom_op: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
