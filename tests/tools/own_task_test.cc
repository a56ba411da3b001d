// Which task of a job a process is, and whether it may run alone, as the environments of srun,
// mpirun and TensorFlow say.
#include "tools/own_task.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace monograph {
namespace {

using Environment = std::map<std::string, std::string>;

// Exactly these of all variables that have a say, while it lives.
class WithEnvironment {
 public:
  explicit WithEnvironment(const Environment& environment) {
    Clear();
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  }
  ~WithEnvironment() { Clear(); }

 private:
  static void Clear() {
    for (const char* name :
         {"MONOGRAPH_TASK", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
          "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
          "TF_CONFIG", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE",
          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALRANKID",
          "MPI_LOCALNRANKS"})
      unsetenv(name);
  }
};

ClusterSpec Cluster() {
  return ClusterSpec::FromHosts({{"ps", "a:1"}, {"worker", "b:1,b:2,b:3"}}).value();
}

Result<OwnTask> Worker(const Environment& environment, std::optional<int> flag = {}) {
  const WithEnvironment with(environment);
  return FindOwnTask(Cluster(), "worker", flag, "--task");
}

void ExpectTask(const Result<OwnTask>& own, int index, const std::string& from) {
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->index, index);
  EXPECT_EQ(own->from, from);
}

TEST(OwnTask, TheFlagComesFirstThenOurVariableThenSlurmOpenMpiAndPmi) {
  Environment all = {{"MONOGRAPH_TASK", "1"},
                     {"SLURM_PROCID", "2"},
                     {"OMPI_COMM_WORLD_RANK", "0"},
                     {"PMI_RANK", "1"}};
  ExpectTask(Worker(all, 2), 2, "");
  ExpectTask(Worker(all), 1, "MONOGRAPH_TASK=1");
  all.erase("MONOGRAPH_TASK");
  ExpectTask(Worker(all), 2, "SLURM_PROCID=2");
  all.erase("SLURM_PROCID");
  ExpectTask(Worker(all), 0, "OMPI_COMM_WORLD_RANK=0");
  all.erase("OMPI_COMM_WORLD_RANK");
  ExpectTask(Worker(all), 1, "PMI_RANK=1");
}

TEST(OwnTask, OfSeveralTasksOneMustBeSaidOfOneItIsThatOne) {
  const Status missing = Worker({}).status();
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_NE(missing.message().find("--task is missing: job worker has 3 tasks"), std::string::npos)
      << missing;
  const WithEnvironment none({});
  ExpectTask(FindOwnTask(Cluster(), "ps", {}, "--task"), 0, "");
  const ClusterSpec sparse = ClusterSpec::FromJson(R"({"worker": {"4": "a:1"}})", "test").value();
  ExpectTask(FindOwnTask(sparse, "worker", {}, "--task"), 4, "");
}

