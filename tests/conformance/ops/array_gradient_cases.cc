#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/optional/optional.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/tensor_list/tensor_list.h"
#include "ops/transpose/transpose.h"
#include "tests/conformance/ops/gradient_cases.h"

namespace monograph::optest {
namespace {

// GatherV2 along `axis` with one batch dimension.
Outputs BatchGather(const Scope& s, const Output& params, const Shape& shape,
                    std::initializer_list<int32_t> indices, int axis) {
  return {OpBuilder(s, "GatherV2")
              .Input(params)
              .Input(Const<int32_t>(s, shape, indices))
              .Input(Const(s, axis))
              .Attr("batch_dims", 1)
              .BuildOutput()};
}

}  // namespace

std::vector<GradientCase> ArrayGradientCases() {
  using In = const Outputs&;
  using S = const Scope&;
  return {
      {"Identity", [](S s, In x) { return Outputs{Identity(s, x[0])}; }, {{2, 3}}},
      {"IdentityN", [](S s, In x) { return IdentityN(s, x); }, {{2}, {3}}},
      {"IdentityN of which one output is used",
       [](S s, In x) { return Outputs{IdentityN(s, x)[1]}; },
       {{2}, {3}}},
      {"CheckNumerics",
       [](S s, In x) { return Outputs{CheckNumerics(s, x[0], "finite")}; },
       {{2, 3}}},
      {"PlaceholderWithDefault",
       [](S s, In x) {
         return Outputs{PlaceholderWithDefault(s, x[0], PartialShape{2, 3})};
       },
       {{2, 3}}},
      {"Fill",
       [](S s, In x) {
         return Outputs{Fill(s, IntsConst(s, {2, 3}), x[0])};
       },
       {Shape()}},
      {"Reshape",
       [](S s, In x) {
         return Outputs{Reshape(s, x[0], {3, -1})};
       },
       {{2, 3}}},
      {"ExpandDims", [](S s, In x) { return Outputs{ExpandDims(s, x[0], 1)}; }, {{2, 3}}},
      {"Squeeze", [](S s, In x) { return Outputs{Squeeze(s, x[0], {1})}; }, {{2, 1, 3}}},
      {"BroadcastTo",
       [](S s, In x) {
         return Outputs{BroadcastTo(s, x[0], IntsConst(s, {4, 2, 3}))};
       },
       {{2, 1}}},
      {"Transpose",
       [](S s, In x) {
         return Outputs{Transpose(s, x[0], {2, 0, 1})};
       },
       {{2, 3, 4}}},
      {"Transpose by a permutation that is computed",
       [](S s, In x) {
         return Outputs{Transpose(s, x[0], InvertPermutation(s, IntsConst(s, {2, 0, 1})))};
       },
       {{2, 3, 4}}},
      {"ReverseV2",
       [](S s, In x) { return Outputs{Reverse(s, x[0], IntsConst(s, {1}))}; },
       {{2, 3}}},
      {"ConcatV2", [](S s, In x) { return Outputs{Concat(s, x, 1)}; }, {{2, 3}, {2, 1}}},
      {"ConcatV2 along the last axis from the end",
       [](S s, In x) { return Outputs{Concat(s, x, -1)}; },
       {{2, 3}, {2, 1}}},
      {"Split", [](S s, In x) { return Split(s, x[0], 2, 1); }, {{2, 4}}},
      {"Split of which one output is used",
       [](S s, In x) { return Outputs{Split(s, x[0], 2, 0)[1]}; },
       {{2, 4}}},
      {"SplitV",
       [](S s, In x) {
         const int64_t sizes[] = {1, 3};
         return SplitV(s, x[0], sizes, 1);
       },
       {{2, 4}}},
      {"Pack", [](S s, In x) { return Outputs{Pack(s, x, 1)}; }, {{2, 3}, {2, 3}}},
      {"Unpack", [](S s, In x) { return Unpack(s, x[0], 3, 1); }, {{2, 3}}},
      {"Unpack of which one output is used",
       [](S s, In x) { return Outputs{Unpack(s, x[0], 3, 1)[2]}; },
       {{2, 3}}},
      {"Slice",
       [](S s, In x) {
         return Outputs{Slice(s, x[0], {1, 0}, {1, -1})};
       },
       {{3, 4}}},
      {"StridedSlice",
       [](S s, In x) {
         return Outputs{StridedSlice(s, x[0], IntsConst(s, {0, 3}), IntsConst(s, {0, 0}),
                                     IntsConst(s, {2, -2}), {.end_mask = 1})};
       },
       {{3, 4}}},
      {"StridedSlice that takes a row",
       [](S s, In x) { return Outputs{Row(s, x[0], 1)}; },
       {{3, 4}}},
      {"StridedSliceGrad",
       [](S s, In x) {
         return Outputs{OpBuilder(s, "StridedSliceGrad")
                            .Input(IntsConst(s, {5}))
                            .Input(IntsConst(s, {1}))
                            .Input(IntsConst(s, {5}))
                            .Input(IntsConst(s, {2}))
                            .Input(x[0])
                            .BuildOutput()};
       },
       {Shape{2}}},
      {"Tile",
       [](S s, In x) {
         return Outputs{Tile(s, x[0], IntsConst(s, {2, 3}))};
       },
       {{2, 3}}},
      {"Tile of seven dimensions",
       [](S s, In x) {
         return Outputs{Tile(s, x[0], IntsConst(s, {2, 1, 3, 1, 2, 1, 2}))};
       },
       {{1, 2, 2, 1, 3, 1, 1}}},
      {"Pad",
       [](S s, In x) {
         return Outputs{Pad(s, x[0], Const<int32_t>(s, Shape{2, 2}, {1, 0, 2, 1}))};
       },
       {{2, 3}}},
      {"PadV2",
       [](S s, In x) {
         return Outputs{
             PadV2(s, x[0], Const<int32_t>(s, Shape{2, 2}, {1, 0, 2, 1}), Const(s, 5.0))};
       },
       {{2, 3}}},
      {"GatherV2 along axis 0, an index twice",
       [](S s, In x) {
         return Outputs{Gather(s, x[0], Const<int32_t>(s, Shape{2, 2}, {0, 2, 2, 1}))};
       },
       {{3, 2}}},
      {"GatherV2 along axis 1",
       [](S s, In x) {
         return Outputs{Gather(s, x[0], Const<int64_t>(s, {2, 0, 2}), 1)};
       },
       {{2, 3, 2}}},
      {"GatherV2 in batches",
       [](S s, In x) {
         return BatchGather(s, x[0], {2, 3}, {1, 0, 1, 2, 2, 0}, 1);
       },
       {{2, 3, 2}}},
      {"GatherV2 in batches, further inside",
       [](S s, In x) {
         return BatchGather(s, x[0], {2, 2}, {3, 0, 2, 2}, 2);
       },
       {{2, 3, 4}}},
      {"GatherV2 in batches, one index each",
       [](S s, In x) {
         return BatchGather(s, x[0], {2}, {1, 2}, 1);
       },
       {{2, 3}}},
      {"DynamicPartition of which one part is not used",
       [](S s, In x) {
         const Outputs parts = DynamicPartition(s, x[0], Const<int32_t>(s, {1, 2, 1, 0}), 3);
         return Outputs{parts[0], parts[1]};
       },
       {{4, 2}}},
      {"GatherV2 twice from one tensor that something else uses, too",
       [](S s, In x) {
         return Outputs{Gather(s, x[0], Const<int32_t>(s, {0, 2, 2})),
                        Gather(s, x[0], Const<int64_t>(s, Shape{1, 2}, {1, 2})), Identity(s, x[0])};
       },
       {{3, 2}}},
      {"GatherV2 twice, indices of two types",
       [](S s, In x) {
         return Outputs{Gather(s, x[0], Const<int32_t>(s, {0, 2, 2})),
                        Gather(s, x[0], Const<int64_t>(s, {1, 2}))};
       },
       {{3, 2}}},
      {"GatherV2 of what was computed",
       [](S s, In x) {
         return Outputs{
             Gather(s, Identity(s, Transpose(s, x[0], {1, 0})), Const<int32_t>(s, {0, 2, 2}))};
       },
       {{2, 3}}},
      {"DynamicStitch",
       [](S s, In x) {
         return Outputs{
             DynamicStitch(s, {Const<int32_t>(s, {0, 2}), Const<int32_t>(s, {1})}, {x[0], x[1]})};
       },
       {{2, 3}, {1, 3}}},
      {"UnsortedSegmentSum with a negative id",
       [](S s, In x) {
         return Outputs{UnsortedSegmentSum(s, x[0], Const<int32_t>(s, {1, -1, 1, 0}), Const(s, 3))};
       },
       {{4, 2}}},
      {"Select by rows",
       [](S s, In x) {
         return Outputs{SelectV1(s, Const<bool>(s, {true, false}), x[0], x[1])};
       },
       {{2, 3}, {2, 3}}},
      {"SelectV2 that broadcasts",
       [](S s, In x) {
         return Outputs{Select(s, Const<bool>(s, {true, false, true}), x[0], x[1])};
       },
       {{2, 3}, {2, 1}}},
      {"TensorList from a tensor, changed and stacked",
       [](S s, In x) {
         const Output shape = Const(s, {2}), list = TensorListFromTensor(s, x[0], shape);
         const Output changed = TensorListSetItem(s, list, Const(s, 1), x[1]);
         return Outputs{TensorListStack(s, changed, shape, DT_DOUBLE),
                        TensorListGetItem(s, list, Const(s, 1), shape, DT_DOUBLE)};
       },
       {{3, 2}, Shape{2}}},
      {"TensorList pushed and popped",
       [](S s, In x) {
         const Output any = Const(s, -1);
         Output list = EmptyTensorList(s, any, Const(s, -1), DT_DOUBLE);
         for (const Output& element : {x[0], x[1], x[2]})
           list = TensorListPushBack(s, list, element);
         const TensorListPopBackOutputs popped = TensorListPopBack(s, list, any, DT_DOUBLE);
         return Outputs{Square(s, popped.tensor), TensorListStack(s, popped.list, any, DT_DOUBLE)};
       },
       {Shape{2}, Shape{2}, Shape{2}}},
      {"TensorList popped, the rest unused",
       [](S s, In x) {
         const Output any = Const(s, -1), list = TensorListFromTensor(s, x[0], any);
         return Outputs{TensorListPopBack(s, list, any, DT_DOUBLE).tensor};
       },
       {{3, 2}}},
      {"TensorList scattered and gathered",
       [](S s, In x) {
         const Output shape = Const(s, {2});
         const Output list =
             TensorListScatter(s, x[0], Const<int32_t>(s, {2, 0}), shape, Const(s, 4));
         const Output more =
             TensorListScatterIntoExistingList(s, list, x[1], Const<int32_t>(s, {0, 5}));
         return Outputs{
             TensorListGather(s, more, Const<int32_t>(s, {5, 2, 0, 2}), shape, DT_DOUBLE)};
       },
       {{2, 2}, {2, 2}}},
      {"TensorList split and joined",
       [](S s, In x) {
         const Output shape = Const<int32_t>(s, {-1, 2});
         const Output list = TensorListSplit(s, x[0], shape, Const<int64_t>(s, {1, 0, 2}));
         const Output longer = TensorListResize(s, list, Const(s, 4));
         return Outputs{
             TensorListConcat(s, longer, shape, Const<int64_t>(s, {0, 0, 0, 2}), DT_DOUBLE).tensor};
       },
       {{3, 2}}},
      {"OptionalFromValue of which one component is used",
       [](S s, In x) {
         return Outputs{OptionalGetValue(s, OptionalFromValue(s, x), {DT_DOUBLE, DT_DOUBLE},
                                         {PartialShape{2}, PartialShape()})[1]};
       },
       {Shape{2}, Shape{3}}},
      // Exact in both types, so that the step may be large.
      {"Cast to a float and back",
       [](S s, In x) { return Outputs{Cast(s, Cast(s, x[0], DT_FLOAT), DT_DOUBLE)}; },
       {Shape{3}},
       0,
       0,
       {{0.5, -1.25, 2.0}},
       true,
       0.25},
  };
}

}  // namespace monograph::optest
