// `monograph compare` and `monograph status` with real daemons. Most runs are of a stand-in for a
// training program that leaves a result file.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/multiprocess/cluster_fixture.h"
#include "tools/run_metrics.h"

namespace monograph {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

bool NoProcessWith(const std::string& text) {
  for (const auto until = Clock::now() + 20s; Clock::now() < until; usleep(10000)) {
    bool found = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string line = ReadFile((entry.path() / "cmdline").string());
      found |= line.find("monograph-executor") != std::string::npos &&
               line.find(text) != std::string::npos;
    }
    if (!found) return true;
  }
  return false;
}

// A comparison whose daemons can be told from all others by a number in their command lines. The
// program is a script; $RESULT is the file that it has to leave, `good` puts a good one there.
struct Comparison {
  Comparison(const std::vector<std::string>& flags, const std::string& script)
      : mark("0." + std::to_string(getpid()) + "0" + std::to_string(++count) + "2"),
        process(RunMonograph(flags, script), {{"GOOD", WriteResult()}, {"FOLDER", folder.path()}}) {
  }

  std::vector<std::string> RunMonograph(const std::vector<std::string>& flags,
                                        const std::string& script) const {
    std::vector<std::string> command = {
        MonographPath(), "compare", "--out=" + folder.File("page.html"),
        "--json=" + folder.File("figures.json"), "--executor_flags=--drain_seconds=" + mark};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "sh", "-c",
                                   "for w; do case $w in --result_file=*) RESULT=${w#*=};; "
                                   "--replication=*) MODE=${w#*=};; esac; done; "
                                   // Whole or not at all: several clients may be at it.
                                   "good() { cp $GOOD $RESULT.$$ && mv $RESULT.$$ $RESULT; }; " +
                                       script,
                                   "program"});
    return command;
  }
  std::string WriteResult() const {
    RunResult result;
    result.batch_size = 10;
    result.seconds = 0.01;
    result.images = 100;
    for (int i = 0; i < 10; ++i) result.steps.push_back({1000.0 * i, 1000});
    result.digest = "abc";
    result.variables = {{"w", "abc"}};
    result.tasks = {{"/job:client/replica:0/task:0", 5000, 100, 10, 10, 0.001}};
    return folder.Write("good.json", ToJson(result));
  }
  std::string output() const { return process.output() + process.error(); }

  static inline int count = 0;
  TemporaryFolder folder;
  std::string mark;
  ChildProcess process;
};

TEST(Compare, RunsEveryModeInTurnAndWritesTableJsonAndPage) {
  Comparison comparison({"--workers=1,2", "--repeats=2"},
                        "echo $MODE $MONOGRAPH_CLUSTER >> $FOLDER/runs; good");
  const std::optional<Exit> exit = comparison.process.Wait(90s);
  ASSERT_TRUE(exit.has_value()) << comparison.output();
  EXPECT_EQ(exit->code, 0) << comparison.output();
  const std::string table = comparison.process.output();
  const std::string finding = "No conclusion from 2 repeats: at least 3 are needed";
  EXPECT_NE(table.find(finding), std::string::npos) << table;
  EXPECT_NE(comparison.process.error().find("[8/8] "), std::string::npos) << comparison.output();
  const auto json = nlohmann::json::parse(ReadFile(comparison.folder.File("figures.json")));
  EXPECT_EQ(json["runs"].size(), 8u);
  EXPECT_EQ(json["runs"][0]["mode"], "in_graph");
  EXPECT_EQ(json["runs"][4]["mode"], "between_graph") << "the second repeat goes back";
  EXPECT_NE(ReadFile(comparison.folder.File("page.html")).find("<h1>" + finding + "</h1>"),
            std::string::npos);
  for (const auto& run : json["runs"]) {
    EXPECT_GT(run["load"]["processors"], 0) << run;
    EXPECT_GE(run["load"]["others"], 0) << run;
  }
  std::ifstream runs(comparison.folder.File("runs"));
  int seen = 0;
  for (std::string line; std::getline(runs, line);) ++seen;
  EXPECT_GE(seen, 8);
  EXPECT_TRUE(NoProcessWith(comparison.mark));
}

