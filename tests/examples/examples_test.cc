// The example programs as a user runs them, in one process: what they print and how they fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace monograph {
namespace {

using ::testing::HasSubstr;

struct Ran {
  int code;
  std::string output;  // both streams

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::istringstream in(output);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
};

// A line of the shell, both streams in one.
Ran RunShell(const std::string& line) {
  unsetenv("MONOGRAPH_CLUSTER");
  FILE* pipe = popen(("{ " + line + " ; } 2>&1").c_str(), "r");
  Ran ran{-1, ""};
  if (pipe == nullptr) return ran;
  std::array<char, 4096> block;
  for (size_t got; (got = fread(block.data(), 1, block.size(), pipe)) > 0;)
    ran.output.append(block.data(), got);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

Ran RunProgram(const std::string& command) {
  return RunShell(std::string(MG_PROGRAMS "/") + command);
}

// Small and quick; a batch of 20 over few steps.
const char kQuick[] =
    "mnist_replica --data_name=synthetic --fc=32 --batch_size=20 --num_batches=20 "
    "--num_warmup_batches=2 --display_every=10 ";

const std::string kCnn =
    "cnn_benchmarks --model=trivial --image_size=32 --batch_size=2 --num_batches=2 "
    "--num_warmup_batches=1 --print_training_accuracy ";

// Losses and accuracies of the progress lines and the test accuracy: all that must not depend on
// the machine.
std::vector<std::string> Curve(const Ran& ran) {
  std::vector<std::string> curve;
  for (const std::string& line : ran.lines()) {
    if (line.rfind("step ", 0) == 0) curve.push_back(line.substr(0, line.find("  images/sec")));
    if (line.rfind("test accuracy", 0) == 0) curve.push_back(line);
  }
  return curve;
}

TEST(Examples, AFileHasEachLineWhenItIsSaidAndAClosedTerminalEndsTheProgram) {
  const Ran ran =
      RunShell("file=$(mktemp); env --default-signal=HUP " MG_PROGRAMS
               "/mnist_replica --data_name=synthetic --fc=8 --batch_size=2 --num_batches=1000000 "
               "--display_every=500 > $file & "
               "for i in $(seq 300); do grep 'step 500 ' $file && break; sleep 0.1; done; "
               "kill -HUP $!; wait $!; echo ended with $?; rm $file");
  EXPECT_EQ(ran.output.find("step 500 "), 0u) << ran.output;
  EXPECT_TRUE(ran.output.ends_with("ended with 129\n")) << ran.output;
}

TEST(Examples, ClosedStandardStreamsTakeNothingAlong) {
  const TemporaryFolder folder;
  const std::string result = folder.File("result.json");
  const Ran ran =
      RunShell("( " MG_PROGRAMS "/monograph launch -- " MG_PROGRAMS "/" + std::string(kQuick) +
               "--result_file=" + result + " 0<&- 1>&- 2>&- ); echo ended with $?");
  EXPECT_EQ(ran.output, "ended with 0\n");
  std::ifstream file(result);
  EXPECT_FALSE(nlohmann::json::parse(file, nullptr, false).is_discarded());
}

TEST(Examples, AVariableMayHaveManyMoreThan64Parts) {
  // fc1/weights in as many parts as it has rows, some thousands.
  const Ran ran = RunProgram(
      "mnist_replica --data_name=synthetic --batch_size=12 --num_batches=2 "
      "--num_warmup_batches=1 --fc=8 --max_variable_bytes=32");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("test accuracy: "));
}

TEST(Examples, FirstGraphPrintsItsProduct) {
  const Ran ran = RunProgram("first_graph");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("y: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0"));
  EXPECT_THAT(ran.output, HasSubstr("float[1,1] = 7"));
}

TEST(Examples, LinearRegressionFindsTheLine) {
  const Ran ran = RunProgram("linear_regression");
  EXPECT_EQ(ran.code, 0) << ran.output;
  double w = 0, b = 0;
  ASSERT_EQ(std::sscanf(ran.lines().back().c_str(), "w = %lf (true: 3)  b = %lf", &w, &b), 2)
      << ran.output;
  EXPECT_NEAR(w, 3, 0.05);
  EXPECT_NEAR(b, -1, 0.05);
}

// Launched over `tasks` as a user does it, with the placement printed.
Ran Launch(const std::string& tasks, const std::string& program, const std::string& flags = "") {
  return RunProgram("monograph launch " + tasks + " -- " MG_PROGRAMS "/" + program + " " + flags +
                    " --log_device_placement=full");
}

TEST(Examples, LinearRegressionPutsAParameterOnEachOfTwoParameterServers) {
  const Ran ran = Launch("--ps=2 --workers=2", "linear_regression");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("w: (VarHandleOp): /job:ps/replica:0/task:0"));
  EXPECT_THAT(ran.output, HasSubstr("b: (VarHandleOp): /job:ps/replica:0/task:1"));
  EXPECT_THAT(ran.output, HasSubstr("w = 2.9"));
}

// The line "weights a b (best: 2 -1)".
void ExpectBestWeights(const Ran& ran) {
  ASSERT_EQ(ran.code, 0) << ran.output;
  double first = 0, second = 0;
  for (const std::string& line : ran.lines())
    std::sscanf(line.c_str(), "weights %lf %lf (best: 2 -1)", &first, &second);
  EXPECT_NEAR(first, 2, 0.3) << ran.output;
  EXPECT_NEAR(second, -1, 0.3) << ran.output;
}

TEST(Examples, CalculationServerLearnsFromWhatItsWorkersCollect) {
  ExpectBestWeights(RunProgram("calculation_server"));
}

TEST(Examples, CalculationServerKeepsWeightsAndQueueOnTheParameterServer) {
  const Ran ran = RunProgram("monograph launch --ps=1 --workers=2 -- " MG_PROGRAMS
                             "/calculation_server --log_device_placement=full");
  EXPECT_THAT(ran.output, HasSubstr("experience: (FIFOQueueV2): /job:ps/replica:0/task:0"));
  EXPECT_THAT(ran.output, HasSubstr("worker_1/MatMul: (MatMul): /job:worker/replica:0/task:1"));
  ExpectBestWeights(ran);
}

