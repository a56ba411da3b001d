// `monograph launch`: daemons come up, the program runs with the cluster, and all are ended
// whatever happens.
#include "tools/launch.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/multiprocess/command.h"
#include "tools/cluster_status.h"
#include "tools/free_ports.h"

namespace monograph {
namespace {

// Processes whose command line has `text`.
std::vector<pid_t> ProcessesWith(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string line;
    std::getline(file, line);  // does not throw where the process ends meanwhile, as iterators do
    if (line.find("monograph-executor") != std::string::npos &&
        line.find(text) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

bool WaitForNoneWith(const std::string& text, std::chrono::milliseconds limit = 20s) {
  for (const auto until = Clock::now() + limit; Clock::now() < until; usleep(10000)) {
    if (ProcessesWith(text).empty()) return true;
  }
  return false;
}

// A launch of 1 ps and 2 workers, whose daemons can be told from all others by a number in their
// command lines. The program may wait at the gate: a file that ends when the test opens it.
struct Launched {
  explicit Launched(const std::string& script, int restarts = 3)
      : mark("0." + std::to_string(getpid()) + "0" + std::to_string(++count) + "1"),
        process({MonographPath(), "launch", "--ps=1", "--workers=2",
                 "--restarts=" + std::to_string(restarts),
                 "--executor_flags=--log_level=info --drain_seconds=" + mark, "--", "sh", "-c",
                 script, "program"},
                {{"GATE", MakeGate()}}) {}
  std::string MakeGate() const {
    EXPECT_EQ(mkfifo(folder.File("gate").c_str(), 0600), 0);
    return folder.File("gate");
  }
  // Every daemon serves.
  bool Complete() const {
    for (const char* task :
         {"ps/replica:0/task:0", "worker/replica:0/task:0", "worker/replica:0/task:1"}) {
      if (!process.WaitForError("/job:" + std::string(task) + " listens on ")) return false;
    }
    return true;
  }
  void OpenGate() const { fclose(fopen(folder.File("gate").c_str(), "w")); }

  static inline int count = 0;
  TemporaryFolder folder;
  std::string mark;
  ChildProcess process;
};

// A folder with a stand-in for ssh, which runs the command here and keeps what it was given.
struct FakeSsh {
  explicit FakeSsh(const std::string& last = "eval \"$@\"") {
    const std::string ssh =
        folder.Write("ssh", "#!/bin/sh\necho \"$@\" >> " + folder.File("calls") +
                                "\nwhile [ \"$1\" != exec ]; do shift; done\n" + last + "\n");
    EXPECT_EQ(chmod(ssh.c_str(), 0700), 0);
  }
  std::string calls() const { return Text("calls"); }
  std::string Text(const std::string& file) const {
    std::ifstream in(folder.File(file));
    return std::string((std::istreambuf_iterator<char>(in)), {});
  }
  // In which programs are found: the stand-in, those of `more`, and the system's.
  std::string PathWith(const std::string& more = "") const {
    return folder.path() + ":" + (more.empty() ? "" : more + ":") + getenv("PATH");
  }
  TemporaryFolder folder;
};

std::string ExecutorFolder() { return std::filesystem::path(ExecutorPath()).parent_path(); }

Ran RunLaunch(std::vector<std::string> words, const ChildProcess::Environment& environment = {}) {
  words.insert(words.begin(), "launch");
  return RunMonograph(std::move(words), environment);
}

TEST(Launch, TheProgramRunsOnTheClusterThatItsFlagAndItsEnvironmentName) {
  TemporaryFolder out;
  const std::string folder = std::string(MG_GOLDEN_GRAPHS) + "/mnist_cnn_cluster";
  Launched launched("echo \"cluster=$MONOGRAPH_CLUSTER flag=$1\"; exec " + MonographPath() +
                    " run " + folder + "/graph.pb --script=" + folder +
                    "/steps.json --out=" + out.path() + " \"$1\"");
  const std::optional<Exit> exit = launched.process.Wait(60s);
  ASSERT_TRUE(exit.has_value()) << launched.process.error();
  EXPECT_FALSE(exit->signalled);
  EXPECT_EQ(exit->code, 0) << launched.process.error();
  const std::string text = launched.process.output();
  EXPECT_NE(text.find("cluster={\"ps\""), std::string::npos) << text;
  EXPECT_NE(text.find("flag=--cluster="), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::exists(out.File("6_7.npy")));
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
}

TEST(Launch, DaemonsOutputIsPrefixedLineByLineAndTheProgramsExitCodeIsReturned) {
  Launched launched("cat \"$GATE\"; exit 7");
  for (const char* label : {"[worker/1] ", "[worker/0] ", "[ps/0] "}) {
    EXPECT_TRUE(launched.process.WaitForError(label)) << launched.process.error();
  }
  launched.OpenGate();
  const std::optional<Exit> exit = launched.process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 7);
  std::istringstream lines(launched.process.error());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.rfind("[worker/0] ", 0) == 0 || line.rfind("[worker/1] ", 0) == 0 ||
                line.rfind("[ps/0] ", 0) == 0)
        << line;
  }
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
}

TEST(Launch, AProgramThatASignalEndsGivesTheShellsCode) {
  Launched launched("kill -9 $$");
  const std::optional<Exit> exit = launched.process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGKILL);
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
}

