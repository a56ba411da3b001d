#include "executor/worker/task_status.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "executor/worker/worker.h"
#include "executor/worker/worker.pb.h"

namespace monograph {
namespace {

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Field 22 of the process's stat is its start, in ticks since boot; field 2 is its name in
// parentheses, which may hold spaces. 0 where there is no /proc.
double UptimeSeconds() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  timespec now{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 -
         std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

void DescribeTask(const Worker& worker, wire::StatusResponse* response) {
  response->set_task(worker.task());
  response->set_incarnation(worker.incarnation());
  for (const DeviceInfo& info : worker.devices()) {
    wire::Device* device = response->add_devices();
    device->set_name(info.name.ToString());
    device->set_description(info.description);
    device->set_memory_limit(info.memory_limit);
    device->set_link(info.link);
  }
  if (const KernelRegistry* kernels = worker.gpu_kernels(); kernels != nullptr) {
    for (const KernelRegistry::Entry* entry : kernels->All()) {
      wire::Kernel* kernel = response->add_gpu_kernels();
      kernel->set_op(entry->def.op);
      for (const auto& [name, dtype] : entry->def.types) {
        kernel->add_attrs(name);
        kernel->add_dtypes(dtype);
      }
    }
  }
  const TransportStats moved = worker.transport_stats();
  response->set_messages_sent(moved.messages_sent);
  response->set_messages_received(moved.messages_received);
  response->set_bytes_sent(moved.bytes_sent);
  response->set_bytes_received(moved.bytes_received);
  const WorkerStats stats = worker.stats();
  response->set_resource_bytes(worker.resources().bytes());
  response->set_sessions(stats.sessions);
  response->set_graphs(stats.graphs);
  response->set_running_steps(stats.running_steps);
  response->set_steps_done(stats.steps_done);
  response->set_steps_failed(stats.steps_failed);
  response->set_messages_dropped(stats.messages_dropped);
  response->set_cuda_graphs_captured(stats.cuda_graphs_captured);
  response->set_cuda_graphs_replayed(stats.cuda_graphs_replayed);
  response->set_cuda_graph_fallbacks(stats.cuda_graph_fallbacks);
  response->set_cuda_nodes_launched(stats.cuda_nodes_launched);
  response->set_process_id(getpid());
  response->set_uptime_seconds(UptimeSeconds());
  response->set_cpu_seconds(CpuSeconds());
  response->set_resident_bytes(ResidentBytes());
}

TaskStatus ToTaskStatus(const wire::StatusResponse& response) {
  TaskStatus status;
  status.task = response.task();
  status.incarnation = response.incarnation();
  status.process_id = response.process_id();
  status.uptime_seconds = response.uptime_seconds();
  status.cpu_seconds = response.cpu_seconds();
  status.resident_bytes = response.resident_bytes();
  status.resource_bytes = response.resource_bytes();
  status.sessions = response.sessions();
  status.graphs = response.graphs();
  status.running_steps = response.running_steps();
  status.steps_done = response.steps_done();
  status.steps_failed = response.steps_failed();
  status.messages_dropped = response.messages_dropped();
  status.cuda_graphs_captured = response.cuda_graphs_captured();
  status.cuda_graphs_replayed = response.cuda_graphs_replayed();
  status.cuda_graph_fallbacks = response.cuda_graph_fallbacks();
  status.cuda_nodes_launched = response.cuda_nodes_launched();
  status.messages_sent = response.messages_sent();
  status.messages_received = response.messages_received();
  status.bytes_sent = response.bytes_sent();
  status.bytes_received = response.bytes_received();
  return status;
}

}  // namespace monograph