TEST(Compare, NothingIsConcludedFromABusyMachine) {
  std::vector<std::unique_ptr<ChildProcess>> others;
  for (unsigned i = 0; i <= std::thread::hardware_concurrency() / 8; ++i)
    others.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{"sh", "-c", "while :; do :; done"}));
  Comparison comparison({"--workers=1", "--repeats=3"}, "sleep 0.3; good");
  const std::optional<Exit> exit = comparison.process.Wait(90s);
  for (auto& other : others) other->Signal(SIGKILL);
  ASSERT_TRUE(exit.has_value()) << comparison.output();
  EXPECT_EQ(exit->code, 0) << comparison.output();
  EXPECT_NE(comparison.process.error().find("The machine is busy: other work uses "),
            std::string::npos)
      << comparison.output();
  EXPECT_NE(comparison.process.output().find("No conclusion: other work kept the machine busy.\n"),
            std::string::npos)
      << comparison.output();
  const auto json = nlohmann::json::parse(ReadFile(comparison.folder.File("figures.json")));
  for (const auto& run : json["runs"]) EXPECT_TRUE(run["load"]["busy"]) << run;
}

TEST(Compare, ProgramsThatAreMissingAreNamedBeforeAnythingRuns) {
  for (const auto& [words, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--", "no-such-program"},
            "'no-such-program' is no program that can be run: no folder"},
           {{"--", "/tmp"}, "'/tmp' is no program"},
           {{"--executor=/no/executor", "--", "true"},
            "--executor '/no/executor' is no program"}}) {
    TemporaryFolder folder;
    std::vector<std::string> command = {MonographPath(), "compare",
                                        "--out=" + folder.File("page.html")};
    command.insert(command.end(), words.begin(), words.end());
    ChildProcess process(command);
    const std::optional<Exit> exit = process.Wait(20s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 1);
    EXPECT_NE(process.error().find(part), std::string::npos) << process.error();
    EXPECT_EQ(process.error().find("[1/"), std::string::npos) << process.error();
    EXPECT_FALSE(std::filesystem::exists(folder.File("page.html")));
  }
}

TEST(Compare, ARunThatFailsIsNamedWithItsLastWordsAndThePageShowsTheRest) {
  Comparison comparison(
      {"--workers=1", "--repeats=1"},
      "if [ $MODE = between_graph ]; then echo 'out of coffee'; exit 3; fi; good");
  const std::optional<Exit> exit = comparison.process.Wait(60s);
  ASSERT_TRUE(exit.has_value()) << comparison.output();
  EXPECT_EQ(exit->code, 1);
  EXPECT_NE(comparison.process.output().find("FAILED: between_graph, 1 worker, repeat 1: exit "
                                             "code 3; it printed last:\n[client/0] out of coffee"),
            std::string::npos)
      << comparison.output();
  EXPECT_NE(ReadFile(comparison.folder.File("page.html")).find("out of coffee"), std::string::npos);
  EXPECT_TRUE(NoProcessWith(comparison.mark));
}

TEST(Compare, AProgramThatLeavesNoResultsIsToldWhatIsMissing) {
  Comparison comparison({"--workers=1", "--repeats=1", "--modes=in_graph"}, "exit 0");
  const std::optional<Exit> exit = comparison.process.Wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 1);
  EXPECT_NE(comparison.process.error().find("it must know --result_file"), std::string::npos)
      << comparison.output();
}

TEST(Compare, ADaemonThatDoesNotComeUpIsWhatARunFailsOf) {
  TemporaryFolder folder;
  ChildProcess process({MonographPath(), "compare", "--out=" + folder.File("page.html"),
                        "--workers=1", "--repeats=1", "--modes=in_graph",
                        "--executor_flags=--lanes=rc_mlx5", "--", "sh", "-c", "exec sleep 1000"});
  const std::optional<Exit> exit = process.Wait(60s);
  ASSERT_TRUE(exit.has_value()) << process.error();
  EXPECT_EQ(exit->code, 1);
  for (const char* part : {"ended before every daemon was up: exit code 1", "rc_mlx5"})
    EXPECT_NE(process.output().find(part), std::string::npos) << process.output();
}

