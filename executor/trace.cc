// From what a step has recorded to the JSON of Chrome's trace viewer. While the step runs, only
// times are noted, one record per node; names, devices and predecessors are added when somebody
// asks for the events (Events). ToChromeJson puts the tasks on one clock: measured offsets are
// right to half a round trip only, so they are corrected until no tensor arrives before it was sent
// (CausalOffsets).
#include "executor/trace.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/mutex.h"
#include "executor/plan/flow_plan.h"
#include "executor/plan/plan.h"
#include "executor/plan/plan_data.h"

namespace monograph {
namespace {

std::string Micros(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ns) / 1000.0);
  return text;
}

// The transfer of a tensor from task to task; each time is by the clock of its own task.
struct Crossing {
  size_t from, to;
  int64_t sent_ns, arrived_ns;
};

std::vector<Crossing> Crossings(std::span<const TaskTrace> tasks) {
  std::unordered_map<int32_t, std::pair<size_t, int64_t>> sent;  // by edge
  for (size_t task = 0; task < tasks.size(); ++task) {
    for (const TraceEvent& event : tasks[task].events) {
      if (event.kind == TraceKind::kSend) sent[event.edge] = {task, event.start_ns};
    }
  }
  std::vector<Crossing> crossings;
  for (size_t task = 0; task < tasks.size(); ++task) {
    for (const TraceEvent& event : tasks[task].events) {
      if (event.kind != TraceKind::kRecv) continue;
      const auto it = sent.find(event.edge);
      if (it == sent.end() || it->second.first == task) continue;
      crossings.push_back({it->second.first, task, it->second.second, event.end_ns});
    }
  }
  return crossings;
}

// The clock offsets of the tasks, lowered as far as is needed for every tensor to arrive after it
// was sent. These are shortest paths by Bellman and Ford: true offsets exist that fit, so one round
// per task is enough.
std::vector<int64_t> CausalOffsets(std::span<const TaskTrace> tasks) {
  std::vector<int64_t> offsets;
  for (const TaskTrace& task : tasks) offsets.push_back(task.clock_offset_ns);
  const std::vector<Crossing> crossings = Crossings(tasks);
  bool moved = true;
  for (size_t round = 0; moved && round < tasks.size(); ++round) {
    moved = false;
    for (const Crossing& crossing : crossings) {
      const int64_t most = crossing.arrived_ns + offsets[crossing.to] - crossing.sent_ns;
      if (offsets[crossing.from] <= most) continue;
      offsets[crossing.from] = most;
      moved = true;
    }
  }
  return offsets;
}

// Edges with exactly one send and one receive: only these are drawn as arrows.
std::set<int32_t> ArrowEdges(std::span<const TaskTrace> tasks) {
  std::unordered_map<int32_t, std::pair<int, int>> ends;  // sends and receives, by edge
  for (const TaskTrace& task : tasks) {
    for (const TraceEvent& event : task.events) {
      if (event.kind == TraceKind::kSend) ++ends[event.edge].first;
      if (event.kind == TraceKind::kRecv) ++ends[event.edge].second;
    }
  }
  std::set<int32_t> edges;
  for (const auto& [edge, count] : ends) {
    if (count == std::pair(1, 1)) edges.insert(edge);
  }
  return edges;
}

// Names of the threads of this process that were traced, by number.
struct ThreadNames {
  Mutex mutex;
  std::vector<std::string> names MG_GUARDED_BY(mutex);
};
ThreadNames& Threads() {
  static auto* const threads = new ThreadNames;  // threads may outlive static objects
  return *threads;
}

int32_t NumberThisThread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  ThreadNames& threads = Threads();
  MutexLock lock(threads.mutex);
  threads.names.emplace_back(name);
  return static_cast<int32_t>(threads.names.size()) - 1;
}

}  // namespace

int64_t TraceClockNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int32_t TraceThread() {
  thread_local const int32_t id = NumberThisThread();
  return id;
}

std::string TraceThreadName(int32_t thread) {
  ThreadNames& threads = Threads();
  MutexLock lock(threads.mutex);
  const auto id = static_cast<size_t>(thread);
  return id < threads.names.size() ? threads.names[id] : std::string();
}

std::vector<int32_t> StepTrace::LastPredecessors() const {
  const PlanData& plan = plan_->data();
  std::vector<int32_t> after(records_.size(), -1);
  const auto end = [this](int32_t id) {
    return id < 0 ? INT64_MIN : records_[static_cast<size_t>(id)].end_ns;
  };
  const auto visit = [&](const auto& successors) {
    for (size_t i = 0; i < records_.size(); ++i) {
      const PlanNode& node = plan.nodes[i];
      if (node.kind == NodeKind::kNextIteration) continue;  // of a loop the first one is traced
      // A node without a record only forwards: its successors have waited for its own predecessor.
      const int32_t self = records_[i].end_ns != 0 ? static_cast<int32_t>(i) : after[i];
      for (uint32_t s = 0; s < node.num_successors; ++s) {
        int32_t& last = after[successors[node.first_successor + s].node];
        if (end(self) > end(last)) last = self;
      }
    }
  };
  if (plan.flow == nullptr) {
    visit(plan.successors);
  } else {
    // In order within a frame; from one to another a pass may be needed for each.
    for (size_t pass = 0; pass < plan.flow->frames.size(); ++pass) visit(plan.flow->successors);
  }
  return after;
}

