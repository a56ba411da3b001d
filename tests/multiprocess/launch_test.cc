// `monograph launch`: daemons come up, the program runs with the cluster, and all are ended
// whatever happens.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/launch.h"
#include "tests/multiprocess/cluster_fixture.h"

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

TEST(Launch, ALauncherThatIsKilledTakesItsDaemonsAlong) {
  Launched launched("echo ready; exec sleep 1000");
  ASSERT_TRUE(launched.process.WaitForOutput("ready"));
  launched.process.Signal(SIGKILL);
  EXPECT_TRUE(launched.process.Wait(10s).has_value());
  EXPECT_TRUE(WaitForNoneWith(launched.mark));
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
  TemporaryFolder folder;
  const std::string ssh =
      folder.Write("ssh", "#!/bin/sh\nwhile [ \"$1\" != exec ]; do shift; done\neval \"$@\"\n");
  ASSERT_EQ(chmod(ssh.c_str(), 0700), 0);
  const std::string bin = std::filesystem::path(ExecutorPath()).parent_path();
  TestCluster other({.ps = 0, .workers = 1});
  other.StatusOf("worker", 0);  // it listens
  const std::string address = other.address("worker", 0);
  ChildProcess process(
      {MonographPath(), "launch", "-H", "127.0.0.1",
       "--base_port=" + address.substr(address.find(':') + 1), "--", "sh", "-c", "exec sleep 1000"},
      {{"PATH", folder.path() + ":" + bin + ":" + getenv("PATH")}});
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

TEST(Launch, OtherMachinesAreReachedBySshWithTheKeyOnStandardInput) {
  // A stand-in for ssh that runs the command here, and keeps what it was given.
  TemporaryFolder folder;
  const std::string ssh =
      folder.Write("ssh", "#!/bin/sh\necho \"$@\" >> " + folder.File("calls") +
                              "\nwhile [ \"$1\" != exec ]; do shift; done\neval \"$@\"\n");
  ASSERT_EQ(chmod(ssh.c_str(), 0700), 0);
  const std::string bin = std::filesystem::path(ExecutorPath()).parent_path();
  const std::string port = std::to_string(FreePorts(1).value()[0]);
  ASSERT_EQ(mkfifo(folder.File("gate").c_str(), 0600), 0);
  ChildProcess process(
      {MonographPath(), "launch", "-H", "localhost", "--base_port=" + port, "--", "sh", "-c",
       "echo \"$1 $2\"; test -r \"$MONOGRAPH_KEY_FILE\" && cat \"$MONOGRAPH_KEY_FILE\"; echo "
       "ready; cat \"$GATE\"; exit 3",
       "program"},
      {{"GATE", folder.File("gate")}, {"PATH", folder.path() + ":" + bin + ":" + getenv("PATH")}});
  ASSERT_TRUE(process.WaitForOutput("ready")) << process.error();
  EXPECT_TRUE(process.WaitForError("[worker/0] ")) << process.error();
  fclose(fopen(folder.File("gate").c_str(), "w"));
  const std::optional<Exit> exit = process.Wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 3) << process.error();
  std::ifstream calls(folder.File("calls"));
  const std::string text((std::istreambuf_iterator<char>(calls)), {});
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

}  // namespace
}  // namespace monograph
