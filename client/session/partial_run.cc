// A step that is run in parts. Tasks wait for the tensors of a step by themselves, whoever sends
// them, and send what is fetched as soon as it exists; so all parts are started at once, and a call
// of RunPart only sends feeds and waits for fetches that it names. What a fetch needs is looked up
// in the graph beforehand: a call that asked too early would wait for ever.
#include <algorithm>
#include <set>

#include "client/master/request.h"
#include "client/session/impl.h"
#include "client/session/partial_step.h"

namespace monograph {
namespace {

// "x" is output 0.
std::string FullName(const std::string& tensor) {
  return tensor.find(':') == std::string::npos ? tensor + ":0" : tensor;
}

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

// The feeds that `fetch` depends on, by index, where what is fed is not computed.
std::vector<int> FeedsBefore(const Graph& graph, const std::vector<Endpoint>& feeds,
                             Endpoint fetch) {
  std::set<int> needs;
  std::vector<bool> seen(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> open;
  const auto need = [&](Endpoint input) {
    const auto feed = std::find(feeds.begin(), feeds.end(), input);
    if (feed != feeds.end()) {
      needs.insert(static_cast<int>(feed - feeds.begin()));
    } else if (!seen[static_cast<size_t>(input.node)]) {
      seen[static_cast<size_t>(input.node)] = true;
      open.push_back(input.node);
    }
  };
  need(fetch);
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    for (const Endpoint input : graph.inputs(node)) need(input);
    // A control edge from a fed node is satisfied by the feed of its output 0, as in Prune.
    for (const NodeId control : graph.control_inputs(node)) need({control, 0});
  }
  return {needs.begin(), needs.end()};
}

Status HasEnded() {
  return InvalidArgument(
      "this partial run has ended: all of it was run, a call of it failed, or its session is "
      "closed; PartialRunSetup begins another one");
}

// Index of the element whose name, by `name_of`, is `name`, and which `is_done` does not say to be
// used up.
template <typename List, typename NameOf, typename IsDone>
Result<size_t> FindUnused(const List& list, const std::string& name, const char* what,
                          const NameOf& name_of, const IsDone& is_done) {
  bool known = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (name_of(list[i]) != name) continue;
    known = true;
    if (!is_done(i)) return i;
  }
  if (known) {
    return InvalidArgument(std::string("tensor ") + Quoted(name) + " has already been " + what +
                           " in this partial run");
  }
  return NotFound(std::string("tensor ") + Quoted(name) + " cannot be " + what +
                  " in this partial run: it is not one of those that PartialRunSetup was given to "
                  "be " +
                  what);
}

}  // namespace

Result<std::shared_ptr<PartialStep>> Session::Impl::BeginPartial(const Signature& signature) {
  MG_ASSIGN_OR_RETURN(const ResolvedSignature resolved, Resolve(graph_, signature));
  const auto step = std::make_shared<PartialStep>();
  step->session = id_;
  for (const std::string& name : signature.feeds) step->feed_names.push_back(FullName(name));
  for (size_t i = 0; i < signature.fetches.size(); ++i) {
    step->fetches.push_back({.name = FullName(signature.fetches[i]),
                             .needs = FeedsBefore(graph_, resolved.feeds, resolved.fetches[i])});
  }
  step->fed.assign(signature.feeds.size(), false);
  step->returned_feeds.resize(signature.feeds.size());
  step->unfed = static_cast<int>(signature.feeds.size());
  MG_ASSIGN_OR_RETURN(step->prepared, master_->Prepare(signature, DeadlineOf({})));
  {
    MutexLock lock(mutex_);
    const auto flights = steps_.All();
    const auto in_parts =
        std::count_if(flights.begin(), flights.end(), [](const StepInFlight* flight) {
          return flight->listener.partial != nullptr && !flight->aborting;
        });
    if (in_parts >= kMostPartialRuns) {
      return ResourceExhausted("the session has " + std::to_string(in_parts) +
                               " partial runs that have not ended; feed and fetch all that they "
                               "were set up with, or give up their handles");
    }
  }
  // No deadline for the step; each call has its own.
  RunOptions options;
  options.timeout = std::chrono::milliseconds(0);
  const std::vector<Tensor> none(signature.feeds.size());
  MG_RETURN_IF_ERROR(Begin(step->prepared, none, options, 1,
                           {.finished = &step->ready, .result = &step->result, .partial = step},
                           &step->steps));
  // Remote parts first, as in Dispatch.
  for (const bool own : {false, true}) {
    for (const PreparedStep::Part& part : step->prepared->parts) {
      if ((part.peer == kSelf) == own)
        worker_->SendRunStep(id_, part.peer, part.handle, step->steps, false, false);
    }
  }
  return step;
}

bool Session::Impl::PartIsHereLocked(const PartialStep& step, const StepInFlight& flight) const {
  if (step.awaits_end) return false;
  return std::all_of(step.awaited.begin(), step.awaited.end(), [&](size_t i) {
    const PreparedStep::Value& value = step.prepared->values[i];
    return value.feed >= 0 || flight.fetched[static_cast<size_t>(value.fetch)].valid();
  });
}

void Session::Impl::OnPartialFetchLocked(const StepInFlight& flight) {
  PartialStep& step = *flight.listener.partial;
  if (!step.running || !PartIsHereLocked(step, flight)) return;
  step.ready.store(true, std::memory_order_release);
  if (transport_ != nullptr) transport_->Wake();
  slot_free_.NotifyAll();
}

