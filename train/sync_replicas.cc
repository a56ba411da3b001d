// Synchronous training by several clients, in two halves. ApplyGradients builds the graph: beside
// each variable an accumulator that workers push their gradients to, one update that takes the
// means, and a gate where workers wait for its step number. SyncReplicasRunner, in the chief, runs
// that update again and again. Its step has no deadline, because workers may take any time until
// the first gradient; from then on the runner looks at the accumulators and fails if the others
// take too long.
#include "train/sync_replicas.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "client/session.h"
#include "ops/accumulator/accumulator.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"
#include "ops/variable/variable.h"
#include "train/coordinator.h"
#include "train/loss_scale.h"

namespace monograph {
namespace {

constexpr char kFinished[] = "a replica has no more data";

// The accumulator of one variable's gradients, dense or sparse.
class Meeting {
 public:
  Meeting(const GradientAndVariable& pair, ConditionalAccumulatorOptions options)
      : pair_(pair), options_(std::move(options)) {}

  Output Accumulator(const Scope& at) const {
    const ModelVariable& variable = pair_.variable;
    return pair_.sparse() ? SparseConditionalAccumulator(at, variable.dtype, variable.shape,
                                                         pair_.indices.dtype(), options_)
                          : ConditionalAccumulator(at, variable.dtype, variable.shape, options_);
  }
  Operation Push(const Scope& at, const Output& accumulator, const Output& local_step,
                 int rank) const {
    return pair_.sparse()
               ? SparseAccumulatorApplyGradient(at, accumulator, local_step,
                                                {pair_.gradient, pair_.indices}, rank)
               : AccumulatorApplyGradient(at, accumulator, local_step, pair_.gradient, rank);
  }
  // The mean or sum of `count` gradients. A sparse one has each index once, as the gradient of one
  // replica does; rows of one index are added in the order of ranks.
  GradientAndVariable Take(const Scope& at, const Output& accumulator, const Output& required,
                           int count) const {
    if (!pair_.sparse())
      return {AccumulatorTakeGradient(at, accumulator, required), {}, pair_.variable};
    const Gradient taken = SparseAccumulatorTakeGradient(at, accumulator, required);
    if (count == 1 || !at.ok()) return {taken.values, taken.indices, pair_.variable};
    const Gradient sum = SumRepeatedRows(at, taken);
    return {sum.values, sum.indices, pair_.variable};
  }

