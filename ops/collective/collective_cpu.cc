// Kernels of collectives. A kernel only fills in a CollectiveRequest and hands it to the task's
// CollectiveManager (executor/collective/collective.h), which finds the members and moves the data;
// the request's callback ends the kernel. Merging uses the row functions of the elementwise ops, so
// that a sum has the bits of AddN. A group of one member never reaches the manager.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "executor/collective/collective_kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::collective {
namespace {

using elementwise::BinaryRowFn;
using elementwise::BinaryRowFor;
using elementwise::RowMode;

template <BinaryRowFn kRow>
void Row(const void* x, const void* y, void* z, int64_t n) {
  kRow(x, y, z, n, RowMode::kBoth);
}

template <typename T>
void DivideBy(void* z, int64_t n, int ranks) {
  T* values = static_cast<T*>(z);
  if constexpr (elementwise::kIs16<T>) {
    for (int64_t i = 0; i < n; ++i)
      values[i] = T(static_cast<float>(values[i]) / static_cast<float>(ranks));
  } else if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < n; ++i) values[i] = T(values[i] / ranks);  // as T it may be 0
  } else {
    for (int64_t i = 0; i < n; ++i) values[i] = values[i] / T(ranks);
  }
}

struct Merger {
  uint8_t number = 0;
  CollectiveMerge merge = nullptr;
  CollectiveFinal divide = nullptr;
};

template <typename T>
Merger MergerFor(const std::string& op) {
  if (op == "Add") return {1, &Row<BinaryRowFor<elementwise::AddFn, T>()>, &DivideBy<T>};
  if (op == "Mul") return {2, &Row<BinaryRowFor<elementwise::MulFn, T>()>, &DivideBy<T>};
  if (op == "Max") return {3, &Row<BinaryRowFor<elementwise::MaximumFn, T>()>, &DivideBy<T>};
  return {4, &Row<BinaryRowFor<elementwise::MinimumFn, T>()>, &DivideBy<T>};
}

Merger MergerOf(DType dtype, const std::string& op) {
  switch (dtype) {
    case DT_FLOAT:
      return MergerFor<float>(op);
    case DT_DOUBLE:
      return MergerFor<double>(op);
    case DT_HALF:
      return MergerFor<half>(op);
    case DT_BFLOAT16:
      return MergerFor<bfloat16>(op);
    case DT_INT32:
      return MergerFor<int32_t>(op);
    case DT_INT64:
      return MergerFor<int64_t>(op);
    case DT_UINT8:
      return MergerFor<uint8_t>(op);
    default:
      return {};
  }
}

