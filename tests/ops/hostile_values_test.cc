// Nodes whose values and attributes no program needs: sizes whose products and sums 63 bits do not
// hold, counts that contradict each other, shapes with no elements and huge dimensions. Each is
// refused, or computed, in a moment, once with inputs that are constants, whose values shape
// functions and constant folding see, and once with inputs of which nothing is known before.
#include <functional>
#include <limits>
#include <ostream>

#include "base/pool_allocator.h"
#include "tests/ops/testing.h"

namespace monograph::testing {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62, kWide = int64_t{1} << 58,
                  kMost = std::numeric_limits<int64_t>::max(), kWord = int64_t{1} << 32;

Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  if (IsPlainData(dtype)) std::fill_n(static_cast<char*>(tensor.raw()), tensor.bytes(), '\0');
  return tensor;
}
Tensor Longs(const Shape& shape, std::initializer_list<int64_t> values) {
  return Tensor::FromValues<int64_t>(shape, values);
}
Tensor Dims(std::initializer_list<int64_t> values) { return Tensor::Vector<int64_t>(values); }
Tensor Floats(const Shape& shape) { return Zeros(DT_FLOAT, shape); }
// An example without features.
Tensor Nothing(const Shape& shape) { return Zeros(DT_STRING, shape); }

using Types = std::vector<DType>;
using Shapes = std::vector<PartialShape>;
using Names = std::vector<std::string>;
using Sizes = std::vector<int64_t>;

struct HostileNode {
  const char* op;
  const char* what;
  std::function<std::vector<Tensor>()> inputs;
  Attrs attrs = {};
  bool runs = false;  // nothing is wrong with it
  friend std::ostream& operator<<(std::ostream& out, const HostileNode& node) {
    return out << node.op << ": " << node.what;
  }
};

// Windows of one element.
Attrs Windows(size_t rank) {
  return {{"ksize", Sizes(rank, 1)}, {"strides", Sizes(rank, 1)}, {"padding", "VALID"}};
}

