#include "graph/function.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

using testing::Binary;
using testing::Placeholder;
using testing::TestRegistry;
using testing::Unary;

Output Arg(const Scope& scope, int64_t index) {
  return OpBuilder(scope, "_Arg").Attr("T", DT_FLOAT).Attr("index", index).BuildOutput();
}
void Retval(const Scope& scope, const Output& value, int64_t index) {
  OpBuilder(scope, "_Retval").Input(value).Attr("index", index).Build();
}
Operation Call(const Scope& scope, const char* function, const Output& input,
               bool stateful = false) {
  return OpBuilder(scope, stateful ? "StatefulPartitionedCall" : "PartitionedCall")
      .Input(input)
      .Attr("f", FunctionName{function})
      .Attr("Tout", std::vector<DType>{DT_FLOAT})
      .Build();
}

class FunctionTest : public ::testing::Test {
 protected:
  template <typename Build>
  Function Define(const char* name, Build build) {
    auto body = std::make_shared<Graph>(&TestRegistry());
    const Scope scope(body.get());
    build(scope);
    EXPECT_TRUE(scope.ok()) << scope.status();
    auto function = Function::Make(name, body);
    EXPECT_TRUE(function.ok()) << function.status();
    return std::move(function).value();
  }
  void AddDoubled() {
    ASSERT_TRUE(graph_.functions()
                    .Add(Define("double",
                                [](const Scope& s) {
                                  const Output x = Arg(s.WithOpName("x"), 0);
                                  Retval(s.WithOpName("y"),
                                         Binary(s.WithOpName("sum"), "Add", x, x), 0);
                                }))
                    .ok());
  }
  static std::vector<std::string> Names(const Graph& graph, std::span<const NodeId> ids) {
    std::vector<std::string> names;
    for (NodeId id : ids) names.emplace_back(graph.name(id));
    std::sort(names.begin(), names.end());
    return names;
  }
  Graph graph_{&TestRegistry()};
  Scope root_{&graph_};
};

TEST_F(FunctionTest, ArgumentsAndResultsAreFoundByIndex) {
  const Function function = Define("f", [](const Scope& s) {
    const Output b = Arg(s.WithOpName("b"), 1), a = Arg(s.WithOpName("a"), 0);
    Retval(s.WithOpName("r"), Binary(s, "Sub", a, b), 0);
  });
  EXPECT_EQ(Names(*function.body, function.args), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(function.body->name(function.args[0]), "a");
  EXPECT_FALSE(function.stateful);
  EXPECT_TRUE(Define("g", [](const Scope& s) { OpBuilder(s, "Act").Build(); }).stateful);
}

TEST_F(FunctionTest, MissingAndRepeatedIndexesAreRefused) {
  auto body = std::make_shared<Graph>(&TestRegistry());
  const Scope scope(body.get());
  Arg(scope, 1);
  EXPECT_EQ(Function::Make("f", body).status().message(),
            "function 'f': argument 0 of 2 is missing");
  Arg(scope, 1);
  EXPECT_NE(Function::Make("f", body).status().message().find("argument 1 is given twice"),
            std::string::npos);
}

TEST_F(FunctionTest, AFunctionKeepsItsBody) {
  AddDoubled();
  const Function other = Define("double", [](const Scope& s) { Retval(s, Arg(s, 0), 0); });
  EXPECT_EQ(graph_.functions().Add(other).code(), Code::kAlreadyExists);
  EXPECT_TRUE(graph_.functions().Add(*graph_.functions().Find("double")).ok());
}

TEST_F(FunctionTest, ACallIsCheckedAgainstTheFunction) {
  AddDoubled();
  const Output text = Placeholder(root_.WithOpName("t"), DT_STRING, {});
  Call(root_.WithOpName("c"), "double", text);
  EXPECT_EQ(root_.status().message(),
            "node 'c' (PartitionedCall) with inputs string<unknown>: function 'double' has "
            "argument 0 of type float, not string");
}

TEST_F(FunctionTest, InliningPutsTheBodyUnderTheCallsName) {
  AddDoubled();
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {2});
  const Operation call = Call(root_.WithOpName("tower_0"), "double", x);
  Unary(root_.WithOpName("y"), "Relu", call.output(0));
  ASSERT_TRUE(root_.ok()) << root_.status();
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  ASSERT_EQ(flat->num_nodes(), 3);
  const NodeId sum = flat->Find("tower_0/sum");
  ASSERT_GE(sum, 0);
  EXPECT_EQ(flat->inputs(sum)[0], (Endpoint{flat->Find("x"), 0}));
  EXPECT_EQ(flat->inputs(flat->Find("y"))[0], (Endpoint{sum, 0}));
}

