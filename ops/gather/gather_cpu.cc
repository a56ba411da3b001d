// CPU kernels. The plans (gather/plan.h) turn shapes into numbers of blocks and rows; the kernels
// check the indices and move the rows. Only UnsortedSegmentSum computes, so only it is compiled for
// each type of element.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/independent_loop.h"
#include "executor/kernel.h"
#include "ops/check_indices.h"
#include "ops/cpu/copy_elements_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/gather/plan.h"
#include "ops/gpu/moves.h"
#include "ops/words.h"

namespace monograph::ops::gather {
namespace {

// Rows of so many bytes that are copied between two looks at cancellation.
int64_t RowsOfPiece(size_t bytes) {
  return std::max<int64_t>(1, (int64_t{1} << 20) / static_cast<int64_t>(bytes + 1));
}

template <typename Index>
class GatherKernel : public Kernel {  // also Gather, along axis 0
 public:
  explicit GatherKernel(const KernelConstruction& k)
      : batch_dims_(k.attrs().GetOr<int64_t>("batch_dims", 0)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const GatherPlan plan,
                        PlanGather(c.input(0).shape(), c.input(1).shape(),
                                   c.num_inputs() > 2 ? c.input(2) : axis_0_, batch_dims_));
    const int64_t batch = plan.batch, outer = plan.outer, count = plan.count, limit = plan.limit;
    const Index* index = c.input(1).data<Index>();
    Status in_range;
    InPieces(c, c.input(1).elements(), [&](int64_t begin, int64_t end) {
      in_range.Update(CheckIndices(std::span(index + begin, index + end), limit, "indices", begin));
    });
    MG_RETURN_IF_ERROR(in_range);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const size_t bytes = static_cast<size_t>(plan.inner) * DTypeSize(out->dtype());
    if (out->bytes() == 0) return Status();
    const char* from = static_cast<const char*>(c.input(0).raw());
    char* to = static_cast<char*>(out->raw());
    c.ParallelFor(batch * outer * count, 3 + static_cast<int64_t>(bytes / 8),
                  [=, &c, dtype = out->dtype()](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t block = i / count, b = block / outer;
                      const int64_t row = block * limit + index[b * count + i % count];
                      CopyElements(c, dtype, from + static_cast<size_t>(row) * bytes,
                                   to + static_cast<size_t>(i) * bytes, bytes);
                    }
                  });
    return Status();
  }

 private:
  const int64_t batch_dims_;
  const Tensor axis_0_ = Tensor::Scalar<int32_t>(0);
};

template <typename Index>
class OneHotKernel : public Kernel {
 public:
  explicit OneHotKernel(const KernelConstruction& k) : axis_(k.attr<int64_t>("axis")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const OneHotPlan plan, PlanOneHot(c, axis_));
    const int64_t depth = plan.depth, inner = plan.inner;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const Index* index = c.input(0).data<Index>();
    const int64_t n = c.input(0).elements();
    const void *on = c.input(2).raw(), *off = c.input(3).raw();
    void* to = out->raw();
    const int64_t elements = plan.output.elements();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using W = decltype(word);
      W* const words = static_cast<W*>(to);
      const W one = *static_cast<const W*>(on), zero = *static_cast<const W*>(off);
      c.ParallelFor(elements, 1, [=](int64_t begin, int64_t end) {
        std::fill_n(words + begin, end - begin, zero);
      });
      InPieces(c, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto hot = static_cast<int64_t>(index[i]);
          if (hot < 0 || hot >= depth) continue;
          words[(i / inner * depth + hot) * inner + i % inner] = one;
        }
      });
      return Status();
    });
  }

 private:
  const int64_t axis_;
};

class DynamicPartitionKernel : public Kernel {
 public:
  explicit DynamicPartitionKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const PartitionPlan plan, PlanPartition(c));
    const size_t bytes = plan.row_bytes;
    std::vector<char*> to(plan.rows.size());
    for (size_t p = 0; p < to.size(); ++p) {
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(p), plan.output(p)));
      to[p] = static_cast<char*>(out->raw());
    }
    if (bytes == 0) return Status();
    const char* from = static_cast<const char*>(c.input(0).raw());
    const auto parts = c.input(1).values<int32_t>();
    InPieces(c, static_cast<int64_t>(parts.size()), RowsOfPiece(bytes),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 char*& next = to[static_cast<size_t>(parts[static_cast<size_t>(i)])];
                 std::memcpy(next, from, bytes);
                 next += bytes, from += bytes;
               }
             });
    return Status();
  }
};

class DynamicStitchKernel : public Kernel {
 public:
  explicit DynamicStitchKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const StitchPlan plan, PlanStitch(c));
    const int n = c.num_inputs() / 2;
    const size_t bytes = plan.row_bytes;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    if (out->bytes() == 0) return Status();
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));  // rows that no index names
    for (int i = 0; i < n; ++i) {
      const auto indices = c.input(i).values<int32_t>();
      const char* from = static_cast<const char*>(c.input(n + i).raw());
      InPieces(c, static_cast<int64_t>(indices.size()), RowsOfPiece(bytes),
               [&](int64_t begin, int64_t end) {
                 for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
                   std::memcpy(
                       static_cast<char*>(out->raw()) + static_cast<size_t>(indices[k]) * bytes,
                       from + k * bytes, bytes);
                 }
               });
    }
    return Status();
  }
};