// What the kernels share: who the members are, and the way to the task's collectives.
class MeetingKernel : public CollectiveKernel {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    auto request = std::make_shared<CollectiveRequest>();
    if (Status status = Fill(c, request.get()); !status.ok()) return done(status);
    if (request->group_size == 1) {
      if (request->kind == CollectiveKind::kBroadcast && request->inputs.empty())
        return done(InvalidArgument("a group of one member has nobody to send"));
      // The sum and the mean of one input are the input itself.
      for (size_t i = 0; i < request->inputs.size(); ++i)
        c.set_output(static_cast<int>(i), std::move(request->inputs[i]));
      return done(Status());
    }
    if (home_ == nullptr) {
      return done(FailedPrecondition("a collective of " + std::to_string(request->group_size) +
                                     " members runs by itself, outside of a session"));
    }
    request->done = [&c, done = std::move(done)](const Status& status,
                                                 std::vector<Tensor> outputs) {
      for (size_t i = 0; i < outputs.size(); ++i)
        c.set_output(static_cast<int>(i), std::move(outputs[i]));
      outputs.clear();
      done(status);
    };
    CollectiveManager* manager = home_->manager();
    // OnCancel comes before Start: once the request has started, the context may be gone.
    const bool open = c.OnCancel([manager, request] { manager->Cancel(request); });
    if (!open) return request->done(Cancelled("the step was aborted").AsDerived(), {});
    manager->Start(request);
  }

  const std::shared_ptr<const CollectiveMembers>& members() const override { return members_; }
  CollectiveManager* manager() const override {
    return home_ == nullptr ? nullptr : home_->manager();
  }
  std::string merge_op() const override { return ""; }
  std::span<const std::string_view> exchanged_args() const override {
    static constexpr std::string_view kArgs[] = {"input", "data"};
    return kArgs;
  }
  bool divides() const override { return false; }
  Status Fill(KernelContext& c, CollectiveRequest* request) override {
    request->kind = kind_;
    request->op = op_;
    request->device = device_;
    request->step = c.step_id();
    request->session = home_ == nullptr ? 0 : home_->session();
    request->members = members_;
    request->dtype = dtype_;
    request->timeout = timeout_;
    MG_RETURN_IF_ERROR(FillInputs(c, request));
    if (request->group_size < 1)
      return InvalidArgument("group_size must be at least 1, got " +
                             std::to_string(request->group_size));
    return Status();
  }

 protected:
  MeetingKernel(const KernelConstruction& k, CollectiveKind kind, std::string_view op)
      : kind_(kind),
        op_(op),
        dtype_(k.output_dtype(0)),
        device_(k.device()),
        home_(CollectivesOf(k)) {
    const auto seconds = k.attrs().GetOr<float>("timeout_seconds", 0);
    constexpr float kMost = 1e9f;  // years: a time so much later can still be said
    if (seconds > 0) {
      timeout_ =
          std::chrono::milliseconds(std::max(1L, std::lround(std::min(seconds, kMost) * 1000.0)));
    }
    if (home_ != nullptr) (void)home_->manager();
  }

  Status FindMembers(const KernelConstruction& k) {
    const char* attr = k.attrs().Find("members") != nullptr ? "members" : "_mg_members";
    auto devices = k.attrs().GetOr<std::vector<std::string>>(attr, {});
    if (devices.empty()) return Status();
    MG_ASSIGN_OR_RETURN(members_, MakeCollectiveMembers(std::move(devices)));
    return Status();
  }

  // Group, instance and inputs.
  virtual Status FillInputs(KernelContext& c, CollectiveRequest* request) = 0;

  // The three scalars from input `first` on.
  static Status FillKeys(KernelContext& c, int first, CollectiveRequest* request) {
    MG_ASSIGN_OR_RETURN(const int64_t size, IntOf(c.input(first), "group_size"));
    MG_ASSIGN_OR_RETURN(const int64_t group, IntOf(c.input(first + 1), "group_key"));
    MG_ASSIGN_OR_RETURN(const int64_t instance, IntOf(c.input(first + 2), "instance_key"));
    request->group_size = static_cast<int>(size);
    request->group_key = static_cast<int>(group);
    request->instance_key = static_cast<int>(instance);
    return Status();
  }

 private:
  const CollectiveKind kind_;
  const std::string_view op_;
  const DType dtype_;
  const std::string device_;
  const CollectiveHome* const home_;
  std::shared_ptr<const CollectiveMembers> members_;
  std::chrono::milliseconds timeout_{30'000};
};

class ReduceKernel : public MeetingKernel {
 public:
  ReduceKernel(const KernelConstruction& k, std::string_view op)
      : MeetingKernel(k, CollectiveKind::kReduce, op),
        merger_(MergerOf(k.output_dtype(0), k.attr<std::string>("merge_op"))),
        divide_(k.attr<std::string>("final_op") == "Div") {}

  std::string merge_op() const override {
    static constexpr const char* kOps[] = {"", "AddN", "Mul", "Maximum", "Minimum"};
    return kOps[merger_.number];
  }
  bool divides() const override { return divide_; }

 protected:
  Status FillInputs(KernelContext&, CollectiveRequest* request) override {
    request->merge_op = merger_.number;
    request->merge = merger_.merge;
    request->final = divide_ ? merger_.divide : nullptr;
    return Status();
  }

 private:
  const Merger merger_;
  const bool divide_;
};

class ReduceV2Kernel : public ReduceKernel {
 protected:
  explicit ReduceV2Kernel(const KernelConstruction& k) : ReduceKernel(k, "CollectiveReduceV2") {}
  Status FillInputs(KernelContext& c, CollectiveRequest* request) override {
    MG_RETURN_IF_ERROR(ReduceKernel::FillInputs(c, request));
    MG_RETURN_IF_ERROR(FillKeys(c, 1, request));
    request->inputs.push_back(c.TakeInput(0));
    return Status();
  }
};

