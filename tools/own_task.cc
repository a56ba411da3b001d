// Each launcher says which process this is by variables of its own: Slurm, Open MPI, MPICH and its
// relatives, which are looked at in that order. From a rank among all processes follows the task,
// from one among those of a node the share of its GPUs.
#include "tools/own_task.h"

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/json_value.h"
#include "base/log.h"

namespace monograph {
namespace {

// The value of an environment variable, "" if it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A whole number of at least 0.
std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// What one launcher says of this process.
struct Rank {
  std::string variable, value;  // of its rank; the value is empty if it says none
  std::string size_variable;
  std::optional<int> size;  // processes that were started together
};

Rank FromEnvironment(const char* rank, const char* size) {
  return {rank, Variable(rank), size, Number(Variable(size))};
}

// srun's processes are a step of the job. Slurm sets the job's variables in its batch script and in
// salloc's shell, too, with SLURM_PROCID=0 at most, and SLURM_NTASKS of the job: a program that
// they start runs once.
Rank FromSlurm() {
  Rank rank = FromEnvironment("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  const bool job = !Variable("SLURM_JOB_ID").empty();
  const bool step = rank.size.has_value() || !Variable("SLURM_STEP_ID").empty();
  const bool first = rank.value.empty() || rank.value == "0";
  if (job && !step && first) return {rank.variable, "", "SLURM_NTASKS", std::nullopt};
  if (!rank.size) rank = FromEnvironment("SLURM_PROCID", "SLURM_NTASKS");
  return rank;
}

// In order of precedence.
std::vector<Rank> Ranks() {
  Rank slurm = FromSlurm();
  Rank open_mpi = FromEnvironment("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  Rank pmi = FromEnvironment("PMI_RANK", "PMI_SIZE");
  // mpirun inside a Slurm job starts its own daemons as a step, with a rank per node.
  if (slurm.size && open_mpi.size && slurm.size != open_mpi.size) return {open_mpi, pmi};
  return {slurm, open_mpi, pmi};
}

Result<OwnTask> TaskOf(const std::string& variable, const std::string& value,
                       const ClusterSpec& cluster, const std::string& job,
                       const std::string& flag_name) {
  const std::string what = variable + "=" + value;
  const std::optional<int> task = Number(value);
  if (!task) return InvalidArgument(what + " is no task index: a whole number, 0 or more");
  if (const Status found = cluster.Address(job, *task).status(); !found.ok())
    return InvalidArgument(what + ": " + found.message() + "; give " + flag_name);
  return OwnTask{*task, what};
}

// Slurm's "2(x3),1": the tasks on each node of a step, here on node `node`.
std::optional<int> TasksOnNode(std::string_view list, int node) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    int times = 1;
    if (const size_t open = entry.find("(x"); open != std::string_view::npos) {
      if (!entry.ends_with(')')) return std::nullopt;
      const std::optional<int> nodes = Number(entry.substr(open + 2, entry.size() - open - 3));
      if (!nodes) return std::nullopt;
      times = *nodes;
      entry = entry.substr(0, open);
    }
    if (node < times) return Number(entry);
    node -= times;
  }
  return std::nullopt;
}

// The tasks of TF_CONFIG's cluster; 0 if it is not set or names none.
size_t TfConfigTasks() {
  const Result<nlohmann::json> config = ParseJson(Variable("TF_CONFIG"), "TF_CONFIG");
  if (!config.ok() || !config->is_object() || !config->contains("cluster")) return 0;
  const nlohmann::json& cluster = (*config)["cluster"];
  if (!cluster.is_object()) return 0;
  size_t tasks = 0;
  for (const auto& [job, addresses] : cluster.items()) tasks += addresses.size();
  return tasks;
}

}  // namespace

Result<OwnTask> FindOwnTask(const ClusterSpec& cluster, const std::string& job,
                            std::optional<int> flag, const std::string& flag_name) {
  const int tasks = cluster.num_tasks(job);
  if (flag || tasks == 0) return OwnTask{flag.value_or(0), ""};
  if (const std::string task = Variable("MONOGRAPH_TASK"); !task.empty())
    return TaskOf("MONOGRAPH_TASK", task, cluster, job, flag_name);
  for (const Rank& rank : Ranks()) {
    if (!rank.value.empty() && rank.size.value_or(2) > 1)
      return TaskOf(rank.variable, rank.value, cluster, job, flag_name);
  }
  if (tasks == 1) return OwnTask{cluster.jobs().at(job).begin()->first, ""};
  return InvalidArgument(flag_name + " is missing: job " + job + " has " + std::to_string(tasks) +
                         " tasks, and neither MONOGRAPH_TASK nor a rank of srun or mpirun says "
                         "which of them this is");
}

GpuShare ShareOfLauncher() {
  const auto said = [](std::optional<int> index,
                       std::optional<int> count) -> std::optional<GpuShare> {
    if (!index || !count || *count < 2 || *index >= *count) return std::nullopt;
    return GpuShare{*index, *count};
  };
  const auto number = [](const char* name) { return Number(Variable(name)); };
  const auto slurm =
      said(number("SLURM_LOCALID"),
           TasksOnNode(Variable("SLURM_STEP_TASKS_PER_NODE"), number("SLURM_NODEID").value_or(0)));
  const auto open_mpi =
      said(number("OMPI_COMM_WORLD_LOCAL_RANK"), number("OMPI_COMM_WORLD_LOCAL_SIZE"));
  const auto mpich = said(number("MPI_LOCALRANKID"), number("MPI_LOCALNRANKS"));
  // mpirun inside a Slurm job starts its own daemons as a step.
  return open_mpi ? *open_mpi : slurm ? *slurm : mpich.value_or(GpuShare());
}

void LogOwnTask(const std::string& job, const OwnTask& own) {
  if (own.from.empty()) return;
  LogInfo("this is task " + std::to_string(own.index) + " of job " + job + ", from " + own.from);
}

Status CheckStartedOnce(const std::string& command) {
  for (const Rank& rank : Ranks()) {
    if (rank.size.value_or(1) <= 1) continue;
    return FailedPrecondition(
        "this is one of several processes that were started together (" + rank.size_variable + "=" +
        std::to_string(*rank.size) + "), and each would start a cluster of its own; run " +
        command + " once, without mpirun or srun: it starts every task itself. If there is to be " +
        "a cluster for each process, unset " + rank.size_variable);
  }
  return Status();
}

Status CheckAlone() {
  constexpr char kAdvice[] =
      ". Use `monograph launch`, or start monograph-executor for each task and the program with "
      "--cluster (or MONOGRAPH_CLUSTER); if each process is to run alone, say --cluster=none";
  for (const Rank& rank : Ranks()) {
    if (rank.size.value_or(1) > 1) {
      return FailedPrecondition("this is one of several processes (" + rank.size_variable + "=" +
                                std::to_string(*rank.size) +
                                "), but no cluster is given: each would do everything by itself" +
                                kAdvice);
    }
  }
  if (TfConfigTasks() > 1) {
    return FailedPrecondition("no cluster is given" + TfConfigNote() + kAdvice);
  }
  return Status();
}

std::string TfConfigNote() {
  if (Variable("TF_CONFIG").empty()) return "";
  return "; TF_CONFIG is set, but is not read: give what its \"cluster\" holds, the same JSON, "
         "with --cluster or MONOGRAPH_CLUSTER, and what its \"task\" says with flags";
}

}  // namespace monograph
