// CPU kernels. The plans (gather/plan.h) turn shapes into numbers of blocks and rows; the kernels
// check the indices and move the rows. Only UnsortedSegmentSum computes, so only it is compiled for
// each type of element.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

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
class GatherKernel : public Kernel {
 public:
  explicit GatherKernel(const KernelConstruction& k)
      : batch_dims_(k.attrs().GetOr<int64_t>("batch_dims", 0)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(c.input(0).shape(), c.input(1).shape(),
                                                          c.input(2), batch_dims_));
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
                  [=, dtype = out->dtype()](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t block = i / count, b = block / outer;
                      const int64_t row = block * limit + index[b * count + i % count];
                      CopyElements(dtype, from + static_cast<size_t>(row) * bytes,
                                   to + static_cast<size_t>(i) * bytes, bytes);
                    }
                  });
    return Status();
  }

 private:
  const int64_t batch_dims_;
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

// Rows are added in their order, so the result does not depend on threads: each thread has columns
// of its own.
template <typename T, typename Index>
class SegmentSumKernel : public Kernel {
 public:
  explicit SegmentSumKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const SegmentPlan plan, PlanSegments(c));
    const int64_t segments = plan.segments, columns = plan.columns;
    const auto id = c.input(1).values<Index>();
    const auto ids = static_cast<int64_t>(id.size());
    int64_t wrong = ids;
    InPieces(c, ids, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && wrong == ids; ++i) {
        if (id[static_cast<size_t>(i)] >= segments) wrong = i;
      }
    });
    if (wrong < ids) {
      return InvalidArgument("segment_ids[" + std::to_string(wrong) +
                             "] = " + std::to_string(id[static_cast<size_t>(wrong)]) +
                             " is out of range [0, " + std::to_string(segments) + ")");
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    T* to = out->data<T>();
    c.ParallelFor(plan.output.elements(), 1,
                  [to](int64_t begin, int64_t end) { std::fill_n(to + begin, end - begin, T(0)); });
    const T* from = c.input(0).data<T>();
    c.ParallelFor(columns, 1 + ids, [=, &c](int64_t first, int64_t last) {
      InPieces(c, ids, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto segment = static_cast<int64_t>(id[static_cast<size_t>(i)]);
          if (segment < 0) continue;
          T* sum = to + segment * columns;
          const T* row = from + i * columns;
          for (int64_t k = first; k < last; ++k) sum[k] = T(sum[k] + row[k]);
        }
      });
    });
    return Status();
  }
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
#define MG_ADD(T)                                                       \
  registry->Add<SegmentSumKernel<T, int32_t>>(                          \
      with(with(segment_sum, "Tindices", DT_INT32), "T", kDTypeOf<T>)); \
  registry->Add<SegmentSumKernel<T, int64_t>>(                          \
      with(with(segment_sum, "Tindices", DT_INT64), "T", kDTypeOf<T>));
  MG_NUMBER_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::gather