TEST(Launch, CtrlCEndsTheProgramAndEveryDaemon) {
  Launched launched("echo ready; exec sleep 1000");
  ASSERT_TRUE(launched.process.WaitForOutput("ready"));
  for (const char* label : {"[worker/1] ", "[worker/0] ", "[ps/0] "}) {
    ASSERT_TRUE(launched.process.WaitForError(label)) << launched.process.error();
  }
  ASSERT_EQ(ProcessesWith(launched.mark).size(), 3u);
  launched.process.Signal(SIGINT);
  const std::optional<Exit> exit = launched.process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGINT);
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
}

TEST(Launch, ALauncherThatIsKilledTakesItsDaemonsAlongAndLeavesNoFile) {
  Launched launched(
      "echo \"$MONOGRAPH_KEY_FILE\"; echo \"${1#--cluster=}\"; echo ready; exec sleep 1000");
  ASSERT_TRUE(launched.process.WaitForOutput("ready"));
  std::istringstream out(launched.process.output());
  std::string key, cluster;
  std::getline(out, key);
  std::getline(out, cluster);
  for (const std::string& file : {key, cluster})
    EXPECT_TRUE(std::filesystem::exists(file)) << launched.process.output();
  launched.process.Signal(SIGKILL);
  EXPECT_TRUE(launched.process.Wait(10s).has_value());
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
  for (const std::string& file : {key, cluster})
    EXPECT_FALSE(std::filesystem::exists(file)) << file;
}