TEST(Examples, CalculationServerRunsAgainOnTheDaemonsOfARunBefore) {
  const std::string run =
      MG_PROGRAMS "/calculation_server --num_batches=20 --cluster=\"$MONOGRAPH_CLUSTER\"";
  const Ran ran =
      RunProgram("monograph launch --ps=1 --workers=1 -- sh -c '" + run + " && " + run + "'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  int runs = 0;
  for (const std::string& line : ran.lines()) runs += line.rfind("weights ", 0) == 0 ? 1 : 0;
  EXPECT_EQ(runs, 2) << ran.output;
}

TEST(Examples, EveryExampleOfTowersTakesANumberOfWorkersThatIsNoPowerOfTwo) {
  for (const std::string program : {"embedding", "towers_by_hand"}) {
    const Ran ran = Launch("--ps=1 --workers=3", program, "--num_batches=2");
    EXPECT_EQ(ran.code, 0) << ran.output;
  }
  const Ran uneven = RunProgram("embedding --batch_size=63");
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.output,
              HasSubstr("--batch_size must be a multiple of the number of workers, 2"));
}

TEST(Examples, EveryProgramRunsWithAPlainLaunch) {
  const std::string mnist = std::string(kQuick);
  for (const std::string& program :
       {mnist, mnist + "--replication=between_graph", mnist + "--replication=hybrid",
        mnist + "--variable_update=replicated", mnist + "--variable_update=central",
        mnist + "--replication=between_graph --variable_update=replicated",
        std::string("cifar_hybrid --num_batches=4 --batch_size=4"), kCnn + "--nocross_replica_sync",
        kCnn + "--replication=hybrid", kCnn + "--replication=between_graph",
        std::string("calculation_server --num_batches=2"), std::string("embedding --num_batches=2"),
        std::string("first_graph"), std::string("linear_regression --num_batches=2"),
        std::string("split_model --num_batches=2"),
        std::string("towers_by_hand --num_batches=2")}) {
    const Ran ran = RunProgram("monograph launch -- " + program);
    EXPECT_EQ(ran.code, 0) << program << ": " << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("monograph launch: starting ")) << program;
  }
}

TEST(Examples, AClientOfOneOfSeveralWorkersMustBeToldWhich) {
  const std::string hosts = " --ps_hosts=localhost:1 --worker_hosts=localhost:2,localhost:3";
  for (const std::string& program :
       {std::string(kQuick) + "--replication=between_graph" + hosts,
        std::string(kQuick) + "--replication=hybrid" + hosts, "cifar_hybrid" + hosts}) {
    const Ran ran = RunProgram(program);
    EXPECT_NE(ran.code, 0) << program;
    EXPECT_THAT(ran.output, HasSubstr("--task_index is missing: job worker has 2 tasks"));
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
    for (const std::string variable : {"MONOGRAPH_TASK", "SLURM_PROCID"}) {
      setenv(variable.c_str(), "2", 1);
      const Ran high = RunProgram(program);
      EXPECT_THAT(high.output, HasSubstr(variable + "=2: task 2 of job 'worker'"));
      EXPECT_EQ(high.lines().size(), 1u) << high.output;
      setenv(variable.c_str(), "1", 1);
      const Ran taken = RunProgram(program + " --start_timeout=0.1");
      unsetenv(variable.c_str());
      EXPECT_THAT(taken.output, HasSubstr("this is task 1 of job worker, from " + variable + "=1"));
      EXPECT_THAT(taken.output, HasSubstr("cannot reach every task"));
    }
  }
}

TEST(Examples, NoProgramTrainsAModelPerRank) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  for (const std::string program :
       {"calculation_server", "cifar_hybrid", "cnn_benchmarks", "embedding", "linear_regression",
        "mnist_replica", "split_model", "towers_by_hand", "transformer", "monograph status",
        "monograph run x.pb --script=x --out=x"}) {
    const Ran ran = RunProgram(program);
    EXPECT_EQ(ran.code, 2) << program << ": " << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("OMPI_COMM_WORLD_SIZE=2")) << program;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
  const Ran alone = RunProgram("linear_regression --num_batches=2 --cluster=none");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(alone.code, 0) << alone.output;
}

TEST(Examples, LaunchGivesHybridWorkersADeviceForEachReplica) {
  const std::string hybrid =
      "monograph launch --ps=1 --workers=1 -- " MG_PROGRAMS
      "/mnist_replica --data_name=synthetic --fc=8 --batch_size=6 --num_batches=2 "
      "--num_warmup_batches=0 --replication=hybrid --log_device_placement=full ";
  for (const std::string flags : {"", "--replicas_per_worker=3"}) {
    const Ran ran = RunProgram(hybrid + flags);
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output,
                HasSubstr(flags.empty() ? "task:0/device:CPU:1\n" : "task:0/device:CPU:2\n"));
  }
}

// The losses of lines "step N  loss X".
std::vector<double> Losses(const Ran& ran) {
  std::vector<double> losses;
  int step = 0;
  double loss = 0;
  for (const std::string& line : ran.lines()) {
    if (std::sscanf(line.c_str(), "step %d  loss %lf", &step, &loss) == 2) losses.push_back(loss);
  }
  return losses;
}