const std::vector<HostileNode>& Nodes() {
  using Inputs = std::vector<Tensor>;
  const auto sparse = [](const Tensor& indices, const Tensor& shape, const Shape& b) {
    return Inputs{indices, Floats({indices.shape()[0]}), shape, Floats(b)};
  };
  static const std::vector<HostileNode> nodes = {
      {"SparseTensorDenseMatMul", "a result whose size wraps",
       [=] {
         return sparse(Longs({1, 2}, {int64_t{1} << 40, 0}), Dims({kHuge, 1}), {1, 4});
       }},
      {"SparseReshape", "indices of no dimension",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Dims({}), Dims({1, 1, 1, 1})};
       }},
      {"SparseToDense",
       "indices of no dimension",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Dims({}), Floats({}), Floats({})};
       },
       {{"validate_indices", false}}},
      {"SparseReduceSum", "indices of no dimension",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Floats({0}), Dims({}),
                       Tensor::Vector<int32_t>({})};
       }},
      {"SparseConcat",
       "a shape without dimensions beside a matrix",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}),
                       Zeros(DT_INT64, {1, 0}),
                       Floats({0}),
                       Floats({1}),
                       Dims({2, 2}),
                       Dims({})};
       },
       {{"concat_dim", int64_t{1}}}},
      {"SparseConcat",
       "a sum of dimensions that wraps",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0, 2}), Floats({0}), Floats({0}),
                       Dims({kMost, 1}),        Dims({kMost, 1})};
       },
       {{"concat_dim", int64_t{0}}}},
      {"SparseFillEmptyRows", "rows that no memory holds",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Floats({0}), Dims({kHuge, 1}), Floats({})};
       }},
      {"SparseFillEmptyRows", "more rows than the process may have",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Floats({0}), Dims({int64_t{1} << 50, 1}),
                       Floats({})};
       }},
      {"SelectV2", "a result whose size wraps",
       [] {
         return Inputs{Zeros(DT_BOOL, {1 << 22, 1, 1}), Floats({1 << 21, 1}), Floats({1 << 21})};
       }},
      {"DepthToSpace",
       "a block whose square wraps",
       [] {
         return Inputs{Floats({1, 1, 1, 1})};
       },
       {{"block_size", kMost}}},
      {"DepthToSpace",
       "a block whose square is zero",
       [] {
         return Inputs{Floats({1, 1, 1, 1})};
       },
       {{"block_size", kWord}}},
      {"SpaceToDepth",
       "a block whose square is zero",
       [] {
         return Inputs{Floats({1, 0, 0, 1})};
       },
       {{"block_size", kWord}}},
      {"SpaceToBatch",
       "a block whose square is zero",
       [] {
         return Inputs{Floats({1, 0, 0, 1}), Zeros(DT_INT64, {2, 2})};
       },
       {{"block_size", kWord}}},
      {"BatchToSpace",
       "a block whose square is zero",
       [] {
         return Inputs{Floats({1, 1, 1, 1}), Zeros(DT_INT64, {2, 2})};
       },
       {{"block_size", kWord}}},
      {"BatchToSpaceND", "blocks whose product is zero",
       [] {
         return Inputs{Floats({1, 1, 1}), Dims({kWord, kWord}), Zeros(DT_INT64, {2, 2})};
       }},
      {"BatchToSpaceND", "a dimension that wraps",
       [] {
         return Inputs{Floats({1 << 8, 4, 0}), Dims({int64_t{1} << 61}), Zeros(DT_INT64, {1, 2})};
       }},
      {"SpaceToBatchND", "paddings whose sum wraps",
       [] {
         return Inputs{Floats({1, 1000}), Dims({1}), Longs({1, 2}, {kMost - 500, kMost})};
       }},
      {"BatchToSpaceND", "crops whose sum wraps",
       [] {
         return Inputs{Floats({1, 1000}), Dims({1}), Longs({1, 2}, {kMost - 500, kMost})};
       }},
      {"MirrorPad",
       "paddings whose sum wraps",
       [] {
         return Inputs{Floats({1000}), Longs({1, 2}, {kMost - 500, kMost})};
       },
       {{"mode", "SYMMETRIC"}}},
      {"MirrorPadGrad",
       "paddings whose sum wraps",
       [] {
         return Inputs{Floats({1000}), Longs({1, 2}, {kMost - 500, kMost})};
       },
       {{"mode", "SYMMETRIC"}}},
      {"Pad", "paddings whose sum wraps",
       [] {
         return Inputs{Floats({1000}), Longs({1, 2}, {kMost - 500, kMost})};
       }},
      {"ParseSingleExample",
       "more sparse features than types",
       [] { return Inputs{Nothing({})}; },
       {{"num_sparse", int64_t{2}},
        {"sparse_types", Types{DT_STRING}},
        {"sparse_keys", Names{"a"}},
        {"dense_keys", Names{}},
        {"Tdense", Types{}},
        {"dense_shapes", Shapes{}}}},
      {"ParseSingleExample",
       "fewer sparse features than types",
       [] { return Inputs{Nothing({})}; },
       {{"num_sparse", int64_t{0}},
        {"sparse_types", Types{DT_STRING, DT_STRING}},
        {"sparse_keys", Names{"a", "b"}},
        {"dense_keys", Names{}},
        {"Tdense", Types{}},
        {"dense_shapes", Shapes{}}}},
      {"ParseExample",
       "fewer sparse features than types",
       [] {
         return Inputs{Nothing({1}), Nothing({0})};
       },
       {{"Nsparse", int64_t{0}},
        {"Ndense", int64_t{0}},
        {"sparse_types", Types{DT_STRING, DT_STRING}},
        {"Tdense", Types{}},
        {"dense_shapes", Shapes{}}}},
      {"ParseExample",
       "more shapes than dense features",
       [] {
         return Inputs{Nothing({1}), Nothing({0})};
       },
       {{"Nsparse", int64_t{0}},
        {"Ndense", int64_t{0}},
        {"sparse_types", Types{}},
        {"Tdense", Types{}},
        {"dense_shapes", Shapes{PartialShape{1}, PartialShape{1}}}}},
      {"ParseExampleV2",
       "more sparse features than types",
       [] {
         return Inputs{Nothing({1}), Nothing({0}), Nothing({1}), Nothing({0}), Nothing({0})};
       },
       {{"num_sparse", int64_t{2}},
        {"sparse_types", Types{DT_STRING}},
        {"Tdense", Types{}},
        {"ragged_value_types", Types{}},
        {"ragged_split_types", Types{}},
        {"dense_shapes", Shapes{}}}},
      {"ParseExampleV2",
       "ragged values without splits",
       [] {
         Tensor keys = Nothing({100});
         for (int i = 0; i < 100; ++i) keys.strings()[i] = std::to_string(i);
         return Inputs{Nothing({1}), Nothing({0}), Nothing({0}), Nothing({0}), keys};
       },
       {{"num_sparse", int64_t{0}},
        {"sparse_types", Types{}},
        {"Tdense", Types{}},
        {"ragged_value_types", Types(100, DT_FLOAT)},
        {"ragged_split_types", Types{}},
        {"dense_shapes", Shapes{}}}},
      {"ParseExampleV2",
       "a dense shape whose size wraps",
       [] {
         Tensor key = Nothing({1});
         return Inputs{Nothing({1}), Nothing({0}), Nothing({0}), key, Nothing({0}), Floats({0})};
       },
       {{"num_sparse", int64_t{0}},
        {"sparse_types", Types{}},
        {"Tdense", Types{DT_FLOAT}},
        {"ragged_value_types", Types{}},
        {"ragged_split_types", Types{}},
        {"dense_shapes", Shapes{PartialShape{kWord, kWord}}}}},
      {"Reshape", "a shape whose product is zero",
       [] {
         return Inputs{Floats({4}), Dims({kWord, kWord, -1})};
       }},
      {"SplitV",
       "sizes whose sum wraps",
       [] {
         return Inputs{Floats({4}), Dims({kMost, kMost, 6}), Tensor::Scalar<int32_t>(0)};
       },
       {{"num_split", int64_t{3}}}},
      {"Tile", "a dimension that wraps",
       [] {
         return Inputs{Floats({4}), Dims({kHuge})};
       }},
      {"OneHot",
       "a result that no memory holds",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Tensor::Scalar<int32_t>(4), Floats({}),
                       Floats({})};
       },
       {},
       true},
      {"AvgPool",
       "a window as long as numbers are",
       [] {
         return Inputs{Floats({1, 2, 2, 1})};
       },
       {{"ksize", Sizes{1, kMost, kMost, 1}}, {"strides", Sizes{1, 1, 1, 1}}, {"padding", "SAME"}}},
      {"MaxPool",
       "a stride as long as numbers are",
       [] {
         return Inputs{Floats({1, 2, 2, 1})};
       },
       {{"ksize", Sizes{1, 1, 1, 1}}, {"strides", Sizes{1, kMost, kMost, 1}}, {"padding", "SAME"}}},
      {"Conv2D",
       "a filter whose extent wraps",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), Floats({3, 3, 1, 1})};
       },
       {{"strides", Sizes{1, 1, 1, 1}},
        {"dilations", Sizes{1, kHuge + (kHuge - 1), kHuge + (kHuge - 1), 1}},
        {"padding", "VALID"}}},
      {"Conv2D",
       "paddings whose sum wraps",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), Floats({1, 1, 1, 1})};
       },
       {{"strides", Sizes{1, 1, 1, 1}},
        {"padding", "EXPLICIT"},
        {"explicit_paddings", Sizes{0, 0, kMost, kMost, kMost, kMost, 0, 0}}}},
      {"TensorListFromTensor", "rows that no memory holds",
       [] {
         return Inputs{Floats({kHuge, 0}), Dims({0})};
       }},
      {"RandomShuffle",
       "rows without elements",
       [] {
         return Inputs{Floats({kHuge, 0})};
       },
       {},
       true},
      {"Multinomial",
       "rows without classes",
       [] {
         return Inputs{Floats({kHuge, 0}), Tensor::Scalar<int32_t>(0)};
       },
       {},
       true},
      {"NthElement",
       "no rows of more columns than memory holds",
       [] {
         return Inputs{Floats({0, kHuge}), Tensor::Scalar<int32_t>(0)};
       },
       {},
       true},
      {"MaxPool3D", "images without channels",
       [] {
         return Inputs{Floats({1, 1, 1, kWide, 0})};
       },
       Windows(5), true},
      {"AvgPool3D", "images without channels",
       [] {
         return Inputs{Floats({1, 1, 1, kWide, 0})};
       },
       Windows(5), true},
      {"AvgPool3DGrad", "images without channels",
       [] {
         return Inputs{Tensor::Vector<int32_t>({1, 1, 1, 1 << 30, 0}),
                       Floats({1, 1, 1, 1 << 30, 0})};
       },
       Windows(5), true},
      {"MaxPool3DGrad", "images without channels",
       [] {
         const Tensor image = Floats({1, 1, 1, kWide, 0});
         return Inputs{image, image, image};
       },
       Windows(5), true},
      {"MaxPoolWithArgmax", "images without channels",
       [] {
         return Inputs{Floats({1, 1, kWide, 0})};
       },
       Windows(4), true},
      {"MaxPoolGradWithArgmax", "images without channels",
       [] {
         const Tensor image = Floats({kWide, 1, 1, 0});
         return Inputs{image, image, Zeros(DT_INT64, {kWide, 1, 1, 0})};
       },
       Windows(4), true},
      {"MaxPool", "images without channels",
       [] {
         return Inputs{Floats({1, 1, kWide, 0})};
       },
       Windows(4), true},
      {"AvgPool", "images without channels",
       [] {
         return Inputs{Floats({1, 1, kWide, 0})};
       },
       Windows(4), true},
      {"SparseConcat",
       "a number of inputs that wraps three times",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0, 2})};
       },
       {{"concat_dim", int64_t{0}}, {"N", int64_t{0x5555555555555556}}, {"T", DT_FLOAT}}},
      {"AsString",
       "a width far below zero",
       [] { return Inputs{Tensor::String("text")}; },
       {{"width", std::numeric_limits<int64_t>::min()}},
       true},
      {"MonographDatasetBatch",
       "a batch of more examples than memory holds",
       [] { return Inputs{Tensor::Scalar<int64_t>(0)}; },
       {{"dataset", "synthetic"}, {"batch_size", kWide}}},
      {"MonographDatasetBatch",
       "a batch whose rows wrap",
       [] { return Inputs{Tensor::Scalar<int64_t>(0)}; },
       {{"dataset", "synthetic"},
        {"batch_size", kMost},
        {"shard", int64_t{1}},
        {"num_shards", int64_t{2}}}},
      {"MonographDatasetBatch",
       "no index",
       [] { return Inputs{Dims({})}; },
       {{"dataset", "synthetic"}, {"batch_size", int64_t{1}}}},
      {"Split",
       "more outputs than a node may have",
       [] {
         return Inputs{Tensor::Scalar<int32_t>(0), Floats({100'000})};
       },
       {{"num_split", int64_t{100'000}}}},
      {"StaticRegexFullMatch",
       "a pattern of more parts than are tried",
       [] { return Inputs{Tensor::String("text")}; },
       {{"pattern", std::string(1 << 18, 'a')}}},
      {"SaveV2",
       "a folder within too many others",
       [] {
         std::string deep;
         for (int i = 0; i < 100'000; ++i) deep += "a/";
         return Inputs{Tensor::String(deep + "model"), Tensor::String("x").Reshaped(Shape{1}),
                       Tensor::String("").Reshaped(Shape{1}), Floats({1})};
       },
       {{"dtypes", Types{DT_FLOAT}}}},
  };
  return nodes;
}

class HostileNodeTest : public ::testing::TestWithParam<size_t> {
 protected:
  void Check(const Result<std::vector<Tensor>>& out) {
    const HostileNode& node = Nodes()[GetParam()];
    if (node.runs) {
      EXPECT_TRUE(out.ok()) << node << ": " << out.status();
    } else {
      ASSERT_FALSE(out.ok()) << node;
      const Code code = out.status().code();
      EXPECT_TRUE(code == Code::kInvalidArgument || code == Code::kResourceExhausted)
          << node << ": " << out.status();
    }
  }
};

TEST_P(HostileNodeTest, IsAnsweredWithConstants) {
  const HostileNode& node = Nodes()[GetParam()];
  Check(RunOp(node.op, node.inputs(), node.attrs));
}

TEST_P(HostileNodeTest, IsAnsweredWithInputsOfWhichNothingIsKnown) {
  const HostileNode& node = Nodes()[GetParam()];
  std::vector<Tensor> inputs = node.inputs();
  KernelRunner runner(&Kernels(), {});
  const auto run = [&]() -> Result<std::vector<Tensor>> {
    Graph graph(&Ops());
    std::vector<Endpoint> sources;
    for (const Tensor& input : inputs) {
      const auto number = static_cast<int64_t>(sources.size());
      const std::string name = "input_" + std::to_string(number);
      auto attrs = std::make_shared<const Attrs>(Attrs{{"T", input.dtype()}, {"index", number}});
      MG_ASSIGN_OR_RETURN(const NodeId id,
                          graph.AddNode({.name = name, .op = kArgOp, .attrs = attrs}));
      sources.push_back({id, 0});
    }
    auto attrs = std::make_shared<const Attrs>(node.attrs);
    MG_ASSIGN_OR_RETURN(
        const NodeId id,
        graph.AddNode({.name = "node", .op = node.op, .inputs = sources, .attrs = attrs}));
    return runner.Run(graph, id, std::move(inputs));
  };
  Check(run());
}

INSTANTIATE_TEST_SUITE_P(All, HostileNodeTest, ::testing::Range<size_t>(0, Nodes().size()),
                         [](const auto& tested) {
                           return std::string(Nodes()[tested.param].op) + "_" +
                                  std::to_string(tested.param);
                         });

}  // namespace
}  // namespace monograph::testing