TEST(Launch, UnderMpirunItIsRefused) {
  const Ran ran = RunLaunch({"--", "true"}, {{"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(ran.code, 2);
  ExpectText(ran.error, {"OMPI_COMM_WORLD_SIZE=2", "each would start a cluster of its own"});
}

TEST(Launch, AProgramThatDoesNotExistIsOneErrorAndLeavesNoDaemon) {
  ChildProcess process({MonographPath(), "launch", "--workers=1",
                        "--executor_flags=--drain_seconds=0.7654321", "--", "/nowhere/program"});
  const std::optional<Exit> exit = process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 127);
  EXPECT_NE(process.error().find("cannot run '/nowhere/program'"), std::string::npos)
      << process.error();
  EXPECT_TRUE(WaitForNoneWith("--drain_seconds=0.7654321"));
}

TEST(Launch, AProgramBesideTheLauncherNeedsNoPath) {
  ChildProcess process(
      {MonographPath(), "launch", "--workers=1", "--", "monograph-executor", "--version"});
  const std::optional<Exit> exit = process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << process.error();
  EXPECT_NE(process.output().find("monograph-executor "), std::string::npos) << process.output();
}

TEST(Launch, ADaemonThatNeverComesUpEndsTheProgramAndIsNamedWithItsLastWords) {
  // Its port is taken: a stand-in for ssh runs the daemon here, on the port that is asked for.
  const FakeSsh ssh;
  TestCluster other({.ps = 0, .workers = 1});
  other.StatusOf("worker", 0);  // it listens
  const std::string address = other.address("worker", 0);
  ChildProcess process(
      {MonographPath(), "launch", "--ps=0", "-H", "127.0.0.1",
       "--base_port=" + address.substr(address.find(':') + 1), "--", "sh", "-c", "exec sleep 1000"},
      {{"PATH", ssh.PathWith(ExecutorFolder())}});
  const std::optional<Exit> exit = process.Wait(60s);
  ASSERT_TRUE(exit.has_value()) << process.error();
  EXPECT_EQ(exit->code, 1);
  const std::string error = process.error();
  const size_t last =
      error.rfind("UNAVAILABLE: daemon worker/0 ended before every daemon was up: ");
  ASSERT_NE(last, std::string::npos) << error;
  EXPECT_NE(error.find(address, last), std::string::npos) << error;
  EXPECT_NE(error.find("in use", last), std::string::npos) << error;
}

TEST(Launch, ADaemonThatDoesNotKnowAFlagEndsTheProgramOfEveryWorker) {
  ChildProcess process({MonographPath(), "launch", "--workers=2", "--clients=per_worker",
                        "--executor_flags=--no_such_flag=1", "--", "sh", "-c", "exec sleep 1000"});
  const std::optional<Exit> exit = process.Wait(60s);
  ASSERT_TRUE(exit.has_value()) << process.error();
  EXPECT_EQ(exit->code, 1);
  EXPECT_NE(process.error().find("ended before the program: exit code 2"), std::string::npos)
      << process.error();
  EXPECT_NE(process.error().find("ended before every daemon was up: exit code 2; it said last:"),
            std::string::npos)
      << process.error();
}

TEST(Launch, ADaemonThatCrashesIsStartedAnewAFewTimesAndTheProgramGoesOn) {
  Launched launched("cat \"$GATE\"; exit 5", 1);
  ASSERT_TRUE(launched.Complete()) << launched.process.error();
  const std::vector<pid_t> before = ProcessesWith(launched.mark);
  ASSERT_EQ(before.size(), 3u);
  kill(before[1], SIGKILL);
  ASSERT_TRUE(launched.process.WaitForError("ended: signal Killed; it is started anew (1 of 1)"))
      << launched.process.error();
  pid_t anew = -1;
  for (const auto until = Clock::now() + 20s; anew < 0 && Clock::now() < until; usleep(10000)) {
    for (const pid_t pid : ProcessesWith(launched.mark)) {
      if (std::find(before.begin(), before.end(), pid) == before.end()) anew = pid;
    }
  }
  ASSERT_GT(anew, 0) << launched.process.error();
  kill(anew, SIGKILL);
  ASSERT_TRUE(launched.process.WaitForError(
      "ended before the program: signal Killed, after 1 restart (--restarts)"))
      << launched.process.error();
  launched.OpenGate();
  const std::optional<Exit> exit = launched.process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 5) << launched.process.error();
  EXPECT_EQ(launched.process.error().find("UNAVAILABLE"), std::string::npos)
      << launched.process.error();
}

TEST(Launch, ADaemonThatSomebodyEndsOnPurposeIsNotStartedAnew) {
  Launched launched("cat \"$GATE\"; exit 5");
  ASSERT_TRUE(launched.Complete()) << launched.process.error();
  const std::vector<pid_t> daemons = ProcessesWith(launched.mark);
  ASSERT_EQ(daemons.size(), 3u);
  kill(daemons[1], SIGTERM);
  ASSERT_TRUE(launched.process.WaitForError("ended before the program: exit code 0"))
      << launched.process.error();
  launched.OpenGate();
  EXPECT_TRUE(launched.process.Wait(30s).has_value());
}

TEST(Launch, EveryLaunchHasAFreshKeyThatNoCommandLineEnvironmentOrLogShows) {
  std::set<std::string> keys;
  for (int i = 0; i < 2; ++i) {
    Launched launched(
        "echo \"$MONOGRAPH_CLUSTER\"; stat -Lc %a \"$MONOGRAPH_KEY_FILE\"; echo "
        "\"$MONOGRAPH_KEY_FILE\"; cat \"$GATE\"");
    ASSERT_TRUE(launched.Complete()) << launched.process.error();
    ASSERT_TRUE(launched.process.WaitForOutput("/proc/")) << launched.process.error();
    std::istringstream out(launched.process.output());
    std::string cluster, mode, file, key;
    std::getline(out, cluster);
    std::getline(out, mode);
    std::getline(out, file);
    EXPECT_EQ(mode, "600");
    std::getline(std::ifstream(file), key);
    ASSERT_TRUE(control::ParseKey(key).ok()) << key;
    EXPECT_TRUE(keys.insert(key).second) << "the same key twice";
    for (const pid_t pid : ProcessesWith(launched.mark)) {
      for (const char* what : {"cmdline", "environ"}) {
        std::ifstream in("/proc/" + std::to_string(pid) + "/" + what);
        const std::string text((std::istreambuf_iterator<char>(in)), {});
        EXPECT_FALSE(text.empty());
        EXPECT_EQ(text.find(key), std::string::npos) << what;
      }
    }
    // Who has no key is not served, though of the same user and on the same machine.
    ChildProcess other({MonographPath(), "status", "--cluster=" + cluster});
    EXPECT_EQ(other.Wait(30s)->code, 1);
    EXPECT_NE(other.output().find("was started with a key"), std::string::npos) << other.output();
    launched.OpenGate();
    EXPECT_TRUE(launched.process.Wait(30s).has_value());
    const std::string said = launched.process.error() + launched.process.output();
    EXPECT_EQ(said.find(key), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST(Launch, OtherMachinesAreReachedBySshWithTheKeyOnStandardInput) {
  const FakeSsh ssh;
  const TemporaryFolder& folder = ssh.folder;
  const std::string port = std::to_string(FreePorts(1).value()[0]);
  ASSERT_EQ(mkfifo(folder.File("gate").c_str(), 0600), 0);
  ChildProcess process(
      {MonographPath(), "launch", "--ps=0", "-H", "localhost", "--base_port=" + port, "--", "sh",
       "-c",
       "echo \"$1 $2\"; test -r \"$MONOGRAPH_KEY_FILE\" && cat \"$MONOGRAPH_KEY_FILE\"; echo "
       "ready; cat \"$GATE\"; exit 3",
       "program"},
      {{"GATE", folder.File("gate")}, {"PATH", ssh.PathWith(ExecutorFolder())}});
  ASSERT_TRUE(process.WaitForOutput("ready")) << process.error();
  EXPECT_TRUE(process.WaitForError("[worker/0] ")) << process.error();
  fclose(fopen(folder.File("gate").c_str(), "w"));
  const std::optional<Exit> exit = process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 3) << process.error();
  const std::string text = ssh.calls();
  EXPECT_NE(text.find("localhost exec monograph-executor --key_stdin"), std::string::npos)
      << text << process.error();
  std::istringstream out(process.output());
  std::string flags, key;
  std::getline(out, flags);
  std::getline(out, key);
  EXPECT_NE(flags.find("--key_file="), std::string::npos) << flags;
  EXPECT_TRUE(control::ParseKey(key).ok()) << "not a key: " << key;
  EXPECT_EQ(text.find(key), std::string::npos) << "the key stands in a command line";
  EXPECT_TRUE(WaitForNoneWith(":" + port));
}

TEST(Launch, ATrustedNetworkIsToldToEveryTaskOfOtherMachines) {
  const FakeSsh ssh;
  const std::string port = std::to_string(FreePorts(1).value()[0]);
  const Ran ran =
      RunLaunch({"--ps=0", "-H", "localhost", "--base_port=" + port,
                 "--trusted_network=127.0.0.0/8,::1/128", "--", "sh", "-c",
                 // It ends when the daemon is there, not before ssh was called.
                 "echo trusts $MONOGRAPH_TRUSTED_NETWORK; exec \"$0\" status --start_timeout=30",
                 MonographPath()},
                {{"PATH", ssh.PathWith(ExecutorFolder())}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"trusts 127.0.0.0/8,::1/128"});
  ExpectText(ssh.calls(), {"--trusted_network=127.0.0.0/8,::1/128"});
  const Ran here = RunLaunch({"--trusted_network=10.0.0.0/8", "--", "true"});
  EXPECT_EQ(here.code, 2);
  ExpectText(here.error, {"--trusted_network", "-H"});
  const Ran wrong = RunLaunch({"-H", "localhost", "--trusted_network=10.0.0.0", "--", "true"});
  EXPECT_EQ(wrong.code, 2);
  ExpectText(wrong.error, {"--trusted_network", "'10.0.0.0' is no network", "10.0.0.0/24"});
}

TEST(Launch, ExecutorsOfOtherMachinesAreWhereTheirFlagSays) {
  const FakeSsh ssh;
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.File("with space"));
  const std::string executor = folder.File("with space/monograph-executor");
  std::filesystem::create_symlink(ExecutorPath(), executor);
  const std::string port = std::to_string(FreePorts(1).value()[0]);
  const Ran ran = RunLaunch(
      {"--ps=0", "-H", "localhost", "--base_port=" + port, "--remote_executor=" + executor, "--",
       MonographPath(), "status", "--start_timeout=30"},
      {{"PATH", ssh.PathWith()}});
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"/job:worker/replica:0/task:0"});
  ExpectText(ssh.calls(), {"exec '" + executor + "' --key_stdin"});
}

