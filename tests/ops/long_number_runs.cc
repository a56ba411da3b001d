// Runs of kernels of numbers, a row for each op: orders, segments, sparse tensors, diagonals,
// moves, scatters, volumes, pseudo-random numbers, lists. Most inputs are zeros, or 0, 1, 2, ...;
// where one dimension is all that a kernel could cut between, it has the size 1.
#include <algorithm>

#include "tests/ops/long_runs.h"
#include "tests/ops/testing.h"

namespace monograph::testing {
namespace {

Tensor Doubles(const Shape& shape) { return Zeros(DT_DOUBLE, shape); }
Tensor Zeros64(const Shape& shape) { return Zeros(DT_INT64, shape); }
Tensor Int32s(const Shape& shape) { return Zeros(DT_INT32, shape); }
Tensor Column(int64_t n) { return Numbers<int64_t>(n).Reshaped(Shape{n, 1}); }
Tensor Downwards(int64_t n) {
  Tensor tensor = Column(n);
  std::reverse(tensor.data<int64_t>(), tensor.data<int64_t>() + n);
  return tensor;
}
int32_t AsInt(int64_t n) { return static_cast<int32_t>(n); }

void AddOrders(std::vector<LongRun>* runs) {
  const int64_t n = 4 * kMillion;
  runs->push_back({"TopKV2", [=] {
                     return std::vector{Random<float>({1, n}), Tensor::Scalar(5)};
                   }});
  runs->push_back({"TopKV2",
                   [=] {
                     return std::vector{Random<float>({1, n / 4}), Tensor::Scalar(AsInt(n / 8))};
                   },
                   {},
                   " of many"});
  runs->push_back({"TopK",
                   [=] {
                     return std::vector{Floats({1, 20 * n})};
                   },
                   {{"k", int64_t{1}}},
                   " of one"});
  runs->push_back({"NthElement", [=] {
                     return std::vector{Random<float>({1, 4 * n}), Tensor::Scalar(AsInt(n))};
                   }});
  runs->push_back({"NthElement",
                   [=] {
                     return std::vector{Floats({1, 4 * n}), Tensor::Scalar(AsInt(n))};
                   },
                   {},
                   " of equal ones"});
  for (const char* op : {"LowerBound", "UpperBound"}) {
    runs->push_back({op, [=] { return std::vector{Floats({1, n}), Floats({1, 2 * n})}; }});
  }
  runs->push_back({"Bucketize",
                   [=] { return std::vector{Floats({40 * n})}; },
                   {{"boundaries", std::vector<float>{-1, 0, 1}}}});
  runs->push_back({"Bincount", [=] {
                     return std::vector{Int32s({10 * n}), Tensor::Scalar(3), Floats({0})};
                   }});
  runs->push_back({"HistogramFixedWidth", [=] {
                     Tensor range = Floats({2});
                     range.data<float>()[1] = 1;
                     return std::vector{Floats({10 * n}), range, Tensor::Scalar(3)};
                   }});
  runs->push_back({"Where", [=] { return std::vector{Numbers(5 * n)}; }});
  runs->push_back({"UniqueV2",
                   [=] {
                     return std::vector{Numbers(n).Reshaped(Shape{n / 16, 16}), Longs({0})};
                   },
                   {{"out_idx", DT_INT32}},
                   " of rows"});
  runs->push_back(
      {"UniqueWithCounts", [=] { return std::vector{Numbers(n / 2)}; }, {{"out_idx", DT_INT32}}});
}

void AddSegments(std::vector<LongRun>* runs) {
  for (const char* op : {"SegmentSum", "SegmentMean", "SegmentMax"}) {
    runs->push_back({op,
                     [=] {
                       return std::vector{Floats({2 * kRow}), Int32s({2 * kRow})};
                     },
                     {},
                     " of one segment"});
  }
  runs->push_back({"SegmentProd",
                   [=] {
                     return std::vector{Floats({4, kRow}), Ints({0, 0, 1, 5})};
                   },
                   {},
                   " of long rows"});
  runs->push_back({"UnsortedSegmentProd", [=] {
                     return std::vector{Floats({2 * kRow}), Int32s({2 * kRow}), Tensor::Scalar(2)};
                   }});
  runs->push_back({"UnsortedSegmentMax",
                   [=] {
                     return std::vector{Floats({6, kRow}), Int32s({6}), Tensor::Scalar(2)};
                   },
                   {},
                   " of long rows"});
  for (const char* op : {"SparseSegmentSum", "SparseSegmentMean"}) {
    runs->push_back({op, [=] {
                       return std::vector{Floats({5, 2}), Int32s({2 * kRow}), Int32s({2 * kRow})};
                     }});
  }
  runs->push_back({"SparseSegmentSum",
                   [=] {
                     return std::vector{Floats({2, kRow}), Ints({0, 1, 0, 1, 0, 1}), Int32s({6})};
                   },
                   {},
                   " of long rows"});
  runs->push_back({"SparseSegmentMeanGrad", [=] {
                     return std::vector{Floats({5, 2}), Int32s({2 * kRow}), Int32s({2 * kRow}),
                                        Tensor::Scalar(3)};
                   }});
}

void AddSparse(std::vector<LongRun>* runs) {
  const int64_t n = 2 * kMillion;
  runs->push_back({"SparseReshape", [=] {
                     return std::vector{Column(4 * n), Longs({4 * n}), Longs({4, n})};
                   }});
  runs->push_back({"SparseReorder", [=] {
                     return std::vector{Downwards(n), Floats({n}), Longs({n})};
                   }});
  runs->push_back({"SparseConcat",
                   [=] {
                     return std::vector{Column(n),   Column(n),  Floats({n}),
                                        Floats({n}), Longs({n}), Longs({n})};
                   },
                   {{"N", int64_t{2}}, {"concat_dim", int64_t{0}}}});
  runs->push_back({"SparseSlice", [=] {
                     return std::vector{Column(4 * n), Floats({4 * n}), Longs({4 * n}), Longs({1}),
                                        Longs({4 * n})};
                   }});
  runs->push_back({"SparseSliceGrad", [=] {
                     return std::vector{Floats({8 * n}), Column(8 * n), Longs({0}), Column(8 * n)};
                   }});
  runs->push_back(
      {"SparseFillEmptyRows", [=] {
         return std::vector{Column(2 * n), Floats({2 * n}), Longs({3 * n}), Tensor::Scalar(1.0f)};
       }});
  runs->push_back({"SparseFillEmptyRowsGrad", [=] {
                     return std::vector{Numbers<int64_t>(4 * n), Floats({4 * n})};
                   }});
  runs->push_back(
      {"SparseToDense", [=] {
         return std::vector{Column(4 * n), Longs({4 * n}), Floats({4 * n}), Tensor::Scalar(1.0f)};
       }});
  runs->push_back({"SparseReduceSum", [=] {
                     return std::vector{Column(4 * n), Floats({4 * n}), Longs({4 * n}), Ints({0})};
                   }});
  runs->push_back(
      {"SparseTensorDenseMatMul", [=] {
         return std::vector{Zeros64({n, 2}), Floats({n}), Longs({2, 2}), Floats({2, 100})};
       }});
  runs->push_back({"SparseSplit",
                   [=] {
                     return std::vector{Tensor::Scalar<int64_t>(0), Column(4 * n), Floats({4 * n}),
                                        Longs({4 * n})};
                   },
                   {{"num_split", int64_t{2}}}});
  runs->push_back({"SparseAdd", [=] {
                     return std::vector{Column(2 * n),       Floats({2 * n}), Longs({2 * n}),
                                        Column(2 * n),       Floats({2 * n}), Longs({2 * n}),
                                        Tensor::Scalar(0.0f)};
                   }});
  runs->push_back(
      {"SparseAddGrad", [=] {
         return std::vector{Floats({4 * n}), Column(4 * n), Column(4 * n), Column(4 * n)};
       }});
  runs->push_back({"SparseSparseMaximum", [=] {
                     return std::vector{Column(2 * n), Floats({2 * n}), Longs({2 * n}),
                                        Column(2 * n), Floats({2 * n}), Longs({2 * n})};
                   }});
  runs->push_back(
      {"SparseTensorDenseAdd", [=] {
         return std::vector{Column(4 * n), Floats({4 * n}), Longs({4 * n}), Floats({4 * n})};
       }});
  runs->push_back(
      {"SparseDenseCwiseMul", [=] {
         return std::vector{Column(4 * n), Floats({4 * n}), Longs({4 * n}), Floats({1})};
       }});
  runs->push_back({"SparseSoftmax", [=] {
                     return std::vector{Zeros64({2 * n, 2}), Floats({2 * n}), Longs({1, 1})};
                   }});
}

void AddCrossesAndSets(std::vector<LongRun>* runs) {
  const int64_t n = 2 * kMillion, columns = 2000;
  const std::vector<DType> numbers = {DT_INT64, DT_INT64};
  const auto dense = [=] {
    return std::vector{Numbers<int64_t>(columns).Reshaped(Shape{1, columns}),
                       Numbers<int64_t>(columns).Reshaped(Shape{1, columns})};
  };
  runs->push_back({"SparseCross",
                   dense,
                   {{"N", int64_t{0}},
                    {"hashed_output", true},
                    {"num_buckets", int64_t{0}},
                    {"hash_key", int64_t{1}},
                    {"sparse_types", std::vector<DType>()},
                    {"dense_types", numbers},
                    {"out_type", DT_INT64},
                    {"internal_type", DT_INT64}}});
  runs->push_back(
      {"SparseCrossV2",
       [=] {
         std::vector<Tensor> inputs = dense();
         inputs.push_back(Text("_"));
         return inputs;
       },
       {{"N", int64_t{0}}, {"sparse_types", std::vector<DType>()}, {"dense_types", numbers}}});
  runs->push_back(
      {"SparseCrossHashed",
       [=] {
         return std::vector{Column(0).Reshaped(Shape{0, 2}),
                            Zeros64({2 * n, 2}),
                            Zeros64({0}),
                            Zeros64({2 * n}),
                            Longs({1, 1}),
                            Longs({1, 1}),
                            Tensor::Scalar<int64_t>(0),
                            Tensor::Scalar(true),
                            Longs({1, 2})};
       },
       {{"N", int64_t{2}}, {"sparse_types", numbers}, {"dense_types", std::vector<DType>()}}});
  runs->push_back({"SetSize",
                   [=] {
                     return std::vector{Zeros64({n, 2}), Numbers<int64_t>(n), Longs({1, 1})};
                   },
                   {{"validate_indices", false}}});
  runs->push_back({"SparseToSparseSetOperation",
                   [=] {
                     return std::vector{Zeros64({n, 2}), Numbers<int64_t>(n), Longs({1, 1}),
                                        Zeros64({n, 2}), Numbers<int64_t>(n), Longs({1, 1})};
                   },
                   {{"set_operation", "union"}, {"validate_indices", false}}});
  runs->push_back(
      {"DenseToDenseSetOperation",
       [=] {
         return std::vector{Numbers(n).Reshaped(Shape{n, 1}), Numbers(n).Reshaped(Shape{n, 1})};
       },
       {{"set_operation", "union"}},
       " of many groups"});
}

void AddCandidates(std::vector<LongRun>* runs) {
  const auto attrs = [](int64_t num_sampled, bool unique) {
    return Attrs{{"num_true", int64_t{1}},
                 {"num_sampled", num_sampled},
                 {"unique", unique},
                 {"range_max", 40 * kMillion}};
  };
  const auto one = [] { return std::vector{Zeros64({1, 1})}; };
  runs->push_back({"UniformCandidateSampler", one, attrs(kRow, false)});
  runs->push_back({"UniformCandidateSampler", one, attrs(kRow / 4, true), " of unique ones"});
  runs->push_back({"LearnedUnigramCandidateSampler",
                   [] {
                     return std::vector{Zeros64({kRow, 1})};
                   },
                   attrs(1, false)});
  Attrs fixed = attrs(kRow, false);
  fixed.Set("range_max", int64_t{3});
  fixed.Set("unigrams", std::vector<float>{1, 2, 3});
  runs->push_back({"FixedUnigramCandidateSampler", one, fixed});
  runs->push_back({"AllCandidateSampler",
                   one,
                   {{"num_true", int64_t{1}}, {"num_sampled", 6 * kRow}, {"unique", true}}});
  runs->push_back({"ComputeAccidentalHits",
                   [] {
                     return std::vector{Downwards(kRow / 5), Numbers<int64_t>(kRow / 5)};
                   },
                   {{"num_true", int64_t{1}}}});
}

void AddDiagonals(std::vector<LongRun>* runs) {
  const int64_t n = 8000;
  runs->push_back({"Diag", [=] { return std::vector{Floats({n})}; }});
  runs->push_back({"MatrixDiag", [=] { return std::vector{Floats({n})}; }});
  runs->push_back({"MatrixDiagPartV2", [=] {
                     return std::vector{Floats({n, n}), Ints({AsInt(1 - n), AsInt(n - 1)}),
                                        Tensor::Scalar(0.0f)};
                   }});
  runs->push_back({"MatrixSetDiag", [=] { return std::vector{Floats({n, n}), Floats({n})}; }});
  runs->push_back({"MatrixBandPart", [=] {
                     return std::vector{Floats({2, 4 * kRow}), Tensor::Scalar(int64_t{1}),
                                        Tensor::Scalar(int64_t{1})};
                   }});
}

void AddMoves(std::vector<LongRun>* runs) {
  runs->push_back(
      {"Roll", [=] {
         return std::vector{Floats({3 * kRow, 2}), Tensor::Scalar(1), Tensor::Scalar(1)};
       }});
  runs->push_back({"ReverseSequence",
                   [=] {
                     return std::vector{Floats({kRow / 2, 2}), Zeros64({kRow / 2})};
                   },
                   {{"seq_dim", int64_t{1}}}});
  const auto pads = [] { return Ints({1, 1, 1, 1}).Reshaped(Shape{2, 2}); };
  const auto none = [] { return Int32s({2, 2}); };
  runs->push_back({"MirrorPad",
                   [=] {
                     return std::vector{Floats({3 * kRow, 2}), pads()};
                   },
                   {{"mode", std::string("SYMMETRIC")}}});
  runs->push_back({"MirrorPadGrad",
                   [=] {
                     return std::vector{Floats({4, 2 * kRow}), pads()};
                   },
                   {{"mode", std::string("SYMMETRIC")}}});
  runs->push_back({"SpaceToBatchND", [=] {
                     return std::vector{Floats({1, kRow, 2, 2}), Ints({2, 2}), none()};
                   }});
  runs->push_back({"BatchToSpaceND", [=] {
                     return std::vector{Floats({4, kRow / 2, 1, 2}), Ints({2, 2}), none()};
                   }});
  for (const char* op : {"SpaceToDepth", "DepthToSpace"}) {
    runs->push_back({op,
                     [=] {
                       return std::vector{Floats({1, kRow / 4, 4, 4})};
                     },
                     {{"block_size", int64_t{2}}}});
  }
  runs->push_back({"LinSpace", [=] {
                     return std::vector{Tensor::Scalar(0.0f), Tensor::Scalar(1.0f),
                                        Tensor::Scalar(AsInt(10 * kRow))};
                   }});
  runs->push_back(
      {"Empty", [=] { return std::vector{Ints({AsInt(20 * kRow)})}; }, {{"dtype", DT_FLOAT}}});
  runs->push_back({"UnravelIndex", [=] {
                     return std::vector{Numbers(2 * kRow), Ints({AsInt(kRow), 2})};
                   }});
}

void AddScatters(std::vector<LongRun>* runs) {
  const int64_t n = 5 * kMillion;
  runs->push_back({"GatherNd", [=] { return std::vector{Floats({3, 2}), Int32s({2 * n, 2})}; }});
  runs->push_back({"ScatterNd", [=] {
                     return std::vector{Int32s({4 * n, 1}), Floats({4 * n}), Ints({3})};
                   }});
  runs->push_back(
      {"ScatterNd",
       [=] {
         return std::vector{Int32s({4, 1}), Floats({4, 4 * n}), Ints({2, AsInt(4 * n)})};
       },
       {},
       " of long slices"});
  for (const char* op : {"TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMin"}) {
    runs->push_back({op, [=] {
                       return std::vector{Floats({3}), Int32s({4 * n, 1}), Floats({4 * n})};
                     }});
  }
  for (const char* op : {"InplaceUpdate", "InplaceAdd"}) {
    runs->push_back({op, [=] {
                       return std::vector{Floats({2, 2 * n}), Int32s({10}), Floats({10, 2 * n})};
                     }});
  }
  runs->push_back({"DeepCopy", [=] { return std::vector{Floats({40 * n})}; }});
}

void AddVolumes(std::vector<LongRun>* runs) {
  const std::vector<int64_t> ones{1, 1, 1, 1, 1}, two{1, 2, 2, 2, 1}, flat{1, 1, 1, 1},
      window{1, 2, 2, 1};
  const std::string same = "SAME", valid = "VALID";
  const Attrs conv{{"strides", ones}, {"padding", same}};
  const auto volume = [] { return Doubles({1, 20, 40, 40, 8}); };
  const auto filter = [] { return Doubles({3, 3, 3, 8, 8}); };
  runs->push_back({"Conv3D", [=] { return std::vector{volume(), filter()}; }, conv});
  runs->push_back({"Conv3DBackpropInputV2",
                   [=] {
                     return std::vector{Ints({1, 20, 40, 40, 8}), filter(), volume()};
                   },
                   conv});
  runs->push_back({"Conv3DBackpropFilterV2",
                   [=] {
                     return std::vector{volume(), Ints({3, 3, 3, 8, 8}), volume()};
                   },
                   conv});
  const Attrs pool{{"ksize", two}, {"strides", two}, {"padding", valid}};
  const auto large = [] { return Floats({1, 100, 100, 100, 16}); };
  const auto small = [] { return Floats({1, 50, 50, 50, 16}); };
  for (const char* op : {"MaxPool3D", "AvgPool3D"})
    runs->push_back({op, [=] { return std::vector{large()}; }, pool});
  runs->push_back({"MaxPool3DGrad", [=] { return std::vector{large(), small(), small()}; }, pool});
  runs->push_back({"MaxPool3DGradGrad",
                   [=] {
                     return std::vector{large(), small(), large()};
                   },
                   pool});
  runs->push_back({"AvgPool3DGrad",
                   [=] {
                     return std::vector{Ints({1, 100, 100, 100, 16}), small()};
                   },
                   pool});
  const Attrs image{{"ksize", window}, {"strides", window}, {"padding", valid}};
  const auto picture = [] { return Floats({4, 1000, 1000, 16}); };
  const auto half_of_it = [] { return Floats({4, 500, 500, 16}); };
  runs->push_back({"MaxPoolGrad",
                   [=] {
                     return std::vector{picture(), half_of_it(), half_of_it()};
                   },
                   image});
  runs->push_back({"MaxPoolGradGrad",
                   [=] {
                     return std::vector{picture(), half_of_it(), picture()};
                   },
                   image});
  const Attrs halves{{"pooling_ratio", std::vector<float>{1, 1.5f, 1.5f, 1}}};
  const auto cuts = [] {
    Tensor all = Tensor::Allocate(DT_INT64, Shape{501}).value();
    for (int64_t i = 0; i <= 500; ++i) all.data<int64_t>()[i] = 2 * i;
    return all;
  };
  runs->push_back({"FractionalMaxPool", [=] { return std::vector{picture()}; }, halves});
  runs->push_back({"FractionalAvgPoolGrad", [=] {
                     return std::vector{Tensor::Vector<int64_t>({1, 1000, 1000, 16}),
                                        Floats({1, 500, 500, 16}), cuts(), cuts()};
                   }});
  runs->push_back({"MaxPoolWithArgmax", [=] { return std::vector{picture()}; }, image});
  runs->push_back({"AvgPool", [=] { return std::vector{Doubles({1, 1000, 1000, 16})}; }, image});
  const Attrs dilation{{"strides", flat}, {"rates", flat}, {"padding", same}};
  const auto dilated = [] { return Floats({1, 1, 500000, 4}); };
  const auto structure = [] { return Floats({3, 3, 4}); };
  runs->push_back({"Dilation2D", [=] { return std::vector{dilated(), structure()}; }, dilation});
  for (const char* op : {"Dilation2DBackpropInput", "Dilation2DBackpropFilter"}) {
    runs->push_back({op, [=] { return std::vector{dilated(), structure(), dilated()}; }, dilation});
  }
  runs->push_back({"LRN", [=] { return std::vector{Floats({1, 300, 300, 64})}; }});
  runs->push_back({"LRNGrad", [=] {
                     const Tensor x = Floats({1, 200, 200, 32});
                     return std::vector{x, x, x};
                   }});
  const auto einsum = [runs](const char* equation, int64_t n, auto inputs, const char* note) {
    runs->push_back({"Einsum", inputs, {{"N", n}, {"equation", std::string(equation)}}, note});
  };
  einsum(
      "bij,bjk->bik", 2,
      [] {
        return std::vector{Floats({300000, 2, 3}), Floats({300000, 3, 2})};
      },
      " of many products");
  einsum(
      "ij,jk->ik", 2,
      [] {
        return std::vector{Floats({2000, 2000}), Floats({2000, 2000})};
      },
      " of one product");
  einsum(
      "i->", 1, [] { return std::vector{Floats({4 * kRow})}; }, " that sums");
  einsum(
      "ij->ji", 1,
      [] {
        return std::vector{Floats({4000, 8000})};
      },
      " that transposes");
}

void AddImages(std::vector<LongRun>* runs) {
  const auto line = [] { return Floats({1, 1, 1000, 1}); };
  const auto long_line = [] { return Floats({1, 1, 2 * kRow, 1}); };
  const auto boxes = [] {
    Tensor whole = Floats({1, 4});
    whole.data<float>()[2] = whole.data<float>()[3] = 1;
    return whole;
  };
  for (const char* op : {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"})
    runs->push_back({op, [=] { return std::vector{line(), Ints({1, AsInt(4 * kRow)})}; }});
  for (const char* op : {"ResizeBilinearGrad", "ResizeBicubicGrad"})
    runs->push_back({op, [=] { return std::vector{long_line(), line()}; }});
  runs->push_back({"ResizeArea",
                   [=] {
                     return std::vector{Floats({1, 1, 8 * kRow, 1}), Ints({1, 1})};
                   },
                   {},
                   " to one pixel"});
  // One box around a long line after the other; boxes that all overlap, and none does.
  runs->push_back({"DrawBoundingBoxes", [=] {
                     Tensor many = Floats({1, 40, 4});
                     for (int64_t i = 3; i < many.elements(); i += 4) many.data<float>()[i] = 1;
                     return std::vector{Floats({1, 1, kRow, 1}), many};
                   }});
  const auto apart = [](int64_t n) {
    Tensor many = Floats({n, 4});
    for (int64_t i = 0; i < n; ++i) {
      float* const box = many.data<float>() + 4 * i;
      box[0] = static_cast<float>(2 * i), box[2] = box[0] + 1, box[3] = 1;
    }
    return many;
  };
  runs->push_back({"NonMaxSuppression", [=] {
                     const int64_t n = 20'000;
                     return std::vector{apart(n), Random<float>({n}), Tensor::Scalar(AsInt(n))};
                   }});
  runs->push_back({"NonMaxSuppression",
                   [=] {
                     const int64_t n = 4 * kMillion;
                     return std::vector{Floats({n, 4}), Random<float>({n}), Tensor::Scalar(1)};
                   },
                   {},
                   " of many boxes"});
  runs->push_back({"SampleDistortedBoundingBox",
                   [=] {
                     return std::vector{Ints({9, 9, 3}), Floats({1, 1, 4})};
                   },
                   {{"max_attempts", 4 * kMillion}, {"seed", int64_t{1}}}});
  runs->push_back({"ResizeNearestNeighborGrad", [=] {
                     return std::vector{long_line(), Ints({1, 1000})};
                   }});
  runs->push_back({"ResizeBilinear",
                   [=] {
                     return std::vector{Floats({1, 1, 1, 2 * kRow}), Ints({1, 2})};
                   },
                   {},
                   " of many channels"});
  runs->push_back({"ResizeBilinearGrad",
                   [=] {
                     return std::vector{Floats({1, 1, 2, kRow}), Floats({1, 1, 1, kRow})};
                   },
                   {},
                   " of many channels"});
  runs->push_back({"CropAndResize", [=] {
                     return std::vector{line(), boxes(), Ints({0}), Ints({1, AsInt(4 * kRow)})};
                   }});
  runs->push_back({"CropAndResizeGradImage",
                   [=] {
                     return std::vector{long_line(), boxes(), Ints({0}), Ints({1, 1, 1000, 1})};
                   },
                   {{"T", DT_FLOAT}}});
  runs->push_back({"CropAndResizeGradBoxes", [=] {
                     return std::vector{long_line(), line(), boxes(), Ints({0})};
                   }});
  const std::vector<int64_t> flat{1, 1, 1, 1};
  runs->push_back({"ExtractImagePatches",
                   [=] {
                     return std::vector{Floats({1, 1, 4 * kMillion, 1})};
                   },
                   {{"ksizes", std::vector<int64_t>{1, 1, 9, 1}},
                    {"strides", flat},
                    {"rates", flat},
                    {"padding", std::string("SAME")}}});
  const auto colours = [] { return Random<float>({1, kRow, 3}); };
  for (const char* op : {"RGBToHSV", "HSVToRGB"})
    runs->push_back({op, [=] { return std::vector{colours()}; }});
  for (const char* op : {"AdjustContrastv2", "AdjustHue", "AdjustSaturation"})
    runs->push_back({op, [=] { return std::vector{colours(), Tensor::Scalar(0.5f)}; }});
}

void AddRandoms(std::vector<LongRun>* runs) {
  const auto shape = [] { return Ints({AsInt(2 * kRow)}); };
  const auto seed = [] { return Longs({1, 2}); };
  for (const char* op :
       {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"})
    runs->push_back({op, [=] { return std::vector{shape(), seed()}; }, {{"dtype", DT_FLOAT}}});
  runs->push_back({"StatelessRandomUniformInt",
                   [=] {
                     return std::vector{shape(), seed(), Tensor::Scalar(1), Tensor::Scalar(100)};
                   },
                   {{"dtype", DT_INT32}}});
  runs->push_back({"StatelessRandomUniformFullInt",
                   [=] {
                     return std::vector{shape(), seed()};
                   },
                   {{"dtype", DT_INT32}}});
  runs->push_back({"StatelessMultinomial",
                   [=] {
                     return std::vector{Floats({1, kRow}), Tensor::Scalar(1), seed()};
                   },
                   {},
                   " of many classes"});
  runs->push_back({"Multinomial",
                   [=] {
                     return std::vector{Floats({1, 3}), Tensor::Scalar(AsInt(kRow))};
                   },
                   {},
                   " of many samples"});
  runs->push_back({"RandomShuffle", [=] { return std::vector{Floats({kRow / 2, 1})}; }});
  for (const char* op : {"RandomUniform", "TruncatedNormal"}) {
    runs->push_back({op, [=] { return std::vector{shape()}; }, {{"dtype", DT_FLOAT}}});
  }
  runs->push_back({"RandomUniformInt", [=] {
                     return std::vector{shape(), Tensor::Scalar(1), Tensor::Scalar(9)};
                   }});
}

void AddLists(std::vector<LongRun>* runs) {
  // A list of `n` rows.
  const auto list = [](int64_t n, int64_t columns) {
    return Run1("TensorListFromTensor", {Floats({n, columns}), Ints({AsInt(columns)})},
                {{"element_dtype", DT_FLOAT}});
  };
  const Attrs type{{"element_dtype", DT_FLOAT}};
  runs->push_back({"TensorListStack",
                   [=] {
                     return std::vector{list(4, 4 * kRow), Ints({AsInt(4 * kRow)})};
                   },
                   type});
  runs->push_back(
      {"TensorListGather",
       [=] {
         return std::vector{list(2, 4 * kRow), Ints({0, 1, 0, 1}), Ints({AsInt(4 * kRow)})};
       },
       type});
  runs->push_back({"TensorListConcatV2",
                   [=] {
                     return std::vector{list(4, 4 * kRow), Ints({AsInt(4 * kRow)}), Longs({})};
                   },
                   type});
}

void AddFurther(std::vector<LongRun>* runs) {
  const auto add = [runs](const char* op, auto inputs, Attrs attrs = {}) {
    runs->push_back({op, inputs, std::move(attrs)});
  };
  add("SparseMatMul", [] { return std::vector{Floats({1500, 1500}), Floats({1500, 1500})}; });
  const std::vector<int64_t> ones{1, 1, 1, 1};
  const Attrs depthwise{{"strides", ones}, {"padding", std::string("SAME")}};
  const auto image = [] { return Doubles({1, 300, 300, 32}); };
  add(
      "DepthwiseConv2dNative",
      [=] {
        return std::vector{image(), Doubles({3, 3, 32, 1})};
      },
      depthwise);
  add(
      "DepthwiseConv2dNativeBackpropInput",
      [=] {
        return std::vector{Ints({1, 300, 300, 32}), Doubles({3, 3, 32, 1}), image()};
      },
      depthwise);
  add(
      "DepthwiseConv2dNativeBackpropFilter",
      [=] {
        return std::vector{image(), Ints({3, 3, 32, 1}), image()};
      },
      depthwise);
  const Attrs norm{{"variance_epsilon", 0.1f}, {"scale_after_normalization", true}};
  const auto large = [] { return Floats({1, 1000, 1000, 16}); };
  const auto channels = [] { return Floats({16}); };
  add(
      "BatchNormWithGlobalNormalization",
      [=] {
        return std::vector{large(), channels(), channels(), channels(), channels()};
      },
      norm);
  add(
      "BatchNormWithGlobalNormalizationGrad",
      [=] {
        return std::vector{large(), channels(), channels(), channels(), large()};
      },
      norm);
  add("FusedBatchNormGradV3",
      [=] { return std::vector{large(), large(), channels(), channels(), channels(), channels()}; },
      {{"U", DT_FLOAT}});
  add("StridedSliceGrad", [] {
    return std::vector{Ints({AsInt(4 * kRow)}), Ints({0}), Ints({AsInt(4 * kRow)}), Ints({2}),
                       Floats({2 * kRow})};
  });
  add("TensorStridedSliceUpdate", [] {
    return std::vector{Floats({4 * kRow}), Ints({0}), Ints({AsInt(4 * kRow)}), Ints({2}),
                       Floats({2 * kRow})};
  });
  add("SplitV",
      [] {
        return std::vector{Floats({2, 4 * kRow}), Longs({2 * kRow, 2 * kRow}), Tensor::Scalar(1)};
      },
      {{"num_split", int64_t{2}}});
  add("Unpack",
      [] {
        return std::vector{Floats({3 * kRow, 2})};
      },
      {{"num", int64_t{2}}, {"axis", int64_t{1}}});
  add("Igamma", [] { return std::vector{Floats({kRow / 5}), Floats({kRow / 5})}; });
  add("Betainc", [] {
    return std::vector{Floats({kRow / 5}), Tensor::Scalar(2.0f), Tensor::Scalar(0.3f)};
  });
  add("Polygamma", [] { return std::vector{Floats({kRow}), Floats({kRow})}; });
  add("Cross", [] { return std::vector{Floats({kRow, 3}), Floats({kRow, 3})}; });
  add("ClipByValue", [] {
    return std::vector{Floats({4 * kRow}), Tensor::Scalar(-1.0f), Tensor::Scalar(1.0f)};
  });
  add("EuclideanNorm", [] { return std::vector{Floats({4 * kRow}), Ints({0})}; });
  add("LeakyRelu", [] { return std::vector{Floats({6 * kRow})}; });
  add("SoftplusGrad", [] { return std::vector{Floats({kRow}), Floats({kRow})}; });
  add("TensorListFromTensor",
      [] {
        return std::vector{Floats({kRow / 20, 1}), Ints({1})};
      },
      {{"element_dtype", DT_FLOAT}});
}

}  // namespace

std::vector<LongRun> NumberRuns() {
  std::vector<LongRun> runs;
  AddFurther(&runs);
  AddOrders(&runs);
  AddSegments(&runs);
  AddSparse(&runs);
  AddCrossesAndSets(&runs);
  AddCandidates(&runs);
  AddDiagonals(&runs);
  AddMoves(&runs);
  AddScatters(&runs);
  AddVolumes(&runs);
  AddImages(&runs);
  AddRandoms(&runs);
  AddLists(&runs);
  return runs;
}

}  // namespace monograph::testing