TEST(Examples, EmbeddingLearnsInOneProcess) {
  const Ran ran = RunProgram("embedding --users=200 --films=100 --num_batches=400");
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::vector<double> losses = Losses(ran);
  ASSERT_EQ(losses.size(), 4u) << ran.output;
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Examples, EmbeddingKeepsItsTablesInPartsOnTwoParameterServers) {
  const Ran ran =
      Launch("--ps=2 --workers=2", "embedding", "--users=200 --films=100 --num_batches=200");
  EXPECT_EQ(ran.code, 0) << ran.output;
  for (const char* part : {"model/users/part_0: (VarHandleOp): /job:ps/replica:0/task:0",
                           "model/users/part_1: (VarHandleOp): /job:ps/replica:0/task:1",
                           "model/films/part_0: (VarHandleOp): /job:ps/replica:0/task:0",
                           "model/films/part_1: (VarHandleOp): /job:ps/replica:0/task:1"})
    EXPECT_THAT(ran.output, HasSubstr(part));
  // Rows are read and updated beside their part.
  EXPECT_THAT(ran.output, ::testing::Not(::testing::ContainsRegex(
                              "\\((ResourceGather|ResourceSparseApplyAdagrad)\\): /job:worker")));
  EXPECT_THAT(ran.output, HasSubstr("(ResourceSparseApplyAdagrad): /job:ps/replica:0/task:1"));
  const std::vector<double> losses = Losses(ran);
  ASSERT_EQ(losses.size(), 2u) << ran.output;
  EXPECT_LT(losses[1], losses[0]);
}

TEST(Examples, SplitModelHasOnePartOfTheModelOnEachMachine) {
  const Ran ran = Launch("--workers=2", "split_model", "--num_batches=10");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("conv1/weights: (VarHandleOp): /job:worker/replica:0/task:0"));
  EXPECT_THAT(ran.output, HasSubstr("(Conv2DBackpropFilter): /job:worker/replica:0/task:0"));
  EXPECT_THAT(ran.output, HasSubstr("(MatMul): /job:worker/replica:0/task:1"));
  EXPECT_THAT(ran.output,
              ::testing::Not(::testing::ContainsRegex("\\(Conv2D[A-Za-z]*\\): [^\n]*task:1")));
  EXPECT_THAT(ran.output, ::testing::Not(::testing::ContainsRegex("\\(MatMul\\): [^\n]*task:0")));
}

TEST(Examples, SplitModelLearnsOverTwoDevices) {
  const Ran ran = RunProgram("split_model --num_batches=40 --log_device_placement=summary");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("/device:CPU:1"));
  double loss = 9;
  ASSERT_EQ(std::sscanf(ran.lines().back().c_str(), "step 40  loss %lf", &loss), 1) << ran.output;
  EXPECT_LT(loss, 1.5);
}

TEST(Examples, TowersByHandLearnOverTwoDevices) {
  const Ran ran = RunProgram("towers_by_hand --num_batches=60 --log_device_placement=summary");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("/device:CPU:1"));
  double loss = 9;
  ASSERT_EQ(std::sscanf(ran.lines().back().c_str(), "step 60  loss %lf", &loss), 1) << ran.output;
  EXPECT_LT(loss, 1.0);
  const Ran launched = Launch("--ps=1 --workers=2", "towers_by_hand", "--num_batches=60");
  EXPECT_EQ(launched.code, 0) << launched.output;
  for (const char* line : {"fc1/weights: (VarHandleOp): /job:ps/replica:0/task:0",
                           "tower_1/fc1/MatMul: (MatMul): /job:worker/replica:0/task:1",
                           "ResourceApplyMomentum: (ResourceApplyMomentum): /job:ps/"}) {
    EXPECT_THAT(launched.output, HasSubstr(line));
  }
  // The losses do not depend on the placement.
  EXPECT_THAT(launched.output, HasSubstr(ran.lines().back()));
  const Ran uneven = RunProgram("towers_by_hand --batch_size=63");
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.output,
              HasSubstr("--batch_size must be a multiple of the number of towers, 2"));
}

TEST(Examples, MnistReplicaPrintsProgressAndEndsWithAccuracyAndRate) {
  const Ran ran = RunProgram(kQuick);
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::vector<std::string> lines = ran.lines();
  ASSERT_EQ(lines.size(), 4u) << ran.output;
  EXPECT_TRUE(std::regex_match(
      lines[0], std::regex(R"(step 10  loss \d+\.\d{3}  accuracy \d\.\d\d  images/sec \d+\.\d)")))
      << lines[0];
  EXPECT_EQ(lines[1].rfind("step 20  ", 0), 0u) << lines[1];
  EXPECT_TRUE(std::regex_match(lines[2], std::regex(R"(test accuracy: [01]\.\d{4})"))) << lines[2];
  EXPECT_TRUE(std::regex_match(lines[3], std::regex(R"(total images/sec: \d+\.\d\d)"))) << lines[3];
}

TEST(Examples, MnistReplicaGivesTheSameCurveForTheSameSeedWhoeverReadsTheData) {
  const std::string two = std::string(kQuick) + "--num_replicas=2 ";
  const std::vector<std::string> curve = Curve(RunProgram(two));
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_EQ(Curve(RunProgram(two + "--input=executor")), curve);
  EXPECT_EQ(Curve(RunProgram(two + "--image_type=uint8 --inter_op_parallelism_threads=1")), curve);
  EXPECT_NE(Curve(RunProgram(two + "--seed=3")), curve);
}

TEST(Examples, MnistReplicaGivesTheSameCurveWhereverTheVariablesAre) {
  const std::string two = std::string(kQuick) + "--num_replicas=2 ";
  const std::vector<std::string> curve = Curve(RunProgram(two));
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_EQ(Curve(RunProgram(two + "--variable_update=replicated")), curve);
  EXPECT_EQ(Curve(RunProgram(two + "--variable_update=central")), curve);
  const Ran client =
      Launch("--workers=2", kQuick, "--variable_update=central --central_device=client");
  EXPECT_THAT(client.output, HasSubstr("fc1/weights: (VarHandleOp): /job:client/"));
  EXPECT_EQ(Curve(client), curve);
  EXPECT_EQ(Curve(RunProgram(two + "--max_variable_bytes=20000")), curve);
  EXPECT_EQ(Curve(RunProgram(two + "--split=weights=1,1")), curve);
}

TEST(Examples, MnistReplicaLetsEveryReplicaTrainAtItsOwnPace) {
  const Ran ran = RunProgram(kQuick + std::string("--num_replicas=2 --async"));
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::vector<std::string> lines = ran.lines();
  ASSERT_EQ(lines.size(), 4u) << ran.output;
  EXPECT_TRUE(std::regex_match(
      lines[0], std::regex(R"(Worker: [01], Step: 10, Accuracy\(batch\): \d\.\d\d)")))
      << lines[0];
  EXPECT_EQ(lines[2].rfind("test accuracy: ", 0), 0u) << lines[2];
}