// Adds columns [first, last) of row i of `from` to those of row ids[i] of `to`, where that is not
// negative, for i in [begin, end).
using AddRowsFn = void (*)(const void* from, const int64_t* ids, int64_t begin, int64_t end,
                           int64_t columns, int64_t first, int64_t last, void* to);

template <typename T>
void AddRows(const void* from, const int64_t* ids, int64_t begin, int64_t end, int64_t columns,
             int64_t first, int64_t last, void* to) {
  for (int64_t i = begin; i < end; ++i) {
    if (ids[i] < 0) continue;
    T* sum = static_cast<T*>(to) + ids[i] * columns;
    const T* row = static_cast<const T*>(from) + i * columns;
    MG_INDEPENDENT_LOOP
    for (int64_t k = first; k < last; ++k) sum[k] = T(sum[k] + row[k]);
  }
}

AddRowsFn AddRowsOf(DType dtype) {
  switch (dtype) {
#define MG_CASE(T)  \
  case kDTypeOf<T>: \
    return &AddRows<T>;
    MG_NUMBER_TYPES(MG_CASE)
#undef MG_CASE
    default:
      return nullptr;
  }
}

// Rows are added in their order, so the result does not depend on threads: each thread has columns
// of its own.
class SegmentSumKernel : public Kernel {
 public:
  explicit SegmentSumKernel(const KernelConstruction& k) : add_(AddRowsOf(k.input_dtype(0))) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const SegmentPlan plan, PlanSegments(c));
    const int64_t segments = plan.segments, columns = plan.columns;
    const int64_t ids = c.input(1).elements();
    Tensor wide;  // the ids as int64
    if (c.input(1).dtype() == DT_INT32) {
      MG_ASSIGN_OR_RETURN(wide, c.AllocateTemp(DT_INT64, Shape{ids}));
      InPieces(c, ids, [&, from = c.input(1).data<int32_t>()](int64_t begin, int64_t end) {
        std::copy(from + begin, from + end, wide.data<int64_t>() + begin);
      });
    }
    const int64_t* id = (wide.valid() ? std::as_const(wide) : c.input(1)).data<int64_t>();
    int64_t wrong = ids;
    InPieces(c, ids, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && wrong == ids; ++i) {
        if (id[i] >= segments) wrong = i;
      }
    });
    if (wrong < ids) {
      return InvalidArgument("segment_ids[" + std::to_string(wrong) +
                             "] = " + std::to_string(id[wrong]) + " is out of range [0, " +
                             std::to_string(segments) + ")");
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    if (out->bytes() == 0) return Status();
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    c.ParallelFor(columns, 1 + ids,
                  [&, from = c.input(0).raw(), to = out->raw()](int64_t first, int64_t last) {
                    InPieces(c, ids, [&](int64_t begin, int64_t end) {
                      add_(from, id, begin, end, columns, first, last, to);
                    });
                  });
    return Status();
  }

 private:
  const AddRowsFn add_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const KernelDef gather{.op = "GatherV2", .host_args = {"axis"}};
  const auto with = [](KernelDef def, const char* attr, DType dtype) {
    def.types.emplace_back(attr, dtype);
    return def;
  };
  AddForCopiedTypes<GatherKernel<int32_t>>(registry, with(gather, "Tindices", DT_INT32), "Tparams");
  AddForCopiedTypes<GatherKernel<int64_t>>(registry, with(gather, "Tindices", DT_INT64), "Tparams");
  const KernelDef old_gather{.op = "Gather"};
  AddForCopiedTypes<GatherKernel<int32_t>>(registry, with(old_gather, "Tindices", DT_INT32),
                                           "Tparams");
  AddForCopiedTypes<GatherKernel<int64_t>>(registry, with(old_gather, "Tindices", DT_INT64),
                                           "Tparams");
  const KernelDef one_hot{.op = "OneHot", .host_args = {"depth", "on_value", "off_value"}};
  AddForPlainTypes<OneHotKernel<uint8_t>>(registry, with(one_hot, "TI", DT_UINT8));
  AddForPlainTypes<OneHotKernel<int8_t>>(registry, with(one_hot, "TI", DT_INT8));
  AddForPlainTypes<OneHotKernel<int32_t>>(registry, with(one_hot, "TI", DT_INT32));
  AddForPlainTypes<OneHotKernel<int64_t>>(registry, with(one_hot, "TI", DT_INT64));
  AddForPlainTypes<DynamicPartitionKernel>(registry, {.op = "DynamicPartition"});
  for (const char* name : {"DynamicStitch", "ParallelDynamicStitch"}) {
    AddForPlainTypes<DynamicStitchKernel>(registry, {.op = name, .host_args = {"indices"}});
  }
  const KernelDef segment_sum{.op = "UnsortedSegmentSum", .host_args = {"num_segments"}};
  for (DType index : {DT_INT32, DT_INT64}) {
    const KernelDef def = with(segment_sum, "Tindices", index);
    for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64})
      registry->Add<SegmentSumKernel>(with(def, "T", dtype));
  }
}

}  // namespace monograph::ops::gather