TEST_F(FunctionTest, CallsWithinFunctionsAreInlinedToo) {
  AddDoubled();
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("quadruple",
                              [](const Scope& s) {
                                Retval(s,
                                       Call(s.WithOpName("b"), "double",
                                            Call(s.WithOpName("a"), "double", Arg(s, 0)).output(0))
                                           .output(0),
                                       0);
                              }))
                  .ok());
  Unary(root_.WithOpName("y"), "Relu",
        Call(root_.WithOpName("q"), "quadruple", Placeholder(root_.WithOpName("x"), DT_FLOAT, {}))
            .output(0));
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->inputs(flat->Find("q/b/sum"))[0], (Endpoint{flat->Find("q/a/sum"), 0}));
  EXPECT_EQ(flat->inputs(flat->Find("y"))[0], (Endpoint{flat->Find("q/b/sum"), 0}));
  EXPECT_EQ(flat->num_nodes(), 4);
}

TEST_F(FunctionTest, WhatNoResultNeedsIsNotInlinedUnlessItHasEffects) {
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("wasteful",
                              [](const Scope& s) {
                                const Output x = Arg(s, 0);
                                Unary(s.WithOpName("unused"), "Relu",
                                      Unary(s.WithOpName("before"), "Relu", x));
                                const Output w = OpBuilder(s, "VarHandleOp")
                                                     .Attr("dtype", DT_FLOAT)
                                                     .Attr("shape", PartialShape())
                                                     .BuildOutput();
                                OpBuilder(s.WithOpName("effect"), "AssignVariableOp")
                                    .Input(w)
                                    .Input(Unary(s.WithOpName("read"), "Relu", x))
                                    .Build();
                                Retval(s, Unary(s.WithOpName("used"), "Relu", x), 0);
                              }))
                  .ok());
  Unary(root_.WithOpName("y"), "Relu",
        Call(root_.WithOpName("c"), "wasteful", Placeholder(root_, DT_FLOAT, {})).output(0));
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  for (const char* name : {"c/used", "c/read", "c/effect"}) EXPECT_GE(flat->Find(name), 0) << name;
  for (const char* name : {"c/unused", "c/before"}) EXPECT_LT(flat->Find(name), 0) << name;
}

TEST_F(FunctionTest, RequestedDevicesOfTheBodyAreCompletedFromTheCall) {
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("f",
                              [](const Scope& s) {
                                const Output a = Unary(s.WithOpName("a"), "Relu", Arg(s, 0));
                                Retval(s, Unary(s.WithDevice("/cpu:0").WithOpName("b"), "Relu", a),
                                       0);
                              }))
                  .ok());
  Call(root_.WithDevice("/job:worker/task:3/device:GPU:1").WithOpName("c"), "f",
       Placeholder(root_, DT_FLOAT, {}));
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->device(flat->Find("c/a")).ToString(), "/job:worker/task:3/device:GPU:1");
  EXPECT_EQ(flat->device(flat->Find("c/b")).ToString(), "/job:worker/task:3/device:CPU:0");
}

TEST_F(FunctionTest, ControlEdgesOfTheCallGoToAndFromAllThatHasEffects) {
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("f",
                              [](const Scope& s) {
                                OpBuilder(s.WithOpName("effect"), "Act").Build();
                                Retval(s, Unary(s.WithOpName("a"), "Relu", Arg(s, 0)), 0);
                              }))
                  .ok());
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Operation before = OpBuilder(root_.WithOpName("before"), "NoOp").Build();
  const Operation call =
      Call(root_.WithOpName("c").WithControlDependencies({before}), "f", x, true);
  OpBuilder(root_.WithOpName("after").WithControlDependencies({call}), "NoOp").Build();
  InlineMap map;
  for (InlineMap* wanted : {static_cast<InlineMap*>(nullptr), &map}) {
    const auto flat = InlineFunctions(graph_, {}, wanted);
    ASSERT_TRUE(flat.ok()) << flat.status();
    EXPECT_EQ(Names(*flat, flat->control_inputs(flat->Find("c/effect"))),
              (std::vector<std::string>{"before"}));
    EXPECT_TRUE(flat->control_inputs(flat->Find("c/a")).empty());
    EXPECT_EQ(Names(*flat, flat->control_inputs(flat->Find("after"))),
              (std::vector<std::string>{"c"}));
    EXPECT_EQ(Names(*flat, flat->control_inputs(flat->Find("c"))),
              (std::vector<std::string>{"c/a", "c/effect"}));
    if (wanted != nullptr) {
      const auto i = static_cast<size_t>(call.id);
      EXPECT_EQ(map.outputs[i], (std::vector<Endpoint>{{flat->Find("c/a"), 0}}));
      EXPECT_EQ(map.done[i], (std::vector<NodeId>{flat->Find("c")}));
    }
  }
}

