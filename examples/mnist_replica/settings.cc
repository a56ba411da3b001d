// The flags of mnist_replica: AddTo declares them, Check refuses combinations that contradict each
// other, and MakeLayout turns them and the cluster into devices for replicas and variables. All
// checks run before a session is opened, so that a wrong flag fails at once and not after the
// cluster has started.
#include "examples/mnist_replica/settings.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tools/own_task.h"

namespace monograph::examples {
namespace {

constexpr int64_t kMostReplicas = Flags::kMostThreads;

// Checks that the cluster has the jobs that are needed and that this process is one of its tasks.
Status CheckPlaces(Settings settings) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, settings.session.Cluster());
  if (cluster && (!settings.in_graph() || settings.job_name == "ps")) {
    MG_ASSIGN_OR_RETURN(const OwnTask own, FindOwnTask(*cluster, settings.job_name,
                                                       settings.task_index, "--task_index"));
    settings.task_index = own.index;
  }
  if (settings.job_name == "ps") {
    if (!cluster) return InvalidArgument("--job_name=ps needs a cluster: give --cluster");
    return cluster->Address("ps", settings.task_index.value_or(0)).status();
  }
  if (TakesNoPart(settings, cluster)) return Status();
  MG_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(settings, cluster));
  return SharesOf(settings, layout.replicas.size()).status();
}

}  // namespace

