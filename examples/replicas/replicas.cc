// The replicas' flags and what they mean on a cluster. All checks run before a session is opened,
// so that a wrong flag fails at once and not after the cluster has started: FindPlace does what
// there is to do without one, once for the checks and once for the run.
#include "examples/replicas/replicas.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/device_name.h"
#include "base/log.h"
#include "client/host.h"
#include "tools/run_metrics.h"

namespace monograph::examples {

void ReplicaFlags::AddReplicasTo(Flags* flags) {
  flags->AddChoice("replication", &replication, {"in_graph", "between_graph", "hybrid"},
                   "in_graph: one client, one graph, a replica per worker; between_graph: a client "
                   "per worker, each with a graph of its own (start one with each --task_index, or "
                   "use monograph launch); hybrid: the same with several replicas per worker");
  flags->AddChoice("variable_update", &variable_update,
                   {"parameter_server", "replicated", "central"},
                   "variables: spread over the tasks of job ps; a copy beside each replica, all "
                   "updated by the sum of all gradients; or all on one device");
  flags->AddChoice(
      "central_device", &central_device, {"worker", "client"},
      "--variable_update=central: that device: beside the first replica, or the CPU of "
      "this program");
  flags->AddChoice("gradient_dtype", &gradient_dtype, {"float", "bfloat16"},
                   "how gradients travel: bfloat16 is half the bytes, with 8 bits of each number");
  flags->Add("replicas_to_aggregate", &replicas_to_aggregate,
             "workers in step by parameter servers: gradients that make an update; with fewer than "
             "there are workers, who comes last in a step is not waited for. 0: all",
             0);
  flags->Add("worker_timeout", &worker_timeout,
             "workers in step: longest wait for another worker, in seconds; then the run fails and "
             "names it");
  flags->Add("job_name", &job_name,
             "between_graph: worker, or ps: serve as that task until SIGTERM");
  flags->Add("task_index", &task_index,
             "between_graph: this client's worker; 0 is the chief. Needed with several workers, "
             "unless MONOGRAPH_TASK or the rank that srun or mpirun gives says it",
             0);
  flags->Add("num_replicas", &num_replicas,
             "workers that take part; default: every task of job worker, or 1 without a cluster", 0,
             kMostReplicas);
  flags->Add(
      "replicas_per_worker", &replicas_per_worker,
      "hybrid: CPU devices of each worker that hold a replica; monograph launch gives workers so "
      "many, by hand it is monograph-executor's --cpu_devices",
      1, kMostReplicas);
  flags->AddChoice(
      "ps_strategy", &ps_strategy, {"greedy", "round_robin"},
      "which task of job ps gets a variable: the one with the fewest bytes, or each in "
      "turn");
  flags->Add("max_variable_bytes", &max_variable_bytes,
             "cut larger variables into parts, so that several tasks of job ps share one; 0: none",
             0);
}

Status ReplicaFlags::CheckReplicas() const {
  if (async && sync) return InvalidArgument("give either --async or --sync, not both");
  if (sync && replication == "hybrid")
    return InvalidArgument("--replication=hybrid is async between workers: leave out --sync");
  if (async && variable_update == "replicated")
    return InvalidArgument("--variable_update=replicated keeps in step: leave out --async");
  if (central_device != "worker" && variable_update != "central")
    return InvalidArgument("--central_device is for --variable_update=central");
  if (!(worker_timeout > 0)) return InvalidArgument("--worker_timeout must be greater than 0");
  if (job_name != "worker" && job_name != "ps")
    return InvalidArgument("--job_name is worker or ps, not '" + job_name + "'");
  return Status();
}

namespace {

// The device of replica `i` of those in `task`.
std::string DeviceIn(const std::string& task, int i, const ReplicaFlags& flags) {
  return task + "/device:" +
         (flags.num_gpus > 0 ? flags.gpu_device + ":" + std::to_string(i % flags.num_gpus)
                             : "CPU:" + std::to_string(i));
}

// The devices of this client's replicas on a cluster.
Result<std::vector<std::string>> Replicas(const ReplicaFlags& flags, const ClusterSpec& cluster,
                                          int own, Layout* layout) {
  std::vector<std::string> workers = cluster.Tasks("worker");
  if (workers.empty())
    return InvalidArgument("the cluster has no job 'worker': its tasks hold the replicas");
  if (flags.num_replicas > static_cast<int>(workers.size())) {
    return InvalidArgument("--num_replicas=" + std::to_string(flags.num_replicas) +
                           ", but job worker has " + std::to_string(workers.size()) + " tasks");
  }
  if (flags.num_replicas > 0) workers.resize(static_cast<size_t>(flags.num_replicas));
  std::vector<std::string> devices;
  if (flags.in_graph()) {
    if (flags.num_gpus == 0) return workers;
    for (const std::string& worker : workers) {
      for (int i = 0; i < flags.num_gpus; ++i) devices.push_back(DeviceIn(worker, i, flags));
    }
    return devices;
  }
  layout->workers = static_cast<int>(workers.size());
  layout->rank = own;
  if (layout->rank < 0 || layout->rank >= layout->workers) {
    return InvalidArgument("--task_index=" + std::to_string(layout->rank) + ", but there are " +
                           std::to_string(layout->workers) + " workers");
  }
  layout->worker_names = workers;
  const std::string worker = workers[static_cast<size_t>(own)];
  if (flags.replication == "between_graph") {
    devices = {flags.num_gpus == 0 ? worker : DeviceIn(worker, own, flags)};
    return devices;
  }
  for (int i = 0; i < flags.replicas_per_worker; ++i) devices.push_back(DeviceIn(worker, i, flags));
  return devices;
}

// --job_name=ps: this process is that task, until it is told to end.
Status Serve(const ReplicaFlags& flags, const ClusterSpec& cluster, int index) {
  const SessionOptions& session = flags.session.options;
  EndSignals signals;
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> server,
      HostTask(cluster, "ps", index,
               {.key = session.key,
                .inter_op_parallelism_threads = session.inter_op_parallelism_threads,
                .intra_op_parallelism_threads = session.intra_op_parallelism_threads,
                .transport = session.transport}));
  LogInfo(server->worker().task() + " listens on " + server->address());
  LogInfo(signals.Wait() + ": draining");
  server->Stop(std::chrono::seconds(10));
  return Status();
}

}  // namespace

