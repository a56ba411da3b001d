// Runs of ops on resources: tables, arrays, queues, readers, accumulators and variables. Each makes
// and fills its resource first. Updates of variables here are those that do not write in place: one
// in place is done to its end (UpdateTarget).
#include "tests/ops/long_runs.h"
#include "tests/temporary_folder.h"

namespace monograph::testing {
namespace {

using Tensors = std::vector<Tensor>;

const Tensor& Flow() {
  static const Tensor flow = Tensor::Scalar(0.0f);
  return flow;
}

// Files live as long as the test.
const TemporaryFolder& Folder() {
  static const TemporaryFolder folder;
  return folder;
}
// A file of so many lines, all different.
Tensor Lines(const std::string& name, int64_t n) {
  std::string text;
  for (int64_t i = 0; i < n; ++i) text += "line " + std::to_string(i) + "\n";
  return Tensor::String(Folder().Write(name, text));
}

Tensor Table(const RunFirst& run, const char* op, DType key = DT_INT64) {
  return run(op, {}, {{"key_dtype", key}, {"value_dtype", DT_INT64}})[0];
}
// Of keys and values 0, 1, 2, ...
Tensor FullTable(const RunFirst& run, int64_t n) {
  const Tensor table = Table(run, "MutableHashTableV2");
  run("LookupTableInsertV2", {table, Numbers<int64_t>(n), Numbers<int64_t>(n)}, {});
  return table;
}

Tensor Array(const RunFirst& run, const PartialShape& shape = {}) {
  return run("TensorArrayV3", {Tensor::Scalar(0)},
             {{"dtype", DT_FLOAT}, {"element_shape", shape}, {"dynamic_size", true}})[0];
}
Tensor FullArray(const RunFirst& run, int64_t n) {
  const Tensor array = Array(run);
  run("TensorArrayScatterV3", {array, Numbers(n), Floats({n, 1}), Flow()}, {});
  return array;
}
Tensor Gradients(const RunFirst& run, const Tensor& array) {
  return run("TensorArrayGradV3", {array, Flow()}, {{"source", "gradients"}})[0];
}

// A queue of rows of this shape.
Tensor Queue(const RunFirst& run, const char* op, std::vector<DType> types, PartialShape shape) {
  return run(op, {},
             {{"component_types", std::move(types)},
              {"shapes", std::vector<PartialShape>{std::move(shape)}}})[0];
}

// A variable that shares its value with others, so that an update makes a new one.
Tensor Variable(const RunFirst& run, const char* name, const Tensor& value) {
  const Tensor handle = run(
      "VarHandleOp", {},
      {{"shared_name", name}, {"dtype", value.dtype()}, {"shape", PartialShape(value.shape())}})[0];
  run("AssignVariableOp", {handle, value}, {{"dtype", value.dtype()}});
  return handle;
}

std::vector<LongRun> TableRuns() {
  const auto fill = [](const char* table) {
    return [table](const RunFirst& run) {
      return Tensors{Table(run, table), Numbers<int64_t>(kMillion), Numbers<int64_t>(kMillion)};
    };
  };
  return {
      {"InitializeTableV2", {}, {}, "", fill("HashTableV2")},
      {"LookupTableInsertV2", {}, {}, "", fill("MutableHashTableV2")},
      {"LookupTableImportV2", {}, {}, "", fill("MutableHashTableV2")},
      {"InitializeTableFromTextFileV2",
       {},
       {{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}},
       "",
       [](const RunFirst& run) {
         return Tensors{Table(run, "HashTableV2", DT_STRING), Lines("vocabulary", kMillion)};
       }},
      {"LookupTableFindV2",
       {},
       {},
       "",
       [](const RunFirst& run) {
         return Tensors{FullTable(run, 100'000), Numbers<int64_t>(4 * kMillion),
                        Tensor::Scalar<int64_t>(-1)};
       }},
      {"LookupTableRemoveV2",
       {},
       {},
       "",
       [](const RunFirst& run) {
         return Tensors{FullTable(run, kMillion), Numbers<int64_t>(kMillion)};
       }},
      {"LookupTableExportV2",
       {},
       {{"Tkeys", DT_INT64}, {"Tvalues", DT_INT64}},
       "",
       [](const RunFirst& run) { return Tensors{FullTable(run, kMillion)}; }},
      {"LookupTableExportV2",
       {},
       {{"Tkeys", DT_INT64}, {"Tvalues", DT_INT64}},
       " of buckets",
       [](const RunFirst& run) {
         return Tensors{run("MutableDenseHashTableV2",
                            {Tensor::Scalar<int64_t>(-1), Tensor::Scalar<int64_t>(-2)},
                            {{"key_dtype", DT_INT64},
                             {"value_dtype", DT_INT64},
                             {"value_shape", PartialShape::Scalar()},
                             {"initial_num_buckets", int64_t{1} << 24}})[0]};
       }},
  };
}

std::vector<LongRun> ArrayRuns() {
  const Attrs floats = {{"dtype", DT_FLOAT}};
  return {
      {"TensorArrayScatterV3",
       {},
       {},
       "",
       [](const RunFirst& run) {
         return Tensors{Array(run), Numbers(kMillion), Floats({kMillion, 1}), Flow()};
       }},
      {"TensorArraySplitV3",
       {},
       {},
       "",
       [](const RunFirst& run) {
         Tensor lengths = Numbers<int64_t>(kMillion);
         std::fill_n(lengths.data<int64_t>(), kMillion, 1);
         return Tensors{Array(run), Floats({kMillion, 1}), lengths, Flow()};
       }},
      {"TensorArrayGatherV3",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         return Tensors{FullArray(run, kMillion), Numbers(kMillion), Flow()};
       }},
      {"TensorArrayConcatV3",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         return Tensors{FullArray(run, kMillion), Flow()};
       }},
      {"TensorArrayGradV3",
       {},
       {{"source", "gradients"}},
       "",
       [](const RunFirst& run) {
         return Tensors{FullArray(run, kMillion), Flow()};
       }},
      {"TensorArrayReadV3",
       {},
       floats,
       " of zeros",
       [](const RunFirst& run) {
         const Tensor array = Array(run, {80 * kMillion});
         return Tensors{Gradients(run, array), Tensor::Scalar(0), Flow()};
       }},
      {"TensorArrayWriteV3",
       {},
       {},
       " of a sum",
       [](const RunFirst& run) {
         const Tensor array = Array(run), term = Floats({50 * kMillion});
         run("TensorArrayWriteV3", {array, Tensor::Scalar(0), term, Flow()}, {});
         const Tensor gradients = Gradients(run, array);
         run("TensorArrayWriteV3", {gradients, Tensor::Scalar(0), term, Flow()}, {});
         return Tensors{gradients, Tensor::Scalar(0), term, Flow()};
       }},
  };
}

std::vector<LongRun> QueueRuns() {
  const auto types = [](const char* name, std::vector<DType> its) { return Attrs{{name, its}}; };
  return {
      {"QueueEnqueueManyV2",
       {},
       types("Tcomponents", {DT_FLOAT}),
       "",
       [](const RunFirst& run) {
         return Tensors{Queue(run, "FIFOQueueV2", {DT_FLOAT}, {1}), Floats({kMillion, 1})};
       }},
      {"QueueEnqueueManyV2",
       {},
       types("Tcomponents", {DT_INT64, DT_FLOAT}),
       " with priorities",
       [](const RunFirst& run) {
         return Tensors{Queue(run, "PriorityQueueV2", {DT_FLOAT}, {1}), Numbers<int64_t>(kMillion),
                        Floats({kMillion, 1})};
       }},
      {"QueueDequeueManyV2",
       {},
       types("component_types", {DT_FLOAT}),
       "",
       [](const RunFirst& run) {
         constexpr int64_t kRows = 300'000;
         const Tensor queue = Queue(run, "FIFOQueueV2", {DT_FLOAT}, {100});
         run("QueueEnqueueManyV2", {queue, Floats({kRows, 100})},
             {{"Tcomponents", std::vector<DType>{DT_FLOAT}}});
         return Tensors{queue, Tensor::Scalar(static_cast<int32_t>(kRows))};
       }},
      {"_BarrierInsertMany",
       {},
       {{"component_index", int64_t{0}}},
       "",
       [](const RunFirst& run) {
         constexpr int64_t kKeys = 300'000;
         Tensor keys = Tensor::Allocate(DT_STRING, Shape{kKeys}).value();
         for (int64_t i = 0; i < kKeys; ++i) keys.strings()[i] = std::to_string(i);
         return Tensors{Queue(run, "_Barrier", {DT_FLOAT}, {1}), keys, Floats({kKeys, 1})};
       }},
      {"ReaderReadUpToV2",
       {},
       {},
       "",
       [](const RunFirst& run) {
         const Tensor queue = Queue(run, "FIFOQueueV2", {DT_STRING}, PartialShape::Scalar());
         run("QueueEnqueueV2", {queue, Lines("lines", kMillion)},
             {{"Tcomponents", std::vector<DType>{DT_STRING}}});
         return Tensors{run("TextLineReaderV2", {}, {})[0], queue, Tensor::Scalar(kMillion)};
       }},
  };
}

std::vector<LongRun> AccumulatorRuns() {
  constexpr int kGradients = 20;  // kept apart, as they have ranks
  constexpr int64_t kElements = 10 * kMillion;
  return {
      {"ResourceAccumulatorTakeGradient",
       {},
       {{"dtype", DT_FLOAT}},
       "",
       [](const RunFirst& run) {
         const Tensor sum = run("ResourceConditionalAccumulator", {},
                                {{"dtype", DT_FLOAT}, {"shape", PartialShape{kElements}}})[0];
         const Tensor gradient = Floats({kElements});
         for (int64_t rank = 0; rank < kGradients; ++rank)
           run("ResourceAccumulatorApplyGradient", {sum, Tensor::Scalar<int64_t>(0), gradient},
               {{"dtype", DT_FLOAT}, {"_mg_rank", rank}});
         return Tensors{sum, Tensor::Scalar(kGradients)};
       }},
      {"MonographSparseAccumulatorTakeGradient",
       {},
       {{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}},
       "",
       [](const RunFirst& run) {
         const Attrs types = {{"dtype", DT_FLOAT}, {"Tindices", DT_INT32}};
         const Tensor sum = run("MonographSparseConditionalAccumulator", {},
                                {{"dtype", DT_FLOAT},
                                 {"Tindices", DT_INT32},
                                 {"shape", PartialShape{5, 8}},
                                 {"reduction_type", "SUM"}})[0];
         const Tensor indices = Zeros(DT_INT32, {kMillion}), rows = Floats({kMillion, 8});
         for (int i = 0; i < kGradients / 2; ++i)
           run("MonographSparseAccumulatorApplyGradient",
               {sum, Tensor::Scalar<int64_t>(0), indices, rows}, types);
         return Tensors{sum, Tensor::Scalar(kGradients / 2)};
       }},
  };
}

std::vector<LongRun> VariableRuns() {
  const Attrs floats = {{"dtype", DT_FLOAT}};
  constexpr int64_t kLarge = 50 * kMillion;
  return {
      {"ResourceGather",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         return Tensors{Variable(run, "v", Floats({5, 1})), Zeros(DT_INT32, {kLarge})};
       }},
      {"ResourceGatherNd",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         return Tensors{Variable(run, "v", Floats({5, 1})), Zeros(DT_INT32, {kLarge, 1})};
       }},
      {"AssignVariableOp",
       {},
       floats,
       " of a small view",
       [](const RunFirst& run) {
         const Tensor handle =
             run("VarHandleOp", {}, {{"dtype", DT_FLOAT}, {"shape", PartialShape()}})[0];
         return Tensors{handle, Floats({2 * kLarge}).Slice(0, kLarge - 5000)};
       }},
      {"AssignAddVariableOp",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         const Tensor value = Floats({kLarge});
         return Tensors{Variable(run, "v", value), value};
       }},
      {"ResourceScatterAdd",
       {},
       floats,
       "",
       [](const RunFirst& run) {
         return Tensors{Variable(run, "v", Floats({1000})), Zeros(DT_INT32, {kLarge}),
                        Floats({kLarge})};
       }},
      {"ResourceScatterNdAdd",
       {},
       {},
       "",
       [](const RunFirst& run) {
         return Tensors{Variable(run, "v", Floats({1000})), Zeros(DT_INT32, {kLarge, 1}),
                        Floats({kLarge})};
       }},
      {"ResourceStridedSliceAssign",
       {},
       {},
       "",
       [](const RunFirst& run) {
         const Tensor value = Floats({2 * kLarge});
         return Tensors{Variable(run, "v", value), Ints({0}), Ints({1}), Ints({1}),
                        value.Slice(0, 1)};
       }},
      {"ResourceApplyGradientDescent",
       {},
       {},
       "",
       [](const RunFirst& run) {
         const Tensor value = Floats({kLarge});
         return Tensors{Variable(run, "v", value), Tensor::Scalar(0.1f), value};
       }},
      {"ResourceSparseApplyAdagrad",
       {},
       {},
       "",
       [](const RunFirst& run) {
         constexpr int64_t kRows = 20 * kMillion;
         return Tensors{Variable(run, "v", Floats({1000, 1})),
                        Variable(run, "a", Floats({1000, 1})), Tensor::Scalar(0.1f),
                        Floats({kRows, 1}), Zeros(DT_INT32, {kRows})};
       }},
  };
}

}  // namespace

std::vector<LongRun> ResourceRuns() {
  std::vector<LongRun> all;
  for (auto runs : {TableRuns(), ArrayRuns(), QueueRuns(), AccumulatorRuns(), VariableRuns()})
    all.insert(all.end(), runs.begin(), runs.end());
  return all;
}

}  // namespace monograph::testing