TEST(OwnTask, AValueThatIsNoTaskOfTheJobIsOneErrorThatNamesTheVariable) {
  for (const char* variable :
       {"MONOGRAPH_TASK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const Status high = Worker({{variable, "3"}}).status();
    EXPECT_EQ(high.code(), Code::kInvalidArgument) << variable;
    for (const std::string& part :
         {std::string(variable) + "=3", std::string("worker/2"), std::string("give --task")})
      EXPECT_NE(high.message().find(part), std::string::npos) << high;
    for (const char* value : {"one", "-1", "1x", "99999999999"}) {
      const Status wrong = Worker({{variable, value}}).status();
      EXPECT_NE(wrong.message().find(std::string(variable) + "=" + value + " is no task index"),
                std::string::npos)
          << wrong;
    }
  }
}

TEST(OwnTask, ASlurmBatchScriptAndAStepOfOneProcessSayNothing) {
  const Environment batch = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "0"}};
  EXPECT_FALSE(Worker(batch).ok());
  const Environment single = {{"SLURM_JOB_ID", "7"},
                              {"SLURM_NTASKS", "3"},
                              {"SLURM_PROCID", "0"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_FALSE(Worker(single).ok());
  Environment step = single;
  step["SLURM_STEP_NUM_TASKS"] = "3";
  ExpectTask(Worker(step), 0, "SLURM_PROCID=0");
  step["SLURM_PROCID"] = "2";
  ExpectTask(Worker(step), 2, "SLURM_PROCID=2");
}

TEST(OwnTask, MpirunInsideASlurmJobHasTheSay) {
  Environment inside = {{"SLURM_JOB_ID", "7"},
                        {"SLURM_NTASKS", "3"},
                        {"SLURM_PROCID", "0"},
                        {"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "3"}};
  ExpectTask(Worker(inside), 2, "OMPI_COMM_WORLD_RANK=2");
  // On other nodes mpirun's own daemons are a step.
  inside["SLURM_STEP_ID"] = "0";
  inside["SLURM_STEP_NUM_TASKS"] = "2";
  ExpectTask(Worker(inside), 2, "OMPI_COMM_WORLD_RANK=2");
}

Status Alone(const Environment& environment) {
  const WithEnvironment with(environment);
  return CheckAlone();
}

TEST(OwnTask, SeveralProcessesOfALauncherDoNotRunAlone) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE"}) {
    const Status status = Alone({{variable, "2"}});
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << variable;
    EXPECT_NE(status.message().find(std::string(variable) + "=2"), std::string::npos) << status;
    EXPECT_NE(status.message().find("no cluster is given"), std::string::npos) << status;
    EXPECT_TRUE(Alone({{variable, "1"}}).ok()) << variable;
  }
  EXPECT_TRUE(Alone({}).ok());
}

TEST(OwnTask, ACommandThatStartsAClusterIsRefusedToSeveralProcesses) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE"}) {
    const Environment environment = {{variable, "2"}};
    const WithEnvironment with(environment);
    const Status status = CheckStartedOnce("monograph launch");
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << variable;
    for (const std::string& part :
         {std::string(variable) + "=2", std::string("run monograph launch once"),
          "unset " + std::string(variable)})
      EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
  const Environment job = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
  const WithEnvironment batch(job);
  EXPECT_TRUE(CheckStartedOnce("monograph launch").ok());
}

TEST(OwnTask, ASlurmBatchScriptRunsAloneAProcessOfItsStepDoesNot) {
  Environment job = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
  EXPECT_TRUE(Alone(job).ok()) << "a shell of salloc";
  job["SLURM_PROCID"] = "0";
  EXPECT_TRUE(Alone(job).ok()) << "the batch script";
  job["SLURM_STEP_ID"] = "0";
  job["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_TRUE(Alone(job).ok()) << "srun -n1";
  job["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_FALSE(Alone(job).ok()) << "srun -n4, its first process";
}

TEST(OwnTask, ATfConfigOfSeveralTasksIsNotReadAndSaysSo) {
  const std::string several =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})";
  const Status status = Alone({{"TF_CONFIG", several}});
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  for (const char* part : {"TF_CONFIG is set, but is not read", "--cluster"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  for (const char* one : {"{}", "oops", "[]", R"({"cluster": {"chief": ["a:1"]}})"})
    EXPECT_TRUE(Alone({{"TF_CONFIG", one}}).ok()) << one;
}

TEST(OwnTask, TheShareOfTheGpusIsThatOfTheLaunchersProcessesOnThisMachine) {
  const auto share = [](const Environment& environment) {
    const WithEnvironment with(environment);
    return ShareOfLauncher();
  };
  EXPECT_EQ(share({}), GpuShare());
  const Environment slurm = {{"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),4"}};
  const auto on_node = [&](const std::string& node) {
    Environment there = slurm;
    there["SLURM_NODEID"] = node;
    return share(there);
  };
  EXPECT_EQ(on_node("0"), (GpuShare{1, 2}));
  EXPECT_EQ(on_node("2"), (GpuShare{1, 2}));
  EXPECT_EQ(on_node("3"), (GpuShare{1, 4}));
  EXPECT_EQ(on_node("4"), GpuShare());
  EXPECT_EQ(share({{"SLURM_LOCALID", "0"}}), GpuShare());  // a batch script
  EXPECT_EQ(share({{"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}}), GpuShare());
  EXPECT_EQ(share({{"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), GpuShare());
  Environment mpi = {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}};
  EXPECT_EQ(share(mpi), (GpuShare{3, 8}));
  mpi.insert({{"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}});
  EXPECT_EQ(share(mpi), (GpuShare{3, 8}));
  EXPECT_EQ(share({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}), (GpuShare{1, 2}));
}

}  // namespace
}  // namespace monograph
