// The critical path of a step from its trace: Read turns the JSON into events, Threads orders the
// events of each thread, and FindCriticalPath goes back from the event that ended last, prepending
// one segment at a time. It goes back through what happened rather than searching the graph for a
// longest path: a thread that was busy delays a kernel just as a late input does, and the graph
// does not know of threads.
#include "tools/critical_path.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_value.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

struct Event {
  std::string name, op;
  int task = 0, thread = 0;
  double start = 0, end = 0;
  int edge = -1;   // of a send or receive
  int after = -1;  // id in the same task
};

struct Trace {
  std::map<int, std::string> tasks;
  std::vector<Event> events;
  std::map<std::pair<int, int>, size_t> by_id;  // (task, id)
  std::map<int, size_t> sends;                  // by edge
};

// Arrows carry the edge of the send or receive that was listed right before them.
Result<Trace> Read(std::string_view text) {
  MG_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "trace"));
  if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array())
    return InvalidArgument("not a trace: a JSON object with \"traceEvents\" is expected");
  Trace trace;
  try {
    for (const Json& line : json["traceEvents"]) {
      const std::string phase = line.at("ph").get<std::string>();
      const int task = line.at("pid").get<int>();
      if (phase == "M" && line.at("name") == "process_name") {
        trace.tasks[task] = line.at("args").at("name").get<std::string>();
      } else if (phase == "X") {
        Event event{.name = line.at("name").get<std::string>(),
                    .op = line.value("cat", ""),
                    .task = task,
                    .thread = line.value("tid", 0),
                    .start = line.at("ts").get<double>()};
        event.end = event.start + line.at("dur").get<double>();
        const Json args = line.value("args", Json::object());
        event.after = args.value("after", -1);
        if (const int id = args.value("id", -1); id >= 0)
          trace.by_id[{task, id}] = trace.events.size();
        trace.events.push_back(std::move(event));
      } else if ((phase == "s" || phase == "f") && !trace.events.empty()) {
        trace.events.back().edge = line.at("id").get<int>();
        if (phase == "s") trace.sends[trace.events.back().edge] = trace.events.size() - 1;
      }
    }
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("not a trace of this program: ") + error.what());
  }
  if (trace.events.empty()) return FailedPrecondition("the trace has no events");
  return trace;
}

// The events of each thread in order of start, without receives, which occupy no thread.
class Threads {
 public:
  explicit Threads(const Trace& trace) {
    for (const Event& event : trace.events) {
      if (event.op != "_Recv") ran_[{event.task, event.thread}].push_back(&event);
    }
    for (auto& [thread, events] : ran_) std::stable_sort(events.begin(), events.end(), Earlier);
  }
  // What the event's thread ran right before it, or nullptr if it is the thread's first event.
  const Event* Before(const Event& event) const {
    const auto found = ran_.find({event.task, event.thread});
    if (found == ran_.end()) return nullptr;
    const auto at = std::lower_bound(found->second.begin(), found->second.end(), &event, Earlier);
    return at == found->second.begin() ? nullptr : *std::prev(at);
  }

 private:
  static bool Earlier(const Event* a, const Event* b) { return a->start < b->start; }
  std::map<std::pair<int, int>, std::vector<const Event*>> ran_;
};

// Ops that wait for other clients or tasks inside their kernel.
bool Waits(const std::string& op) {
  for (const char* prefix : {"Queue", "Accumulator", "ConditionalAccumulator", "SparseAccumulator",
                             "ResourceAccumulator", "MonographSparseAccumulator", "Barrier",
                             "Collective", "MonographAllReduce", "MonographStepGate"}) {
    if (op.starts_with(prefix)) return true;
  }
  return false;
}

// Builds the chain from its end.
class Chain {
 public:
  Chain(const Trace& trace, double end) : trace_(trace), begin_(end) {}

  // What happened from `start` to where the chain begins now.
  void Prepend(PathSegment::Kind kind, const std::string& name, const std::string& op, int task,
               double start) {
    if (start >= begin_) return;
    const auto found = trace_.tasks.find(task);
    path_.segments.push_back(
        {kind, name, op, found == trace_.tasks.end() ? "" : found->second, start, begin_ - start});
    begin_ = start;
  }

  CriticalPath Take(double origin) {
    for (PathSegment& segment : path_.segments) {
      segment.start_us -= origin;
      path_.total_us += segment.us;
      (segment.kind == PathSegment::Kind::kCompute    ? path_.compute_us
       : segment.kind == PathSegment::Kind::kTransfer ? path_.transfer_us
                                                      : path_.wait_us) += segment.us;
    }
    std::reverse(path_.segments.begin(), path_.segments.end());
    return std::move(path_);
  }

 private:
  const Trace& trace_;
  double begin_;
  CriticalPath path_;
};

}  // namespace

Result<CriticalPath> FindCriticalPath(std::string_view chrome_json) {
  MG_ASSIGN_OR_RETURN(const Trace trace, Read(chrome_json));
  const auto by_end = [](const Event& a, const Event& b) { return a.end < b.end; };
  const auto by_start = [](const Event& a, const Event& b) { return a.start < b.start; };
  const Event* at = &*std::max_element(trace.events.begin(), trace.events.end(), by_end);
  const double origin = std::min_element(trace.events.begin(), trace.events.end(), by_start)->start;

  using Kind = PathSegment::Kind;
  Chain chain(trace, at->end);
  const Threads threads(trace);
  // Each event comes up at most once: inputs are edges of a graph without cycles, and what a thread
  // ran before began earlier.
  for (size_t left = trace.events.size(); left > 0; --left) {
    const bool received = at->op == "_Recv";
    const auto send = received ? trace.sends.find(at->edge) : trace.sends.end();
    if (received && send == trace.sends.end()) {
      chain.Prepend(Kind::kTransfer, at->name, at->op, at->task,
                    origin);  // a feed, from the client
      break;
    }
    if (received) {
      const Event& source = trace.events[send->second];
      chain.Prepend(Kind::kTransfer, at->name, at->op, at->task, source.start);
      at = &source;
    } else {
      chain.Prepend(Waits(at->op) ? Kind::kWait : Kind::kCompute, at->name, at->op, at->task,
                    at->start);
    }
    const auto input = trace.by_id.find({at->task, at->after});
    const Event* before = input == trace.by_id.end() ? nullptr : &trace.events[input->second];
    const Event* busy = threads.Before(*at);
    if (before == nullptr || (busy != nullptr && busy->end > before->end)) before = busy;
    if (before == nullptr) {
      chain.Prepend(Kind::kWait, "start of the step", "", at->task, origin);
      break;
    }
    chain.Prepend(Kind::kWait, at->name, "", at->task, before->end);
    at = before;
  }
  return chain.Take(origin);
}

std::string_view PathKindName(PathSegment::Kind kind) {
  switch (kind) {
    case PathSegment::Kind::kCompute:
      return "compute";
    case PathSegment::Kind::kTransfer:
      return "transfer";
    case PathSegment::Kind::kWait:
      return "wait";
  }
  return "";
}

}  // namespace monograph
