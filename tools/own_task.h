// Which task of a job this process is, as its flags or whoever started it say: MONOGRAPH_TASK, or
// the ranks that srun and mpirun give the processes that they start.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "client/cluster.h"
#include "executor/gpu_options.h"

namespace monograph {

struct OwnTask {
  int index = 0;
  std::string from;  // "SLURM_PROCID=1"; empty if the environment did not say it
};

// The index that `flag` (named `flag_name`, "--task") says; it is not checked against the cluster.
// Else what MONOGRAPH_TASK says, or the rank in SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK, in
// this order. Else the task of a job that has only one.
// A launcher's rank counts where it has started several processes: the batch script of a Slurm job
// and a step of one process say nothing.
// InvalidArgument if nothing says it, or the environment says what is no task of the job. 0 for a
// job that the cluster lacks, if the flag says nothing.
Result<OwnTask> FindOwnTask(const ClusterSpec& cluster, const std::string& job,
                            std::optional<int> flag, const std::string& flag_name);

// Which of the processes that srun or mpirun has started on this machine this is, from
// SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK or MPI_LOCALRANKID; one of one if none of them says it.
GpuShare ShareOfLauncher();

// Logs which task was taken, and from where, if the environment said it.
void LogOwnTask(const std::string& job, const OwnTask& own);

// For a process without a cluster. FailedPrecondition if a launcher has started several processes,
// or TF_CONFIG names several tasks: each would do everything by itself.
Status CheckAlone();

// For a command that starts a whole cluster, such as "monograph launch". FailedPrecondition if a
// launcher has started several processes: each would start a cluster of its own.
Status CheckStartedOnce(const std::string& command);

// "; TF_CONFIG is not read: ..." with what to give instead, if it is set; else empty.
std::string TfConfigNote();

}  // namespace monograph
