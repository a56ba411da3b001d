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
constexpr int32_t kMost32 = std::numeric_limits<int32_t>::max();

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
// Boxes of no number, and from one end of the floats to the other.
Tensor StrangeBoxes() {
  const float none = std::numeric_limits<float>::quiet_NaN(),
              far = std::numeric_limits<float>::max();
  return Tensor::FromValues<float>(
      Shape{2, 4}, {none, 0, 1, none, -far, 0, far, std::numeric_limits<float>::infinity()});
}
// The headers of a grey image of 65500 x 65500 pixels in several scans, and of a row of 2^31 - 1.
std::string HugeJpeg() {
  using namespace std::string_literals;  // NOLINT(build/namespaces)
  return "\xff\xd8\xff\xc2\0\x0b\x08\xff\xdc\xff\xdc\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\0\0"s;
}
std::string HugePng() {
  using namespace std::string_literals;  // NOLINT(build/namespaces)
  return "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\x7f\xff\xff\xff\0\0\0\x01\x08\x02\0\0\0\0\0\0\0"s;
}
// Of 2^28 pixels, with none behind it.
std::string HugeBmp() {
  using namespace std::string_literals;  // NOLINT(build/namespaces)
  return "BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\xff\xff\xff\x0f\1\0\0\0\1\0\x20\0\0\0"s;
}
// An example without features.
Tensor Nothing(const Shape& shape) { return Zeros(DT_STRING, shape); }