TEST_F(FunctionTest, EffectsOfCallsWithinACallAreAmongItsOwn) {
  const auto calls = [&](const char* name, const char* callee) {
    return graph_.functions()
        .Add(Define(name,
                    [&](const Scope& s) {
                      Retval(s, Call(s.WithOpName("inner"), callee, Arg(s, 0), true).output(0), 0);
                    }))
        .ok();
  };
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("f",
                              [](const Scope& s) {
                                OpBuilder(s.WithOpName("one"), "Act").Build();
                                OpBuilder(s.WithOpName("two"), "Act").Build();
                                Retval(s, Unary(s.WithOpName("a"), "Relu", Arg(s, 0)), 0);
                              }))
                  .ok());
  ASSERT_TRUE(calls("g", "f"));
  ASSERT_TRUE(calls("h", "g"));
  const Output x = Placeholder(root_.WithOpName("x"), DT_FLOAT, {});
  const Operation before = OpBuilder(root_.WithOpName("before"), "Act").Build();
  const Operation call =
      Call(root_.WithOpName("c").WithControlDependencies({before}), "h", x, true);
  OpBuilder(root_.WithOpName("after").WithControlDependencies({call}), "Act").Build();
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  // All that must be over before the node begins.
  const auto waits_for = [&](const char* name) {
    std::set<std::string> names;
    std::vector<NodeId> open = {flat->Find(name)};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (NodeId control : flat->control_inputs(id)) {
        names.emplace(flat->name(control));
        open.push_back(control);
      }
    }
    return names;
  };
  for (const char* effect : {"c/inner/inner/one", "c/inner/inner/two"}) {
    EXPECT_EQ(waits_for(effect), std::set<std::string>{"before"}) << effect;
    EXPECT_TRUE(waits_for("after").contains(effect)) << effect;
  }
}

TEST_F(FunctionTest, ColocationInABodyMeansItsOwnNodesAndWithACallItsResult) {
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("f",
                              [](const Scope& s) {
                                const Output a = Unary(s.WithOpName("a"), "Relu", Arg(s, 0));
                                Retval(s, Unary(s.ColocateWith(a).WithOpName("b"), "Relu", a), 0);
                              }))
                  .ok());
  const Operation call = Call(root_.WithOpName("c"), "f", Placeholder(root_, DT_FLOAT, {}));
  OpBuilder(root_.ColocateWith(call).WithOpName("beside"), "NoOp").Build();
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->attrs(flat->Find("beside")).Get<std::vector<std::string>>("_class"),
            (std::vector<std::string>{"loc:@c/b"}));
  EXPECT_EQ(flat->attrs(flat->Find("c/b")).Get<std::vector<std::string>>("_class"),
            (std::vector<std::string>{"loc:@c/a"}));
}

TEST_F(FunctionTest, NamesThatAreTakenGetANumber) {
  AddDoubled();
  const Output x = Placeholder(root_.WithOpName("c/sum"), DT_FLOAT, {});
  Unary(root_.WithOpName("y"), "Relu", Call(root_.WithOpName("c"), "double", x).output(0));
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_GE(flat->Find("c/sum_1"), 0);
}

