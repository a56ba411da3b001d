// A collective of GPUs of which not all reach each other, in a group that was found at run time:
// its inputs are copied to the host (CopyDown), the members' tasks exchange them as those of CPUs
// (OnHost), and the results are copied back (FromHost, CopyUp). Where it is known before the step
// that no GPU reaches another, the step's own copies do this (executor/gpu/lower.cc).
#include <cstring>
#include <utility>

#include "executor/gpu/member_operation.h"

namespace monograph {

// The copies are the members thread's, which has entered the device.
void GpuMembers::ThroughHost(const MemberOperationPtr& operation) {
  Status failure;
  {
    MutexLock lock(mutex_);
    operation->down = true;
    failure = MayGoOn(*operation, Status());
    if (failure.ok()) {
      by_host_.push_back(operation);
      NeedThread();
      Wake();
    }
  }
  if (!failure.ok()) End(operation, failure);
}

void GpuMembers::CopyByHost(const MemberOperationPtr& operation) {
  operation->self = operation;
  const Status status = operation->down ? CopyDown(*operation) : CopyUp(*operation);
  if (status.ok()) return;  // Arrived follows, or has come already
  operation->self = nullptr;
  End(operation, device_.Check(status.WithContext(operation->Describe())));
}

Status GpuMembers::CopyDown(MemberOperation& op) {
  for (const Tensor& input : op.inputs) {
    MG_ASSIGN_OR_RETURN(Tensor copy,
                        Tensor::Allocate(input.dtype(), input.shape(), &device_.pinned()));
    op.on_host.push_back(std::move(copy));
  }
  StreamDriver& driver = device_.driver();
  return device_.IssueAndAwait(
      Queue::kToHost, &op,
      [&]() -> Status {
        MG_RETURN_IF_ERROR(driver.Wait(Queue::kToHost, driver, op.ready));
        for (size_t i = 0; i < op.inputs.size(); ++i) {
          if (op.inputs[i].bytes() == 0) continue;
          MG_RETURN_IF_ERROR(driver.Copy(Queue::kToHost, op.on_host[i].raw(),
                                         std::as_const(op.inputs[i]).raw(), op.inputs[i].bytes()));
        }
        return Status();
      },
      [](EventId, uint64_t) {});
}

void GpuMembers::OnHost(const MemberOperationPtr& operation, const Status& status) {
  MemberOperation& op = *operation;
  std::shared_ptr<CollectiveRequest> call;
  Status failure;
  {
    MutexLock lock(mutex_);
    op.down = false;
    failure = MayGoOn(op, status);
    if (failure.ok()) {
      call = std::make_shared<CollectiveRequest>(*op.request);
      call->entered = op.entry;
      call->inputs = std::exchange(op.on_host, {});
      call->done = [self = shared_from_this(), operation](const Status& met,
                                                          std::vector<Tensor> outputs) {
        self->FromHost(operation, met, std::move(outputs));
      };
      op.meeting = call;
    }
  }
  if (call == nullptr) return End(operation, failure);
  op.manager->Start(call);
}

void GpuMembers::FromHost(const MemberOperationPtr& operation, const Status& status,
                          std::vector<Tensor> outputs) {
  MemberOperation& op = *operation;
  Status failure = status;
  {
    MutexLock lock(mutex_);
    op.meeting = nullptr;
    // That the epoch has ended since takes nothing from what the members have summed.
    if (failure.ok() && (stopped_ || op.cancelled))
      failure = Cancelled("the step was aborted").AsDerived();
    if (failure.ok()) {
      op.on_host = std::move(outputs);
      by_host_.push_back(operation);
      Wake();
    }
  }
  if (!failure.ok()) End(operation, failure);
}

Status GpuMembers::CopyUp(MemberOperation& op) {
  for (Tensor& value : op.on_host) {
    MG_ASSIGN_OR_RETURN(Buffer memory, Allocate(op, value.bytes(), Queue::kToDevice));
    op.outputs.emplace_back(value.dtype(), value.shape(), std::move(memory));
    const void* bytes = std::as_const(value).raw();
    if (value.bytes() == 0 || device_.pinned().Contains(bytes)) continue;
    MG_ASSIGN_OR_RETURN(Tensor pinned,
                        Tensor::Allocate(value.dtype(), value.shape(), &device_.pinned()));
    std::memcpy(pinned.raw(), bytes, value.bytes());
    value = std::move(pinned);
  }
  return device_.IssueAndAwait(
      Queue::kToDevice, &op,
      [&]() -> Status {
        for (size_t i = 0; i < op.on_host.size(); ++i) {
          if (op.on_host[i].bytes() == 0) continue;
          MG_RETURN_IF_ERROR(device_.driver().Copy(Queue::kToDevice, op.outputs[i].raw(),
                                                   std::as_const(op.on_host[i]).raw(),
                                                   op.on_host[i].bytes()));
        }
        return Status();
      },
      [](EventId, uint64_t) {});
}

}  // namespace monograph