TEST(Compare, ARunThatTakesTooLongIsEndedAndTheNextOneComes) {
  Comparison comparison(
      {"--workers=1", "--repeats=1", "--run_timeout=6", "--modes=in_graph,in_graph_replicated"},
      "mkdir $FOLDER/first && exec sleep 1000; good");
  const std::optional<Exit> exit = comparison.process.Wait(90s);
  ASSERT_TRUE(exit.has_value()) << comparison.output();
  EXPECT_EQ(exit->code, 1);
  EXPECT_NE(comparison.process.error().find("longer than 6 s"), std::string::npos)
      << comparison.output();
  EXPECT_NE(comparison.process.error().find(
                "[2/2] in_graph_replicated, 1 worker, repeat 1: 10000.0 images/sec"),
            std::string::npos)
      << comparison.output();
  EXPECT_TRUE(NoProcessWith(comparison.mark));
}

TEST(Compare, CtrlCEndsTheDaemonsAndThePageShowsWhatWasMeasured) {
  Comparison comparison(
      {"--workers=1", "--repeats=2", "--modes=in_graph,in_graph_replicated"},
      "mkdir $FOLDER/first && good && exit 0; touch $FOLDER/second; exec sleep 1000");
  for (const auto until = Clock::now() + 40s;
       Clock::now() < until && !std::filesystem::exists(comparison.folder.File("second"));
       usleep(10000)) {
  }
  ASSERT_TRUE(std::filesystem::exists(comparison.folder.File("second"))) << comparison.output();
  EXPECT_FALSE(std::filesystem::exists(comparison.folder.File("page.html")))
      << "an earlier page stays until there is more to show";
  comparison.process.Signal(SIGINT);
  const std::optional<Exit> exit = comparison.process.Wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGINT);
  EXPECT_NE(comparison.process.output().find("Interrupted"), std::string::npos)
      << comparison.output();
  EXPECT_NE(ReadFile(comparison.folder.File("page.html")).find("images_per_second"),
            std::string::npos);
  EXPECT_TRUE(NoProcessWith(comparison.mark));
}

TEST(Compare, WhatAKilledOneHasLeftTheNextOneRemoves) {
  Comparison killed({"--workers=1", "--repeats=1"},
                    "echo $RESULT > $FOLDER/name; mv $FOLDER/name $FOLDER/result; exec sleep 1000");
  const std::string name = killed.folder.File("result");
  for (const auto until = Clock::now() + 60s;
       Clock::now() < until && !std::filesystem::exists(name);)
    usleep(10000);
  const std::filesystem::path left = std::filesystem::path(ReadFile(name)).parent_path();
  ASSERT_TRUE(std::filesystem::is_directory(left)) << left << killed.output();
  // While it runs its folder is its own.
  const auto next = [] {
    return Comparison({"--workers=1", "--repeats=1"}, "good").process.Wait(60s);
  };
  ASSERT_TRUE(next().has_value());
  ASSERT_TRUE(std::filesystem::is_directory(left)) << left;
  killed.process.Signal(SIGKILL);
  ASSERT_TRUE(killed.process.Wait(20s).has_value());
  ASSERT_TRUE(NoProcessWith(killed.mark));
  for (int i = 0; i < 5 && std::filesystem::exists(left); ++i) ASSERT_TRUE(next().has_value());
  EXPECT_FALSE(std::filesystem::exists(left)) << left;
}

