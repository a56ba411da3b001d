// ClusterSpec from JSON, a file, a flag or lists of hosts. Every way ends in AddTask, which checks
// the job's name, the address, and that no other task has it, so that an error names the same job
// and task however the cluster was given.
#include "client/cluster.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/input_file.h"
#include "base/json_value.h"
#include "transport/control/host_port.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

bool IsJobName(const std::string& name) {
  Result<DeviceName> device = DeviceName::Parse("/job:" + name);
  return device.ok() && device->job == name;
}

}  // namespace

Status ClusterSpec::AddTask(const std::string& job, int task, const std::string& address) {
  if (!IsJobName(job)) {
    return InvalidArgument("job name '" + job +
                           "' must be a letter followed by letters, digits or '_'");
  }
  if (task < 0)
    return InvalidArgument("task " + std::to_string(task) + " of job " + job + " is negative");
  MG_ASSIGN_OR_RETURN(const control::HostPort parsed, control::ParseHostPort(address));
  for (const auto& [other, tasks] : jobs_) {
    for (const auto& [index, there] : tasks) {
      if (there != parsed.ToString() || (other == job && index == task)) continue;
      return InvalidArgument("'" + there + "' is already the address of " + other + "/" +
                             std::to_string(index));
    }
  }
  if (!jobs_[job].emplace(task, parsed.ToString()).second) {
    return AlreadyExists("two addresses for task " + std::to_string(task) + " of job " + job);
  }
  return Status();
}

Result<ClusterSpec> ClusterSpec::FromJson(std::string_view text, std::string_view source) {
  const std::string where(source);
  Result<Json> parsed = ParseJson(text, source);
  if (!parsed.ok()) {
    return parsed.status().WithMessage(
        parsed.status().message() +
        "; expected something like {\"ps\": [\"host:port\"], \"worker\": [\"host:port\"]}");
  }
  const Json json = std::move(parsed).value();
  if (!json.is_object())
    return InvalidArgument(where + ": a cluster is an object {\"job\": [\"host:port\", ...]}");
  if (json.contains("cluster") && json["cluster"].is_object() && json.contains("task")) {
    return InvalidArgument(where +
                           ": this is TensorFlow's TF_CONFIG; give what its \"cluster\" holds "
                           "alone, and what its \"task\" says with flags");
  }
  ClusterSpec cluster;
  for (const auto& [job, tasks] : json.items()) {
    if (!tasks.is_array() && !tasks.is_object()) {
      return InvalidArgument(
          where + ", job '" + job +
          "': expected a list of \"host:port\" or an object {\"0\": \"host:port\"}");
    }
    int position = 0;
    for (const auto& [key, address] : tasks.items()) {
      int task = position++;
      if (tasks.is_object()) {
        if (key.empty() || key.size() > 8 ||
            key.find_first_not_of("0123456789") != std::string::npos) {
          return InvalidArgument(where + ", job '" + job + "': task index '" + key +
                                 "' is not a number");
        }
        task = std::stoi(key);
      }
      const std::string place = where + ", job '" + job + "', task " + std::to_string(task);
      if (!address.is_string())
        return InvalidArgument(place + ": expected \"host:port\", not " + JsonExcerpt(address));
      if (Status status = cluster.AddTask(job, task, address.get<std::string>()); !status.ok()) {
        return status.WithContext(place);
      }
    }
    if (position == 0) return InvalidArgument(where + ", job '" + job + "' has no tasks");
  }
  if (cluster.empty()) return InvalidArgument(where + ": the cluster has no jobs");
  return cluster;
}

Result<ClusterSpec> ClusterSpec::FromFile(const std::string& path) {
  MG_ASSIGN_OR_RETURN(const std::string text, ReadFileOrPipe("cluster file", path));
  return FromJson(text, path);
}

Result<ClusterSpec> ClusterSpec::FromFlag(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first != std::string::npos && text[first] == '{') return FromJson(text, "--cluster");
  return FromFile(text);
}

Result<ClusterSpec> ClusterSpec::FromHosts(const std::map<std::string, std::string>& hosts_by_job) {
  ClusterSpec cluster;
  for (const auto& [job, hosts] : hosts_by_job) {
    std::istringstream list(hosts);
    std::string address;
    for (int task = 0; std::getline(list, address, ','); ++task) {
      if (Status status = cluster.AddTask(job, task, address); !status.ok()) {
        return status.WithContext("--" + job + "_hosts, task " + std::to_string(task));
      }
    }
  }
  if (cluster.empty())
    return InvalidArgument(
        "the cluster has no tasks; give --cluster=FILE or --worker_hosts=host:port,...");
  return cluster;
}

int ClusterSpec::num_tasks(const std::string& job) const {
  auto it = jobs_.find(job);
  return it == jobs_.end() ? 0 : static_cast<int>(it->second.size());
}

Result<std::string> ClusterSpec::Address(const std::string& job, int task) const {
  auto it = jobs_.find(job);
  if (it != jobs_.end()) {
    if (auto found = it->second.find(task); found != it->second.end()) return found->second;
  }
  std::string known;
  for (const auto& [name, tasks] : jobs_) {
    for (const auto& [index, address] : tasks)
      known += (known.empty() ? "" : ", ") + name + "/" + std::to_string(index);
  }
  return NotFound("task " + std::to_string(task) + " of job '" + job +
                  "' is not in the cluster; it has " + known);
}

std::vector<std::string> ClusterSpec::Tasks(const std::string& job) const {
  std::vector<std::string> names;
  if (auto it = jobs_.find(job); it != jobs_.end()) {
    for (const auto& [task, address] : it->second)
      names.push_back("/job:" + job + "/task:" + std::to_string(task));
  }
  return names;
}

std::string ClusterSpec::ToJson() const {
  Json json = Json::object();
  for (const auto& [job, tasks] : jobs_) {
    const bool dense = tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
    for (const auto& [task, address] : tasks) {
      if (dense) {
        json[job].push_back(address);
      } else {
        json[job][std::to_string(task)] = address;
      }
    }
  }
  return JsonText(json);
}

}  // namespace monograph
