// Nodes that call functions of the program: what they are given, what may come back, and where.
#include "ops/py_func/py_func.h"

#include <gtest/gtest.h>

#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "tests/client/session_fixture.h"

namespace monograph {
namespace {

class PyFuncTest : public LocalSessionTest {
 protected:
  // Sets what all calls do.
  static void Handle(PyFuncHandler handler) { SetPyFuncHandler(std::move(handler)); }
  Status Fails(const std::vector<DType>& types) {
    const Outputs outputs = PyFunc(root_, {}, "f", types);
    return session().Run({}, outputs).status();
  }
};

TEST_F(PyFuncTest, AFunctionGetsTheTokenAndTheInputs) {
  Handle([](PyFuncCall call) -> Result<std::vector<Tensor>> {
    EXPECT_EQ(call.token, "sum_and_first");
    EXPECT_FALSE(call.eager);
    EXPECT_EQ(call.types, (std::vector<DType>{DT_FLOAT, DT_STRING}));
    const float* values = call.inputs.at(0).data<float>();
    return std::vector<Tensor>{Tensor::Scalar(values[0] + values[1]), call.inputs.at(1)};
  });
  const Output x = Placeholder(root_, DT_FLOAT, {2}), text = Placeholder(root_, DT_STRING, {});
  const Outputs outputs = PyFunc(root_, {x, text}, "sum_and_first", {DT_FLOAT, DT_STRING});
  const Result<std::vector<Tensor>> values =
      session().Run({{x, Tensor::Vector<float>({1, 2})}, {text, Tensor::String("a")}}, outputs);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 3);
  EXPECT_EQ(values->at(1).strings()[0], "a");
}

TEST_F(PyFuncTest, ItRunsInEveryStepAlsoOfConstants) {
  int calls = 0;
  Handle([&calls](const PyFuncCall&) -> Result<std::vector<Tensor>> {
    return std::vector<Tensor>{Tensor::Scalar(static_cast<float>(++calls))};
  });
  const Output one = OpBuilder(root_, "PyFuncStateless")
                         .Inputs(Outputs{ScalarConst(root_, 1, DT_FLOAT)})
                         .Attr("token", "f")
                         .Attr("Tout", std::vector<DType>{DT_FLOAT})
                         .BuildOutput();
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(session().Run({}, {one}).value().at(0).scalar<float>(), i);
}

TEST_F(PyFuncTest, WhatComesBackIsChecked) {
  Handle([](const PyFuncCall&) -> Result<std::vector<Tensor>> {
    return std::vector<Tensor>{Tensor::Scalar(1.0f)};
  });
  Status status = Fails({DT_FLOAT, DT_FLOAT});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("returns 1 values; the node has 2"), std::string::npos) << status;
  status = Fails({DT_INT32});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("returns float as value 0"), std::string::npos) << status;
  Handle([](const PyFuncCall&) -> Result<std::vector<Tensor>> { return OutOfRange("no more"); });
  status = Fails({DT_FLOAT});
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_NE(status.message().find("'PyFunc"), std::string::npos) << status;
}

}  // namespace
}  // namespace monograph
