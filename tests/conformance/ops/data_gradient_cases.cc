#include <initializer_list>
#include <string>

#include "ops/array/array.h"
#include "ops/constant/constant.h"
#include "ops/diag/diag.h"
#include "ops/order/order.h"
#include "ops/rearrange/rearrange.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "ops/segment/segment.h"
#include "ops/sparse/sparse.h"
#include "ops/transpose/transpose.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

Output Node(const Scope& s, const char* op, const Outputs& inputs) {
  OpBuilder builder(s, op);
  for (const Output& input : inputs) builder.Input(input);
  return builder.BuildOutput();
}

Output Ids(const Scope& s) { return Const<int32_t>(s, {0, 0, 2, 2}); }
Output Mixed(const Scope& s) { return Const<int32_t>(s, {1, -1, 1, 0}); }
Output Rows(const Scope& s) { return Const<int32_t>(s, {2, 0, 2, 1}); }
Output Cells(const Scope& s) { return Const<int64_t>(s, Shape{3, 2}, {0, 1, 0, 3, 2, 0}); }

Output Indices(const Scope& s) { return Const<int32_t>(s, Shape{3, 1}, {2, 0, 2}); }

}  // namespace

std::vector<GradientCase> DataGradientCases() {
  using In = const Outputs&;
  using S = const Scope&;
  return {
      {"Gather",
       [](S s, In x) {
         return Outputs{Node(s, "Gather", {x[0], Const<int32_t>(s, {1, 0, 1})})};
       },
       {{2, 3}}},
      {"Concat",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "Concat").Input(Const(s, 1)).Inputs(x).BuildOutput()};
       },
       {{2, 3}, {2, 1}}},
      {"Reverse",
       [](S s, In x) {
         return Outputs{Node(s, "Reverse", {x[0], Const<bool>(s, {true, false})})};
       },
       {{2, 3}}},
      {"GatherNd of rows",
       [](S s, In x) { return Outputs{GatherNd(s, x[0], Indices(s))}; },
       {{3, 2}}},
      {"GatherNd of elements",
       [](S s, In x) {
         return Outputs{GatherNd(s, x[0], Const<int64_t>(s, Shape{2, 2}, {2, 1, 0, 0}))};
       },
       {{3, 2}}},
      {"ScatterNd",
       [](S s, In x) {
         return Outputs{ScatterNd(s, Indices(s), x[0], Const<int32_t>(s, {4, 2}))};
       },
       {{3, 2}}},
      {"TensorScatterUpdate",
       [](S s, In x) {
         return Outputs{TensorScatterUpdate(s, x[0], Const<int32_t>(s, Shape{2, 1}, {2, 0}), x[1])};
       },
       {{4, 2}, {2, 2}}},
      {"TensorScatterAdd",
       [](S s, In x) { return Outputs{TensorScatterAdd(s, x[0], Indices(s), x[1])}; },
       {{4, 2}, {3, 2}}},
      {"TensorScatterSub",
       [](S s, In x) { return Outputs{TensorScatterSub(s, x[0], Indices(s), x[1])}; },
       {{4, 2}, {3, 2}}},
      {"ScatterNdNonAliasingAdd",
       [](S s, In x) {
         return Outputs{Node(s, "ScatterNdNonAliasingAdd", {x[0], Indices(s), x[1]})};
       },
       {{4, 2}, {3, 2}}},
      {"TensorScatterMax",
       [](S s, In x) {
         return Outputs{Node(s, "TensorScatterMax", {x[0], Indices(s), x[1]})};
       },
       {{3}, {3}},
       0,
       0,
       {{1, 2, 3}, {0.5, 4, 2.5}}},
      {"TensorScatterMin",
       [](S s, In x) {
         return Outputs{Node(s, "TensorScatterMin", {x[0], Indices(s), x[1]})};
       },
       {{3}, {3}},
       0,
       0,
       {{1, 2, 3}, {0.5, 4, 2.5}}},
      {"TensorStridedSliceUpdate",
       [](S s, In x) {
         return Outputs{
             Node(s, "TensorStridedSliceUpdate",
                  {x[0], IntsConst(s, {0, 2}), IntsConst(s, {2, 0}), IntsConst(s, {1, -1}), x[1]})};
       },
       {{3, 3}, {2, 2}}},
      {"Roll",
       [](S s, In x) {
         return Outputs{Roll(s, x[0], Const<int32_t>(s, {1, -1}), Const<int32_t>(s, {0, 1}))};
       },
       {{3, 4}}},
      {"ReverseSequence",
       [](S s, In x) {
         return Outputs{ReverseSequence(s, x[0], Const<int64_t>(s, {3, 2}), 1)};
       },
       {{2, 4}}},
      {"MirrorPad",
       [](S s, In x) {
         return Outputs{
             MirrorPad(s, x[0], Const<int32_t>(s, Shape{2, 2}, {1, 2, 0, 1}), "REFLECT")};
       },
       {{3, 2}}},
      {"MirrorPadGrad",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "MirrorPadGrad")
                            .Input(x[0])
                            .Input(Const<int32_t>(s, Shape{2, 2}, {1, 2, 0, 1}))
                            .Attr("mode", "SYMMETRIC")
                            .BuildOutput()};
       },
       {{6, 3}}},
      {"SpaceToBatchND",
       [](S s, In x) {
         return Outputs{SpaceToBatchND(s, x[0], Const<int32_t>(s, {2}),
                                       Const<int32_t>(s, Shape{1, 2}, {1, 0}))};
       },
       {{2, 3, 2}}},
      {"BatchToSpaceND",
       [](S s, In x) {
         return Outputs{BatchToSpaceND(s, x[0], Const<int32_t>(s, {2}),
                                       Const<int32_t>(s, Shape{1, 2}, {1, 0}))};
       },
       {{2, 3, 2}}},
      {"SpaceToBatch",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "SpaceToBatch")
                            .Input(x[0])
                            .Input(Const<int32_t>(s, Shape{2, 2}, {1, 0, 0, 0}))
                            .Attr("block_size", 2)
                            .BuildOutput()};
       },
       {{1, 3, 2, 1}}},
      {"BatchToSpace",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "BatchToSpace")
                            .Input(x[0])
                            .Input(Const<int32_t>(s, Shape{2, 2}, {1, 0, 0, 0}))
                            .Attr("block_size", 2)
                            .BuildOutput()};
       },
       {{4, 2, 1, 1}}},
      {"SpaceToDepth", [](S s, In x) { return Outputs{SpaceToDepth(s, x[0], 2)}; }, {{1, 2, 4, 2}}},
      {"DepthToSpace by channels first",
       [](S s, In x) { return Outputs{DepthToSpace(s, x[0], 2, "NCHW")}; },
       {{1, 4, 2, 1}}},
      {"TopKV2",
       [](S s, In x) { return Outputs{TopK(s, x[0], Const(s, 2)).values}; },
       {{2, 4}},
       0,
       0,
       {{0.5, 2, -1, 1, 3, 1.5, 0, 2.5}}},
      {"TopK",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "TopK").Input(x[0]).Attr("k", 3).BuildOutput()};
       },
       {{4}},
       0,
       0,
       {{0.5, 2, -1, 1}}},
      {"NthElement",
       [](S s, In x) { return Outputs{NthElement(s, x[0], Const(s, 1))}; },
       {{2, 4}},
       0,
       0,
       {{0.5, 2, -1, 1, 3, 1.5, 0, 2.5}}},
      {"EnsureShape",
       [](S s, In x) {
         return Outputs{EnsureShape(s, x[0], PartialShape{-1, 3})};
       },
       {{2, 3}}},
      {"Diag", [](S s, In x) { return Outputs{Diag(s, x[0])}; }, {{3}}},
      {"DiagPart", [](S s, In x) { return Outputs{DiagPart(s, x[0])}; }, {{2, 3, 2, 3}}},
      {"Print",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "Print")
                            .Input(x[0])
                            .Attr("U", AttrValue(std::vector<DType>()))
                            .Attr("first_n", 0)
                            .BuildOutput()};
       },
       {{2, 3}}},
      {"SegmentSum", [](S s, In x) { return Outputs{SegmentSum(s, x[0], Ids(s))}; }, {{4, 2}}},
      {"SegmentMean", [](S s, In x) { return Outputs{SegmentMean(s, x[0], Ids(s))}; }, {{4, 2}}},
      {"SegmentProd",
       [](S s, In x) { return Outputs{SegmentProd(s, x[0], Ids(s))}; },
       {{4, 2}},
       0,
       0,
       {{0.5, 2, -1, 0, 3, 0, 2, 0}}},
      {"SegmentMin",
       [](S s, In x) { return Outputs{SegmentMin(s, x[0], Ids(s))}; },
       {{4}},
       0,
       0,
       {{0.5, 2, -1, 1}}},
      {"SegmentMax",
       [](S s, In x) { return Outputs{SegmentMax(s, x[0], Ids(s))}; },
       {{4}},
       0,
       0,
       {{0.5, 2, -1, 1}}},
      {"UnsortedSegmentProd",
       [](S s, In x) { return Outputs{UnsortedSegmentProd(s, x[0], Mixed(s), Const(s, 3))}; },
       {{4, 2}},
       0,
       0,
       {{0.5, 2, -1, 1, 3, 0, 2, 1.5}}},
      {"UnsortedSegmentMin",
       [](S s, In x) { return Outputs{UnsortedSegmentMin(s, x[0], Mixed(s), Const(s, 2))}; },
       {{4}},
       0,
       0,
       {{0.5, 2, -1, 1}}},
      {"UnsortedSegmentMax",
       [](S s, In x) { return Outputs{UnsortedSegmentMax(s, x[0], Mixed(s), Const(s, 2))}; },
       {{4}},
       0,
       0,
       {{0.5, 2, -1, 1}}},
      {"SparseSegmentSum",
       [](S s, In x) { return Outputs{SparseSegmentSum(s, x[0], Rows(s), Ids(s))}; },
       {{3, 2}}},
      {"SparseSegmentMean",
       [](S s, In x) { return Outputs{SparseSegmentMean(s, x[0], Rows(s), Ids(s))}; },
       {{3, 2}}},
      {"SparseSegmentSqrtN",
       [](S s, In x) { return Outputs{SparseSegmentSqrtN(s, x[0], Rows(s), Ids(s))}; },
       {{3, 2}}},
      {"SparseSegment... with a number of segments",
       [](S s, In x) {
         Outputs sums;
         for (const char* kind : {"Sum", "Mean", "SqrtN"}) {
           const std::string op = std::string("SparseSegment") + kind + "WithNumSegments";
           sums.push_back(Node(s, op.c_str(), {x[0], Rows(s), Ids(s), Const(s, 4)}));
         }
         return sums;
       },
       {{3, 2}}},
      {"SparseToDense",
       [](S s, In x) {
         return Outputs{SparseToDense(s, Cells(s), Const<int64_t>(s, {3, 4}), x[0], x[1])};
       },
       {{3}, Shape()}},
      {"SparseReorder",
       [](S s, In x) {
         const Output cells = Reverse(s, Cells(s), IntsConst(s, {0}));
         return Outputs{SparseReorder(s, {cells, x[0], Const<int64_t>(s, {3, 4})}).values};
       },
       {{3}}},
      {"SparseSlice",
       [](S s, In x) {
         return Outputs{Operation(Node(s, "SparseSlice",
                                       {Cells(s), x[0], Const<int64_t>(s, {3, 4}),
                                        Const<int64_t>(s, {0, 1}), Const<int64_t>(s, {2, 3})}))
                            .output(1)};
       },
       {{3}}},
      {"SparseFillEmptyRows",
       [](S s, In x) {
         return Outputs{SparseFillEmptyRows(s, {Cells(s), x[0], Const<int64_t>(s, {5, 4})}, x[1])
                            .output.values};
       },
       {{3}, Shape()}},
      {"SparseReduceSum",
       [](S s, In x) {
         const auto reduced = [&](const Output& axes) {
           return Node(s, "SparseReduceSum", {Cells(s), x[0], Const<int64_t>(s, {3, 4}), axes});
         };
         return Outputs{reduced(IntsConst(s, {-1})), reduced(IntsConst(s, {0, 1})),
                        reduced(Const<int32_t>(s, std::initializer_list<int32_t>{}))};
       },
       {{3}}},
      {"SparseTensorDenseMatMul",
       [](S s, In x) {
         return Outputs{
             SparseTensorDenseMatMul(s, {Cells(s), x[0], Const<int64_t>(s, {3, 4})}, x[1])};
       },
       {{3}, {4, 2}}},
      {"SparseTensorDenseMatMul of transposed matrices",
       [](S s, In x) {
         return Outputs{SparseTensorDenseMatMul(s, {Cells(s), x[0], Const<int64_t>(s, {3, 4})},
                                                x[1], true, true)};
       },
       {{3}, {2, 3}}},
      {"SparseAdd",
       [](S s, In x) {
         const Output shape = Const<int64_t>(s, {3, 4});
         const Output others = Const<int64_t>(s, Shape{2, 2}, {0, 3, 1, 1});
         return Outputs{SparseAdd(s, {Cells(s), x[0], shape}, {others, x[1], shape},
                                  ScalarConst(s, 0, DT_DOUBLE))
                            .values};
       },
       {{3}, {2}}},
      {"SparseTensorDenseAdd",
       [](S s, In x) {
         return Outputs{SparseTensorDenseAdd(s, {Cells(s), x[0], Const<int64_t>(s, {3, 4})}, x[1])};
       },
       {{3}, {3, 4}}},
      {"SparseDenseCwiseMul and Div",
       [](S s, In x) {
         Outputs results;
         for (const char* op : {"SparseDenseCwiseMul", "SparseDenseCwiseDiv"}) {
           for (size_t dense = 1; dense < x.size(); ++dense) {
             results.push_back(Node(s, op, {Cells(s), x[0], Const<int64_t>(s, {3, 4}), x[dense]}));
           }
         }
         return results;
       },
       {{3}, {3, 4}, {4}, {3, 1}, Shape()},
       1,
       2},
      {"SparseSoftmax",
       [](S s, In x) {
         const Output cells =
             Const<int64_t>(s, Shape{5, 3}, {0, 0, 1, 0, 0, 2, 0, 1, 0, 1, 1, 0, 1, 1, 2});
         return Outputs{SparseSoftmax(s, {cells, x[0], Const<int64_t>(s, {2, 2, 3})}).values};
       },
       {{5}}},
  };
}

}  // namespace monograph::optest