TEST(Examples, MnistReplicaKeepsSeveralStepsInFlightAndWritesATrace) {
  const std::string path = ::testing::TempDir() + "mnist_replica_trace.json";
  const Ran ran = RunProgram(kQuick + std::string("--steps_in_flight=3 --trace_file=") + path);
  ASSERT_EQ(ran.code, 0) << ran.output;
  std::ifstream file(path);
  const std::string trace{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(trace, HasSubstr("traceEvents"));
  EXPECT_THAT(trace, HasSubstr("Conv2D"));
  std::filesystem::remove(path);
}

TEST(Examples, MnistReplicaMakesSeveralStepsPerRunWithTheSameResult) {
  const auto last_lines = [](const std::string& flags) {
    const Ran ran = RunProgram(kQuick + flags);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.lines().at(ran.lines().size() - 2);
  };
  const std::string single = last_lines("--num_replicas=2 --input=executor --dropout=0.5");
  EXPECT_EQ(single.rfind("test accuracy: ", 0), 0u) << single;
  EXPECT_EQ(last_lines("--num_replicas=2 --input=executor --dropout=0.5 --steps_per_run=7"),
            single);
}

TEST(Examples, MnistReplicaGoesOnFromTheCheckpointsOfItsTrainDir) {
  const auto train = [](const std::string& flags) {
    const Ran ran = RunProgram(std::string(kQuick) + "--num_replicas=2 --input=executor " + flags);
    EXPECT_EQ(ran.code, 0) << ran.output;
    for (const std::string& line : ran.lines()) {
      if (line.rfind("test accuracy: ", 0) == 0) return line;
    }
    return std::string("none in: " + ran.output);
  };
  const std::string folder = ::testing::TempDir() + "mnist_replica_train_dir";
  std::filesystem::remove_all(folder);
  const std::string whole = train("--dropout=0.5");
  const std::string dir = "--dropout=0.5 --save_steps=5 --train_dir=" + folder;
  EXPECT_NE(train(dir + " --num_batches=9"), whole);
  EXPECT_EQ(train(dir + " --sharded_checkpoints"), whole);
  int checkpoints = 0, indices = 0, events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    checkpoints += entry.path().extension() == ".safetensors";
    indices += entry.path().extension() == ".json";
    events += entry.path().filename().string().rfind("events.out.tfevents.", 0) == 0;
  }
  EXPECT_GE(checkpoints, 5);
  EXPECT_GE(indices, 2);
  EXPECT_EQ(events, 2);
  std::filesystem::remove_all(folder);
}

TEST(Examples, ARunThatIsDoneAlreadySaysThatNothingIsLeft) {
  const TemporaryFolder folder;
  const std::string command = kQuick + ("--train_dir=" + folder.path());
  EXPECT_THAT(RunProgram(command).output, HasSubstr("total images/sec: "));
  const Ran again = RunProgram(command);
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.output, HasSubstr("Nothing is left to train: --num_batches and "
                                      "--num_warmup_batches end at global step 22, and 22 "));
  EXPECT_THAT(again.output, HasSubstr("test accuracy: "));
  EXPECT_THAT(again.output, ::testing::Not(HasSubstr("images/sec")));
}

TEST(Examples, AWorkersClientThatNumReplicasLeavesOutSaysSoAndEnds) {
  for (const char* mode : {"between_graph", "between_graph --sync", "hybrid",
                           "between_graph --variable_update=replicated"}) {
    const Ran ran = RunProgram(std::string(kQuick) +
                               "--ps_hosts=localhost:1 --worker_hosts=localhost:2,localhost:3 "
                               "--num_replicas=1 --task_index=1 --replication=" +
                               mode);
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("Worker: 1 takes no part: --num_replicas=1")) << mode;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Examples, MnistReplicaNamesEachMistake) {
  struct Case {
    const char* flags;
    const char* message;
  };
  const Case cases[] = {
      {"--batch_size=1 --num_replicas=2", "--batch_size=1 is smaller than the 2 replicas"},
      {"--replication=between_graph", "a client per worker of a cluster: give --cluster"},
      {"--async --sync", "either --async or --sync"},
      {"--async --variable_update=replicated", "leave out --async"},
      {"--num_replicas=2 --split=weights=3", "1 weights for 2 replicas"},
      {"--num_replicas=2 --split=weights=3,x", "'x' is no whole number above 0"},
      {"--split=measured", "--split=measured compares the workers of a cluster"},
      {"--central_device=client", "--central_device is for --variable_update=central"},
      {"--variable_update=central --central_device=client --split=measured",
       "leave out --central_device=client"},
      {"--replication=between_graph --worker_hosts=localhost:1 --task_index=1",
       "--task_index=1, but there are 1 workers"},
      {"--replication=between_graph --worker_hosts=localhost:1,localhost:2 --num_replicas=1 "
       "--task_index=2",
       "--task_index=2, but there are 1 workers"},
      {"--steps_per_run=2 --steps_in_flight=2", "leave out --steps_in_flight"},
      {"--steps_per_run=2 --async", "leave out --async"},
      {"--steps_per_run=2 --replication=between_graph --sync", "each step waits for the chief"},
      {"--train_dir=x --steps_in_flight=2", "leave out --steps_in_flight"},
      {"--steps_per_run=0", "--steps_per_run: must be at least 1, not 0"},
      {"--batch_size=0", "--batch_size: must be at least 1, not 0"},
      {"--lerning_rate=1", "did you mean --learning_rate?"},
      {"--dropout=1", "--dropout must be in [0, 1)"},
      {"--worker_hosts=localhost:1 --cluster=x.json", "not both"},
      {"--ps_hosts=localhost:1", "no job 'worker'"},
      {"--worker_hosts=localhost:1", "needs a job 'ps'"},
      {"--variable_update=horovod", "horovod"},
  };
  for (const Case& c : cases) {
    const Ran ran = RunProgram(std::string(kQuick) + c.flags);
    EXPECT_EQ(ran.code, 2) << c.flags;
    EXPECT_THAT(ran.output, HasSubstr(c.message)) << c.flags;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Transformer, TrainsInOneGraphAndBetweenGraphsAndRefusesWhatCannotBe) {
  const std::string small =
      "transformer --layers=1 --width=16 --inner=16 --length=8 --vocabulary=9 --batch_size=4 "
      "--num_batches=8 --display_every=4 ";
  for (const std::string& command :
       {small + "--dtype=bfloat16 --num_replicas=2 --min_length=4",
        "monograph launch --workers=2 -- " MG_PROGRAMS "/" + small +
            "--replication=between_graph --variable_update=replicated"}) {
    const Ran ran = RunProgram(command);
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("step 8  loss "));
    EXPECT_THAT(ran.output, HasSubstr("total tokens/sec: "));
  }
  for (const auto& [flag, why] : {std::pair{"--heads=5", "--width=16 is no multiple of --heads=5"},
                                  std::pair{"--length=7", "--length=7 is odd"},
                                  std::pair{"--min_length=3", "--min_length=3 is not even"},
                                  std::pair{"--min_length=10", "at most --length=8"}}) {
    const Ran ran = RunProgram(small + flag);
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.output, HasSubstr(why));
  }
}