class AllReduceKernel : public ReduceKernel {
 protected:
  explicit AllReduceKernel(const KernelConstruction& k)
      : ReduceKernel(k, "MonographAllReduce"),
        size_(static_cast<int>(k.attr<int64_t>("group_size"))),
        group_(static_cast<int>(k.attr<int64_t>("group_key"))),
        instance_(static_cast<int>(k.attr<int64_t>("instance_key"))) {}
  Status FillInputs(KernelContext& c, CollectiveRequest* request) override {
    MG_RETURN_IF_ERROR(ReduceKernel::FillInputs(c, request));
    request->group_size = size_;
    request->group_key = group_;
    request->instance_key = instance_;
    for (int i = 0; i < c.num_inputs(); ++i) request->inputs.push_back(c.TakeInput(i));
    return Status();
  }

 private:
  const int size_, group_, instance_;
};

class GatherKernel : public MeetingKernel {
 protected:
  explicit GatherKernel(const KernelConstruction& k)
      : MeetingKernel(k, CollectiveKind::kGather, "CollectiveGatherV2") {}
  Status FillInputs(KernelContext& c, CollectiveRequest* request) override {
    if (c.input(0).shape().rank() == 0)
      return InvalidArgument("input must have a first dimension, it is a scalar");
    MG_RETURN_IF_ERROR(FillKeys(c, 1, request));
    request->inputs.push_back(c.TakeInput(0));
    return Status();
  }
};

class SendKernel : public MeetingKernel {
 protected:
  explicit SendKernel(const KernelConstruction& k)
      : MeetingKernel(k, CollectiveKind::kBroadcast, "CollectiveBcastSendV2") {}
  Status FillInputs(KernelContext& c, CollectiveRequest* request) override {
    MG_RETURN_IF_ERROR(FillKeys(c, 1, request));
    request->inputs.push_back(c.TakeInput(0));
    return Status();
  }
};

class RecvKernel : public MeetingKernel {
 protected:
  explicit RecvKernel(const KernelConstruction& k)
      : MeetingKernel(k, CollectiveKind::kBroadcast, "CollectiveBcastRecvV2") {}
  Status FillInputs(KernelContext& c, CollectiveRequest* request) override {
    MG_RETURN_IF_ERROR(FillKeys(c, 0, request));
    MG_ASSIGN_OR_RETURN(request->shape, ShapeFrom(c.input(3), "shape"));
    return Status();
  }
};

// Makes a kernel of class K and looks up its members, which may fail.
template <typename K>
class Found : public K {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    std::unique_ptr<Found> kernel(new Found(k));
    MG_RETURN_IF_ERROR(kernel->FindMembers(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 private:
  explicit Found(const KernelConstruction& k) : K(k) {}
};

// The kernel of a GPU works in host memory: the step copies its inputs and outputs, unless values
// can go from GPU to GPU (executor/gpu/members.h). `args`: all inputs and outputs.
template <typename K>
void AddEverywhere(KernelRegistry* registry, const char* op, std::vector<std::string> args,
                   std::span<const DType> types) {
  AddForTypes<Found<K>>(registry, {.op = op}, "T", types);
  AddForTypes<Found<K>>(registry, {.op = op, .device = kGpu, .host_args = std::move(args)}, "T",
                        types);
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr DType kReduced[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64};
  constexpr DType kListReduced[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16,
                                    DT_INT32, DT_INT64,  DT_UINT8};
  constexpr DType kGathered[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64};
  constexpr DType kSent[] = {DT_BOOL, DT_FLOAT, DT_DOUBLE, DT_HALF, DT_INT32, DT_INT64};
  const auto with_keys = [](std::vector<std::string> args) {
    args.insert(args.end(), {"group_size", "group_key", "instance_key", "data"});
    return args;
  };
  AddEverywhere<ReduceV2Kernel>(registry, "CollectiveReduceV2",
                                with_keys({"input", "ordering_token"}), kReduced);
  AddEverywhere<AllReduceKernel>(registry, "MonographAllReduce", {"input", "data"}, kListReduced);
  AddEverywhere<GatherKernel>(registry, "CollectiveGatherV2",
                              with_keys({"input", "ordering_token"}), kGathered);
  AddEverywhere<SendKernel>(registry, "CollectiveBcastSendV2", with_keys({"input"}), kSent);
  AddEverywhere<RecvKernel>(registry, "CollectiveBcastRecvV2", with_keys({"shape"}), kSent);
}

}  // namespace monograph::ops::collective