TEST(Launch, AnExecutorThatAnotherMachineLacksIsNamedWithItsHostAndTheFlagThatHelps) {
  const FakeSsh ssh;
  const Ran ran = RunLaunch({"--ps=0", "-H", "localhost:2", "--remote_executor=no-such-executor",
                             "--", "sh", "-c", "exec sleep 1000"},
                            {{"PATH", ssh.PathWith()}});
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error,
             {"exit code 127", "host 'localhost' has no 'no-such-executor'", "--remote_executor"});
  const FakeSsh lacks_library(
      "echo 'error while loading shared libraries: libucp.so.0: not there' >&2; exit 127");
  const Ran library = RunLaunch({"--ps=0", "-H", "node7", "--", "sh", "-c", "exec sleep 1000"},
                                {{"PATH", lacks_library.PathWith()}});
  EXPECT_EQ(library.code, 1);
  ExpectText(library.error, {"libucp.so.0", "on host 'node7' monograph-executor lacks a library"});
  EXPECT_EQ(library.error.find("has no 'monograph-executor'"), std::string::npos) << library.error;
  // The program itself is told with its whole path: nothing else is in the PATH.
  const Ran no_ssh =
      RunLaunch({"--ps=0", "-H", "node7", "--", "/bin/sh", "-c", "exec /bin/sleep 1000"},
                {{"PATH", "/nowhere"}});
  EXPECT_EQ(no_ssh.code, 1);
  ExpectText(no_ssh.error, {"cannot run 'ssh'", "install openssh-client"});
  const Ran here = RunLaunch({"--executor=/nowhere/executor", "--", "sh", "-c", "exec sleep 1000"});
  EXPECT_EQ(here.code, 1);
  ExpectText(here.error, {"there is no '/nowhere/executor' that can be run", "with --executor"});
}

