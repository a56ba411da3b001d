// `monograph status`: one short-lived control connection to every task, all at once, and then the
// answers as a table or as JSON. It opens no session, so it works while others train and says which
// tasks do not answer, instead of failing at the first. The mutex guards the answers, which arrive
// on the io thread.
#include "tools/cluster_status.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/byte_size.h"
#include "base/device_name.h"
#include "base/json_value.h"
#include "base/mutex.h"
#include "client/cluster_connection.h"
#include "client/registries.h"
#include "executor/worker/worker.pb.h"
#include "tools/columns.h"
#include "transport/control/channel.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

std::string Duration(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 86400) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld d %lld:%02lld", whole / 86400, whole / 3600 % 24,
                  whole / 60 % 60);
  }
  return text;
}

// `task`: who answers. A failure of the connection names it already.
Result<TaskStatus> Parse(const Result<std::string>& answer, const std::string& task) {
  MG_RETURN_IF_ERROR(answer.status());
  wire::StatusResponse response;
  if (!response.ParseFromString(answer.value()))
    return Internal(task + ": malformed answer to Status");
  return ToTaskStatus(response);
}

// A call of Status to every task. Answers arrive on the io thread.
struct Question {
  explicit Question(size_t tasks)
      : missing(tasks), answers(tasks, Result<TaskStatus>(TaskStatus())), channels(tasks) {}

  Mutex mutex;
  CondVar answered;
  size_t missing MG_GUARDED_BY(mutex);
  std::vector<Result<TaskStatus>> answers MG_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<control::Channel>> channels MG_GUARDED_BY(mutex);

  void Answer(size_t task, Result<TaskStatus> status) {
    MutexLock lock(mutex);
    answers[task] = std::move(status);
    if (--missing == 0) answered.NotifyAll();
  }
};

}  // namespace

std::vector<ClusterTask> AskCluster(const ClusterSpec& cluster,
                                    const std::optional<control::KeyRing>& key,
                                    std::chrono::milliseconds timeout) {
  std::vector<ClusterTask> tasks;
  for (const auto& [job, addresses] : cluster.jobs()) {
    for (const auto& [index, address] : addresses) {
      const DeviceName name{.job = job, .replica = 0, .task = index};
      tasks.push_back({name.TaskName(), address, Unavailable("not asked")});
    }
  }
  Question question(tasks.size());
  std::vector<std::unique_ptr<control::Channel>> channels;
  const auto deadline = Clock::now() + timeout;
  for (size_t i = 0; i < tasks.size(); ++i) {
    control::ChannelOptions options;
    options.key = key;
    options.hello.task_name = "/job:client/replica:0/task:0";
    options.hello.fingerprint = std::to_string(DefaultRegistries().ops.fingerprint());
    options.timeout = timeout;
    options.expected_task = tasks[i].task;
    options.on_waiting = [](const std::string&) {};  // the table shows who does not answer
    control::Channel::ConnectAsync(
        tasks[i].address, std::move(options),
        [&question, i, deadline](Result<std::unique_ptr<control::Channel>> channel) {
          if (!channel.ok()) return question.Answer(i, channel.status());
          control::Channel* const connected = channel->get();
          {
            MutexLock lock(question.mutex);
            question.channels[i] = std::move(channel).value();
          }
          const auto left =
              std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
          connected->CallAsync("Status", "", std::max(left, std::chrono::milliseconds(500)),
                               [&question, i, connected](Result<std::string> answer) {
                                 question.Answer(i, Parse(answer, connected->peer_name()));
                               });
        });
  }
  {
    MutexLock lock(question.mutex);
    // Each answer has its deadline.
    question.answered.Wait(question.mutex,
                           [&]() MG_REQUIRES(question.mutex) { return question.missing == 0; });
    for (size_t i = 0; i < tasks.size(); ++i) tasks[i].status = std::move(question.answers[i]);
    channels.swap(question.channels);
  }
  channels.clear();  // without the lock: it waits for the io thread
  for (ClusterTask& task : tasks) {
    if (task.status.ok()) task.status->address = task.address;
  }
  return tasks;
}

std::string FormatClusterStatus(const std::vector<ClusterTask>& tasks) {
  std::vector<std::vector<std::string>> rows = {
      {"task", "address", "pid", "up", "CPU", "memory", "variables", "sessions", "graphs", "steps",
       "failed", "sent", "received", "messages sent", "received"}};
  std::string missing;
  for (const ClusterTask& task : tasks) {
    if (!task.status.ok()) {
      missing += task.status.status().message() + "\n";
      continue;
    }
    const TaskStatus& s = task.status.value();
    rows.push_back(
        {task.task, task.address, std::to_string(s.process_id), Duration(s.uptime_seconds),
         Duration(s.cpu_seconds), BytesText(s.resident_bytes), BytesText(s.resource_bytes),
         std::to_string(s.sessions), std::to_string(s.graphs), std::to_string(s.steps_done),
         std::to_string(s.steps_failed), BytesText(static_cast<int64_t>(s.bytes_sent)),
         BytesText(static_cast<int64_t>(s.bytes_received)), std::to_string(s.messages_sent),
         std::to_string(s.messages_received)});
  }
  return (rows.size() > 1 ? AlignColumns(rows, 2) : "") + missing;
}

std::string ClusterStatusJson(const std::vector<ClusterTask>& tasks) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson list = OrderedJson::array();
  for (const ClusterTask& task : tasks) {
    OrderedJson one = {{"task", task.task}, {"address", task.address}, {"up", task.status.ok()}};
    if (task.status.ok()) {
      const TaskStatus& s = task.status.value();
      one.update({{"process_id", s.process_id},
                  {"uptime_seconds", s.uptime_seconds},
                  {"cpu_seconds", s.cpu_seconds},
                  {"resident_bytes", s.resident_bytes},
                  {"variable_bytes", s.resource_bytes},
                  {"sessions", s.sessions},
                  {"graphs", s.graphs},
                  {"running_steps", s.running_steps},
                  {"steps_done", s.steps_done},
                  {"steps_failed", s.steps_failed},
                  {"bytes_sent", s.bytes_sent},
                  {"bytes_received", s.bytes_received},
                  {"messages_sent", s.messages_sent},
                  {"messages_received", s.messages_received},
                  {"messages_dropped", s.messages_dropped},
                  {"cuda_graphs_captured", s.cuda_graphs_captured},
                  {"cuda_graphs_replayed", s.cuda_graphs_replayed},
                  {"cuda_graph_fallbacks", s.cuda_graph_fallbacks},
                  {"cuda_nodes_launched", s.cuda_nodes_launched}});
    } else {
      one["code"] = CodeName(task.status.status().code());
      one["error"] = task.status.status().message();
    }
    list.push_back(std::move(one));
  }
  return JsonText(OrderedJson{{"monograph_status", 1}, {"tasks", std::move(list)}}, 2) + "\n";
}

}  // namespace monograph