// The losses of lines "N	images/sec: ...	loss	accuracy", of the first client.
std::vector<double> CnnLosses(const Ran& ran) {
  std::vector<double> losses;
  for (const std::string& line : ran.lines()) {
    double loss = 0;
    const size_t launched = line.starts_with("[client/0] ") ? 11 : 0;
    if (std::sscanf(line.c_str() + launched, "%*d\timages/sec: %*f +/- %*f (jitter = %*f)\t%lf",
                    &loss) == 1)
      losses.push_back(loss);
  }
  return losses;
}

TEST(CnnBenchmarks, PrintsTheLinesOfTfCnnBenchmarks) {
  const Ran ran = RunProgram(kCnn +
                             "--model=resnet18 --device=cpu --num_batches=4 --display_every=3 "
                             "--use_fp16 --optimizer=momentum 2>/dev/null");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_TRUE(std::regex_match(ran.output, std::regex(R"(Model:       resnet18
Dataset:     imagenet \(synthetic\)
Mode:        training
SingleSess:  True
Batch size:  2 global
             2 per device
Num batches: 4
Num epochs:  0.00
Devices:     \['/job:localhost/replica:0/task:0/device:CPU:0'\]
Data format: NHWC
Optimizer:   momentum
Variables:   parameter_server
==========
Generating training model
Initializing graph
Running warm up
Done warm up
Step	Img/sec	total_loss	top_1_accuracy	top_5_accuracy
1	images/sec: \d+\.\d \+/- 0\.0 \(jitter = 0\.0\)	\d+\.\d{3}	[01]\.\d{3}	[01]\.\d{3}
3	images/sec: \d+\.\d \+/- \d+\.\d \(jitter = \d+\.\d\)	\d+\.\d{3}	[01]\.\d{3}	[01]\.\d{3}
-{64}
total images/sec: \d+\.\d\d
-{64}
)"))) << ran.output;
}

TEST(CnnBenchmarks, OnlyForwardSaysNoLossAndChangesNothing) {
  const TemporaryFolder folder;
  const std::string train = kCnn + "--device=cpu --display_every=2 --init_learning_rate=0.5 ",
                    save = " --num_batches=30 --train_dir=" + folder.File("run");
  ASSERT_EQ(RunProgram(train + save).code, 0);
  const auto forward = [&](const std::string& flags) {
    const Ran ran = RunProgram(train + "--forward_only " + flags);
    EXPECT_EQ(ran.code, 0) << ran.output;
    std::vector<std::string> lines;
    for (const std::string& line : ran.lines()) {
      if (line.find("images/sec: ") == std::string::npos || line.starts_with("total")) continue;
      lines.push_back(line.substr(0, line.find('\t')) + line.substr(line.find(")\t") + 1));
    }
    EXPECT_THAT(ran.output, HasSubstr("Mode:        forward only\n"));
    EXPECT_THAT(ran.output, HasSubstr("\ntotal images/sec: "));
    return lines;
  };
  // It has learnt its made-up batch, and goes on from the checkpoint without leaving another one.
  for (int run = 0; run < 2; ++run)
    EXPECT_EQ(forward("--train_dir=" + folder.File("run")),
              (std::vector<std::string>{"1\t0.000\t1.000\t1.000", "2\t0.000\t1.000\t1.000"}));
  EXPECT_EQ(forward("--num_gpus=2 --nocross_replica_sync").size(), 2u);
  const Ran launched = RunProgram("monograph launch --ps=1 --workers=2 -- " MG_PROGRAMS "/" +
                                  train + "--forward_only --replication=between_graph");
  EXPECT_EQ(launched.code, 0) << launched.output;
  EXPECT_THAT(launched.output, HasSubstr("total images/sec: "));
}

TEST(CnnBenchmarks, ComputesTheSameInBothLayouts) {
  const auto loss = [](const std::string& format) {
    const Ran ran = RunProgram(
        kCnn +
        "--model=resnet18 --image_size=64 --batch_size=4 --device=cpu --num_warmup_batches=0 "
        "--data_format=" +
        format);
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("Data format: " + format + "\n"));
    return CnnLosses(ran).at(0);
  };
  EXPECT_NEAR(loss("NHWC"), loss("NCHW"), 0.005);
}

TEST(CnnBenchmarks, LearnsFromTheRecordsThatEachTaskReads) {
  const TemporaryFolder folder;
  const Ran made = RunProgram(
      "imagenet_records --height=50 --width=70 --files=2 --classes=1 "
      "--images_per_file=3 --out=" +
      folder.File("data"));
  ASSERT_EQ(made.code, 0) << made.output;
  const std::string read =
      kCnn +
      "--device=cpu --num_batches=8 --init_learning_rate=0.5 --data_dir=" + folder.File("data");
  for (const std::string& command :
       {read + " --num_gpus=2", "monograph launch --ps=1 --workers=2 -- " MG_PROGRAMS "/" + read}) {
    const Ran ran = RunProgram(command + " --display_every=8");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("Dataset:     imagenet\n"));
    EXPECT_THAT(ran.output, HasSubstr("Batch size:  4 global\n"));
    float loss = 9, accuracy = 0;
    for (const std::string& line : ran.lines())
      std::sscanf(line.c_str(), "8\timages/sec: %*f +/- %*f (jitter = %*f)\t%f\t%f", &loss,
                  &accuracy);
    EXPECT_LT(loss, 3) << ran.output;  // it begins with log(1001)
    EXPECT_EQ(accuracy, 1) << ran.output;
  }

  std::filesystem::resize_file(folder.File("data/train-00001-of-00002"), 5000);
  const Ran cut = RunProgram(read + " --num_batches=100000");
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.output, HasSubstr("data/train-00001-of-00002"));
  EXPECT_THAT(cut.output, ::testing::Not(HasSubstr("total images/sec")));
  const Ran none = RunProgram(read + "/none");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.output, HasSubstr("NOT_FOUND: --data_dir: /job:localhost/replica:0/task:0 sees "
                                     "no file '" +
                                     folder.File("data") + "/none/train-*-of-*'"));
}

