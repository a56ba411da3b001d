#include "graph/op_def.h"

#include <gtest/gtest.h>

#include "tests/graph/test_ops.h"

namespace monograph {
namespace {

TEST(OpDefTest, TheGrammarReadsArgumentsOfAllForms) {
  const OpDef op = OpDef("Everything")
                       .Input("a: float")
                       .Input("b: T")
                       .Input("c: N * T")
                       .Input("d: M*int32")
                       .Input("e: Tlist")
                       .Input("ref: Ref(T)")
                       .Output("out: Tlist")
                       .Attr("T: {float, int32} = DT_FLOAT")
                       .Attr("N: int >= 2 = 3")
                       .Attr("M: int")
                       .Attr("Tlist: list({float, string}) >= 1");
  EXPECT_EQ(op.inputs()[0].dtype, DT_FLOAT);
  EXPECT_EQ(op.inputs()[1].type_attr, "T");
  EXPECT_EQ(op.inputs()[2].number_attr, "N");
  EXPECT_EQ(op.inputs()[3].dtype, DT_INT32);
  EXPECT_EQ(op.inputs()[4].type_list_attr, "Tlist");
  EXPECT_EQ(op.inputs()[5].type_attr, "T");
  EXPECT_EQ(op.outputs()[0].type_list_attr, "Tlist");
  EXPECT_EQ(op.FindAttr("T")->allowed_types, (std::vector<DType>{DT_FLOAT, DT_INT32}));
  EXPECT_EQ(op.FindAttr("N")->minimum, 2);
  EXPECT_TRUE(AttrEqual(*op.FindAttr("N")->default_value, int64_t{3}));
  EXPECT_EQ(op.FindAttr("Tlist")->kind, "list(type)");
  EXPECT_EQ(op.FindAttr("X"), nullptr);

  std::vector<DType> types;
  EXPECT_NE(op.OutputTypes(Attrs{}, &types).message().find("attribute 'Tlist' is missing"),
            std::string::npos);
  EXPECT_NE(
      op.OutputTypes(Attrs{{"Tlist", true}}, &types).message().find("attribute 'Tlist' is a bool"),
      std::string::npos);
}

TEST(OpDefTest, DefaultsOfAllKindsAreRead) {
  const OpDef op = OpDef("Defaults")
                       .Attr("a: int = -4")
                       .Attr("b: float = 1e-3")
                       .Attr("c: bool = true")
                       .Attr("d: string = \"x y\"")
                       .Attr("e: type = int64")
                       .Attr("f: shape = [2, ?]")
                       .Attr("g: list(int) = [1, 2]")
                       .Attr("h: list(string) = ['a', 'b']")
                       .Attr("i: list(float) = []")
                       .Attr("j: func = body")
                       .Attr("k: shape = { unknown_rank: true }")
                       .Attr("l: list(type) = [DT_FLOAT]");
  const char* const expected[] = {"-4",    "0.00100000005", "true",      "'x y'",
                                  "int64", "[2,?]",         "[1, 2]",    "['a', 'b']",
                                  "[]",    "body",          "<unknown>", "[float]"};
  for (size_t i = 0; i < op.attrs().size(); ++i) {
    EXPECT_EQ(AttrToString(*op.attrs()[i].default_value), expected[i]);
    EXPECT_EQ(AttrTypeName(*op.attrs()[i].default_value), op.attrs()[i].kind);
  }
}

TEST(OpDefTest, AMalformedDefinitionEndsTheProcess) {
  EXPECT_DEATH(OpDef("Bad").Input("a"), "op Bad, \"a\": expected ':'");
  EXPECT_DEATH(OpDef("Bad").Attr("a: integer"), "unknown kind");
  OpRegistry registry;
  EXPECT_DEATH(registry.Add(OpDef("Bad").Input("a: floot")),
               "'a' uses undeclared attribute or type 'floot'");
  EXPECT_DEATH(registry.Add(OpDef("_Arg")), "_Arg is defined twice");
}

TEST(OpDefTest, RegistriesWithTheSameOpsHaveTheSameFingerprint) {
  OpRegistry a, b;
  testing::AddTestOps(&a);
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  testing::AddTestOps(&b);
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  b.Add(OpDef("One").Attr("x: int = 1"));
  a.Add(OpDef("One").Attr("x: int = 2"));
  EXPECT_NE(a.fingerprint(), b.fingerprint());
}

TEST(OpDefTest, AnUnknownOpIsReportedWithTheNearestName) {
  EXPECT_EQ(testing::TestRegistry().Require("Cnov2D").status().ToString(),
            "UNIMPLEMENTED: op 'Cnov2D' is not registered; did you mean 'Conv2D'?");
  EXPECT_EQ(testing::TestRegistry().Require("Zebra").status().message(),
            "op 'Zebra' is not registered");
}

TEST(AttrTest, EqualityAndHashesLookAtBits) {
  EXPECT_TRUE(AttrEqual(Tensor::Vector<float>({1, 2}), Tensor::Vector<float>({1, 2})));
  EXPECT_FALSE(AttrEqual(Tensor::Vector<float>({1, 2}), Tensor::Vector<float>({1, 3})));
  EXPECT_FALSE(AttrEqual(0.0f, -0.0f));
  EXPECT_FALSE(AttrEqual(int64_t{1}, true));
  EXPECT_EQ(AttrHash(Tensor::Vector<float>({1, 2})), AttrHash(Tensor::Vector<float>({1, 2})));
  EXPECT_NE(AttrHash(std::vector<int64_t>{1, 2}), AttrHash(std::vector<int64_t>{2, 1}));
}

TEST(AttrTest, AttributesAreSortedReplacedAndRemoved) {
  Attrs attrs{{"b", int64_t{1}}, {"a", "x"}};
  attrs.Set("b", int64_t{2});
  ASSERT_EQ(attrs.values().size(), 2u);
  EXPECT_EQ(attrs.values()[0].first, "a");
  EXPECT_EQ(attrs.Get<int64_t>("b"), 2);
  EXPECT_EQ(attrs.GetOr<int64_t>("c", 7), 7);
  const Attrs same{{"a", "x"}, {"b", int64_t{2}}};
  EXPECT_EQ(attrs, same);
  EXPECT_EQ(attrs.Hash(), same.Hash());
  attrs.Remove("a");
  EXPECT_EQ(attrs.Find("a"), nullptr);
}

}  // namespace
}  // namespace monograph