// The jobs that a launch gave its program, and what it said of them.
struct Tasks {
  int ps, workers;
  std::string said;
};
Tasks TasksOf(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
  words.insert(words.end(), {"--", "sh", "-c", "echo \"$MONOGRAPH_CLUSTER\"", "program"});
  words.insert(words.end(), more.begin(), more.end());
  const Ran ran = RunLaunch(words);
  EXPECT_EQ(ran.code, 0) << ran.error;
  std::string json = ran.output.substr(0, ran.output.find('\n'));
  json.erase(0, json.find('{'));
  const ClusterSpec cluster = ClusterSpec::FromJson(json, "test").value();
  std::string said;
  std::istringstream lines(ran.error);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("monograph launch: ", 0) == 0) said += line.substr(18) + "\n";
  }
  return {cluster.num_tasks("ps"), cluster.num_tasks("worker"), said};
}

TEST(Launch, WhoSaysNoNumbersGetsAPsAndTwoWorkersAndIsToldSo) {
  const Tasks plain = TasksOf({});
  EXPECT_EQ(plain.ps, 1);
  EXPECT_EQ(plain.workers, 2);
  EXPECT_EQ(plain.said, "starting 1 ps and 2 workers; --ps and --workers say how many\n");
  const Tasks workers = TasksOf({"--workers=1"});
  EXPECT_EQ(workers.ps, 1);
  EXPECT_EQ(workers.workers, 1);
  EXPECT_EQ(workers.said, "starting 1 ps and 1 worker; --ps says how many\n");
  const Tasks both = TasksOf({"--workers=1", "--ps=0"});
  EXPECT_EQ(both.ps, 0);
  EXPECT_EQ(both.said, "");
}