TEST(CnnBenchmarks, ReadsNothingOfWhatAnEarlierRunOnTheSameDaemonsHasBegunToRead) {
  const TemporaryFolder folder;
  const std::string old = folder.File("old"), fresh = folder.File("fresh");
  const std::string make = "imagenet_records --height=50 --width=70 --files=1 --out=";
  ASSERT_EQ(RunProgram(make + old + " --images_per_file=80").code, 0);
  ASSERT_EQ(RunProgram(make + fresh + " --images_per_file=3").code, 0);
  const std::string read =
      MG_PROGRAMS "/" + kCnn + "--device=cpu --cluster=\"$MONOGRAPH_CLUSTER\" ";
  // The reader stands in a file that is then cut behind that place.
  const Ran ran =
      RunProgram("monograph launch --ps=1 --workers=1 -- sh -c '" + read + "--data_dir=" + old +
                 " && truncate -s -1000 " + old + "/train-00000-of-00001 && " + read +
                 "--num_batches=30 --data_dir=" + fresh + "'");
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST(CnnBenchmarks, AddsTheDecayOfWeightsToTheLossAndTrainsWithIt) {
  const auto losses = [](const std::string& flags) {
    const Ran ran = RunProgram(kCnn + "--num_warmup_batches=0 --display_every=1 " + flags);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return CnnLosses(ran);
  };
  const std::vector<double> without = losses("--weight_decay=0"), usual = losses(""),
                            more = losses("--weight_decay=0.002");
  ASSERT_EQ(without.size(), 2u);
  ASSERT_EQ(usual.size(), 2u);
  ASSERT_EQ(more.size(), 2u);
  // Half the sum of squares, of weights that begin at random, is the same for both.
  const double squares = (more[0] - without[0]) / 0.002;
  EXPECT_GT(squares, 100);
  EXPECT_NEAR(usual[0] - without[0], 0.00004 * squares, 0.002);
  // The step has made the weights smaller, the more the larger they count.
  EXPECT_LT(losses("--weight_decay=1").at(1), 0.985 * squares);
}

TEST(CnnBenchmarks, GoesOnFromItsCheckpointInEveryReplication) {
  for (const std::string& replication :
       {std::string("cnn_benchmarks --num_gpus=2 --device=cpu --variable_update=replicated"),
        std::string("monograph launch --workers=2 -- " MG_PROGRAMS
                    "/cnn_benchmarks --replication=between_graph --variable_update=replicated")}) {
    const TemporaryFolder folder;
    const std::string command =
        replication + kCnn.substr(kCnn.find(' ')) + "--optimizer=momentum --display_every=1 ";
    const std::string saved = command + "--train_dir=" + folder.File("run") +
                              " --save_model_steps=2 --summary_verbosity=1 "
                              "--save_summaries_steps=1 ";
    const std::vector<double> at_once = CnnLosses(RunProgram(command + "--num_batches=5"));
    const Ran first = RunProgram(saved + "--num_batches=2"), second = RunProgram(saved);
    ASSERT_EQ(first.code, 0) << first.output;
    ASSERT_EQ(second.code, 0) << second.output;
    EXPECT_THAT(first.output, HasSubstr("model.ckpt-2\n"));
    EXPECT_THAT(first.output, HasSubstr("model.ckpt-3\n"));
    EXPECT_THAT(second.output, HasSubstr("Restoring parameters from "));
    EXPECT_THAT(second.output, HasSubstr("model.ckpt-6\n"));
    // Made-up images are the same in each run.
    const std::vector<double> losses = CnnLosses(second);
    ASSERT_EQ(losses.size(), 2u);
    ASSERT_EQ(at_once.size(), 5u);
    EXPECT_EQ(losses[0], at_once[3]);
    EXPECT_EQ(losses[1], at_once[4]);
    // Images are not saved.
    size_t events = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.File("run"))) {
      const std::string name = entry.path().filename();
      events += name.starts_with("events.out.tfevents.") ? 1 : 0;
    }
    EXPECT_EQ(events, 2u);
  }
}

