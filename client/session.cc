// The public face of a session. Each function turns its feeds and fetches into names, has the
// master prepare that signature, and hands the step to Session::Impl (client/session/). Names are
// the key, because the master looks up prepared steps by them. Impl::Call marks every call, so that
// Close waits for those that are running.
#include "client/session.h"

#include <utility>

#include "client/session/impl.h"
#include "executor/worker/task_status.h"
#include "executor/worker/worker.pb.h"

namespace monograph {

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Local(const Graph& graph, SessionOptions options) {
  auto impl = std::make_unique<Impl>(graph, std::move(options));
  MG_RETURN_IF_ERROR(impl->Start(nullptr));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::unique_ptr<Session>> Session::Connect(const ClusterSpec& cluster, const Graph& graph,
                                                  SessionOptions options) {
  if (cluster.empty())
    return InvalidArgument("the cluster has no tasks; Session::Local needs none");
  auto impl = std::make_unique<Impl>(graph, std::move(options));
  MG_RETURN_IF_ERROR(impl->Start(&cluster));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

namespace {

// The error for a tensor or operation of no graph, or of another graph than the session's.
Status NotInGraph(const char* what, const char* kind, bool valid, std::string_view name) {
  if (!valid) {
    return InvalidArgument(std::string(what) + " is not " + kind +
                           " of a graph; look at the status of the scope that built it");
  }
  return InvalidArgument(std::string(what) + ", '" + std::string(name) +
                         "', is not an element of this session's graph but of another one; each "
                         "graph needs a session of its own (RunByName goes by names alone)");
}

Status NamesOf(const std::vector<Output>& outputs, const Graph& graph, const char* what,
               std::vector<std::string>* names) {
  for (const Output& output : outputs) {
    if (!output.valid() || output.graph != &graph) {
      return NotInGraph(what, "a tensor", output.valid(),
                        output.valid() ? output.name() : std::string());
    }
    names->push_back(output.name());
  }
  return Status();
}

Result<Signature> SignatureOf(const Graph& graph, const std::vector<Output>& feeds,
                              const std::vector<Output>& fetches,
                              const std::vector<Operation>& targets) {
  Signature signature;
  MG_RETURN_IF_ERROR(NamesOf(feeds, graph, "a feed", &signature.feeds));
  MG_RETURN_IF_ERROR(NamesOf(fetches, graph, "a fetch", &signature.fetches));
  for (const Operation& target : targets) {
    if (!target.valid() || target.graph != &graph) {
      return NotInGraph("a target", "an operation", target.valid(),
                        target.valid() ? target.name() : std::string_view());
    }
    signature.targets.emplace_back(target.name());
  }
  return signature;
}

}  // namespace

Result<std::vector<Tensor>> Session::Run(const std::vector<Feed>& feeds,
                                         const std::vector<Output>& fetches,
                                         const std::vector<Operation>& targets,
                                         const RunOptions& options, RunMetadata* metadata) {
  std::vector<Output> fed;
  std::vector<Tensor> values;
  for (const auto& [output, value] : feeds) {
    fed.push_back(output);
    values.push_back(value);
  }
  MG_ASSIGN_OR_RETURN(const Signature signature,
                      SignatureOf(impl_->graph(), fed, fetches, targets));
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  return impl_->RunSignature(signature, values, options, metadata);
}

Result<std::vector<Tensor>> Session::RunByName(
    const std::vector<std::pair<std::string, Tensor>>& feeds,
    const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
    const RunOptions& options, RunMetadata* metadata) {
  Signature signature{.feeds = {}, .fetches = fetches, .targets = targets};
  std::vector<Tensor> values;
  for (const auto& [name, value] : feeds) {
    signature.feeds.push_back(name);
    values.push_back(value);
  }
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  return impl_->RunSignature(signature, values, options, metadata);
}

Result<Callable> Session::MakeCallable(const std::vector<Output>& feeds,
                                       const std::vector<Output>& fetches,
                                       const std::vector<Operation>& targets) {
  MG_ASSIGN_OR_RETURN(const Signature signature,
                      SignatureOf(impl_->graph(), feeds, fetches, targets));
  return MakeCallableByName(signature.feeds, signature.fetches, signature.targets);
}

Result<Callable> Session::MakeCallableByName(const std::vector<std::string>& feeds,
                                             const std::vector<std::string>& fetches,
                                             const std::vector<std::string>& targets) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  Callable callable;
  MG_ASSIGN_OR_RETURN(
      callable.prepared_,
      impl_->master_->Prepare({.feeds = feeds, .fetches = fetches, .targets = targets},
                              impl_->DeadlineOf({})));
  return callable;
}

Result<std::vector<Tensor>> Session::RunCallable(const Callable& callable,
                                                 std::span<const Tensor> feeds,
                                                 const RunOptions& options, RunMetadata* metadata) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  MG_RETURN_IF_ERROR(impl_->CheckCallable(callable.prepared_.get()));
  return impl_->RunPrepared(callable.prepared_, feeds, options, impl_->DeadlineOf(options),
                            metadata);
}

void Session::RunAsync(const Callable& callable, std::span<const Tensor> feeds, StepDone done,
                       const RunOptions& options) {
  const Impl::Call call(impl_.get());
  Status usable = call.status();
  if (usable.ok()) usable = impl_->CheckCallable(callable.prepared_.get());
  if (!usable.ok()) {
    done(usable);
    return;
  }
  StepIds steps;
  const std::shared_ptr<PreparedStep> prepared = callable.prepared_;
  Status begun;
  if (options.steps != 1) {
    begun = InvalidArgument("RunOptions: RunAsync runs one step, steps is " +
                            std::to_string(options.steps));
  } else {
    begun = impl_->CheckFeeds(*prepared, feeds, 1);
    if (begun.ok()) begun = impl_->Begin(prepared, feeds, options, 1, {.done = done}, &steps);
  }
  if (!begun.ok()) {
    done(begun);
    return;
  }
  impl_->Dispatch(*prepared, feeds, steps, options.trace, false);
}

Result<PartialRunHandle> Session::PartialRunSetup(const std::vector<std::string>& feeds,
                                                  const std::vector<std::string>& fetches,
                                                  const std::vector<std::string>& targets) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  PartialRunHandle handle;
  MG_ASSIGN_OR_RETURN(
      handle.step_, impl_->BeginPartial({.feeds = feeds, .fetches = fetches, .targets = targets}));
  return handle;
}