void Settings::AddTo(Flags* flags) {
  flags->Section("Training");
  flags->Add("batch_size", &batch_size,
             "examples of one update: of all replicas together or, if each updates by itself, of "
             "one replica",
             1, Flags::kMostExamples);
  flags->Add("num_batches", &num_batches, "updates that are timed, of all workers together", 1);
  flags->Add("num_warmup_batches", &num_warmup_batches,
             "updates before those, not timed or displayed", 0);
  flags->Add("display_every", &display_every, "updates between progress lines", 1);
  flags->Add("learning_rate", &learning_rate, "of Adam");
  flags->Add("seed", &seed, "of weights, order of examples and dropout: same seed, same result");
  flags->Add("eval_batch_size", &eval_batch_size,
             "examples at a time when the test set is evaluated at the end", 1,
             Flags::kMostExamples);
  flags->Add("steps_in_flight", &steps_in_flight,
             "steps that run at the same time; above 1 a step may read weights before the last "
             "update, and results vary from run to run",
             1, Flags::kMostThreads);
  flags->Add("steps_per_run", &steps_per_run,
             "steps that the executors make by themselves before they report to the client, with "
             "the same result; progress lines come at the ends of such runs",
             1);
  flags->AddOutputFolder(
      "train_dir", &train_dir,
      "folder of the chief's checkpoints, from the latest of which training goes on, and of "
      "summaries for TensorBoard");
  flags->Add("sharded_checkpoints", &sharded_checkpoints,
             "the tasks that hold variables write and read the checkpoints of --train_dir, which "
             "all of them see, and not the client");
  flags->Add(
      "refuse_damaged_checkpoint", &refuse_damaged_checkpoint,
      "--train_dir: end where the latest checkpoint is damaged, instead of going on from the "
      "latest one that is whole");
  flags->Add("save_steps", &save_steps, "updates between checkpoints", 1);
  flags->Add("save_summaries_steps", &save_summaries_steps, "updates between summaries", 1);
  flags->Add("max_recoveries", &max_recoveries,
             "--train_dir: how often in a row, without a new step in between, training goes on by "
             "itself from the latest checkpoint after a task was lost; 0: it ends",
             0);
  flags->Add("recovery_timeout", &recovery_timeout,
             "--train_dir: longest time from a loss to the next new step, in seconds");
  flags->AddOutputFile("trace_file", &trace_file,
                       "write Chrome's trace of one step, the last of the warm-up");
  flags->AddOutputFile(
      "result_file", &result_file,
      "write what the run measured, as JSON, for `monograph compare`; worker N's client "
      "writes FILE.N");
  flags->Section("Model");
  flags->Add("fc", &model.fc, "units of the dense layer", 1, Flags::kMostUnits);
  flags->Add(
      "dropout", &model.dropout,
      "fraction of them that each training step drops (1 - keep_prob of the tutorials); 0: none");
  flags->AddChoice("dtype", &dtype, {"float", "bfloat16", "half"},
                   "what lies between the layers; variables, their updates and the loss are float");
  flags->Add("loss_scale", &loss_scale,
             "multiplies the loss, so that small gradients survive in half: none, a number of at "
             "least 1, or dynamic (halved when a gradient overflows, doubled after 2000 steps); "
             "auto: dynamic with --dtype=half, else none");
  flags->Section("Data");
  flags->AddChoice("data_name", &data_name, {"fashion_mnist", "mnist", "synthetic"},
                   "data set; synthetic needs no files");
  flags->Add("data_dir", &data_dir,
             "directory of the four files, plain or .gz; default: that of Debian's package "
             "dataset-fashion-mnist");
  flags->AddChoice("input", &input, {"client", "executor"},
                   "who reads the data: this program, or each worker its own part (the same rows)");
  flags->AddChoice("image_type", &image_type, {"float", "uint8"},
                   "how images travel to the workers");
  flags->Section("Replication");
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
  flags->Add("async", &async, "in_graph: every replica trains at its own pace");
  flags->Add("sync", &sync,
             "between_graph with parameter servers: all workers make one update together");
  flags->Add("replicas_to_aggregate", &replicas_to_aggregate,
             "--sync: gradients that make an update; with fewer than there are workers, who comes "
             "last in a step is not waited for. 0: all",
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
  flags->Add("num_gpus", &num_gpus,
             "GPUs of each worker, or of this process without a cluster. in_graph: a replica on "
             "each; else replica i is on GPU i % N. 0: workers compute on a GPU if they have one, "
             "and what is split over CPU devices on those",
             0, kMostReplicas);
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
  flags->Add("split", &split,
             "in_graph: how the batch is cut: even, weights=3,1 (in proportion), or measured (by "
             "the speed of each replica during the warm-up)");
  flags->Add("container", &container,
             "jobs in containers of their own do not see each other's variables; a client that "
             "names one keeps variables that have values already: it comes back to a running job");
  session.AddTo(flags);
  flags->AddCheck([this]() -> Status {
    MG_RETURN_IF_ERROR(Check());
    return CheckPlaces(*this);
  });
}

Status Settings::Check() const {
  if (!(model.dropout >= 0 && model.dropout < 1))
    return InvalidArgument("--dropout must be in [0, 1)");
  if (!(learning_rate > 0)) return InvalidArgument("--learning_rate must be greater than 0");
  if (steps_per_run > 1 && (steps_in_flight > 1 || (in_graph() && async))) {
    return InvalidArgument("--steps_per_run is for one step at a time: leave out --" +
                           std::string(steps_in_flight > 1 ? "steps_in_flight" : "async"));
  }
  if (steps_per_run > 1 && sync && variable_update != "replicated") {
    return InvalidArgument(
        "--steps_per_run is not for --sync, where each step waits for the chief; with "
        "--variable_update=replicated workers keep in step without one");
  }
  if (!train_dir.empty() && steps_in_flight > 1)
    return InvalidArgument("--train_dir saves between steps: leave out --steps_in_flight");
  if (async && sync) return InvalidArgument("give either --async or --sync, not both");
  if (sync && replication == "hybrid")
    return InvalidArgument("--replication=hybrid is async between workers: leave out --sync");
  if (async && variable_update == "replicated")
    return InvalidArgument("--variable_update=replicated keeps in step: leave out --async");
  if (central_device != "worker" && variable_update != "central")
    return InvalidArgument("--central_device is for --variable_update=central");
  if (!(worker_timeout > 0)) return InvalidArgument("--worker_timeout must be greater than 0");
  if (!(recovery_timeout > 0)) return InvalidArgument("--recovery_timeout must be greater than 0");
  if (job_name != "worker" && job_name != "ps")
    return InvalidArgument("--job_name is worker or ps, not '" + job_name + "'");
  if (split != "even" && (!in_graph() || async)) {
    return InvalidArgument(
        "--split is for --replication=in_graph without --async, where one client "
        "cuts the batch");
  }
  if (split != "even" && input == "executor")
    return InvalidArgument("--split=" + split + " cuts what this program feeds: --input=client");
  if (split == "measured" && num_warmup_batches == 0)
    return InvalidArgument(
        "--split=measured measures in the warm-up: --num_warmup_batches above 0");
  if (split == "measured" && central_device == "client") {
    return InvalidArgument(
        "--split=measured opens a session anew, and variables in this program end with their "
        "session: leave out --central_device=client");
  }
  return LossScaleOf(*this).status();
}

Result<std::optional<LossScaleOptions>> LossScaleOf(const Settings& settings) {
  using Scale = std::optional<LossScaleOptions>;
  const std::string& word = settings.loss_scale;
  if (word == "none" || (word == "auto" && settings.dtype != "half")) return Scale();
  if (word == "dynamic" || word == "auto") return Scale(LossScaleOptions());
  char* end = nullptr;
  const double scale = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !(scale >= 1 && scale <= 1e30)) {
    return InvalidArgument("--loss_scale is auto, none, dynamic or a number of at least 1, not '" +
                           word + "'");
  }
  return Scale({.initial = scale, .dynamic = false, .largest = scale});
}