Result<Layout> MakeLayout(const ReplicaFlags& flags, const std::optional<ClusterSpec>& cluster,
                          int own) {
  Layout layout;
  if (!cluster) {
    if (!flags.in_graph()) {
      return InvalidArgument("--replication=" + flags.replication +
                             " has a client per worker of a cluster: give --cluster, or use "
                             "monograph launch");
    }
    const std::string task = "/job:localhost/replica:0/task:0";
    layout.client = task + "/device:CPU:0";
    const int replicas = flags.num_replicas > 0 ? flags.num_replicas : flags.num_gpus;
    for (int i = 0; i < std::max(1, replicas); ++i)
      layout.replicas.push_back(DeviceIn(task, i, flags));
    return layout;
  }
  layout.client = "/job:client/replica:0/task:0";
  MG_ASSIGN_OR_RETURN(layout.replicas, Replicas(flags, *cluster, own, &layout));
  if (flags.central_device == "client") layout.variables = {layout.client + "/device:CPU:0"};
  if (flags.variable_update == "parameter_server") {
    layout.variables = cluster->Tasks("ps");
    if (layout.variables.empty()) {
      return InvalidArgument(
          "--variable_update=parameter_server needs a job 'ps' in the cluster; without one use "
          "--variable_update=replicated or, in one graph, central");
    }
  }
  return layout;
}

Result<Place> FindPlace(const ReplicaFlags& flags) {
  Place place;
  MG_ASSIGN_OR_RETURN(place.cluster, flags.session.Cluster());
  const std::optional<ClusterSpec>& cluster = place.cluster;
  const bool serves = flags.job_name == "ps";
  place.own.index = flags.task_index.value_or(0);
  if (cluster && (!flags.in_graph() || serves)) {
    MG_ASSIGN_OR_RETURN(place.own,
                        FindOwnTask(*cluster, flags.job_name, flags.task_index, "--task_index"));
  }
  const int own = place.own.index;
  if (serves) {
    if (!cluster) return InvalidArgument("--job_name=ps needs a cluster: give --cluster");
    MG_RETURN_IF_ERROR(cluster->Address("ps", own).status());
    return place;
  }
  const bool left_out = cluster && !flags.in_graph() && flags.num_replicas > 0 &&
                        own >= flags.num_replicas && own < cluster->num_tasks("worker");
  if (left_out) return place;
  MG_ASSIGN_OR_RETURN(place.layout, MakeLayout(flags, cluster, own));
  return place;
}

Status RunReplicas(const ReplicaFlags& flags,
                   const std::function<Status(const std::optional<ClusterSpec>& cluster,
                                              const Layout& layout)>& train) {
  MG_ASSIGN_OR_RETURN(const Place place, FindPlace(flags));
  if (place.cluster && (!flags.in_graph() || flags.job_name == "ps"))
    LogOwnTask(flags.job_name, place.own);
  if (flags.job_name == "ps") return Serve(flags, *place.cluster, place.own.index);
  if (place.layout) return train(place.cluster, *place.layout);
  std::printf("Worker: %d takes no part: --num_replicas=%d\n", place.own.index, flags.num_replicas);
  return Status();
}

SessionFlags SessionOf(const ReplicaFlags& flags, const Layout& layout) {
  SessionFlags session = flags.session;
  if (!session.placement_file.empty())  // each client has a graph of its own
    session.placement_file = ResultPath(session.placement_file, layout.rank);
  if (layout.workers == 1 || !session.options.device_filters.empty()) return session;
  // A worker's client has to do with the parameter servers and its own worker alone or, where
  // workers meet directly, with the workers alone.
  session.options.device_filters = {"/job:worker"};
  if (flags.variable_update != "replicated") {
    session.options.device_filters = {"/job:ps", "/job:worker/task:" + std::to_string(layout.rank)};
  }
  return session;
}

ReplicateOptions OptionsOf(const ReplicaFlags& flags, const Layout& layout) {
  ReplicateOptions options{
      .replication = ParseReplication(flags.replication).value(),
      .variable_update = ParseVariableUpdate(flags.variable_update).value(),
      .async = flags.asynchronous(),
      .rank = layout.rank,
      .num_workers = layout.workers,
      .worker_names = layout.worker_names,
      .replicas_to_aggregate = flags.replicas_to_aggregate,
      .timeout_seconds = flags.worker_timeout,
      .variable_devices = layout.variables,
      .max_variable_bytes = flags.max_variable_bytes,
      .container = flags.container,
      .gradient_dtype = flags.gradient_dtype == "bfloat16" ? DT_BFLOAT16 : DT_INVALID};
  if (flags.ps_strategy == "round_robin" && !layout.variables.empty())
    options.strategy = RoundRobinStrategy(static_cast<int>(layout.variables.size()));
  return options;
}

std::string CpuBeside(const std::string& device) {
  return HostOf(DeviceName::Parse(device).value()).ToString();
}

}  // namespace monograph::examples