TEST(Compare, WrongArgumentsAreRefusedBeforeAnythingRuns) {
  for (const auto& [flag, part] : std::vector<std::pair<std::string, std::string>>{
           {"--modes=in_grap", "did you mean 'in_graph'"},
           {"--workers=x", "'x' is not a number"},
           {"--repeats=0", "--repeats"},
           {"--out=/nowhere/page.html", "/nowhere/page.html"}}) {
    ChildProcess process({MonographPath(), "compare",
                          "--out=" + ::testing::TempDir() + "compare_refused.html", flag, "--",
                          "false"});
    const std::optional<Exit> exit = process.Wait(20s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_NE(exit->code, 0);
    EXPECT_NE(process.error().find(part), std::string::npos) << flag << ": " << process.error();
  }
}

TEST(Compare, MnistReplicaGivesEveryFigureAndTheSameWeightsInEverySynchronousMode) {
  TemporaryFolder folder;
  ChildProcess process(
      {MonographPath(), "compare",
       "--modes=in_graph,between_graph,in_graph_replicated,between_graph_replicated,hybrid",
       "--workers=2", "--repeats=1", "--out=" + folder.File("page.html"),
       "--json=" + folder.File("figures.json"), "--", MG_MNIST_REPLICA, "--data_name=synthetic",
       "--batch_size=10", "--fc=16", "--num_batches=6", "--num_warmup_batches=2",
       "--display_every=3", "--seed=3"});
  const std::optional<Exit> exit = process.Wait(150s);
  ASSERT_TRUE(exit.has_value()) << process.output() << process.error();
  ASSERT_EQ(exit->code, 0) << process.output() << process.error();
  EXPECT_NE(process.output().find(
                "all runs of 4 synchronous modes ended with bit-equal weights (4 runs)"),
            std::string::npos)
      << process.output();
  const auto json = nlohmann::json::parse(ReadFile(folder.File("figures.json")));
  for (const auto& cell : json["cells"]) {
    const std::string mode = cell["mode"];
    EXPECT_GT(cell["images_per_second"]["median"], 0) << mode;
    EXPECT_GT(cell["step_p99_us"]["median"], 0) << mode;
    EXPECT_GT(cell["client_cpu_us"]["median"], 0) << mode;
    EXPECT_GT(cell["critical_path"]["compute_us"], 0) << mode;
    const bool ps = !mode.ends_with("replicated");
    const size_t clients = mode.starts_with("in_graph") ? 1 : 2;
    EXPECT_EQ(cell["clients"], clients) << mode;
    EXPECT_EQ(cell["tasks"].size(), clients + 2 + (ps ? 1 : 0)) << cell["tasks"];
    // At their own pace one client may leave nothing for the other, in so few steps.
    if (mode == "hybrid") continue;
    for (const auto& task : cell["tasks"]) EXPECT_GT(task["sent"], 0) << mode << task;
    // The mean over the batch is the same, summed up in another order.
    ASSERT_EQ(cell["runs"][0]["loss"].size(), 2u) << mode;
    EXPECT_NEAR(cell["runs"][0]["loss"][1][2].get<double>(),
                json["cells"][0]["runs"][0]["loss"][1][2].get<double>(), 1e-4)
        << mode;
  }
}

TEST(Status, IsATableOfTheDaemonsAndNamesThoseThatDoNotAnswer) {
  TestCluster cluster({.ps = 1, .workers = 1});
  ASSERT_TRUE(cluster.WaitForStatus("worker", 0, [](const wire::StatusResponse&) { return true; }));
  ASSERT_TRUE(cluster.WaitForStatus("ps", 0, [](const wire::StatusResponse&) { return true; }));
  ChildProcess all({MonographPath(), "status", "--cluster=" + cluster.json()});
  std::optional<Exit> exit = all.Wait(20s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << all.error();
  EXPECT_NE(all.output().find("messages sent"), std::string::npos) << all.output();
  for (const char* task : {"/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"})
    EXPECT_NE(all.output().find(task), std::string::npos) << all.output();

  cluster.daemon("ps", 0).Signal(SIGKILL);
  ASSERT_TRUE(cluster.daemon("ps", 0).Wait(10s).has_value());
  ChildProcess rest(
      {MonographPath(), "status", "--cluster=" + cluster.json(), "--start_timeout=1"});
  exit = rest.Wait(20s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 1);
  const std::string lost = "/job:ps/replica:0/task:0 at " + cluster.address("ps", 0);
  const size_t named = rest.output().find(lost + " did not come up");
  EXPECT_NE(named, std::string::npos) << rest.output();
  EXPECT_EQ(rest.output().find(lost, named + 1), std::string::npos) << "named twice";
  EXPECT_NE(rest.output().find("/job:worker/replica:0/task:0"), std::string::npos) << rest.output();

  ChildProcess none({MonographPath(), "status"}, {{"MONOGRAPH_CLUSTER", ""}});
  ASSERT_TRUE(none.Wait(20s).has_value());
  EXPECT_NE(none.error().find("--cluster"), std::string::npos) << none.error();
}

}  // namespace
}  // namespace monograph
