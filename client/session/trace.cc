#include "executor/trace.h"

#include "base/log.h"
#include "client/session/impl.h"
#include "executor/worker/worker.pb.h"

namespace monograph {

void Session::Impl::TraceOf(uint64_t step, const PreparedStep& prepared, RunMetadata* metadata) {
  std::vector<TaskTrace> traces;
  std::vector<int> peers;
  std::vector<std::pair<int, std::string>> requests;
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer == kSelf) {
      if (auto trace = worker_->TakeTrace(id_, step)) {
        TaskTrace& own = traces.emplace_back(TaskTrace{worker_->task(), 0, trace->Events()});
        for (const TraceEvent& event : own.events) {
          auto [name, added] = own.threads.try_emplace(event.thread);
          if (added) name->second = TraceThreadName(event.thread);
        }
      }
      continue;
    }
    wire::TakeTraceRequest request;
    request.set_session(id_);
    request.set_step(step);
    peers.push_back(part.peer);
    requests.emplace_back(part.peer, request.SerializeAsString());
  }
  std::vector<Result<std::string>> responses;
  if (!requests.empty())
    responses = cluster_->Call("TakeTrace", std::move(requests), kControlTimeout);
  for (size_t i = 0; i < responses.size(); ++i) {
    wire::TakeTraceResponse response;
    Status status = responses[i].status();
    if (status.ok() && !response.ParseFromString(responses[i].value()))
      status = Internal("malformed answer to TakeTrace from " + TaskName(peers[i]));
    if (!status.ok()) {
      metadata->trace_error += (metadata->trace_error.empty() ? "" : "; ") + status.ToString();
      continue;
    }
    TaskTrace trace{.task = TaskName(peers[i]),
                    .clock_offset_ns = -cluster_->ClockOffset(peers[i]),
                    .events = {},
                    .threads = {response.threads().begin(), response.threads().end()}};
    for (const wire::TraceEvent& event : response.events()) {
      trace.events.push_back({static_cast<TraceKind>(event.kind()), event.name(), event.op(),
                              event.device(), event.thread(), event.edge(), event.bytes(),
                              event.start_ns(), event.end_ns(), event.id(), event.after()});
    }
    traces.push_back(std::move(trace));
  }
  if (!metadata->trace_error.empty()) {
    LogWarning("the trace of step " + std::to_string(StepNumberOf(step)) +
               " is not complete: " + metadata->trace_error);
  }
  metadata->trace_json = ToChromeJson(traces);
}

}  // namespace monograph
