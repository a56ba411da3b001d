// StepGateResource: a step number that only grows, and who waits for it. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"

namespace monograph::ops::accumulator {

class StepGateResource : public Resource, public std::enable_shared_from_this<StepGateResource> {
 public:
  using Spec = std::string;  // its name
  using Passed = std::function<void(const Status&, int64_t step)>;

  explicit StepGateResource(std::string name) : name_(std::move(name)) {}

  void Set(int64_t step, bool restart);
  // `done` runs once, on the thread that sets or closes the gate or ends the step.
  void Wait(KernelContext& c, int64_t local_step, Passed done);
  void Close(const Status& status);
  // Until `holder` lets go, or another takes its place, somebody is there to set the gate. When it
  // lets go, who waits for the next step gets Unavailable, and who comes later too; a restart, or
  // a new holder, ends that.
  void Hold(const void* holder);
  void LetGo(const void* holder, const std::string& name);
  // A replica whose gradients updates need, as long as `member` is there. Once fewer than
  // `required` of the `replicas` are left, no step comes any more: who waits for one gets
  // Unavailable with the names of those that are gone, and who comes later too, until one is back.
  struct Replica {
    int64_t rank = 0, replicas = 0, required = 0;
    std::string name;
  };
  void Join(const void* member, const Replica& replica);
  void Leave(const void* member, const Replica& replica);
  int64_t step() const;  // -1: never set, or closed

  std::string DebugString() const override;
  void OnRemoved() override;  // whoever waits gets Aborted

 private:
  struct Waiter {
    uint64_t id = 0;
    int64_t local_step = 0;
    Passed done;
  };
  void Cancel(uint64_t id);
  // Not OK: too many replicas are gone.
  Status LackLocked(const Replica& of) const MG_REQUIRES(mutex_);

  const std::string name_;
  mutable Mutex mutex_;
  int64_t step_ MG_GUARDED_BY(mutex_) = -1;
  Status closed_ MG_GUARDED_BY(mutex_);                           // not OK: closed
  const void* holder_ MG_GUARDED_BY(mutex_) = nullptr;            // only compared
  Status gone_ MG_GUARDED_BY(mutex_);                             // not OK: the holder let go
  std::map<int64_t, const void*> members_ MG_GUARDED_BY(mutex_);  // by rank; only compared
  std::map<int64_t, std::string> left_ MG_GUARDED_BY(mutex_);     // names of those that are gone
  Status lack_ MG_GUARDED_BY(mutex_);  // not OK: too few replicas are left
  std::list<Waiter> waiters_ MG_GUARDED_BY(mutex_);
  uint64_t last_id_ MG_GUARDED_BY(mutex_) = 0;
};

}  // namespace monograph::ops::accumulator
