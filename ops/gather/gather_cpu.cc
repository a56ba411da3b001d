#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "executor/kernel.h"
#include "ops/copy_elements_cpu.h"
#include "ops/gather/plan.h"
#include "ops/kernel_util.h"

namespace monograph::ops::gather {
namespace {

Status OutOfBounds(int64_t position, int64_t index, int64_t limit) {
  return InvalidArgument("indices[" + std::to_string(position) + "] = " + std::to_string(index) +
                         " is not in [0, " + std::to_string(limit) + ")");
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
    for (int64_t i = 0; i < batch * count; ++i) {
      if (index[i] < 0 || index[i] >= limit) return OutOfBounds(i, index[i], limit);
    }
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
    DispatchSize(DTypeSize(out->dtype()), [&](auto word) {
      using W = decltype(word);
      std::fill_n(static_cast<W*>(to), elements, *static_cast<const W*>(off));
      for (int64_t i = 0; i < n; ++i) {
        const auto hot = static_cast<int64_t>(index[i]);
        if (hot < 0 || hot >= depth) continue;
        static_cast<W*>(to)[(i / inner * depth + hot) * inner + i % inner] =
            *static_cast<const W*>(on);
      }
    });
    return Status();
  }

 private:
  const int64_t axis_;
};

class DynamicPartitionKernel : public Kernel {
 public:
  explicit DynamicPartitionKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape data = c.input(0).shape(), partitions = c.input(1).shape();
    const auto part = c.input(1).values<int32_t>();
    const auto n = static_cast<size_t>(c.num_outputs());
    bool fits = partitions.rank() <= data.rank() && data.rank() - partitions.rank() < kMaxRank;
    for (int i = 0; i < partitions.rank() && fits; ++i) fits = partitions.dim(i) == data.dim(i);
    if (!fits) {
      return InvalidArgument("data of shape " + data.ToString() +
                             " does not begin with the shape " + partitions.ToString() +
                             " of partitions");
    }
    std::vector<int64_t> rows(n);
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] < 0 || static_cast<size_t>(part[i]) >= n) {
        return InvalidArgument("partitions[" + std::to_string(i) +
                               "] = " + std::to_string(part[i]) + " is not in [0, " +
                               std::to_string(n) + ")");
      }
      ++rows[static_cast<size_t>(part[i])];
    }
    std::vector<char*> to(n);
    size_t bytes = DTypeSize(c.input(0).dtype());
    for (int i = partitions.rank(); i < data.rank(); ++i) bytes *= static_cast<size_t>(data.dim(i));
    for (size_t p = 0; p < n; ++p) {
      Shape shape{rows[p]};
      for (int i = partitions.rank(); i < data.rank(); ++i) shape.AddDim(data.dim(i));
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(p), shape));
      to[p] = static_cast<char*>(out->raw());
    }
    if (bytes == 0) return Status();
    const char* from = static_cast<const char*>(c.input(0).raw());
    for (size_t i = 0; i < part.size(); ++i) {
      char*& next = to[static_cast<size_t>(part[i])];
      std::memcpy(next, from + i * bytes, bytes);
      next += bytes;
    }
    return Status();
  }
};

class DynamicStitchKernel : public Kernel {
 public:
  explicit DynamicStitchKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const int n = c.num_inputs() / 2;
    int64_t rows = 0;
    Shape row;
    for (int i = 0; i < n; ++i) {
      const Shape indices = c.input(i).shape(), data = c.input(n + i).shape();
      Shape tail;
      bool fits = data.rank() >= indices.rank();
      for (int d = 0; d < data.rank() && fits; ++d) {
        if (d < indices.rank()) {
          fits = indices.dim(d) == data.dim(d);
        } else {
          tail.AddDim(data.dim(d));
        }
      }
      if (i == 0) row = tail;
      if (!fits || !(row == tail)) {
        return InvalidArgument("data[" + std::to_string(i) + "] of shape " + data.ToString() +
                               " fits neither its indices of shape " + indices.ToString() +
                               " nor rows of shape " + row.ToString());
      }
      for (int32_t index : c.input(i).values<int32_t>()) {
        if (index < 0) return InvalidArgument("index " + std::to_string(index) + " is negative");
        rows = std::max<int64_t>(rows, index + int64_t{1});
      }
    }
    Shape shape{rows};
    if (row.rank() == kMaxRank)
      return InvalidArgument("the result would have more than 8 dimensions");
    for (int64_t dim : row.dims()) shape.AddDim(dim);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const size_t bytes = static_cast<size_t>(row.elements()) * DTypeSize(out->dtype());
    std::memset(out->raw(), 0, out->bytes());  // rows that no index names
    if (bytes == 0) return Status();
    for (int i = 0; i < n; ++i) {
      const auto indices = c.input(i).values<int32_t>();
      const char* from = static_cast<const char*>(c.input(n + i).raw());
      for (size_t k = 0; k < indices.size(); ++k) {
        std::memcpy(static_cast<char*>(out->raw()) + static_cast<size_t>(indices[k]) * bytes,
                    from + k * bytes, bytes);
      }
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
    for (size_t i = 0; i < id.size(); ++i) {
      if (id[i] >= segments) {
        return InvalidArgument("segment_ids[" + std::to_string(i) + "] = " + std::to_string(id[i]) +
                               " is out of range [0, " + std::to_string(segments) + ")");
      }
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    T* to = out->data<T>();
    std::fill_n(to, plan.output.elements(), T(0));
    const T* from = c.input(0).data<T>();
    c.ParallelFor(columns, 1 + static_cast<int64_t>(id.size()), [=](int64_t begin, int64_t end) {
      for (size_t i = 0; i < id.size(); ++i) {
        if (id[i] < 0) continue;
        T* sum = to + static_cast<int64_t>(id[i]) * columns;
        const T* row = from + static_cast<int64_t>(i) * columns;
        for (int64_t k = begin; k < end; ++k) sum[k] = T(sum[k] + row[k]);
      }
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
