#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "ops/job_run/job_run.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::job_run {
namespace {

using variable::FindResource;

// Lives as long as the kernel of the chief's session that says "ready".
struct Presence {};

class JobRunResource : public Resource {
 public:
  using Spec = std::string;  // its name

  explicit JobRunResource(std::string name) : name_(std::move(name)) {}

  void Begin() {
    MutexLock lock(mutex_);
    ready_ = finished_ = false;
    chief_.reset();
    ranks_.clear();
  }
  void Ready(const std::shared_ptr<const Presence>& chief) {
    MutexLock lock(mutex_);
    ready_ = true;
    finished_ = false;
    chief_ = chief;
  }
  void Finish() {
    MutexLock lock(mutex_);
    finished_ = ready_;
  }
  bool finished() {
    MutexLock lock(mutex_);
    return finished_;
  }
  JobRunJoined Join(int64_t rank, bool rejoin) {
    MutexLock lock(mutex_);
    if (!ready_) return JobRunJoined::kNotReady;
    const bool late = finished_ && ranks_.count(rank) == 0;
    if (chief_.expired() && !late && !rejoin) return JobRunJoined::kLeftOver;
    return ranks_.insert(rank).second ? JobRunJoined::kJoined : JobRunJoined::kRejoined;
  }

  std::string DebugString() const override {
    MutexLock lock(mutex_);
    return "run " + name_ + (ready_ ? ", ready" : "") + (finished_ ? ", finished" : "") +
           (chief_.expired() ? "" : ", with its chief") + ", joined by " +
           std::to_string(ranks_.size());
  }

 private:
  const std::string name_;
  mutable Mutex mutex_;
  bool ready_ MG_GUARDED_BY(mutex_) = false, finished_ MG_GUARDED_BY(mutex_) = false;
  std::weak_ptr<const Presence> chief_ MG_GUARDED_BY(mutex_);
  std::set<int64_t> ranks_ MG_GUARDED_BY(mutex_);  // that have joined
};

Result<std::string> SpecOf(const KernelConstruction&, const std::string& name) { return name; }

class BeginKernel : public Kernel {
 public:
  explicit BeginKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto run, FindResource<JobRunResource>(c));
    run->Begin();
    return Status();
  }
};

// Lives as long as its graph is registered: until the session that registered it ends.
class ReadyKernel : public Kernel {
 public:
  explicit ReadyKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto run, FindResource<JobRunResource>(c));
    run->Ready(presence_);
    return Status();
  }

 private:
  const std::shared_ptr<const Presence> presence_ = std::make_shared<const Presence>();
};

class FinishKernel : public Kernel {
 public:
  explicit FinishKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto run, FindResource<JobRunResource>(c));
    run->Finish();
    return Status();
  }
};

class FinishedKernel : public Kernel {
 public:
  explicit FinishedKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto run, FindResource<JobRunResource>(c));
    c.set_output(0, Tensor::Scalar(run->finished()));
    return Status();
  }
};

class JoinKernel : public Kernel {
 public:
  explicit JoinKernel(const KernelConstruction& k)
      : rank_(k.attr<int64_t>("rank")), rejoin_(k.attr<bool>("rejoin")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const auto run, FindResource<JobRunResource>(c));
    c.set_output(0, Tensor::Scalar(static_cast<int32_t>(run->Join(rank_, rejoin_))));
    return Status();
  }

 private:
  const int64_t rank_;
  const bool rejoin_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::AddHandleKernel, variable::HandleKernel;
  AddHandleKernel<HandleKernel<JobRunResource, SpecOf>>(registry, "MonographJobRun");
  AddHandleKernel<BeginKernel>(registry, "MonographJobRunBegin");
  AddHandleKernel<ReadyKernel>(registry, "MonographJobRunReady");
  AddHandleKernel<FinishKernel>(registry, "MonographJobRunFinish");
  AddHandleKernel<FinishedKernel>(registry, "MonographJobRunFinished");
  AddHandleKernel<JoinKernel>(registry, "MonographJobRunJoin");
}

}  // namespace monograph::ops::job_run