Result<std::vector<Tensor>> Session::PartialRun(
    const PartialRunHandle& handle, const std::vector<std::pair<std::string, Tensor>>& feeds,
    const std::vector<std::string>& fetches, const RunOptions& options) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  return impl_->RunPart(handle.step_, feeds, fetches, options);
}

void Session::CancelPartialRun(const PartialRunHandle& handle) {
  const Impl::Call call(impl_.get());
  if (call.status().ok() && handle.step_ != nullptr) impl_->CancelPartial(*handle.step_);
}

const std::vector<DeviceInfo>& Session::devices() const { return impl_->devices_; }

Result<DeviceName> Session::DeviceOf(const Operation& operation) const {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  return impl_->master_->DeviceOf(std::string(operation.name()));
}

Result<std::vector<std::pair<std::string, Graph>>> Session::PartitionsByName(
    const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
    const std::vector<std::string>& targets) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  MG_ASSIGN_OR_RETURN(
      PartitionedGraph cut,
      impl_->master_->PartitionFor({.feeds = feeds, .fetches = fetches, .targets = targets}));
  std::vector<std::pair<std::string, Graph>> graphs;
  for (Partition& partition : cut.partitions)
    graphs.emplace_back(partition.task.TaskName(), std::move(partition.graph));
  return graphs;
}

Status Session::Reset(const std::vector<std::string>& containers) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  impl_->worker_->Reset(containers);
  wire::ResetRequest request;
  for (const std::string& container : containers) request.add_containers(container);
  Status result;
  for (const auto& response : impl_->CallAll("Reset", request.SerializeAsString()))
    result.Update(response.status());
  return result;
}

Result<std::vector<TaskStatus>> Session::Tasks() {
  std::vector<TaskStatus> tasks;
  for (Result<TaskStatus>& task : EachTask()) {
    MG_RETURN_IF_ERROR(task.status());
    tasks.push_back(std::move(task).value());
  }
  return tasks;
}

std::vector<Result<TaskStatus>> Session::EachTask() {
  const Impl::Call call(impl_.get());
  if (!call.status().ok()) return {call.status()};
  wire::StatusResponse own;
  DescribeTask(*impl_->worker_, &own);
  std::vector<Result<TaskStatus>> tasks = {ToTaskStatus(own)};
  for (const auto& response : impl_->CallAll("Status", {})) {
    wire::StatusResponse parsed;
    if (!response.ok()) {
      tasks.emplace_back(response.status());
    } else if (!parsed.ParseFromString(response.value())) {
      tasks.emplace_back(Internal("malformed answer to Status"));
    } else {
      TaskStatus status = ToTaskStatus(parsed);
      status.address = impl_->cluster_->tasks()[tasks.size() - 1].address;
      tasks.emplace_back(std::move(status));
    }
  }
  return tasks;
}

Status Session::Close() { return impl_->Close(); }

}  // namespace monograph