 private:
  const GradientAndVariable pair_;
  const ConditionalAccumulatorOptions options_;
};

// Closes the gate with a status that is known while the graph is built.
Operation CloseWith(const Scope& scope, const Output& gate, const Status& status) {
  return StepGateClose(scope, gate, Const(scope, static_cast<int32_t>(status.code())),
                       Const(scope, status.message()));
}

}  // namespace

Status SyncReplicas::Check() const {
  const int wanted = options_.replicas_to_aggregate;
  const int total = options_.total_num_replicas == 0 ? wanted : options_.total_num_replicas;
  if (wanted < 1) {
    return InvalidArgument("replicas_to_aggregate is " + std::to_string(wanted) +
                           "; it must be at least 1");
  }
  if (total < wanted) {
    return InvalidArgument("replicas_to_aggregate is " + std::to_string(wanted) +
                           ", but there are " + std::to_string(total) +
                           " replicas in total, each of which gives one gradient per update");
  }
  if (options_.rank < 0 || options_.rank >= total) {
    return InvalidArgument("rank " + std::to_string(options_.rank) + " is not in [0, " +
                           std::to_string(total) + ")");
  }
  return Status();
}

Result<SyncReplicasStep> SyncReplicas::ApplyGradients(const Scope& scope,
                                                      std::span<const GradientAndVariable> pairs,
                                                      const ModelVariable& global_step) const {
  MG_RETURN_IF_ERROR(scope.status());
  MG_RETURN_IF_ERROR(Check());
  if (!global_step.handle.valid() || global_step.dtype != DT_INT64) {
    return InvalidArgument("SyncReplicas: global_step '" + global_step.name +
                           "' must be an int64 variable");
  }
  SyncReplicasStep step;
  step.options = options_;
  if (step.options.total_num_replicas == 0)
    step.options.total_num_replicas = options_.replicas_to_aggregate;

  const Scope inner = scope.ReuseScope(options_.name);
  const Scope home = inner.ColocateWith(global_step.handle);
  const Output gate = StepGate(home.WithOpName("gate"), options_.name);
  const ModelVariable local_step =
      MakeVariable(home, "local_step_" + std::to_string(options_.rank), Const(home, int64_t{0}));
  step.step = StepGateStep(home.WithOpName("step"), gate);
  step.ready = GreaterEqual(home.WithOpName("ready"), step.step, Const(home, int64_t{0}));
  step.local_init = AssignVariable(home.WithOpName("local_init"), local_step.handle,
                                   ReadVariable(home, global_step.handle));

  using Reduction = ConditionalAccumulatorOptions::Reduction;
  const Output required = Const(home.WithOpName("replicas_to_aggregate"),
                                static_cast<int32_t>(options_.replicas_to_aggregate));
  std::vector<GradientAndVariable> means;
  std::vector<Operation> pushes, initializers, forgotten;
  std::vector<std::pair<Scope, Meeting>> meetings;
  for (const GradientAndVariable& pair : pairs) {
    initializers.push_back(pair.variable.initializer);
    if (!pair.gradient.valid()) continue;
    const Scope beside = inner.SubScope(pair.variable.name).ColocateWith(pair.variable.handle);
    const Meeting meeting(pair,
                          {.shared_name = options_.name + "/" + pair.variable.name + "/grad_accum",
                           .reduction = options_.weighted ? Reduction::kSum : Reduction::kMean});
    const Output accum = meeting.Accumulator(beside.WithOpName("grad_accum"));
    pushes.push_back(
        meeting.Push(beside.WithOpName("push"), accum, local_step.value, options_.rank));
    means.push_back(
        meeting.Take(beside.WithOpName("take"), accum, required, options_.replicas_to_aggregate));
    step.arrived.push_back(AccumulatorRanks(beside.WithOpName("arrived"), accum));
    step.variables.push_back(pair.variable.name);
    // Destroys the accumulator that an earlier run has left.
    forgotten.push_back(DestroyResource(beside.WithOpName("forget"), accum));
    MG_RETURN_IF_ERROR(scope.status());
    meetings.emplace_back(beside, meeting);
  }

  std::vector<Operation> updates;
  if (options_.loss_scale != nullptr) {
    for (const Operation& initializer : options_.loss_scale->initializers())
      initializers.push_back(initializer);
    UnscaledGradients unscaled = options_.loss_scale->Unscaled(home, means);
    means = std::move(unscaled.pairs);
    updates.push_back(unscaled.update);
  }
  updates.push_back(optimizer_.ApplyGradients(scope, means, &initializers,
                                              {.global_step = &global_step, .count = false}));
  MG_RETURN_IF_ERROR(scope.status());
  const Operation counted =
      AssignAddVariable(home.WithOpName("count").WithControlDependencies(updates),
                        global_step.handle, Const(home, int64_t{1}));
  step.update =
      StepGateSet(home.WithOpName("update"), gate,
                  ReadVariable(home.WithControlDependencies({counted}), global_step.handle));

  // The chief says by `hold` that it is there.
  StepGateReplica replica{.rank = options_.rank == 0 ? -1 : options_.rank,
                          .replicas = step.options.total_num_replicas,
                          .required = options_.replicas_to_aggregate};
  if (static_cast<size_t>(options_.rank) < options_.replica_names.size())
    replica.name = options_.replica_names[static_cast<size_t>(options_.rank)];
  step.reached = StepGateWait(home.WithOpName("wait").WithControlDependencies(pushes), gate,
                              local_step.value, replica);
  step.train = AssignVariable(home.WithOpName("train"), local_step.handle, step.reached);
  initializers.push_back(global_step.initializer);

  // The chief's start: once the operations `after` have run, makes fresh accumulators, sets their
  // step to the global step, and opens the gate.
  const auto open = [&](const std::string& name, std::span<const Operation> after) {
    const Output now = ReadVariable(home.WithControlDependencies(after), global_step.handle);
    std::vector<Operation> ready;
    for (size_t i = 0; i < meetings.size(); ++i) {
      const auto& [beside, meeting] = meetings[i];
      const Output fresh = meeting.Accumulator(
          beside.WithOpName(name + "_accum").WithControlDependencies({forgotten[i]}));
      ready.push_back(AccumulatorSetGlobalStep(beside.WithOpName(name + "_step"), fresh, now));
    }
    return StepGateSet(home.WithOpName(name).WithControlDependencies(ready), gate, now,
                       /*restart=*/true);
  };
  step.init = open("init", initializers);
  step.chief_init = open("chief_init", {});

  step.hold = StepGateHold(
      home.WithOpName("hold"), gate,
      "the chief" + (options_.replica_names.empty() ? std::string()
                                                    : " (" + options_.replica_names[0] + ")"));
  step.finish = CloseWith(home.WithOpName("finish"), gate,
                          OutOfRange("'" + options_.name + "' has ended: " + kFinished));
  step.close_code = Placeholder(home.WithOpName("close_code"), DT_INT32, PartialShape::Scalar());
  step.close_message =
      Placeholder(home.WithOpName("close_message"), DT_STRING, PartialShape::Scalar());
  step.close = StepGateClose(home.WithOpName("close"), gate, step.close_code, step.close_message);
  MG_RETURN_IF_ERROR(scope.status());
  return step;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookTimeout{5};
constexpr std::chrono::milliseconds kNoTimeout{0};

std::string Numbers(std::span<const int64_t> numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

// How far the gradients of the next update have arrived.
struct Arrivals {
  int64_t step = -1;  // of the last update; -1: closed
  bool any = false;   // some gradient has come
  std::string text;   // of the variable that lacks most
};

Result<Arrivals> Look(Session* session, const SyncReplicasStep& step) {
  std::vector<Output> fetches = step.arrived;
  fetches.push_back(step.step);
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                      session->Run({}, fetches, {}, {.timeout = kLookTimeout}));
  Arrivals arrivals;
  arrivals.step = values.back().scalar<int64_t>();
  // If some variables have gradients, those that have none were updated already.
  size_t fewest = 0;
  for (size_t i = 0; i < step.arrived.size(); ++i) {
    const int64_t here = values[i].elements(), least = values[fewest].elements();
    arrivals.any = arrivals.any || here > 0;
    if (here > 0 && (least == 0 || here < least)) fewest = i;
  }
  const std::span<const int64_t> there = values[fewest].values<int64_t>();
  std::vector<int64_t> missing;
  std::string names;
  for (int64_t rank = 0; rank < step.options.total_num_replicas; ++rank) {
    if (std::find(there.begin(), there.end(), rank) != there.end()) continue;
    missing.push_back(rank);
    if (static_cast<size_t>(rank) < step.options.replica_names.size())
      names += (names.empty() ? "" : ", ") + step.options.replica_names[static_cast<size_t>(rank)];
  }
  arrivals.text = "update " + std::to_string(arrivals.step + 1) + " of '" + step.options.name +
                  "' has the gradients of " + std::to_string(there.size()) + " of " +
                  std::to_string(step.options.replicas_to_aggregate) + " replicas" +
                  (there.empty() ? "" : " (" + Numbers(there) + ")") + " for variable '" +
                  step.variables[fewest] + "', missing: replica " + Numbers(missing) +
                  (names.empty() ? "" : " (" + names + ")");
  return arrivals;
}

}  // namespace

Status ExplainWait(Session* session, const SyncReplicasStep& step, const Status& status) {
  if (status.code() != Code::kDeadlineExceeded) return status;
  const auto arrivals = Look(session, step);
  if (!arrivals.ok() || arrivals->step < 0) return status;
  return status.WithMessage(status.message() + "; " + arrivals->text);
}

// Shared with the completions of its steps, which may come after it was closed.
class SyncReplicasRunner::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Session* session, const SyncReplicasStep& step, Coordinator* coordinator)
      : session_(session), step_(step), coordinator_(coordinator) {}

  Status Start() {
    MG_ASSIGN_OR_RETURN(update_, session_->MakeCallable({}, {}, {step_.update}));
    // Prepared now, because the caller may add to the graph later, and a graph must not be read
    // while it grows.
    MG_RETURN_IF_ERROR(
        session_->MakeCallable({step_.close_code, step_.close_message}, {}, {step_.close})
            .status());
    MG_RETURN_IF_ERROR(Look(session_, step_).status());
    MG_ASSIGN_OR_RETURN(hold_, session_->MakeCallable({}, {}, {step_.hold}));
    MG_RETURN_IF_ERROR(session_->RunCallable(hold_, {}, {.timeout = kLookTimeout}).status());
    thread_ = StartThread("mg-sync", [this] { Loop(); });
    return Status();
  }

  Status Close() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  void Loop() {
    const Status status = RunUpdates();
    if (status.ok()) return;
    // Workers that wait at the gate get the status, if the task of the gate is still there.
    (void)session_->Run({{step_.close_code, Tensor::Scalar(static_cast<int32_t>(status.code()))},
                         {step_.close_message, Tensor::String(status.message())}},
                        {}, {step_.close}, {.timeout = kLookTimeout});
    {
      MutexLock lock(mutex_);
      status_ = status;
    }
    if (coordinator_ != nullptr) coordinator_->RequestStop(status);
  }

  // OK: closed, or the workers have finished.
  Status RunUpdates() {
    for (;;) {
      {
        MutexLock lock(mutex_);
        if (stop_) return Status();
        outcome_.reset();
      }
      session_->RunAsync(update_, {},
                         [self = shared_from_this()](Result<std::vector<Tensor>> result) {
                           MutexLock lock(self->mutex_);
                           self->outcome_ = result.status();
                           self->changed_.NotifyAll();
                         },
                         {.timeout = kNoTimeout});
      bool over = false;
      MG_RETURN_IF_ERROR(WaitForUpdate(&over));
      if (over) return Status();
    }
  }

  // Waits until the update is applied. Sets `over` if there is nothing left to update.
  Status WaitForUpdate(bool* over) {
    const std::chrono::milliseconds timeout = step_.options.operation_timeout;
    const auto look_every = std::clamp<Clock::duration>(timeout / 4, std::chrono::milliseconds(10),
                                                        std::chrono::seconds(1));
    std::optional<Clock::time_point> since;  // the first gradient was there
    MutexLock lock(mutex_);
    while (!changed_.WaitFor(mutex_, look_every,
                             [this]() MG_REQUIRES(mutex_) { return stop_ || outcome_; })) {
      lock.Unlock();
      const auto arrivals = Look(session_, step_);
      lock.Lock();
      if (outcome_ || stop_) break;
      if (!arrivals.ok()) return arrivals.status();
      if (arrivals->step < 0) {
        *over = true;
        return Status();
      }
      if (!arrivals->any) continue;
      const auto now = Clock::now();
      if (!since) since = now;
      if (now - *since < timeout) continue;
      return DeadlineExceeded(arrivals->text + "; none came for " +
                              std::to_string(timeout.count()) + " ms");
    }
    *over = stop_;
    if (!outcome_) return Status();
    // The session was closed: the loop ends with it.
    if (outcome_->code() == Code::kCancelled) *over = true;
    return *over ? Status() : *outcome_;
  }

  Session* const session_;
  const SyncReplicasStep step_;
  Coordinator* const coordinator_;
  Callable update_, hold_;  // held as long as the runner lives
  std::thread thread_;

  Mutex mutex_;
  CondVar changed_;
  bool stop_ MG_GUARDED_BY(mutex_) = false;
  std::optional<Status> outcome_ MG_GUARDED_BY(mutex_);  // of the update that runs
  Status status_ MG_GUARDED_BY(mutex_);                  // what ended the loop
};

Result<std::unique_ptr<SyncReplicasRunner>> SyncReplicasRunner::Start(Session* session,
                                                                      const SyncReplicasStep& step,
                                                                      Coordinator* coordinator) {
  auto impl = std::make_shared<Impl>(session, step, coordinator);
  MG_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<SyncReplicasRunner>(new SyncReplicasRunner(std::move(impl)));
}

SyncReplicasRunner::SyncReplicasRunner(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
SyncReplicasRunner::~SyncReplicasRunner() { (void)Close(); }
Status SyncReplicasRunner::Close() { return impl_->Close(); }

}  // namespace monograph