// Executors that say that their machine has four GPUs.
TEST(Launch, WhoSaysNoNumberOfWorkersGetsOneForEachGpuOrForAsManyAsTheProgramWants) {
  const TemporaryFolder folder;
  const std::string executor = folder.File("executor");
  std::ofstream(executor) << "#!/bin/sh\n[ \"$1\" = --count_gpus ] && echo 4 && exit\nexec '" +
                                 ExecutorFolder() + "/monograph-executor' \"$@\"\n";
  std::filesystem::permissions(executor, std::filesystem::perms::owner_all);
  const Tasks each = TasksOf({"--ps=0", "--executor=" + executor});
  EXPECT_EQ(each.workers, 4);
  EXPECT_EQ(each.said, "starting no ps and 4 workers, one for each GPU; --workers says how many\n");
  const Tasks pairs = TasksOf({"--ps=0", "--executor=" + executor}, {"--num_gpus=2"});
  EXPECT_EQ(pairs.workers, 2);
  EXPECT_EQ(pairs.said,
            "starting no ps and 2 workers, one for each 2 GPUs; --workers says how many\n");
  EXPECT_EQ(TasksOf({"--ps=0", "--workers=1", "--executor=" + executor}).workers, 1);
  EXPECT_EQ(
      TasksOf({"--ps=0", "--executor=" + executor, "--executor_flags=--gpu_devices=0"}).workers, 2);
}

TEST(Launch, WhoKeepsVariablesElsewhereGetsNoPsUnlessHeAsksForOne) {
  for (const std::string update : {"replicated", "central"}) {
    const Tasks none = TasksOf({}, {"--variable_update", update});
    EXPECT_EQ(none.ps, 0);
    EXPECT_EQ(none.workers, 2);
    EXPECT_EQ(none.said, "starting no ps and 2 workers (--variable_update=" + update +
                             " needs no ps); --ps and --workers say how many\n");
    EXPECT_EQ(TasksOf({"--ps=1"}, {"--variable_update=" + update}).ps, 1);
  }
  EXPECT_EQ(TasksOf({}, {"--variable_update=parameter_server"}).ps, 1);
}

TEST(Launch, AProgramThatIsHybridByItsNameHasAClientPerWorker) {
  const TemporaryFolder folder;
  const std::string program = folder.Write("my_hybrid", "#!/bin/sh\necho \"args: $@\"\n");
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  const Ran ran = RunLaunch({"--", program});
  EXPECT_EQ(ran.code, 0) << ran.error;
  for (const std::string task : {"0", "1"})
    ExpectText(ran.output, {"[client/" + task + "] args: ", "--task_index=" + task});
  ExpectText(ran.error, {"starting 1 ps and 2 workers with a client each"});
  const Ran one = RunLaunch({"--clients=one", "--", program});
  EXPECT_EQ(one.output.find("--task_index"), std::string::npos) << one.output;
}