using Types = std::vector<DType>;
using Shapes = std::vector<PartialShape>;
using Names = std::vector<std::string>;
using Sizes = std::vector<int64_t>;
using Weights = std::vector<float>;

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
  const auto crossed = [](int64_t n, size_t dense) {
    return Attrs{{"N", n},
                 {"hashed_output", true},
                 {"num_buckets", int64_t{0}},
                 {"hash_key", int64_t{0}},
                 {"sparse_types", Types(static_cast<size_t>(n), DT_INT64)},
                 {"dense_types", Types(dense, DT_INT64)},
                 {"out_type", DT_INT64},
                 {"internal_type", DT_INT64}};
  };
  const auto sampled = [](int64_t num_sampled, bool unique, int64_t range) {
    return Attrs{{"num_true", int64_t{1}},
                 {"num_sampled", num_sampled},
                 {"unique", unique},
                 {"range_max", range}};
  };
  const auto weighted = [sampled](int64_t range, const Attrs& more) {
    Attrs attrs = sampled(2, true, range);
    for (const auto& [name, value] : more.values()) attrs.Set(name, value);
    return attrs;
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
      {"SparseSplit",
       "parts that no memory holds",
       [] {
         return Inputs{Dims({0}).Reshaped(Shape()), Zeros(DT_INT64, {0, 1}), Floats({0}),
                       Dims({kMost})};
       },
       {{"num_split", kWide}}},
      {"SparseSplit",
       "the longest dimension",
       [] {
         return Inputs{Dims({-1}).Reshaped(Shape()), Longs({1, 1}, {kMost - 1}), Floats({1}),
                       Dims({kMost})};
       },
       {{"num_split", int64_t{2}}},
       true},
      {"SparseSplit",
       "an axis far below zero",
       [] {
         return Inputs{Dims({std::numeric_limits<int64_t>::min()}).Reshaped(Shape()),
                       Zeros(DT_INT64, {0, 1}), Floats({0}), Dims({2})};
       },
       {{"num_split", int64_t{1}}}},
      {"SparseAdd", "a shape whose size wraps",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Floats({0}), Dims({kHuge, 4}), Zeros(DT_INT64, {0, 2}),
                       Floats({0}), Dims({kHuge, 4}), Floats({})};
       }},
      {"SparseAdd", "indices of no dimension",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Floats({0}), Dims({}), Zeros(DT_INT64, {kHuge, 0}),
                       Floats({0}), Dims({}), Floats({})};
       }},
      {"SparseAdd", "an index behind the shape",
       [] {
         return Inputs{Longs({1, 1}, {5}), Floats({1}), Dims({5}), Zeros(DT_INT64, {0, 1}),
                       Floats({0}), Dims({5}), Floats({})};
       }},
      {"SparseAdd", "a threshold of another type",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Floats({1}), Dims({5}), Zeros(DT_INT64, {0, 1}),
                       Floats({0}), Dims({5}), Zeros(DT_INT32, {})};
       }},
      {"SparseAddGrad", "gradients that no memory holds",
       [] {
         return Inputs{Floats({0}), Zeros(DT_INT64, {kHuge, 0}), Zeros(DT_INT64, {0, 0}),
                       Zeros(DT_INT64, {0, 0})};
       }},
      {"SparseSparseMaximum", "shapes that differ in rank",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Floats({0}), Dims({1, 1}), Zeros(DT_INT64, {0, 1}),
                       Floats({0}), Dims({1})};
       }},
      {"SparseSparseMinimum", "a negative index",
       [] {
         return Inputs{Longs({1, 1}, {-1}), Floats({1}), Dims({5}), Zeros(DT_INT64, {0, 1}),
                       Floats({0}), Dims({5})};
       }},
      {"SparseTensorDenseAdd", "an index behind the tensor",
       [] {
         return Inputs{Longs({1, 1}, {kMost}), Floats({1}), Dims({2}), Floats({2})};
       }},
      {"SparseTensorDenseAdd", "dimensions of which one is nothing",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 2}), Floats({1}), Dims({kHuge, 0}), Floats({kHuge, 0})};
       }},
      {"SparseDenseCwiseAdd", "a dense tensor of more dimensions",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Floats({1}), Dims({2}), Floats({1, 1, 1, 2})};
       }},
      {"SparseDenseCwiseMul",
       "huge dimensions of one place",
       [] {
         return Inputs{Longs({1, 2}, {kHuge - 1, 0}), Floats({1}), Dims({kHuge, 1}), Floats({1})};
       },
       {},
       true},
      {"SparseDenseCwiseDiv", "a division of integers by zero",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Zeros(DT_INT32, {1}), Dims({2}),
                       Zeros(DT_INT32, {})};
       }},
      {"SparseDenseCwiseDiv",
       "the smallest integer by -1",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Dims({std::numeric_limits<int64_t>::min()}),
                       Dims({2}), Dims({-1})};
       },
       {},
       true},
      {"SparseSoftmax", "one dimension",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Floats({1}), Dims({2})};
       }},
      {"SparseSoftmax",
       "a place far out",
       [] {
         return Inputs{Longs({1, 2}, {kHuge - 1, 0}), Floats({1}), Dims({kHuge, 1})};
       },
       {},
       true},
      {"SparseCross",
       "a huge batch without elements",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0}), Dims({kHuge, 1})};
       },
       crossed(1, 0),
       true},
      {"SparseCross",
       "a row far out",
       [] {
         return Inputs{Longs({1, 2}, {kHuge - 1, 0}), Zeros(DT_INT64, {1}), Dims({kHuge, 1})};
       },
       crossed(1, 0),
       true},
      {"SparseCross", "a number of crosses that wraps",
       [] { return Inputs(8, Zeros(DT_INT64, {1, 256})); }, crossed(0, 8)},
      {"SparseCross", "more crosses than memory holds",
       [] { return Inputs(5, Zeros(DT_INT64, {1, 1024})); }, crossed(0, 5)},
      {"SparseCross", "no columns", [] { return Inputs(); }, crossed(0, 0), true},
      {"SparseCross",
       "fewer types than columns",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0, 2}), Dims({1, 1}), Dims({1, 1})};
       },
       {{"N", int64_t{2}},
        {"hashed_output", true},
        {"num_buckets", int64_t{0}},
        {"hash_key", int64_t{0}},
        {"sparse_types", Types{}},
        {"dense_types", Types{}},
        {"out_type", DT_INT64},
        {"internal_type", DT_INT64}}},
      {"SparseCrossV2",
       "a huge dense batch without columns",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Tensor::String("_")};
       },
       {{"N", int64_t{0}}, {"sparse_types", Types{}}, {"dense_types", Types{DT_INT64}}},
       true},
      {"SparseCrossHashed",
       "a salt of nothing",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Dims({3}).Reshaped(Shape()), Zeros(DT_BOOL, {}),
                       Dims({})};
       },
       {{"N", int64_t{0}}, {"sparse_types", Types{}}, {"dense_types", Types{DT_INT64}}}},
      {"SetSize", "sizes that no memory holds",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0}), Dims({kHuge, 1})};
       }},
      {"SetSize", "a shape that is none",
       [] {
         return Inputs{Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0}), Dims({kHuge, -1})};
       }},
      {"DenseToDenseSetOperation",
       "huge groups of nothing",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Zeros(DT_INT64, {kHuge, 0})};
       },
       {{"set_operation", "union"}},
       true},
      {"DenseToDenseSetOperation",
       "scalars",
       [] {
         return Inputs{Zeros(DT_INT64, {}), Zeros(DT_INT64, {})};
       },
       {{"set_operation", "union"}}},
      {"DenseToSparseSetOperation",
       "a group far out",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Longs({1, 2}, {kHuge - 1, 0}),
                       Zeros(DT_INT64, {1}), Dims({kHuge, 1})};
       },
       {{"set_operation", "b-a"}},
       true},
      {"DenseToSparseSetOperation",
       "an operation that is none",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Zeros(DT_INT64, {1, 2}), Zeros(DT_INT64, {1}),
                       Dims({1, 1})};
       },
       {{"set_operation", "xor"}}},
      {"SparseToSparseSetOperation",
       "a negative index, without a check of the order",
       [] {
         return Inputs{Longs({1, 2}, {-1, 0}), Zeros(DT_INT64, {1}), Dims({1, 1}),
                       Zeros(DT_INT64, {0, 2}), Zeros(DT_INT64, {0}), Dims({1, 1})};
       },
       {{"set_operation", "union"}, {"validate_indices", false}}},
      {"UniformCandidateSampler", "more classes than int32 counts",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, sampled(kWide, false, 5)},
      {"UniformCandidateSampler", "more unique classes than there are",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, sampled(6, true, 5)},
      {"UniformCandidateSampler", "huge rows of nothing",
       [] { return Inputs{Zeros(DT_INT64, {kHuge, 0})}; }, sampled(5, true, 5)},
      {"LogUniformCandidateSampler", "the longest range",
       [] { return Inputs{Dims({kMost - 1}).Reshaped(Shape{1, 1})}; }, sampled(5, true, kMost),
       true},
      {"LogUniformCandidateSampler", "a class that the range lacks",
       [] { return Inputs{Dims({kMost}).Reshaped(Shape{1, 1})}; }, sampled(5, true, kMost)},
      {"LearnedUnigramCandidateSampler", "a range that int32 does not count",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, sampled(5, true, kMost32)},
      {"ThreadUnsafeUnigramCandidateSampler", "a negative class",
       [] { return Inputs{Dims({-1}).Reshaped(Shape{1, 1})}; }, sampled(5, true, 9)},
      {"FixedUnigramCandidateSampler", "fewer weights than the range",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, weighted(kMost32, {{"unigrams", Weights{1}}})},
      {"FixedUnigramCandidateSampler", "a range that int32 does not count",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, weighted(kMost, {{"unigrams", Weights{1}}})},
      {"FixedUnigramCandidateSampler", "more reserved classes than the range",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; },
       weighted(2, {{"unigrams", Weights{1}}, {"num_reserved_ids", int64_t{kMost32}}})},
      {"FixedUnigramCandidateSampler", "a shard that there is not",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; },
       weighted(1, {{"unigrams", Weights{1}}, {"num_shards", int64_t{2}}, {"shard", int64_t{kMost32}}})},
      {"FixedUnigramCandidateSampler", "weights of which one can be drawn",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; }, weighted(3, {{"unigrams", Weights{0, 1, -1}}})},
      {"FixedUnigramCandidateSampler", "weights that are no numbers",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; },
       weighted(2, {{"unigrams", Weights{std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity()}}}),
       true},
      {"AllCandidateSampler",
       "more classes than int32 counts",
       [] { return Inputs{Zeros(DT_INT64, {1, 1})}; },
       {{"num_true", int64_t{1}}, {"num_sampled", kWide}, {"unique", true}}},
      {"ComputeAccidentalHits",
       "huge rows of nothing",
       [] {
         return Inputs{Zeros(DT_INT64, {kHuge, 0}), Dims({1, 2})};
       },
       {{"num_true", int64_t{0}}},
       true},
      {"ComputeAccidentalHits",
       "a negative number of columns",
       [] {
         return Inputs{Zeros(DT_INT64, {1, 1}), Dims({1, 2})};
       },
       {{"num_true", int64_t{-1}}}},
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

      {"Einsum",
       "a result of more dimensions than there may be",
       [] {
         return Inputs{Floats({1, 1, 1, 1, 1, 1, 1}), Floats({1, 1, 1, 1, 1, 1, 1})};
       },
       {{"equation", "abcdefg,hijklmn->abcdefghijklmn"}}},
      {"Einsum",
       "an operand whose broadcast size wraps",
       [] {
         return Inputs{Floats({1, 4}), Floats({kHuge + 1, 0})};
       },
       {{"equation", "...l,...z->"}}},
      {"BatchMatMulV2",
       "matrices without rows",
       [] {
         return Inputs{Floats({kHuge, 0, 2}), Floats({2, 3})};
       },
       {},
       true},
      {"BiasAdd",
       "rows without channels",
       [] {
         return Inputs{Floats({kHuge, 0}), Floats({0})};
       },
       {},
       true},
      {"BiasAddGrad",
       "rows without channels",
       [] {
         return Inputs{Floats({kMost, 0})};
       },
       {},
       true},
      {"FusedBatchNormGrad",
       "images without channels",
       [] {
         const Tensor images = Floats({kHuge, 1, 1, 0}), none = Floats({0});
         return Inputs{images, images, none, none, none};
       },
       {},
       true},
      {"BatchNormWithGlobalNormalization",
       "images without channels",
       [] {
         const Tensor none = Floats({0});
         return Inputs{Floats({kHuge, 1, 1, 0}), none, none, none, none};
       },
       {{"variance_epsilon", 0.001f}, {"scale_after_normalization", true}},
       true},
      {"BatchNormWithGlobalNormalizationGrad",
       "images without channels",
       [] {
         const Tensor images = Floats({kHuge, 1, 1, 0}), none = Floats({0});
         return Inputs{images, none, none, none, images};
       },
       {{"variance_epsilon", 0.001f}, {"scale_after_normalization", true}},
       true},
      {"Dilation2D",
       "images without channels",
       [] {
         return Inputs{Floats({kHuge, 1, 1, 0}), Floats({1, 1, 0})};
       },
       {{"strides", Sizes(4, 1)}, {"rates", Sizes(4, 1)}, {"padding", "VALID"}},
       true},
      {"Dilation2DBackpropFilter",
       "images without channels",
       [] {
         const Tensor images = Floats({kHuge, 1, 1, 0});
         return Inputs{images, Floats({1, 1, 0}), images};
       },
       {{"strides", Sizes(4, 1)}, {"rates", Sizes(4, 1)}, {"padding", "VALID"}},
       true},
      {"LRN",
       "a radius as long as numbers are",
       [] {
         return Inputs{Floats({1, 1, 1, 4})};
       },
       {{"depth_radius", kMost}},
       true},
      {"LRN",
       "no pixels of many channels",
       [] {
         return Inputs{Floats({0, 1, 1, kHuge})};
       },
       {},
       true},
      {"AvgPool",
       "a window as long as 32 bits hold",
       [] {
         return Inputs{Floats({1, 2, 2, 1})};
       },
       {{"ksize", Sizes{1, kWord / 2 - 1, kWord / 2 - 1, 1}},
        {"strides", Sizes(4, 1)},
        {"padding", "SAME"}},
       true},
      {"MaxPool",
       "an image without rows in padding",
       [] {
         return Inputs{Floats({1, 0, 2, 1})};
       },
       {{"ksize", Sizes(4, 1)},
        {"strides", Sizes(4, 1)},
        {"padding", "EXPLICIT"},
        {"explicit_paddings", Sizes{0, 0, 1, 0, 0, 0, 0, 0}}},
       true},
      {"Conv2D",
       "paddings that 32 bits do not hold",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), Floats({5, 5, 1, 1})};
       },
       {{"strides", Sizes(4, 1)},
        {"dilations", Sizes{1, kWord / 2 - 1, kWord / 2 - 1, 1}},
        {"padding", "SAME"}},
       true},
      {"_Conv2DBackprop",
       "two filters",
       [] {
         const Tensor one = Floats({1, 1, 1, 1});
         return Inputs{one, Tensor::Vector<int32_t>({1, 1, 1, 1}), one, one, one};
       },
       {{"strides", Sizes(4, 1)},
        {"padding", "VALID"},
        {"num_filters", int64_t{2}},
        {"num_args", int64_t{0}}}},
      {"InTopKV2", "no k",
       [] {
         return Inputs{Floats({1, 2}), Tensor::Vector<int32_t>({0}), Tensor::Vector<int32_t>({})};
       }},
      {"_MultiResourceApply",
       "fewer gradients than updates",
       [] {
         const Tensor variable = Zeros(DT_RESOURCE, {});
         return Inputs{variable, variable, Floats({}), Floats({2})};
       },
       {{"update", "ResourceApplyGradientDescent"},
        {"V", int64_t{2}},
        {"C", int64_t{1}},
        {"N", int64_t{2}},
        {"G", Types{DT_FLOAT}},
        {"T", DT_FLOAT}}},
      // Ops that move, order and combine elements.
      {"ExpandDims", "a tensor of as many dimensions as there may be",
       [] {
         return Inputs{Floats(Shape(std::vector<int64_t>(kMaxRank, 1))), Tensor::Scalar<int32_t>(0)};
       }},
      {"MatrixDiag", "a tensor of as many dimensions as there may be",
       [] {
         return Inputs{Floats(Shape(std::vector<int64_t>(kMaxRank, 1)))};
       }},
      {"MatrixDiagV2", "a diagonal whose matrix is too large",
       [] {
         return Inputs{Floats({0, kMost}), Tensor::Scalar<int32_t>(-1), Tensor::Scalar<int32_t>(-1),
                       Tensor::Scalar<int32_t>(-1), Floats({})};
       }},
      {"UnsortedSegmentSum", "one row of as many dimensions as there may be",
       [] {
         return Inputs{Floats(Shape(std::vector<int64_t>(kMaxRank, 1))), Tensor::Scalar<int32_t>(0),
                       Tensor::Scalar<int32_t>(1)};
       }},
      {"UnsortedSegmentSum",
       "columns without rows",
       [] {
         return Inputs{Floats({0, kHuge}), Zeros(DT_INT32, {0}), Tensor::Scalar<int32_t>(0)};
       },
       {},
       true},
      {"Tile",
       "eight dimensions, of which the last one is repeated",
       [] {
         return Inputs{Floats(Shape{2, 1, 1, 1, 1, 1, 1, 2}), Dims({2, 1, 1, 1, 1, 1, 1, 2})};
       },
       {},
       true},
      {"GatherNd", "indices of 2^31 columns",
       [] {
         return Inputs{Floats({2}), Zeros(DT_INT64, {0, int64_t{1} << 31})};
       }},
      {"GatherNd", "indices of 2^32 columns",
       [] {
         return Inputs{Floats({2}), Zeros(DT_INT64, {0, kWord})};
       }},
      {"Range", "more numbers than 63 bits count",
       [] {
         return Inputs{Tensor::Scalar<int64_t>(-kMost - 1), Tensor::Scalar<int64_t>(kMost),
                       Tensor::Scalar<int64_t>(1)};
       }},
      {"Range",
       "a step to the lowest number",
       [] {
         const Tensor lowest = Tensor::Scalar<int64_t>(-kMost - 1);
         return Inputs{Tensor::Scalar<int64_t>(0), lowest, lowest};
       },
       {},
       true},
      {"Range", "steps of 0.0",
       [] {
         return Inputs{Tensor::Scalar(0.0f), Tensor::Scalar(5.0f), Tensor::Scalar(0.0f)};
       }},
      {"Range", "more floats than memory holds",
       [] {
         return Inputs{Tensor::Scalar(0.0), Tensor::Scalar(1e300), Tensor::Scalar(1.0)};
       }},
      {"HistogramFixedWidth",
       "a range wider than the largest number",
       [] {
         return Inputs{Tensor::Vector({1.7e308}), Tensor::Vector({-1e308, 1e308}),
                       Tensor::Scalar<int32_t>(2)};
       },
       {},
       true},
      {"SegmentMean",
       "a count that is 0 as an int8",
       [] {
         return Inputs{Zeros(DT_INT8, {256, 1}), Zeros(DT_INT32, {256})};
       },
       {},
       true},
      {"TruncateDiv", "a division of uint32 by zero",
       [] {
         return Inputs{Zeros(DT_UINT32, {1}), Zeros(DT_UINT32, {1})};
       }},
      {"TruncateDiv", "a division of uint64 by zero",
       [] {
         return Inputs{Zeros(DT_UINT64, {1}), Zeros(DT_UINT64, {1})};
       }},
      {"ArgMax",
       "rows of no columns",
       [] {
         return Inputs{Floats({kWide, 1, 0}), Tensor::Scalar<int32_t>(1)};
       },
       {},
       true},
      {"Cumsum",
       "rows without elements",
       [] {
         return Inputs{Floats({kHuge, 0}), Tensor::Scalar<int32_t>(1)};
       },
       {},
       true},
      {"StackV2",
       "no max_size",
       [] { return Inputs{Zeros(DT_INT32, {0})}; },
       {{"elem_type", DT_FLOAT}}},
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
      {"ResizeBilinear", "a result whose size wraps",
       [] {
         return Inputs{Floats({1 << 10, 1, 1, 1}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       }},
      {"ResizeBilinear",
       "no images of many pixels",
       [] {
         return Inputs{Floats({0, 1, 1, 4}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       },
       {},
       true},
      {"ResizeBilinear", "images of more rows than are counted",
       [] {
         return Inputs{Floats({0, kHuge, 1, 1}), Tensor::Vector<int32_t>({1, 1})};
       }},
      {"ResizeNearestNeighbor", "images without channels",
       [] {
         return Inputs{Floats({kHuge, 1, 1, 0}), Tensor::Vector<int32_t>({1, 1})};
       }},
      {"ResizeBilinearGrad",
       "no images of many pixels",
       [] {
         const Tensor none = Floats({0, 1 << 30, 1 << 30, 1});
         return Inputs{none, none};
       },
       {},
       true},
      {"ResizeNearestNeighborGrad", "more pixels than memory holds",
       [] {
         return Inputs{Floats({1, 1, 1, 1}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       }},
      {"ResizeBicubic", "a result whose size wraps",
       [] {
         return Inputs{Floats({1 << 10, 1, 1, 1}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       }},
      {"ResizeBicubic",
       "no images of many pixels",
       [] {
         return Inputs{Floats({0, 1, 1, 4}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       },
       {},
       true},
      {"ResizeBicubic",
       "many pixels of one",
       [] {
         return Inputs{Floats({1, 1, 1, 1}), Tensor::Vector<int32_t>({1, 100'000})};
       },
       {{"half_pixel_centers", true}},
       true},
      {"ResizeBicubicGrad",
       "no images of many pixels",
       [] {
         const Tensor none = Floats({0, 1 << 30, 1 << 30, 1});
         return Inputs{none, none};
       },
       {},
       true},
      {"ResizeBicubicGrad", "images without channels",
       [] {
         const Tensor images = Floats({1, kHuge, 1, 0});
         return Inputs{images, images};
       }},
      {"ResizeArea", "a result whose size wraps",
       [] {
         return Inputs{Floats({1 << 10, 1, 1, 1}), Tensor::Vector<int32_t>({kMost32, kMost32})};
       }},
      {"ResizeArea",
       "no images of the most pixels",
       [] {
         return Inputs{Floats({0, kMost32, kMost32, 1}), Tensor::Vector<int32_t>({1, 1})};
       },
       {},
       true},
      {"ResizeArea",
       "many pixels of two",
       [] {
         return Inputs{Floats({1, 1, 2, 1}), Tensor::Vector<int32_t>({1, 100'000})};
       },
       {},
       true},
      {"DrawBoundingBoxes",
       "boxes at no numbers and far away",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), StrangeBoxes().Reshaped(Shape{1, 2, 4})};
       },
       {},
       true},
      {"DrawBoundingBoxes",
       "images without pixels",
       [] {
         return Inputs{Floats({1, kHuge, 0, 3}), StrangeBoxes().Reshaped(Shape{1, 2, 4})};
       },
       {},
       true},
      {"DrawBoundingBoxes",
       "no images with many boxes",
       [] {
         return Inputs{Floats({0, 1, 1, 3}), Floats({0, kWide, 4})};
       },
       {},
       true},
      {"DrawBoundingBoxesV2",
       "boxes at no numbers and far away",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), StrangeBoxes().Reshaped(Shape{1, 2, 4}),
                       Floats({1, 1})};
       },
       {},
       true},
      {"DrawBoundingBoxesV2", "colours without channels",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), StrangeBoxes().Reshaped(Shape{1, 2, 4}),
                       Floats({kHuge, 0})};
       }},
      {"NonMaxSuppression",
       "boxes at no numbers and far away",
       [] {
         return Inputs{StrangeBoxes(), Floats({2}), Tensor::Scalar(kMost32)};
       },
       {},
       true},
      {"NonMaxSuppression", "boxes without numbers",
       [] {
         return Inputs{Floats({kHuge, 0}), Floats({0}), Tensor::Scalar(1)};
       }},
      {"NonMaxSuppressionV2", "a threshold that is no number",
       [] {
         return Inputs{StrangeBoxes(), Floats({2}), Tensor::Scalar(1),
                       Tensor::Scalar(std::numeric_limits<float>::quiet_NaN())};
       }},
      {"NonMaxSuppressionV3",
       "a score that is no number",
       [] {
         return Inputs{StrangeBoxes(), Floats({2}), Tensor::Scalar(kMost32), Tensor::Scalar(0.5f),
                       Tensor::Scalar(std::numeric_limits<float>::quiet_NaN())};
       },
       {},
       true},
      {"NonMaxSuppressionV4",
       "no boxes of the most",
       [] {
         return Inputs{Floats({0, 4}), Floats({0}), Tensor::Scalar(kMost32), Tensor::Scalar(0.5f),
                       Tensor::Scalar(0.5f)};
       },
       {},
       true},
      {"NonMaxSuppressionV4",
       "a padding below zero",
       [] {
         return Inputs{Floats({0, 4}), Floats({0}), Tensor::Scalar(-kMost32), Tensor::Scalar(0.5f),
                       Tensor::Scalar(0.5f)};
       },
       {{"pad_to_max_output_size", true}}},
      {"NonMaxSuppressionV5",
       "scores that fall to no number",
       [] {
         return Inputs{StrangeBoxes(),       Tensor::Vector<float>({1, 1}),
                       Tensor::Scalar(kMost32), Tensor::Scalar(0.5f),
                       Tensor::Scalar(0.0f), Tensor::Scalar(1e-45f)};
       },
       {},
       true},
      {"NonMaxSuppressionV5", "an infinite score and a width of infinity",
       [] {
         const float far = std::numeric_limits<float>::infinity();
         return Inputs{StrangeBoxes(),       Tensor::Vector<float>({far, far}),
                       Tensor::Scalar(2),    Tensor::Scalar(1.0f),
                       Tensor::Scalar(-far), Tensor::Scalar(far)};
       },
       {},
       true},
      {"SampleDistortedBoundingBox",
       "images of the most pixels, at any aspect",
       [] {
         return Inputs{Tensor::Vector<int32_t>({kMost32 - 1, kMost32 - 1, 3}), Floats({1, 0, 4})};
       },
       {{"aspect_ratio_range", std::vector<float>{1e-45f, std::numeric_limits<float>::infinity()}},
        {"area_range", std::vector<float>{1e-45f, 1}},
        {"use_image_if_no_bounding_boxes", true},
        {"seed", int64_t{1}}},
       true},
      {"SampleDistortedBoundingBox",
       "more attempts than are counted",
       [] {
         return Inputs{Tensor::Vector<int32_t>({4, 4, 3}), Floats({1, 0, 4})};
       },
       {{"max_attempts", kWord + 1}, {"use_image_if_no_bounding_boxes", true}}},
      {"SampleDistortedBoundingBox",
       "ranges of no number",
       [] {
         return Inputs{Tensor::Vector<int32_t>({4, 4, 3}), Floats({1, 1, 4})};
       },
       {{"area_range", std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1}}}},
      {"SampleDistortedBoundingBoxV2", "images of more rows than are counted",
       [] {
         return Inputs{Dims({kHuge, 1, 3}), Floats({1, 1, 4}), Tensor::Scalar(0.5f)};
       }},
      {"SampleDistortedBoundingBoxV2", "a share that is no number",
       [] {
         return Inputs{Dims({4, 4, 3}), Floats({1, 1, 4}),
                       Tensor::Scalar(std::numeric_limits<float>::quiet_NaN())};
       }},
      {"SampleDistortedBoundingBoxV2",
       "many boxes of no images",
       [] {
         return Inputs{Dims({4, 4, 3}), Floats({0, kWide, 4}), Tensor::Scalar(0.5f)};
       },
       {{"use_image_if_no_bounding_boxes", true}},
       true},
      {"CropAndResize",
       "boxes at no numbers and far away",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), StrangeBoxes(), Zeros(DT_INT32, {2}),
                       Tensor::Vector<int32_t>({2, 2})};
       },
       {},
       true},
      {"CropAndResize", "crops that no memory holds",
       [] {
         return Inputs{Floats({1, 2, 2, 1}), StrangeBoxes(), Zeros(DT_INT32, {2}),
                       Tensor::Vector<int32_t>({kMost32, kMost32})};
       }},
      {"CropAndResizeGradImage",
       "images whose size wraps",
       [] {
         return Inputs{Floats({2, 1, 1, 1}), StrangeBoxes(), Zeros(DT_INT32, {2}),
                       Tensor::Vector<int32_t>({kMost32, kMost32, kMost32, 1})};
       },
       {{"T", DT_FLOAT}}},
      {"CropAndResizeGradBoxes",
       "boxes at no numbers and far away",
       [] {
         return Inputs{Floats({2, 2, 2, 1}), Floats({1, 2, 2, 1}), StrangeBoxes(),
                       Zeros(DT_INT32, {2})};
       },
       {},
       true},
      {"ExtractImagePatches",
       "patches whose size wraps",
       [] { return Inputs{Floats({1, 1, 1, 4})}; },
       {{"ksizes", Sizes{1, kMost32, kMost32, 1}},
        {"strides", Sizes(4, 1)},
        {"rates", Sizes(4, 1)},
        {"padding", "SAME"}}},
      {"ExtractImagePatches",
       "images without channels",
       [] { return Inputs{Floats({kHuge, 1, 1, 0})}; },
       {{"ksizes", Sizes(4, 1)},
        {"strides", Sizes(4, 1)},
        {"rates", Sizes(4, 1)},
        {"padding", "VALID"}},
       true},
      {"AdjustHue",
       "very many turns",
       [] {
         return Inputs{Floats({1, 1, 3}), Tensor::Scalar(1e38f)};
       },
       {},
       true},
      {"AdjustHue",
       "turned by no number",
       [] {
         return Inputs{Floats({1, 1, 3}), Tensor::Scalar(std::numeric_limits<float>::quiet_NaN())};
       },
       {},
       true},
      {"AdjustContrastv2",
       "images without pixels",
       [] {
         return Inputs{Floats({kHuge, 0, 1, 3}), Tensor::Scalar(2.0f)};
       },
       {},
       true},
      {"RGBToHSV", "images without pixels", [] { return Inputs{Floats({kHuge, 0, 3})}; }, {}, true},
      {"EncodePng", "an image without rows",
       [] {
         return Inputs{Zeros(DT_UINT8, {0, kHuge, 3})};
       }},
      {"EncodeJpeg", "more columns than a file may have",
       [] {
         return Inputs{Zeros(DT_UINT8, {1, 70'000, 1})};
       }},
      {"EncodeJpeg",
       "a density that wraps",
       [] {
         return Inputs{Zeros(DT_UINT8, {1, 1, 1})};
       },
       {{"x_density", kWord}}},
      {"EncodeJpeg",
       "more metadata than a file has room for",
       [] {
         return Inputs{Zeros(DT_UINT8, {1, 1, 1})};
       },
       {{"xmp_metadata", std::string(65'535, 'x')}}},
      {"DecodeJpeg", "a header of more pixels than are decoded",
       [] { return Inputs{Tensor::String(HugeJpeg())}; }},
      {"DecodePng", "a header of more pixels than are decoded",
       [] { return Inputs{Tensor::String(HugePng())}; }},
      {"DecodeBmp", "a header of more pixels than there are",
       [] { return Inputs{Tensor::String(HugeBmp())}; }},
      {"DecodeImage", "a header of more pixels than are decoded",
       [] { return Inputs{Tensor::String(HugePng())}; }},
      {"DecodeImage",
       "a header of more pixels than there are, as floats",
       [] { return Inputs{Tensor::String(HugeBmp())}; },
       {{"dtype", DT_FLOAT}}},
      {"DecodeAndCropJpeg", "a header of more pixels than are decoded",
       [] {
         return Inputs{Tensor::String(HugeJpeg()), Tensor::Vector<int32_t>({0, 0, 1, 1})};
       }},
      {"DecodeAndCropJpeg", "a window whose end wraps",
       [] {
         return Inputs{Run1("EncodeJpeg", {Zeros(DT_UINT8, {2, 2, 1})}),
                       Tensor::Vector<int32_t>({1, 1, kMost32, kMost32})};
       }},
      {"ExtractJpegShape", "a header of more pixels than are decoded",
       [] { return Inputs{Tensor::String(HugeJpeg())}; }},
      {"Bucketize",
       "boundaries that do not ascend",
       [] { return Inputs{Floats({3})}; },
       {{"boundaries", std::vector<float>{2, 1}}}},
      {"Bucketize",
       "no boundaries",
       [] { return Inputs{Floats({3})}; },
       {{"boundaries", std::vector<float>{}}},
       true},
      {"CumulativeLogsumexp",
       "rows without elements",
       [] {
         return Inputs{Floats({kHuge, 0}), Tensor::Scalar<int32_t>(1)};
       },
       {},
       true},
      {"StringToHashBucket",
       "the most buckets",
       [] { return Inputs{Tensor::String("text")}; },
       {{"num_buckets", kMost}},
       true},
      {"StringToHashBucketFast",
       "the most buckets",
       [] { return Inputs{Tensor::String("text")}; },
       {{"num_buckets", kMost}},
       true},
      {"StringToHashBucketStrong",
       "a key of one number",
       [] { return Inputs{Tensor::String("text")}; },
       {{"num_buckets", int64_t{2}}, {"key", Sizes{1}}}},
      {"StaticRegexReplace",
       "a group that the pattern lacks",
       [] { return Inputs{Tensor::String("text")}; },
       {{"pattern", "(t)"}, {"rewrite", "\\2"}}},
      {"StaticRegexReplace",
       "loops over nothing",
       [] { return Inputs{Tensor::String("text")}; },
       {{"pattern", "((a*)*|(b*)*)*"}, {"rewrite", "\\1"}},
       true},
      {"_Barrier",
       "components of which no batch can be",
       [] { return Inputs(); },
       {{"component_types", Types{DT_FLOAT}}, {"shapes", Shapes{PartialShape(std::vector<int64_t>(kMaxRank, 1))}}}},
      {"_Barrier",
       "components larger than memory",
       [] { return Inputs(); },
       {{"component_types", Types{DT_FLOAT}}, {"shapes", Shapes{{kHuge}}}},
       true},
      {"MutableHashTableOfTensorsV2",
       "values of a size that wraps",
       [] { return Inputs(); },
       {{"key_dtype", DT_INT64},
        {"value_dtype", DT_FLOAT},
        {"value_shape", PartialShape{kHuge, kHuge}}}},
      {"MutableDenseHashTableV2",
       "an empty key that is none",
       [] {
         return Inputs{Dims({}), Dims({})};
       },
       {{"key_dtype", DT_INT64}, {"value_dtype", DT_FLOAT}}},
      {"MutableDenseHashTableV2",
       "a load that is no number",
       [] {
         return Inputs{Dims({0}), Dims({1})};
       },
       {{"key_dtype", DT_INT64},
        {"value_dtype", DT_FLOAT},
        {"max_load_factor", std::numeric_limits<float>::quiet_NaN()}}},
      {"MutableDenseHashTableV2",
       "the smallest number of buckets",
       [] {
         return Inputs{Dims({0}), Dims({1})};
       },
       {{"key_dtype", DT_INT64},
        {"value_dtype", DT_FLOAT},
        {"initial_num_buckets", std::numeric_limits<int64_t>::min()}}},
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

// Where the axis is not known, neither is the length of a concatenation, though its elements are.
TEST(HostileGraphTest, ShapeFunctionsReadNoMoreIntegersThanTheirShapeSays) {
  Graph graph(&Ops());
  const auto add = [&](const char* name, const char* op, std::vector<Endpoint> inputs,
                       Attrs attrs) {
    auto shared = std::make_shared<const Attrs>(std::move(attrs));
    const auto id = graph.AddNode({.name = name, .op = op, .inputs = inputs, .attrs = shared});
    EXPECT_TRUE(id.ok()) << id.status();
    return Endpoint{id.ok() ? *id : 0, 0};
  };
  const Endpoint x =
      add("x", "Placeholder", {}, {{"dtype", DT_FLOAT}, {"shape", PartialShape::UnknownOfRank(8)}});
  const Endpoint axis = add("axis", "Placeholder", {}, {{"dtype", DT_INT32}});
  const Endpoint zero = add("zero", "Const", {}, {{"value", Dims({0})}, {"dtype", DT_INT64}});
  const Endpoint zeros = add("zeros", "ConcatV2", {zero, zero, axis}, {});
  const Endpoint slice = add("slice", "Slice", {x, zeros, zeros}, {});
  EXPECT_EQ(graph.shape(slice), PartialShape::UnknownOfRank(8));
}

// Three lists of inputs, each of a third of 2^64 and two.
TEST(HostileGraphTest, NumbersOfInputsDoNotWrap) {
  Graph graph(&Ops());
  std::vector<Endpoint> inputs;
  for (const char* name : {"a", "b"}) {
    auto attrs = std::make_shared<const Attrs>(Attrs{{"dtype", DT_INT64}});
    const auto id = graph.AddNode({.name = name, .op = "Placeholder", .attrs = attrs});
    ASSERT_TRUE(id.ok()) << id.status();
    inputs.push_back({*id, 0});
  }
  auto attrs = std::make_shared<const Attrs>(
      Attrs{{"N", int64_t{6148914691236517206}}, {"T", DT_FLOAT}, {"concat_dim", int64_t{0}}});
  const auto id =
      graph.AddNode({.name = "concat", .op = "SparseConcat", .inputs = inputs, .attrs = attrs});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), Code::kInvalidArgument);
  EXPECT_NE(id.status().message().find("op takes"), std::string::npos) << id.status();
}

// A bool that was fed may be any byte.
TEST(HostileGraphTest, WhereCountsABoolOnce) {
  Tensor condition = Zeros(DT_BOOL, {4});
  static_cast<unsigned char*>(condition.raw())[2] = 255;
  const Tensor places = Run1("Where", {condition});
  ASSERT_EQ(places.shape(), (Shape{1, 1}));
  EXPECT_EQ(*places.data<int64_t>(), 2);
}

TEST(HostileGraphTest, TileRepeatsTheLastOfEightDimensions) {
  const Tensor x = Tensor::FromValues<int32_t>(Shape{2, 1, 1, 1, 1, 1, 1, 2}, {1, 2, 3, 4});
  const Tensor tiled = Run1("Tile", {x, Dims({2, 1, 1, 1, 1, 1, 1, 2})});
  EXPECT_TRUE(BitEqual(
      tiled, Tensor::FromValues<int32_t>(Shape{4, 1, 1, 1, 1, 1, 1, 4},
                                         {1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4})));
}

}  // namespace
}  // namespace monograph::testing