Status Session::Impl::TakePartLocked(PartialStep& step,
                                     const std::vector<std::pair<std::string, Tensor>>& feeds,
                                     const std::vector<std::string>& fetches) {
  if (step.over) return HasEnded();
  if (step.running) {
    return FailedPrecondition(
        "another thread is inside PartialRun with this handle; its calls come one after the other");
  }
  std::vector<bool> fed = step.fed;
  std::vector<size_t> awaited;
  std::vector<std::pair<size_t, Tensor>> returned;
  for (const auto& [name, value] : feeds) {
    MG_ASSIGN_OR_RETURN(const size_t i, FindUnused(
                                            step.feed_names, FullName(name), "fed",
                                            [](const std::string& known) { return known; },
                                            [&fed](size_t feed) { return fed[feed]; }));
    MG_RETURN_IF_ERROR(CheckFeed(step.prepared->feeds[i], value));
    fed[i] = true;
    returned.emplace_back(i, value);
  }
  for (const std::string& name : fetches) {
    MG_ASSIGN_OR_RETURN(const size_t i,
                        FindUnused(
                            step.fetches, FullName(name), "fetched",
                            [](const PartialStep::Fetch& known) { return known.name; },
                            [&](size_t fetch) {
                              return step.fetches[fetch].done ||
                                     std::find(awaited.begin(), awaited.end(), fetch) !=
                                         awaited.end();
                            }));
    for (const int feed : step.fetches[i].needs) {
      if (fed[static_cast<size_t>(feed)]) continue;
      return InvalidArgument(
          "tensor " + Quoted(step.fetches[i].name) + " cannot be fetched yet: it needs " +
          Quoted(step.feed_names[static_cast<size_t>(feed)]) + ", which has not been fed");
    }
    awaited.push_back(i);
  }
  step.fed = std::move(fed);
  step.unfed = static_cast<int>(std::count(step.fed.begin(), step.fed.end(), false));
  if (step.prepared->returns_feeds) {
    for (auto& [i, value] : returned) step.returned_feeds[i] = std::move(value);
  }
  step.awaited = std::move(awaited);
  for (const size_t i : step.awaited) step.fetches[i].done = true;
  step.awaits_end = step.unfed == 0 && std::all_of(step.fetches.begin(), step.fetches.end(),
                                                   [](const auto& fetch) { return fetch.done; });
  step.running = true;
  return Status();
}

Result<std::vector<Tensor>> Session::Impl::EndPartLocked(PartialStep& step) {
  step.running = false;
  StepInFlight* const flight = steps_.FindLast(step.steps.last);
  step.over = step.awaits_end || (flight == nullptr && !step.result.ok());
  if (flight == nullptr && !step.result.ok()) return step.result.status();
  std::vector<Tensor> values;
  for (const size_t i : step.awaited) {
    const PreparedStep::Value& value = step.prepared->values[i];
    if (value.feed >= 0) {
      values.push_back(step.returned_feeds[static_cast<size_t>(value.feed)]);
    } else if (flight != nullptr) {
      values.push_back(flight->fetched[static_cast<size_t>(value.fetch)]);
    } else {
      values.push_back(step.result.value()[i]);
    }
  }
  if (step.over) step.result = std::vector<Tensor>();
  return values;
}

Result<std::vector<Tensor>> Session::Impl::RunPart(
    const std::shared_ptr<PartialStep>& step,
    const std::vector<std::pair<std::string, Tensor>>& feeds,
    const std::vector<std::string>& fetches, const RunOptions& options) {
  if (step == nullptr || step->session != id_) {
    return InvalidArgument(
        "the handle of a partial run is empty or of another session; PartialRunSetup of this "
        "session makes one");
  }
  if (options.trace || options.steps != 1 || options.step != 0) {
    return InvalidArgument(
        "RunOptions: trace, steps and step are of a whole step; a part of one has timeout, "
        "cancelled and borrowed_feeds");
  }
  std::vector<std::pair<std::string, Tensor>> own = feeds;
  if (options.borrowed_feeds) {  // they are read after the call
    for (auto& [name, value] : own) {
      MG_ASSIGN_OR_RETURN(value, value.Clone());
    }
  }
  {
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(TakePartLocked(*step, own, fetches));
  }
  // A failed step drops what it is fed.
  for (const auto& [name, value] : own) {
    const auto feed = std::find(step->feed_names.begin(), step->feed_names.end(), FullName(name));
    const auto i = static_cast<size_t>(feed - step->feed_names.begin());
    for (const auto& [peer, edge] : step->prepared->feeds[i].routes)
      worker_->SendTensor(id_, peer, step->steps.first, edge, value);
  }
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  {
    MutexLock lock(mutex_);
    if (StepInFlight* const flight = steps_.FindLast(step->steps.last)) {
      flight->timeout = timeout;
      // Without parts nobody reports an end.
      if (step->awaits_end && step->prepared->parts.empty()) (void)FinishLocked(*flight);
    }
    const StepInFlight* const flight = steps_.FindLast(step->steps.last);
    step->ready.store(flight == nullptr || PartIsHereLocked(*step, *flight),
                      std::memory_order_release);
  }
  if (!WaitOrCancel(step->ready, deadline, step->steps.last, options)) {
    {
      MutexLock lock(mutex_);
      step->awaits_end = true;
      const StepInFlight* const flight = steps_.FindLast(step->steps.last);
      step->ready.store(flight == nullptr, std::memory_order_release);
    }
    Expire(step->steps.last);
    (void)WaitUntil(step->ready, Clock::time_point::max());  // ends as in RunPrepared
  }
  MutexLock lock(mutex_);
  return EndPartLocked(*step);
}

void Session::Impl::CancelPartial(PartialStep& step) {
  {
    MutexLock lock(mutex_);
    if (step.session != id_ || steps_.FindLast(step.steps.last) == nullptr) return;
  }
  OnStepFailed(step.steps.last, Cancelled("step " + std::to_string(StepNumberOf(step.steps.last)) +
                                          ", a partial run, was given up by its caller"));
}

}  // namespace monograph