TEST(Launch, OptionsThatCannotBeAreOneErrorAndExitCodeTwo) {
  struct Case {
    std::vector<std::string> words;
    const char* part;
  };
  const Case cases[] = {{{"--workers=-1"}, "--workers"},
                        {{"--ps=-1"}, "--ps"},
                        {{"--workers=x"}, "--workers"},
                        {{"--workers=100000"}, "--workers: must be at most 4096"},
                        {{"--workers=0", "--ps=0"}, "at least one worker or ps"},
                        {{"--restarts=-1"}, "--restarts"},
                        {{"-H", "a,,b"}, "-H: ''"},
                        {{"-H", "a:0"}, "-H: 'a:0'"},
                        {{"-H", "a:00"}, "-H: 'a:00'"},
                        {{"-H", "-oProxyCommand=x"}, "-H"},
                        {{"-H", "a", "--workers=2"}, "-H node1:2"},
                        {{"-H", "a", "--base_port=70000"}, "--base_port"},
                        {{"--base_port=0"}, "--base_port"},
                        {{"--clients=two"}, "two"}};
  for (const Case& c : cases) {
    std::vector<std::string> words = c.words;
    words.insert(words.end(), {"--", "true"});
    const Ran ran = RunLaunch(words);
    EXPECT_EQ(ran.code, 2) << c.part << ": " << ran.error;
    ExpectText(ran.error, {c.part});
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  }
  const Ran nothing = RunLaunch({"--workers=1"});
  EXPECT_EQ(nothing.code, 2);
  ExpectText(nothing.error, {"no program to run"});
}

// A step on worker 1 that waits for ever: for an element of a queue.
constexpr char kWaitingGraph[] = R"(
node { name: "queue" op: "FIFOQueueV2" device: "/job:worker/task:1"
  attr { key: "component_types" value { list { type: DT_INT32 } } } }
node { name: "get" op: "QueueDequeueV2" input: "queue" device: "/job:worker/task:1"
  attr { key: "component_types" value { list { type: DT_INT32 } } } }
)";

TEST(Launch, CtrlCOfAHealthyRunSaysSoInOneLineAndNothingMore) {
  const TemporaryFolder folder;
  const std::string graph = folder.Write("graph.pbtxt", kWaitingGraph);
  const std::string script = folder.Write("steps.json", R"({"steps": [{"fetches": ["get:0"]}]})");
  Launched launched(
      "echo \"$MONOGRAPH_CLUSTER\"; cat \"$MONOGRAPH_KEY_FILE\"; echo started; exec " +
      MonographPath() + " run " + graph + " --script=" + script + " --out=" + folder.File("out"));
  ASSERT_TRUE(launched.Complete()) << launched.process.error();
  ASSERT_TRUE(launched.process.WaitForOutput("started"));
  // The daemons have the program's session, which it leaves open.
  std::istringstream out(launched.process.output());
  std::string json, key_line;
  std::getline(out, json);
  std::getline(out, key_line);
  const ClusterSpec cluster = ClusterSpec::FromFlag(json).value();
  const control::Key key = control::ParseKey(key_line).value();
  bool waits = false;
  for (const auto until = Clock::now() + 20s; !waits && Clock::now() < until; usleep(10000)) {
    for (const ClusterTask& task : AskCluster(cluster, key, 3s))
      waits |= task.status.ok() && task.status->running_steps > 0;
  }
  ASSERT_TRUE(waits) << launched.process.error();
  launched.process.Signal(SIGINT);
  const std::optional<Exit> exit = launched.process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGINT);
  const std::string error = launched.process.error();
  const std::string line = "monograph launch: Ctrl-C: ending the program and its daemons\n";
  ASSERT_NE(error.find(line), std::string::npos) << error;
  EXPECT_EQ(error.substr(error.find(line)), line);
  for (const char* noise : {"draining", "freed session"})
    EXPECT_EQ(error.find(noise), std::string::npos) << error;
}

