// ClusterSpec: the tasks of a cluster: TensorFlow's dictionary of job name to addresses.
//
//   {"ps": ["node0:2222"], "worker": ["node1:2222", "node2:2222"]}
//   {"worker": {"1": "node2:2222"}}                                     by index
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_name.h"
#include "base/status.h"

namespace monograph {

class ClusterSpec {
 public:
  ClusterSpec() = default;

  // InvalidArgument with `source` (a path, say), line and column for text that is no JSON, and with
  // the job and task for what is no address or names one task twice.
  static Result<ClusterSpec> FromJson(std::string_view text, std::string_view source);
  // NotFound or InvalidArgument naming the path.
  static Result<ClusterSpec> FromFile(const std::string& path);
  // What a --cluster flag may hold: a path, or the JSON itself.
  static Result<ClusterSpec> FromFlag(const std::string& text);
  // "a:1,b:2" lists, as of the flags --ps_hosts and --worker_hosts. Empty lists are left out.
  static Result<ClusterSpec> FromHosts(const std::map<std::string, std::string>& hosts_by_job);

  // InvalidArgument for a bad name or address, AlreadyExists for a task that is there already.
  Status AddTask(const std::string& job, int task, const std::string& address);

  bool empty() const { return jobs_.empty(); }
  const std::map<std::string, std::map<int, std::string>>& jobs() const { return jobs_; }
  int num_tasks(const std::string& job) const;
  // NotFound lists the tasks that there are.
  Result<std::string> Address(const std::string& job, int task) const;
  // "/job:worker/task:0", ... in order.
  std::vector<std::string> Tasks(const std::string& job) const;
  std::string ToJson() const;

 private:
  std::map<std::string, std::map<int, std::string>> jobs_;
};

}  // namespace monograph
