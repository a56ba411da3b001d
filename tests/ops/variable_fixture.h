// Variables and the ops that change them, run one by one.
#pragma once

#include "tests/ops/testing.h"

namespace monograph::testing {

class VariableTest : public ::testing::Test {
 protected:
  VariableTest() : runner_(&Kernels(), {.pools = nullptr, .resources = &resources_}) {}

  Result<std::vector<Tensor>> Run(const std::string& op, std::vector<Tensor> inputs,
                                  Attrs attrs = {}) {
    return testing::RunOp(runner_, Ops(), op, std::move(inputs), std::move(attrs));
  }
  Result<Tensor> Handle(const std::string& name, DType dtype, const PartialShape& shape,
                        const std::string& container = "") {
    MG_ASSIGN_OR_RETURN(
        auto out,
        Run("VarHandleOp", {},
            {{"shared_name", name}, {"container", container}, {"dtype", dtype}, {"shape", shape}}));
    return out[0];
  }
  // A variable with a value of its own.
  Tensor Make(const std::string& name, const Tensor& value) {
    const Tensor handle = Handle(name, value.dtype(), value.shape()).value();
    const auto assigned =
        Run("AssignVariableOp", {handle, value.Clone().value()}, {{"dtype", value.dtype()}});
    EXPECT_TRUE(assigned.ok()) << assigned.status();
    return handle;
  }
  Tensor Read(const Tensor& handle, DType dtype = DT_FLOAT) {
    auto out = Run("ReadVariableOp", {handle}, {{"dtype", dtype}});
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? (*out)[0] : Tensor();
  }

  ResourceManager resources_;
  KernelRunner runner_;
};

inline Tensor Floats(std::initializer_list<float> values) { return Tensor::Vector<float>(values); }
inline Tensor Scalar(float value) { return Tensor::Scalar<float>(value); }

}  // namespace monograph::testing
