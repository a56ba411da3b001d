// A step at one worker. RunStep takes the step's slot, prepares the step, hands it the tensors that
// came before it, and starts it; EndStep frees the slot and reports to the client. A slot also
// keeps what comes early: tensors (parked, by Deliver in messages.cc) and an abort. The steps of a
// row start each other here (StepIssued, EndStep), without a message for each, and the row reports
// once. Steps are started, delivered to, aborted and reported without the session's lock, because
// each of these may end a step, and EndStep takes the lock.
#include <algorithm>
#include <set>

#include "executor/step/unfinished.h"
#include "executor/worker/impl.h"

namespace monograph {

Status Worker::Impl::RefusalLocked(WorkerSession& session, const Request& request,
                                   bool continued) const {
  // Relaxed: a step that comes at the very moment of draining may still begin.
  if (draining_.load(std::memory_order_relaxed) && !continued)
    return TaskLost(task_, task_ + " is shutting down");
  if (request.graph == nullptr) {
    return Aborted("Graph handle is not found: " + std::to_string(request.handle) +
                   ". Possibly this worker (\"" + task_ + "\") just restarted.");
  }
  for (const auto& [peer, why] : session.lost) {
    const std::vector<int>& peers = request.graph->peers;
    if (std::find(peers.begin(), peers.end(), peer) != peers.end()) return why;
  }
  const StepSlot& slot = session.SlotOf(request.step);
  if (slot.step > request.step)
    return Aborted("step " + std::to_string(StepNumberOf(request.step)) +
                   " of a row was given up at " + task_ + ": step " +
                   std::to_string(StepNumberOf(slot.step)) + " took its slot");
  if (slot.step < request.step && slot.state == StepSlot::kRunning) {
    return ResourceExhausted("step " + std::to_string(StepNumberOf(slot.step)) + " still runs at " +
                             task_ + ": more than " + std::to_string(kMaxStepsInFlight) +
                             " steps in flight");
  }
  return Status();
}

std::shared_ptr<Step> Worker::Impl::PrepareLocked(const std::shared_ptr<WorkerSession>& session,
                                                  const Request& request, Early* early) {
  if (request.graph->collectives->used())
    collectives_->StepBegins(session->id, StepNumberOf(request.step),
                             request.graph->collectives.get());
  StepSlot& slot = session->SlotOf(request.step);
  if (slot.step != request.step) slot.Park(request.step);
  slot.state = StepSlot::kRunning;
  slot.graph = request.graph.get();
  ++session->running;
  ++session->begun;
  Running* running = running_.Take();
  running->session = session;
  running->step = request.step;
  running->row = request.row;
  running->in_row = session->RowOf(request.step) != nullptr;
  running->graph = request.graph;
  running->trace = request.trace ? session->NewTrace(request.step) : nullptr;
  slot.running = StepExecutor::Prepare(
      request.graph->plan, request.step, request.graph.get(),
      [this, running](const Status& status) { EndStep(running, status); }, running->trace.get());
  early->tensors.swap(slot.parked);
  slot.room.clear();
  early->aborted = std::exchange(slot.aborted, Status());
  if (running->in_row) {
    early->aborted.Update(session->RowOf(request.step)->status);
    slot.running->OnIssued([this, running] { StepIssued(*running); });
  }
  return slot.running;
}

void Worker::Impl::RunStep(const std::shared_ptr<WorkerSession>& session, Request request,
                           bool caller_computes) {
  const bool continued = request.graph != nullptr;
  std::shared_ptr<Step> step;
  Early early;
  Status refused;
  bool over = true;
  {
    MutexLock lock(session->mutex);
    if (session->closed) return;
    StepSlot& slot = session->SlotOf(request.step);
    if (!continued) {
      if (!session->AllAreNew(request.row)) {
        CountDropped("a second run-step of one step");
        return;
      }
      if (auto it = session->graphs.find(request.handle); it != session->graphs.end())
        request.graph = it->second;
      if (request.row.count() > 1) session->BeginRow(request.row);
    }
    refused = RefusalLocked(*session, request, continued);
    if (refused.ok()) {
      step = PrepareLocked(session, request, &early);
    } else {
      if (slot.step <= request.step && slot.state != StepSlot::kRunning) slot.End(request.step);
      if (StepRow* row = session->RowOf(request.step)) {
        row->End(request.step, refused);
        refused = row->status;
        over = row->in_flight == 0;
        if (over) session->EndRow(request.row);
      }
    }
  }
  if (!refused.ok()) {
    if (over) ReportDone(*session, request.row.last, refused, {});
    return;
  }
  WakeWatch();
  // Not under the lock: a tensor that does not fit its edge ends the step, and EndStep takes the
  // lock.
  for (EarlyTensor& early_one : early.tensors)
    step->Deliver(early_one.edge, std::move(early_one.tensor), early_one.iteration);
  if (early.tensors.capacity() > 0) {  // give the slot its memory back, for later steps
    early.tensors.clear();
    MutexLock lock(session->mutex);
    StepSlot& slot = session->SlotOf(request.step);
    if (slot.parked.capacity() == 0) slot.parked.swap(early.tensors);
  }
  step->Start(caller_computes);
  if (!early.aborted.ok()) step->Abort(early.aborted);
}

void Worker::Impl::StepIssued(const Running& running) {
  uint64_t next = 0;
  {
    MutexLock lock(running.session->mutex);
    StepRow* row = running.session->RowOf(running.step);
    row->issued = true;
    if (!running.session->closed && row->Advance()) next = row->current;
  }
  if (next != 0) {
    RunStep(running.session, {.step = next, .row = running.row, .graph = running.graph}, false);
  }
}

void Worker::Impl::EndStep(Running* running, const Status& status) {
  const std::shared_ptr<WorkerSession> session = std::move(running->session);
  const uint64_t step_id = running->step;
  const StepIds numbers = running->row;
  const bool in_row = running->in_row;
  std::shared_ptr<RegisteredGraph> graph = std::move(running->graph);
  if (graph->collectives->used()) {
    if (!status.ok()) collectives_->StepFailed(session->id, StepNumberOf(step_id), status);
    collectives_->StepEnds(session->id, StepNumberOf(step_id), status.ok());
  }
  running->trace = nullptr;
  running_.Give(running);
  (status.ok() ? steps_done_ : steps_failed_).fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Step> finished;  // freed outside the lock
  std::vector<std::shared_ptr<Step>> useless;
  Status result = status;
  std::string unfinished;
  uint64_t next = 0;
  bool closed, over = true;
  {
    MutexLock lock(session->mutex);
    StepSlot& slot = session->SlotOf(step_id);
    if (slot.step == step_id) {
      finished = std::move(slot.running);
      slot.End(step_id);
    }
    closed = session->closed;
    if (finished != nullptr && TimeIsUp(status)) unfinished = finished->unfinished();
    if (in_row) {
      StepRow* row = session->RowOf(step_id);
      if (!unfinished.empty()) row->unfinished = std::move(unfinished);
      row->End(step_id, status);
      if (closed) row->status.Update(Cancelled("Session has been closed."));
      if (row->Advance()) next = row->current;
      over = row->in_flight == 0;
      result = row->status;
      unfinished = row->unfinished;
      if (over) {
        session->EndRow(numbers);
      } else if (!result.ok()) {
        useless = session->RunningOf(*row);
      }
    }
  }
  for (const auto& step : useless) step->Abort(result);
  if (next != 0) {
    RunStep(session, {.step = next, .row = numbers, .graph = std::move(graph)}, false);
  } else if (over && (!closed || session->client != nullptr)) {
    ReportDone(*session, numbers.last, result, unfinished);
  }
  graph = nullptr;  // freed here if it was deregistered meanwhile
  // Last: CloseSession waits for this count and then lets the peers go.
  MutexLock lock(session->mutex);
  if (--session->running > 0) return;
  session->idle.NotifyAll();
  if (!session->abandoned) return;
  session->graphs.clear();
  LogInfo(task_ + ": the last kernel of session " + std::to_string(session->id) +
          " has ended, which was closed before");
  --left_;
}

void Worker::Impl::ReportDone(WorkerSession& session, uint64_t step_id, const Status& ended,
                              const std::string& unfinished) {
  // The client said itself that the time is up; the answer tells it what took so long.
  const Status status = TimeIsUp(ended) ? DeadlineExceeded(unfinished).AsDerived() : ended;
  if (session.client_peer == kSelf) {
    if (StepClient* client = session.client) client->OnStepDone(step_id, kSelf, status);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kStepDone;
  message.id = static_cast<uint32_t>(session.self_index);
  message.step = step_id;
  message.status = status;
  SendMessage(session, session.client_peer, std::move(message));
}

void Worker::Impl::Crashes(const std::string& computed) {
  std::vector<std::shared_ptr<WorkerSession>> sessions;
  {
    ReaderLock lock(sessions_mutex_);
    for (const auto& [id, session] : sessions_) {
      const bool reports = session->state == WorkerSession::State::kConnected;
      if (reports && session->client_peer != kSelf) sessions.push_back(session);
    }
  }
  const Status why =
      TaskLost(task_, task_ + " crashes while TensorFlow's library computes " + computed);
  for (const auto& session : sessions) {
    std::set<uint64_t> running;  // of a row, its last one
    {
      MutexLock lock(session->mutex);
      for (const StepSlot& slot : session->slots) {
        if (slot.running == nullptr || slot.state != StepSlot::kRunning) continue;
        const StepRow* row = session->RowOf(slot.step);
        running.insert(row != nullptr ? row->numbers.last : slot.step);
      }
    }
    for (const uint64_t step : running) ReportDone(*session, step, why, {});
  }
}

void Worker::Impl::AbortHere(WorkerSession& session, uint64_t step_id, const Status& status) {
  std::vector<std::shared_ptr<Step>> steps;
  {
    MutexLock lock(session.mutex);
    StepSlot& slot = session.SlotOf(step_id);
    if (StepRow* row = session.RowOf(step_id)) {
      row->status.Update(status);  // the next step of the row to begin sees it
      steps = session.RunningOf(*row);
    } else if (slot.Runs(step_id)) {
      steps.push_back(slot.running);
    } else {
      // The abort came first; run-step of this very step may still follow.
      if (slot.step < step_id && slot.state != StepSlot::kRunning) slot.Park(step_id);
      if (slot.Waits(step_id)) slot.aborted = status;
    }
  }
  for (const auto& step : steps) step->Abort(status);
}

}  // namespace monograph