TEST(CnnBenchmarks, NamesEachMistake) {
  const std::pair<const char*, const char*> cases[] = {
      {"--model=vgg16", "resnet50"},
      {"--data_format=NWHC", "--data_format: must be NHWC or NCHW, not 'NWHC'"},
      {"--forward_only --save_model_steps=1",
       "--forward_only saves nothing: leave out --save_model_steps"},
      {"--image_size=8", "--image_size must be 0 or at least 32, not 8"},
      {"--init_learning_rate=0", "--init_learning_rate must be greater than 0"},
      {"--momentum=1", "--momentum must be in [0, 1)"},
      {"--weight_decay=-1", "--weight_decay must be 0 or greater"},
      {"--save_model_steps=1", "--save_model_steps writes to a folder: give --train_dir"},
      {"--variable_update=replicated --nocross_replica_sync", "leave out --nocross_replica_sync"},
      {"--variable_update=distributed_replicated", "distributed_replicated"},
      {"--replication=between_graph", "a client per worker of a cluster: give --cluster"},
      {"--worker_hosts=localhost:1", "needs a job 'ps'"},
      {"--num_batch=1", "did you mean --num_batches?"},
  };
  for (const auto& [flags, message] : cases) {
    const Ran ran = RunProgram(kCnn + flags);
    EXPECT_EQ(ran.code, 2) << flags;
    EXPECT_THAT(ran.output, HasSubstr(message)) << flags;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
  EXPECT_THAT(RunProgram("imagenet_records").output, HasSubstr("give --out"));
}

TEST(Examples, WhatFailsOnceARunHasBegunEndsWithOne) {
  for (const auto& [flags, message] :
       {std::pair("--data_name=mnist --data_dir=/does/not/exist", "dataset-fashion-mnist"),
        std::pair("--data_name=mnist", "--data_dir")}) {
    const Ran ran = RunProgram(std::string(kQuick) + flags);
    EXPECT_EQ(ran.code, 1) << flags;
    EXPECT_THAT(ran.output, HasSubstr(message)) << flags;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Examples, NumbersThatMakeNoSenseAreRefusedByEveryProgram) {
  for (const std::string command :
       {"calculation_server --num_batches=0", "cifar_hybrid --batch_size=-4",
        "cifar_hybrid --num_batches=-1", "cifar_hybrid --replicas_per_worker=0",
        "cnn_benchmarks --batch_size=0", "cnn_benchmarks --display_every=0",
        "imagenet_records --files=0", "embedding --dimensions=0", "embedding --batch_size=-1",
        "linear_regression --num_batches=0", "split_model --batch_size=0",
        "towers_by_hand --num_batches=-1", "towers_by_hand --batch_size=-2",
        "transformer --layers=0"}) {
    const Ran ran = RunProgram(command);
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_THAT(ran.output, HasSubstr("must be at least ")) << command;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Examples, NumbersThatAreAbsurdAreRefusedByEveryProgram) {
  const std::string huge = "=9223372036854775807";
  for (const std::string flag : {"cifar_hybrid --batch_size",
                                 "cifar_hybrid --replicas_per_worker",
                                 "cnn_benchmarks --batch_size",
                                 "cnn_benchmarks --image_size",
                                 "cnn_benchmarks --num_gpus",
                                 "embedding --batch_size",
                                 "imagenet_records --width",
                                 "embedding --dimensions",
                                 "embedding --films",
                                 "embedding --users",
                                 "mnist_replica --batch_size",
                                 "mnist_replica --eval_batch_size",
                                 "mnist_replica --fc",
                                 "mnist_replica --inter_op_parallelism_threads",
                                 "mnist_replica --num_batches",
                                 "mnist_replica --num_replicas",
                                 "mnist_replica --steps_in_flight",
                                 "mnist_replica --replicas_per_worker",
                                 "split_model --batch_size",
                                 "towers_by_hand --batch_size",
                                 "monograph-executor --cpu_devices"}) {
    const Ran ran = RunProgram(flag + huge);
    EXPECT_EQ(ran.code, 2) << flag << ": " << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(": must be at most ")) << flag;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Examples, MnistReplicaRefusesAnOutputThatItCannotWriteBeforeItWorks) {
  for (const std::string flag : {"--trace_file", "--result_file", "--placement_file"}) {
    const Ran ran = RunProgram(kQuick + flag + "=/nope/x.json");
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_EQ(ran.output, "mnist_replica: " + flag +
                              ": cannot write '/nope/x.json': there is no folder '/nope' (see "
                              "--help)\n");
  }
  const Ran ran = RunProgram(kQuick + std::string("--train_dir=/dev/null/run"));
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.output,
            "mnist_replica: --train_dir: cannot write '/dev/null/run': '/dev/null' is not a folder "
            "(see --help)\n");
  const std::string path = ::testing::TempDir() + "mnist_replica_not_written.json";
  std::filesystem::remove(path);
  EXPECT_EQ(RunProgram(kQuick + std::string("--data_name=mnist --trace_file=") + path).code, 1);
  EXPECT_FALSE(std::filesystem::exists(path)) << "a run that failed left an empty file";
}

// The images/sec of the line of `step`.
double RateAt(const Ran& ran, int step) {
  for (const std::string& line : ran.lines()) {
    if (line.rfind("step " + std::to_string(step) + " ", 0) == 0)
      return std::stod(line.substr(line.find("images/sec ") + 11));
  }
  ADD_FAILURE() << "no step " << step << " in: " << ran.output;
  return 0;
}

TEST(Examples, AfterAResumeTheFirstRateCountsOnlyTheStepsSinceThen) {
  const std::string folder = ::testing::TempDir() + "mnist_replica_resumed";
  std::filesystem::remove_all(folder);
  const std::string flags =
      "mnist_replica --data_name=synthetic --fc=8 --batch_size=4 "
      "--num_warmup_batches=0 --display_every=10 --train_dir=" +
      folder;
  ASSERT_EQ(RunProgram(flags + " --num_batches=1000").code, 0);
  const Ran resumed = RunProgram(flags + " --num_batches=1030");
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  // With the thousand steps before it would be a hundred times as large.
  EXPECT_LT(RateAt(resumed, 1010), 20 * RateAt(resumed, 1030)) << resumed.output;
  std::filesystem::remove_all(folder);
}

TEST(Examples, ThePlacementLogIsABooleanTooAndWhatProgramsReadIsNotOnStandardOutput) {
  const std::string line = "fc1/weights: (VarHandleOp): /job:localhost/";
  for (const std::string form : {"", "=True", "=true", "=1", "=full"})
    EXPECT_THAT(RunProgram(kQuick + ("--log_device_placement" + form)).output, HasSubstr(line));
  for (const std::string form : {"=False", "=0", "=none"})
    EXPECT_THAT(RunProgram(kQuick + ("--log_device_placement" + form)).output,
                ::testing::Not(HasSubstr(line)));
  const std::string path = ::testing::TempDir() + "placement";
  for (const std::string form : {"json", "dot"}) {
    const Ran out = RunProgram(kQuick + ("--log_device_placement=" + form) + " 2>/dev/null");
    EXPECT_EQ(out.lines().size(), 4u) << out.output;
    EXPECT_THAT(out.output, ::testing::StartsWith("step 10"));
    const Ran file =
        RunProgram(kQuick + ("--log_device_placement=" + form) + " --placement_file=" + path);
    EXPECT_EQ(file.code, 0) << file.output;
    EXPECT_EQ(file.lines().size(), 4u) << file.output;
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(text.substr(0, form == "json" ? 1 : 8), form == "json" ? "{" : "digraph ") << text;
    EXPECT_EQ(nlohmann::json::accept(text), form == "json");
  }
  std::filesystem::remove(path);
}

TEST(Examples, TheOptimisationLevelIsAFlagAndChangesNoResult) {
  const std::vector<std::string> curve = Curve(RunProgram(kQuick));
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_EQ(Curve(RunProgram(std::string(kQuick) + "--opt_level=L0")), curve);
  const Ran wrong = RunProgram(std::string(kQuick) + "--opt_level=L9");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.output, HasSubstr("L0"));
}

TEST(Examples, OnATerminalALineOfProgressRewritesItselfAndColoursObeyNoColor) {
  const auto on_terminal = [](const std::string& environment) {
    return RunShell("TERM=xterm " + environment + " script -qec '" MG_PROGRAMS "/" +
                    std::string(kQuick) + "' /dev/null < /dev/null");
  };
  const Ran coloured = on_terminal("NO_COLOR="), plain = on_terminal("NO_COLOR=1"),
            dumb = on_terminal("NO_COLOR= TERM=dumb");
  const std::regex progress(R"(step \d+/20  loss \d+\.\d{3}  images/sec \d+\.\d  ETA \d+:\d\d)");
  EXPECT_TRUE(std::regex_search(plain.output, progress)) << plain.output;
  EXPECT_TRUE(std::regex_search(coloured.output, progress)) << coloured.output;
  EXPECT_THAT(coloured.output, HasSubstr("\r\x1b[K\x1b[36mstep "));
  EXPECT_THAT(plain.output, HasSubstr("\r\x1b[Kstep "));
  EXPECT_EQ(plain.output.find("\x1b[3"), std::string::npos) << plain.output;
  EXPECT_EQ(dumb.output.find('\x1b'), std::string::npos) << dumb.output;
  // The lines that stay are those of a pipe.
  EXPECT_THAT(plain.output, HasSubstr("step 10  loss "));
  EXPECT_THAT(plain.output, HasSubstr("test accuracy: "));
}

TEST(Examples, AVariableOfTheEnvironmentIsCheckedAsItsFlagIs) {
  setenv("MONOGRAPH_BATCH_SIZE", "abc", 1);
  const Ran ran = RunProgram(kQuick);  // --batch_size on the command line is stronger
  const Ran other = RunProgram("mnist_replica --data_name=synthetic");
  unsetenv("MONOGRAPH_BATCH_SIZE");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("'abc' is not a whole number (from MONOGRAPH_BATCH_SIZE)"));
}