void StepTrace::Add(TraceEvent event) {
  MutexLock lock(mutex_);
  added_.push_back(std::move(event));
}

std::vector<TraceEvent> StepTrace::Events() const {
  std::vector<TraceEvent> events;
  if (plan_ == nullptr) return events;
  const PlanData& plan = plan_->data();
  const std::vector<int32_t> after = LastPredecessors();
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.end_ns == 0) continue;
    const PlanNode& node = plan.nodes[i];
    TraceEvent event{.name = plan.names[i],
                     .op = std::string(plan.ops[i]),
                     .device = plan.devices[node.device]->name(),
                     .thread = record.thread,
                     .bytes = record.bytes,
                     .start_ns = record.start_ns,
                     .end_ns = record.end_ns,
                     .id = static_cast<int32_t>(i),
                     .after = after[i]};
    if (node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv) {
      const EdgeInfo& edge =
          (node.kind == NodeKind::kSend ? plan.send_edges : plan.recv_edges)[node.aux];
      event.kind = node.kind == NodeKind::kSend ? TraceKind::kSend : TraceKind::kRecv;
      event.name = edge.name;
      event.edge = edge.id;
    }
    events.push_back(std::move(event));
  }
  {
    MutexLock lock(mutex_);
    events.insert(events.end(), added_.begin(), added_.end());
  }
  std::sort(events.begin(), events.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.start_ns < b.start_ns; });
  return events;
}

std::string ToChromeJson(std::span<const TaskTrace> tasks) {
  const std::vector<int64_t> offsets = CausalOffsets(tasks);
  int64_t origin = INT64_MAX;
  for (size_t task = 0; task < tasks.size(); ++task) {
    for (const TraceEvent& event : tasks[task].events)
      origin = std::min(origin, event.start_ns + offsets[task]);
  }
  const std::set<int32_t> arrows = ArrowEdges(tasks);
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  bool first = true;
  std::unordered_map<std::string, std::string> few;  // ops and devices come again and again
  const auto quoted = [&few](const std::string& text) -> const std::string& {
    std::string& known = few[text];
    if (known.empty()) known = JsonQuoted(text);
    return known;
  };
  const auto add = [&](const std::string& line) {
    json += first ? "\n" : ",\n";
    json += line;
    first = false;
  };
  for (size_t pid = 0; pid < tasks.size(); ++pid) {
    const TaskTrace& task = tasks[pid];
    const std::string process = "\"pid\":" + std::to_string(pid);
    add("{\"ph\":\"M\",\"name\":\"process_name\"," + process +
        ",\"args\":{\"name\":" + JsonQuoted(task.task) + "}}");
    std::set<int32_t> threads;
    for (const TraceEvent& event : task.events) threads.insert(event.thread);
    for (const int32_t thread : threads) {
      const auto known = task.threads.find(thread);
      const bool named = known != task.threads.end() && !known->second.empty();
      add("{\"ph\":\"M\",\"name\":\"thread_name\"," + process +
          ",\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":" +
          JsonQuoted(named ? known->second : "thread " + std::to_string(thread)) + "}}");
    }
    for (const TraceEvent& event : task.events) {
      const int64_t start = event.start_ns + offsets[pid] - origin;
      const int64_t duration = event.end_ns - event.start_ns;
      const std::string row = process + ",\"tid\":" + std::to_string(event.thread);
      std::string args = "\"op\":" + quoted(event.op) + ",\"device\":" + quoted(event.device);
      if (event.id >= 0) args += ",\"id\":" + std::to_string(event.id);
      if (event.after >= 0) args += ",\"after\":" + std::to_string(event.after);
      if (event.kind != TraceKind::kNode || event.bytes != 0)
        args += ",\"bytes\":" + std::to_string(event.bytes);
      add("{\"ph\":\"X\"," + row + ",\"name\":" + JsonQuoted(event.name) +
          ",\"cat\":" + quoted(event.op) + ",\"ts\":" + Micros(start) +
          ",\"dur\":" + Micros(duration) + ",\"args\":{" + args + "}}");
      if (event.kind == TraceKind::kNode || arrows.count(event.edge) == 0) continue;
      const bool send = event.kind == TraceKind::kSend;
      add(std::string("{\"ph\":\"") + (send ? "s" : "f\",\"bp\":\"e") + "\"," + row +
          ",\"name\":\"edge\",\"cat\":\"edge\",\"id\":" + std::to_string(event.edge) +
          ",\"ts\":" + Micros(send ? start : start + duration) + "}");
    }
  }
  return json + "\n]}\n";
}

}  // namespace monograph