Result<std::vector<int64_t>> SharesOf(const Settings& settings, size_t replicas) {
  std::vector<int64_t> shares;
  if (settings.split == "even" || settings.split == "measured") return shares;
  const std::string prefix = "weights=";
  if (settings.split.rfind(prefix, 0) != 0) {
    return InvalidArgument("--split is even, measured or weights=3,1,..., not '" + settings.split +
                           "'");
  }
  std::istringstream words(settings.split.substr(prefix.size()));
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty() || word.size() > 6 ||
        word.find_first_not_of("0123456789") != std::string::npos || std::stoll(word) == 0) {
      return InvalidArgument("--split=" + settings.split + ": '" + word +
                             "' is no whole number above 0");
    }
    shares.push_back(std::stoll(word));
  }
  if (shares.size() != replicas) {
    return InvalidArgument("--split=" + settings.split + " has " + std::to_string(shares.size()) +
                           " weights for " + std::to_string(replicas) + " replicas");
  }
  return shares;
}

namespace {

// The device of replica `i` of those in `task`.
std::string DeviceIn(const std::string& task, int i, const Settings& settings) {
  return task + (settings.num_gpus > 0 ? "/device:GPU:" + std::to_string(i % settings.num_gpus)
                                       : "/device:CPU:" + std::to_string(i));
}

// The devices of this client's replicas on a cluster.
Result<std::vector<std::string>> Replicas(const Settings& settings, const ClusterSpec& cluster,
                                          Layout* layout) {
  std::vector<std::string> workers = cluster.Tasks("worker");
  if (workers.empty())
    return InvalidArgument("the cluster has no job 'worker': its tasks hold the replicas");
  if (settings.num_replicas > static_cast<int>(workers.size())) {
    return InvalidArgument("--num_replicas=" + std::to_string(settings.num_replicas) +
                           ", but job worker has " + std::to_string(workers.size()) + " tasks");
  }
  if (settings.num_replicas > 0) workers.resize(static_cast<size_t>(settings.num_replicas));
  std::vector<std::string> devices;
  if (settings.in_graph()) {
    if (settings.num_gpus == 0) return workers;
    for (const std::string& worker : workers) {
      for (int i = 0; i < settings.num_gpus; ++i) devices.push_back(DeviceIn(worker, i, settings));
    }
    return devices;
  }
  layout->workers = static_cast<int>(workers.size());
  layout->rank = settings.task_index.value_or(0);
  if (layout->rank < 0 || layout->rank >= layout->workers) {
    return InvalidArgument("--task_index=" + std::to_string(layout->rank) + ", but there are " +
                           std::to_string(layout->workers) + " workers");
  }
  layout->worker_names = workers;
  const std::string own = workers[static_cast<size_t>(layout->rank)];
  if (settings.replication == "between_graph") {
    devices = {settings.num_gpus == 0 ? own : DeviceIn(own, layout->rank, settings)};
    return devices;
  }
  for (int i = 0; i < settings.replicas_per_worker; ++i)
    devices.push_back(DeviceIn(own, i, settings));
  return devices;
}

}  // namespace

bool TakesNoPart(const Settings& settings, const std::optional<ClusterSpec>& cluster) {
  const int own = settings.task_index.value_or(0);
  return cluster && !settings.in_graph() && settings.num_replicas > 0 &&
         own >= settings.num_replicas && own < cluster->num_tasks("worker");
}

Result<Layout> MakeLayout(const Settings& settings, const std::optional<ClusterSpec>& cluster) {
  Layout layout;
  if (!cluster && settings.split == "measured")
    return InvalidArgument("--split=measured compares the workers of a cluster: give --cluster");
  if (!cluster) {
    if (!settings.in_graph()) {
      return InvalidArgument("--replication=" + settings.replication +
                             " has a client per worker of a cluster: give --cluster, or use "
                             "monograph launch");
    }
    const std::string task = "/job:localhost/replica:0/task:0";
    layout.client = task + "/device:CPU:0";
    const int replicas = settings.num_replicas > 0 ? settings.num_replicas : settings.num_gpus;
    for (int i = 0; i < std::max(1, replicas); ++i)
      layout.replicas.push_back(DeviceIn(task, i, settings));
  } else {
    layout.client = "/job:client/replica:0/task:0";
    MG_ASSIGN_OR_RETURN(layout.replicas, Replicas(settings, *cluster, &layout));
    if (settings.central_device == "client") layout.variables = {layout.client + "/device:CPU:0"};
    if (settings.variable_update == "parameter_server") {
      layout.variables = cluster->Tasks("ps");
      if (layout.variables.empty()) {
        return InvalidArgument(
            "--variable_update=parameter_server needs a job 'ps' in the cluster; without one use "
            "--variable_update=replicated or, in one graph, central");
      }
    }
  }
  const int sharers =
      settings.asynchronous() ? static_cast<int>(layout.replicas.size()) : layout.replicas_of_all();
  const int needed = settings.in_graph() && settings.async ? 1 : sharers;
  if (settings.batch_size < needed) {
    return InvalidArgument("--batch_size=" + std::to_string(settings.batch_size) +
                           " is smaller than the " + std::to_string(needed) +
                           " replicas: each needs at least one example");
  }
  return layout;
}

}  // namespace monograph::examples