TEST(Examples, CifarHybridNamesWhatItsClusterLacks) {
  const std::pair<const char*, const char*> cases[] = {
      {"--task_index=1", "--task_index=1, but there are 1 workers: give --cluster"},
      {"--ps_hosts=localhost:1 --worker_hosts=localhost:2 --task_index=2", "there are 1 workers"},
      {"--ps_hosts=localhost:1", "no job 'worker'"},
      {"--worker_hosts=localhost:2", "no job 'ps'"}};
  for (const auto& [flags, message] : cases) {
    const Ran ran = RunProgram(std::string("cifar_hybrid ") + flags);
    EXPECT_EQ(ran.code, 2) << flags;
    EXPECT_THAT(ran.output, HasSubstr(message)) << flags;
    EXPECT_EQ(ran.lines().size(), 1u) << ran.output;
  }
}

TEST(Examples, EveryProgramExplainsItselfWithExamplesFirst) {
  for (const std::string program :
       {"calculation_server", "cifar_hybrid", "cnn_benchmarks", "embedding", "imagenet_records",
        "linear_regression", "mnist_replica", "split_model", "towers_by_hand", "transformer"}) {
    const Ran ran = RunProgram(program + " --help");
    EXPECT_EQ(ran.code, 0) << program;
    EXPECT_LT(ran.output.find("Examples:\n  " + program), ran.output.find("--cluster"))
        << ran.output;
  }
}

TEST(Examples, EveryProgramSaysItsVersionTakesALogLevelAndWrapsItsHelp) {
  for (const std::string program :
       {"calculation_server", "cifar_hybrid", "cnn_benchmarks", "embedding", "imagenet_records",
        "linear_regression", "mnist_replica", "monograph compare", "monograph devices",
        "monograph graph export", "monograph keygen", "monograph launch", "monograph run",
        "monograph status", "monograph-executor", "split_model", "towers_by_hand", "transformer"}) {
    const Ran version = RunProgram(program + " --version"), help = RunProgram(program + " --help"),
              level = RunProgram(program + " --log_level=loud");
    EXPECT_EQ(version.code, 0) << program << ": " << version.output;
    EXPECT_THAT(version.output, ::testing::MatchesRegex(program + " [0-9]+\\.[0-9]+.*\n"));
    EXPECT_EQ(help.code, 0) << program;
    for (const std::string& line : help.lines()) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_EQ(level.code, 2) << program << ": " << level.output;
    EXPECT_THAT(level.output, HasSubstr("--log_level: ")) << program;
  }
}

}  // namespace
}  // namespace monograph