TEST(Launch, CtrlCOfAClientPerWorkerIsNotTheirFailure) {
  ChildProcess process({MonographPath(), "launch", "--ps=0", "--workers=2", "--clients=per_worker",
                        "--", "sh", "-c", "echo ready; exec sleep 1000"});
  for (const char* client : {"[client/0] ready", "[client/1] ready"})
    ASSERT_TRUE(process.WaitForOutput(client)) << process.error();
  for (const char* task : {"task:0 listens on", "task:1 listens on"})
    ASSERT_TRUE(process.WaitForError(task)) << process.error();
  const std::string before = process.error();
  process.Signal(SIGINT);
  const std::optional<Exit> exit = process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGINT);
  EXPECT_EQ(process.error().substr(before.size()),
            "monograph launch: Ctrl-C: ending the program and its daemons\n");
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

TEST(Launch, EachProcessHasALogOfItsOwnAndOnlyTheProgramIsShown) {
  const TemporaryFolder folder;
  const std::string logs = folder.File("new/logs");
  const Ran ran = RunLaunch(
      {"--ps=1", "--workers=2", "--log_dir=" + logs, "--", "sh", "-c",
       MonographPath() + " status --start_timeout=30; printf progress; echo wrong >&2; exit 3"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_EQ(ran.error.find("monograph launch: logs are in " + logs + ", a file per process\n"), 0u)
      << ran.error;
  ExpectText(ran.error, {"\nwrong\n"});
  EXPECT_EQ(ran.error.find("listens on"), std::string::npos) << ran.error;
  ExpectText(ran.output, {"/job:worker/replica:0/task:1", "progress"});
  for (const std::string task : {"ps_0", "worker_0", "worker_1"}) {
    const std::string log = ReadAll(logs + "/" + task + ".log");
    const std::string name =
        "/job:" + task.substr(0, task.size() - 2) + "/replica:0/task:" + task.back();
    ExpectText(log, {name + " listens on "});
    EXPECT_EQ(log.find("[worker"), std::string::npos) << log;
  }
  const std::string client = ReadAll(logs + "/client.log");
  ExpectText(client, {"/job:worker/replica:0/task:1", "progress", "wrong\n"});
}

TEST(Launch, AClientPerWorkerHasALogToo) {
  const TemporaryFolder folder;
  const Ran ran =
      RunLaunch({"--ps=0", "--workers=2", "--clients=per_worker", "--log_dir=" + folder.path(),
                 "--", "sh", "-c", "echo out; echo err >&2"});
  EXPECT_EQ(ran.code, 0) << ran.error;
  for (const std::string client : {"0", "1"}) {
    EXPECT_EQ(ReadAll(folder.File("client_" + client + ".log")), "out\nerr\n");
    ExpectText(ran.output, {"[client/" + client + "] out\n"});
  }
}

TEST(Launch, LogsThatCannotBeWrittenAreAnErrorBeforeAnythingStarts) {
  const TemporaryFolder folder;
  const std::string started = folder.File("started");
  const std::vector<std::string> tail = {"--", "touch", started};
  folder.Write("file", "");
  std::filesystem::create_directories(folder.File("taken/worker_1.log"));
  for (const auto& [dir, named] : {std::pair("file", "file"), std::pair("file/below", "file/below"),
                                   std::pair("taken", "taken/worker_1.log")}) {
    std::vector<std::string> words = {"--log_dir=" + folder.File(dir)};
    words.insert(words.end(), tail.begin(), tail.end());
    const Ran ran = RunLaunch(words);
    EXPECT_NE(ran.code, 0);
    ExpectText(ran.error, {"--log_dir", folder.File(named)});
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  }
  EXPECT_FALSE(std::filesystem::exists(started));
}

}  // namespace
}  // namespace monograph