TEST_F(FunctionTest, RecursionAndUnknownFunctionsAreRefused) {
  const auto calling = [this](const char* name, const char* callee) {
    return Define(name, [&](const Scope& s) {
      Retval(s, Call(s.WithOpName("call"), callee, Arg(s, 0)).output(0), 0);
    });
  };
  ASSERT_TRUE(graph_.functions().Add(calling("f", "g")).ok());
  ASSERT_TRUE(graph_.functions().Add(calling("g", "f")).ok());
  ASSERT_TRUE(graph_.functions().Add(calling("h", "nowhere")).ok());
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const NodeId recursive = Call(root_.WithOpName("c"), "f", x).id,
               unknown = Call(root_.WithOpName("u"), "h", x).id;
  EXPECT_EQ(
      InlineFunctions(graph_, [&](NodeId id) { return id == recursive; }).status().ToString(),
      "INVALID_ARGUMENT: function 'f' calls itself: 'f' -> 'g' -> 'f'; a recursion ends where "
      "an If, a Case or a While decides whether to call");
  EXPECT_EQ(InlineFunctions(graph_, [&](NodeId id) { return id == unknown; }).status().message(),
            "node 'u/call' calls function 'nowhere', which the graph's library lacks");
  const auto untouched = InlineFunctions(graph_, [](NodeId) { return false; });
  ASSERT_TRUE(untouched.ok());
  EXPECT_EQ(untouched->num_nodes(), graph_.num_nodes());
}

// What adds the call knows nothing of a function that the library gets later.
TEST_F(FunctionTest, ACallIsOfTheTypesOfAFunctionThatComesLater) {
  Call(root_.WithOpName("c"), "double", Placeholder(root_, DT_INT32, {}));
  ASSERT_TRUE(root_.ok()) << root_.status();
  AddDoubled();
  EXPECT_EQ(InlineFunctions(graph_).status().message(),
            "node 'c' calls function 'double', whose argument 0 is of type float, not int32");
}

TEST_F(FunctionTest, WhatManyNodesWaitForIsOneNode) {
  constexpr size_t kMany = 1000;
  ASSERT_TRUE(graph_.functions()
                  .Add(Define("acts",
                              [](const Scope& s) {
                                for (size_t i = 0; i < kMany; ++i) OpBuilder(s, "Act").Build();
                                Retval(s, Arg(s, 0), 0);
                              }))
                  .ok());
  std::vector<Operation> before;
  for (size_t i = 0; i < kMany; ++i) before.push_back(OpBuilder(root_, "NoOp").Build());
  Call(root_.WithControlDependencies(before), "acts", Placeholder(root_, DT_FLOAT, {}), true);
  ASSERT_TRUE(root_.ok()) << root_.status();
  const auto flat = InlineFunctions(graph_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  size_t edges = 0;
  for (NodeId id = 0; id < flat->num_nodes(); ++id) edges += flat->control_inputs(id).size();
  EXPECT_GE(edges, 2 * kMany);
  EXPECT_LT(edges, 5 * kMany);
}

TEST_F(FunctionTest, CallsThatAreNestedTooDeeplyOrMakeTooManyNodesAreRefused) {
  const auto add = [this](const std::string& name, const std::string& callee, int calls) {
    ASSERT_TRUE(graph_.functions()
                    .Add(Define(name.c_str(),
                                [&](const Scope& s) {
                                  Output x = Arg(s, 0);
                                  for (int i = 0; i < calls; ++i)
                                    x = Call(s, callee.c_str(), x).output(0);
                                  Retval(s, x, 0);
                                }))
                    .ok());
  };
  add("deep0", "", 0);
  for (int i = 1; i <= 101; ++i) add("deep" + std::to_string(i), "deep" + std::to_string(i - 1), 1);
  add("wide0", "", 0);
  for (int i = 1; i <= 60; ++i) add("wide" + std::to_string(i), "wide" + std::to_string(i - 1), 2);
  const Output x = Placeholder(root_, DT_FLOAT, {});
  const NodeId deepest = Call(root_.WithOpName("a"), "deep100", x).id,
               deeper = Call(root_.WithOpName("b"), "deep101", x).id,
               wide = Call(root_.WithOpName("c"), "wide60", x).id;
  const auto inline_one = [&](NodeId call) {
    return InlineFunctions(graph_, [&](NodeId id) { return id == call; }).status();
  };
  EXPECT_TRUE(inline_one(deepest).ok()) << inline_one(deepest);
  EXPECT_EQ(inline_one(deeper).message(),
            "function 'deep0' is called within 101 other calls; at most 100 may be nested");
  EXPECT_TRUE(inline_one(wide).message().starts_with(
      "the graph's calls of functions make more than 1000000 nodes; the last one is of function"))
      << inline_one(wide);
}

}  // namespace
}  // namespace monograph
