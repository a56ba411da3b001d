// monograph-executor: an executor daemon, one per node.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/system_memory.h"
#include "client/host.h"
#include "executor/gpu/plugin.h"
#include "tools/cluster_flags.h"
#include "tools/flags.h"
#include "tools/own_task.h"
#include "tools/task_flags.h"
#include "transport/control/key.h"

namespace monograph {
namespace {

// The allocator makes eight heaps for each core, if so many threads come, and a heap keeps what its
// threads no longer use. Each session brings threads; one heap per core holds half as much after
// two hundred jobs, and steps, whose memory is not from the heap, take the same time.
void LimitHeaps() {
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr)
    mallopt(M_ARENA_MAX, std::max(2, static_cast<int>(std::thread::hardware_concurrency())));
}

int Main(int argc, char** argv) {
  LimitHeaps();  // before the first thread
  Flags flags(
      "monograph-executor",
      "Runs the parts of graphs that clients give it, until SIGTERM or Ctrl-C.\n\n"
      "Examples:\n"
      "  monograph-executor --cluster=cluster.json --job=worker --task=0\n"
      "  monograph-executor --worker_hosts=localhost:2223,localhost:2224 --ps_hosts=localhost:2222 "
      "--job=ps --task=0\n"
      "  monograph-executor --cluster=cluster.json --job=worker --task=1 --key_file=cluster.key\n");
  ClusterFlags cluster_flags;
  HostOptions options;
  KeyFlag key_flag;
  std::string job;
  std::optional<int> task;
  std::chrono::milliseconds drain{10000};
  bool key_stdin = false, with_parent = false, with_stdin = false, say_ready = false;
  bool count_gpus = false;
  flags.Section("Cluster");
  cluster_flags.AddNamesTo(&flags);
  flags.Add("job", &job, "job of this daemon");
  flags.Add("task", &task,
            "index of this daemon in its job; needed if the job has several tasks, unless "
            "MONOGRAPH_TASK or the rank that srun or mpirun gives says it",
            0);
  flags.Add("bind", &options.bind,
            "address to listen on; default: loopback if the cluster names this task by a loopback "
            "address, else that address");
  flags.Section("Security");
  key_flag.AddTo(&flags);
  flags.Add("key_stdin", &key_stdin, "read the key from standard input");
  flags.Section("Resources");
  flags.Add("cpu_devices", &options.cpu_devices, "number of logical CPU devices", 1,
            Flags::kMostThreads);
  AddThreadFlags(&flags, &options.inter_op_parallelism_threads,
                 &options.intra_op_parallelism_threads);
  AddMemoryFlag(&flags);
  AddTensorFlowFlag(&flags);
  AddGpuFlags(&flags, &options.gpu);
  flags.Section("Data plane");
  AddTransportFlags(&flags, &options.transport);
  flags.Add("data_port", &options.transport.data_port,
            "port for tensors of tasks that share neither memory nor a trusted network with this "
            "one, which needs a key; 0: a free one",
            0, 65535);
  flags.Add("spin_us", &options.transport.spin,
            "how long to poll for messages before sleeping, in microseconds");
  flags.Section("Other");
  flags.Add("drain_seconds", &drain, "how long running steps may go on after SIGTERM");
  flags.Add("exit_with_parent", &with_parent, "end when the process that started this one ends");
  flags.Add("exit_on_stdin_end", &with_stdin,
            "end when standard input ends (for daemons that were started over ssh)");
  flags.Add("say_ready", &say_ready, "print a line on standard output once clients are served");
  flags.Add("count_gpus", &count_gpus, "print the number of GPUs of this machine, and end");
  flags.SharesEnvironment(&with_parent);
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  if (count_gpus) {
    const Result<std::vector<GpuInfo>> gpus = ListGpus();
    if (!gpus.ok()) return flags.Exit(gpus.status());
    std::printf("%zu\n", gpus->size());
    return 0;
  }
  if (with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  EndSignals signals;
  PreferToBeKilled();  // it has the memory, and can be started again

  Result<std::optional<ClusterSpec>> cluster = cluster_flags.ReadCluster();
  if (!cluster.ok()) return flags.Refuse(cluster.status());
  if (!cluster.value()) {
    return flags.Refuse(
        InvalidArgument("no cluster is given: --cluster=FILE, --worker_hosts=host:port,... or "
                        "MONOGRAPH_CLUSTER names it" +
                        TfConfigNote()));
  }
  if (job.empty()) {
    return flags.Refuse(
        InvalidArgument("--job is missing: which of the cluster's jobs is this daemon?"));
  }
  Result<OwnTask> own = FindOwnTask(**cluster, job, task, "--task");
  if (!own.ok()) return flags.Refuse(own.status());
  if (Status known = (*cluster)->Address(job, own->index).status(); !known.ok())
    return flags.Refuse(known);

  if (!key_flag.file.empty() && key_stdin)
    return flags.Refuse(InvalidArgument("give either --key_file or --key_stdin, not both"));
  if (key_stdin) {
    Result<control::Key> key = control::ReadKeyFrom(STDIN_FILENO);
    if (!key.ok()) return flags.Refuse(key.status());
    options.key = key.value();
  } else {
    Result<std::optional<control::KeyRing>> key = key_flag.Read();
    if (!key.ok()) return flags.Refuse(key.status());
    options.key = key.value();
  }
  Result<std::unique_ptr<Server>> server = HostTask(**cluster, job, own->index, options);
  if (!server.ok()) return flags.Exit(server.status());
  if (say_ready) {
    std::printf("%s\n", kDaemonReady);
    std::fflush(stdout);
  }
  LogOwnTask(job, *own);
  LogInfo((*server)->worker().task() + " listens on " + (*server)->address());
  if (const std::string trust = DescribeTrust(options.transport); !trust.empty()) LogWarning(trust);

  const std::string why = signals.Wait(with_stdin);
  (*server)->worker().Drain();  // before it is said: whoever reads that finds it so
  LogInfo(why + ": draining");
  (*server)->Stop(drain);
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
