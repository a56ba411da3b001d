// GPU kernels. The plans (gather/plan.h) are those of the CPU. Gathering, OneHot and segment sums
// read their indices on the device. DynamicStitch and DynamicPartition need theirs on the host,
// because the shapes of their results depend on them. int32 data lies in host memory, where the
// CPU's kernels compute (AddOnHost), except that OneHot makes it on the device.
#include <vector>

#include "ops/gather/plan.h"
#include "ops/gather/rows_cuda.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::gather {

void RegisterCpu(KernelRegistry* registry);

namespace {

class DeviceGatherKernel : public Kernel {
 public:
  explicit DeviceGatherKernel(const KernelConstruction& k)
      : batch_dims_(k.attrs().GetOr<int64_t>("batch_dims", 0)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(c.input(0).shape(), c.input(1).shape(),
                                                          c.input(2), batch_dims_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    return GatherRows(c, c.input(0).raw(), out->raw(), c.input(1),
                      static_cast<size_t>(plan.inner) * DTypeSize(out->dtype()),
                      plan.batch * plan.outer * plan.count, plan.count, plan.outer, plan.limit);
  }

 private:
  const int64_t batch_dims_;
};

template <typename W>
struct OneHotBody {
  IndexList index;
  const W *on, *off;
  W* out;
  Divisor inner, depth;

  MG_HD void operator()(int64_t i) const {
    const int64_t rest = inner.Divide(i), k = i - rest * inner.divisor();
    const int64_t o = depth.Divide(rest), at = rest - o * depth.divisor();
    out[i] = index[o * inner.divisor() + k] == at ? *on : *off;
  }
};

class DeviceOneHotKernel : public Kernel {
 public:
  explicit DeviceOneHotKernel(const KernelConstruction& k) : axis_(k.attr<int64_t>("axis")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const OneHotPlan plan, PlanOneHot(c, axis_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const int64_t n = plan.output.elements();
    if (n == 0) return Status();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using W = decltype(word);
      return ForEach(
          c, n,
          OneHotBody<W>{IndexList(c.input(0)), c.input(2).data<W>(), c.input(3).data<W>(),
                        out->data<W>(), Divisor(plan.inner), Divisor(plan.depth)});
    });
  }

 private:
  const int64_t axis_;
};

template <typename T>
class DeviceSegmentSumKernel : public Kernel {
 public:
  explicit DeviceSegmentSumKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const SegmentPlan plan, PlanSegments(c));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    MG_RETURN_IF_ERROR(DeviceZero(c, out->raw(), out->bytes()));
    return AddRows<T>(c, out->data<T>(), plan.segments, plan.columns, c.input(1),
                      c.input(0).template data<T>(), false, false);
  }
};

// The rows are moved on the device. The indices are read on the host, since the shape of the result
// depends on them.
class DeviceStitchKernel : public Kernel {
 public:
  explicit DeviceStitchKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const StitchPlan plan, PlanStitch(c));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    if (out->bytes() == 0) return Status();
    std::vector<char*> rows(static_cast<size_t>(plan.rows));  // nullptr: no index names it
    const int n = c.num_inputs() / 2;
    for (int i = 0; i < n; ++i) {
      char* from = static_cast<char*>(const_cast<void*>(c.input(n + i).raw()));
      for (int32_t index : c.input(i).values<int32_t>()) {
        rows[static_cast<size_t>(index)] = from;  // of several the last one
        from += plan.row_bytes;
      }
    }
    return MoveRows<true>(c, rows, plan.row_bytes, static_cast<char*>(out->raw()));
  }
};

class DevicePartitionKernel : public Kernel {
 public:
  explicit DevicePartitionKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const PartitionPlan plan, PlanPartition(c));
    std::vector<char*> next(plan.rows.size()), rows;
    for (size_t p = 0; p < next.size(); ++p) {
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(p), plan.output(p)));
      next[p] = static_cast<char*>(out->raw());
    }
    for (int32_t p : c.input(1).values<int32_t>()) {
      rows.push_back(next[static_cast<size_t>(p)]);
      next[static_cast<size_t>(p)] += plan.row_bytes;
    }
    return MoveRows<false>(c, rows, plan.row_bytes,
                           static_cast<char*>(const_cast<void*>(c.input(0).raw())));
  }
};

template <typename K>
void AddWithIndices(KernelRegistry* registry, const KernelDef& def, const char* index_attr,
                    std::initializer_list<DType> indices, const char* type_attr,
                    std::span<const DType> types) {
  for (DType index : indices) {
    KernelDef typed = def;
    typed.types.emplace_back(index_attr, index);
    AddForTypes<K>(registry, typed, type_attr, types);
  }
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddWithIndices<DeviceGatherKernel>(registry,
                                     {.op = "GatherV2", .device = kGpu, .host_args = {"axis"}},
                                     "Tindices", {DT_INT32, DT_INT64}, "Tparams", kDeviceTypes);
  for (const std::span<const DType> types : {std::span<const DType>(kDeviceTypes), {kHostInt}}) {
    AddWithIndices<DeviceOneHotKernel>(registry,
                                       {.op = "OneHot", .device = kGpu, .host_args = {"depth"}},
                                       "TI", {DT_UINT8, DT_INT8, DT_INT32, DT_INT64}, "T", types);
  }
#define MG_ADD(T)                                                                              \
  {                                                                                            \
    constexpr DType type[] = {kDTypeOf<T>};                                                    \
    AddWithIndices<DeviceSegmentSumKernel<T>>(                                                 \
        registry, {.op = "UnsortedSegmentSum", .device = kGpu, .host_args = {"num_segments"}}, \
        "Tindices", {DT_INT32, DT_INT64}, "T", type);                                          \
  }
  MG_FLOAT_TYPES(MG_ADD)
  MG_ADD(int64_t)
#undef MG_ADD
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "GatherV2", {"params", "indices", "output"}, "Tparams", kHostInt);
  AddOnHost(registry, cpu, "UnsortedSegmentSum", {"data", "segment_ids", "output"}, "T", kHostInt);
  for (const char* op : {"DynamicStitch", "ParallelDynamicStitch"}) {
    AddForTypes<DeviceStitchKernel>(registry, {.op = op, .device = kGpu, .host_args = {"indices"}},
                                    "T", kDeviceTypes);
    AddOnHost(registry, cpu, op, {"data", "merged"}, "T", kHostInt);
  }
  AddForTypes<DevicePartitionKernel>(
      registry, {.op = "DynamicPartition", .device = kGpu, .host_args = {"partitions"}}, "T",
      kDeviceTypes);
  AddOnHost(registry, cpu, "DynamicPartition", {"data", "partitions", "outputs"}, "T", kHostInt);
}

}  // namespace monograph::ops::gather
