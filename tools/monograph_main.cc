// monograph, the command line: launch, compare, status, run, graph, checkpoint, keygen, devices,
// ops. A command is a function of its arguments, in the table at the end; long ones have files of
// their own (*_command.cc).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "client/cluster.h"
#include "client/session.h"
#include "tools/checkpoint_command.h"
#include "tools/cluster_status.h"
#include "tools/command_table.h"
#include "tools/compare.h"
#include "tools/flags.h"
#include "tools/graph_command.h"
#include "tools/launch.h"
#include "tools/machine_devices.h"
#include "tools/output_path.h"
#include "tools/own_task.h"
#include "tools/run_command.h"
#include "tools/session_flags.h"
#include "transport/control/hello.h"
#include "transport/control/key.h"

namespace monograph {
namespace {

using Arguments = std::vector<std::string>;

int Fail(const Status& status) {
  std::fprintf(stderr, "monograph: %s\n", Printable(status.ToString()).c_str());
  return 1;
}

// The folder of this program, where the others are, too.
std::string OwnFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

// Programs beside this one are found by their names, behind those of the user's PATH.
void AddOwnFolderToPath() {
  const char* path = std::getenv("PATH");
  setenv("PATH", ((path == nullptr ? "" : std::string(path) + ":") + OwnFolder()).c_str(), 1);
}

int RunLaunch(const Arguments& arguments) {
  LaunchOptions options;
  options.executor = OwnFolder() + "/monograph-executor";
  std::string executor_flags, clients = "auto";
  Flags flags(
      "monograph launch",
      "Starts executor daemons, runs a program against them, and ends them all whatever happens.\n"
      "The program gets --cluster=FILE and, in its environment, MONOGRAPH_CLUSTER. Between-graph "
      "programs run once per worker,\n"
      "and get --job_name=worker and --task_index=N, too. Workers of hybrid programs have as many "
      "CPU devices\n"
      "as --replicas_per_worker says (2 if it says nothing). What is between-graph or hybrid says "
      "so by --replication\n"
      "or by the end of its name (cifar_hybrid).\n"
      "Exits with the program's code, 128 + N if signal N ended it (130: Ctrl-C); 1 if daemons do "
      "not come up, 2 for wrong flags.\n\n"
      "Examples:\n"
      "  monograph launch -- mnist_replica\n"
      "  monograph launch --ps=1 --workers=3 -- mnist_replica --num_batches=100\n"
      "  monograph launch --ps=1 --workers=3 -- mnist_replica --replication=between_graph "
      "--batch_size=50\n"
      "  monograph launch -H node1:2,node2:2 -- ./program\n");
  flags.Add("ps", &options.ps,
            "number of parameter servers; default: 1, or 0 if the program is told "
            "--variable_update=replicated or central",
            Flags::kSmallest, Flags::kMostThreads);
  flags.Add(
      "workers", &options.workers,
      "number of workers on this machine; default: one for each GPU or, if the program is told "
      "--num_gpus=N, for each N; 2 without GPUs",
      Flags::kSmallest, Flags::kMostThreads);
  flags.AddChoice("clients", &clients, {"auto", "one", "per_worker"},
                  "copies of the program: one, or one per worker; auto: per worker if it is "
                  "between-graph or hybrid");
  flags.Add("hosts,-H", &options.hosts,
            "other machines, reached by ssh: HOST[:WORKERS],...; without a number as many as "
            "--workers would be there, or one; parameter servers are on the first");
  flags.Add("trusted_network", &options.trusted_network,
            "networks, such as 10.0.0.0/24, in which tasks of different machines use UCX's TCP; "
            "whoever is in them can end every task, and read and change its tensors");
  flags.Add("base_port", &options.base_port, "first port on other machines");
  flags.Add("executor", &options.executor, "path of monograph-executor on this machine");
  flags.Add("remote_executor", &options.remote_executor,
            "path of monograph-executor on other machines, or its name in the PATH of ssh's "
            "commands there");
  flags.AddOutputFolder(
      "log_dir", &options.log_dir,
      "folder for what each process prints, in a file of its own: worker_0.log, ps_0.log, "
      "client.log or client_0.log. What daemons print is then not shown");
  flags.Add("executor_flags", &executor_flags,
            "further flags of every daemon, separated by spaces");
  flags.Add(
      "restarts", &options.restarts,
      "how often each daemon is started anew that crashes, or ends because a GPU's context is "
      "lost; 0: never, and daemons go on without a lost GPU");
  flags.AddCommand(&options.command, "the program and its arguments");
  flags.AddCheck([] { return CheckStartedOnce("monograph launch"); });
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  std::istringstream words(executor_flags);
  for (std::string word; words >> word;) options.executor_flags.push_back(word);
  if (clients != "auto")
    options.clients = clients == "one" ? LaunchClients::kOne : LaunchClients::kPerWorker;
  Result<int> code = Launch(options);
  if (code.ok()) return code.value();
  return code.status().code() == Code::kInvalidArgument ? flags.Refuse(code.status())
                                                        : Fail(code.status());
}

int RunCompare(const Arguments& arguments) {
  CompareOptions options;
  options.executor = OwnFolder() + "/monograph-executor";
  std::vector<std::string> workers = {"1", "2", "4"};
  std::string executor_flags, known;
  for (const std::string& name : CompareModeNames()) known += (known.empty() ? "" : ", ") + name;
  Flags flags("monograph compare",
              "Trains one program in several ways of replication, one after the other, on daemons "
              "of their own, and compares them: a page with plots, a table\n"
              "on standard output, the figures as JSON. docs/compare.md says how each figure is "
              "measured.\n\n"
              "Examples:\n"
              "  monograph compare -- mnist_replica --num_batches=200 --batch_size=200\n"
              "  monograph compare --modes=in_graph,in_graph_replicated,between_graph --workers=2 "
              "--out=page.html --json=figures.json -- mnist_replica\n"
              "  monograph compare --modes='in_graph,two in flight=--replication=in_graph "
              "--steps_in_flight=2' --workers=2 -- mnist_replica\n");
  flags.Add("modes", &options.modes,
            "separated by commas, the first is compared with each other: " + known +
                "; or NAME=FLAGS, flags separated by spaces");
  flags.Add("workers", &workers, "numbers of workers, separated by commas");
  flags.Add("repeats", &options.repeats,
            "runs of each mode and number of workers; repeats are interleaved", 1);
  flags.Add("ps", &options.ps, "number of parameter servers, for the modes that use them", 1);
  flags.Add(
      "batch_per_worker", &options.batch_per_worker,
      "sets --batch_size to this times the workers; 0: the program's own flag, the same for all", 0,
      Flags::kMostExamples);
  flags.Add("run_timeout", &options.run_timeout, "seconds that one run may take");
  flags.AddOutputFile("out", &options.out, "the page");
  flags.AddOutputFile("json", &options.json, "file for the figures; none if empty");
  flags.AddOutputFolder("log_dir", &options.log_dir, "folder that keeps what each run printed");
  flags.Add("executor", &options.executor, "path of monograph-executor");
  flags.Add("executor_flags", &executor_flags,
            "further flags of every daemon, separated by spaces");
  flags.AddCommand(
      &options.command,
      "the program and its arguments; it gets the mode's flags, --cluster and --result_file");
  flags.AddCheck([] { return CheckStartedOnce("monograph compare"); });
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  options.workers.clear();
  for (const std::string& word : workers) {
    if (word.size() > 4 || word.find_first_not_of("0123456789") != std::string::npos)
      return flags.Refuse(InvalidArgument("--workers: '" + word + "' is not a number of workers"));
    options.workers.push_back(std::stoi(word));
  }
  std::istringstream words(executor_flags);
  for (std::string word; words >> word;) options.executor_flags.push_back(word);
  Result<int> code = Compare(options);
  if (code.status().code() == Code::kInvalidArgument) return flags.Refuse(code.status());
  return code.ok() ? code.value() : Fail(code.status());
}

int RunStatus(const Arguments& arguments) {
  SessionFlags session;
  session.options.start_timeout = std::chrono::seconds(3);
  bool json = false;
  Flags flags("monograph status",
              "Asks every daemon of a cluster what it does: since when it is up, its memory, "
              "sessions, graphs, steps, and the bytes that its data plane has moved.\n"
              "Exits with 1 if one does not answer.\n\n"
              "Examples:\n"
              "  monograph status --cluster=cluster.json\n"
              "  monograph status --cluster=cluster.json --json | jq .tasks[].steps_done\n");
  flags.Add("json", &json, "print one JSON object, whose fields docs/programs.md lists");
  session.AddClusterTo(&flags);
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  Result<std::optional<ClusterSpec>> cluster = session.Cluster();
  if (!cluster.ok()) return Fail(cluster.status());
  if (!cluster.value()) {
    return flags.Refuse(InvalidArgument("--cluster, or --ps_hosts and --worker_hosts, is needed"));
  }
  const std::vector<ClusterTask> tasks =
      AskCluster(**cluster, session.options.key, session.options.start_timeout);
  std::fputs((json ? ClusterStatusJson(tasks) : FormatClusterStatus(tasks)).c_str(), stdout);
  return std::all_of(tasks.begin(), tasks.end(),
                     [](const ClusterTask& task) { return task.status.ok(); })
             ? 0
             : 1;
}

// A step of the change of a cluster's key: what the file is to hold afterwards, and what to say.
Result<control::Keys> ChangedKeys(const std::string& path, const std::string& change,
                                  std::string* said) {
  MG_ASSIGN_OR_RETURN(const control::Keys now, control::ReadKeyFile(path));
  if ((change == "add") == now.second.has_value()) {
    return FailedPrecondition("key file '" + path + "' holds " +
                              (now.second ? "two keys: go on with --change=swap, then drop"
                                          : "one key: begin with --change=add"));
  }
  control::Keys keys = now;
  std::string next = "copy it to every node";
  if (change == "add") {
    MG_ASSIGN_OR_RETURN(keys.second, control::GenerateKey());
    next += ", then `monograph keygen --change=swap " + path + "`";
  } else if (change == "swap") {
    keys = {*now.second, now.first};
    next += ", then `monograph keygen --change=drop " + path + "`";
  } else {
    keys = now.first;
    next += "; connections that were made with the other key stay until they end";
  }
  *said = path + " dials with key " + control::KeyId(keys.first) +
          (keys.second ? " and accepts key " + control::KeyId(*keys.second) + ", too" : " alone") +
          "; " + next;
  return keys;
}

int RunKeygen(const Arguments& arguments) {
  std::vector<std::string> path;
  std::string change = "none";
  Flags flags(
      "monograph keygen",
      "Makes the key of a cluster: 256 random bits in a file of mode 0600. Copy it to "
      "every node.\n\n"
      "The key of a running cluster is changed in three steps, each on one node, whose file "
      "is then copied to all others, by a rename, before the next step: add, swap, drop. "
      "Daemons follow the file.\n\n"
      "Examples:\n"
      "  monograph keygen cluster.key\n"
      "  monograph keygen --change=add cluster.key\n");
  flags.AddChoice("change", &change, {"none", "add", "swap", "drop"},
                  "change the key in FILE: add a second one, which daemons then accept; swap the "
                  "two, so that everybody dials with the new one; drop the old one");
  flags.AddPositional("FILE", &path, 1, "file to write; never overwritten but by --change");
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  if (const Status status = CheckOutputFile(path[0]); !status.ok())
    return flags.Refuse(status.WithContext("FILE"));
  if (change != "none") {
    std::string said;
    Result<control::Keys> keys = ChangedKeys(path[0], change, &said);
    if (!keys.ok()) return flags.Refuse(keys.status());
    if (Status status = control::ReplaceKeyFile(path[0], *keys); !status.ok()) return Fail(status);
    std::printf("%s\n", said.c_str());
    return 0;
  }
  Result<control::Key> key = control::GenerateKey();
  if (!key.ok()) return Fail(key.status());
  if (Status status = control::WriteKeyFile(path[0], key.value()); !status.ok())
    return Fail(status);
  std::printf("wrote key %s to %s\n", control::KeyId(key.value()).c_str(), path[0].c_str());
  return 0;
}

int RunDevices(const Arguments& arguments) {
  bool json = false;
  Flags flags("monograph devices",
              "Lists the devices of this machine.\n\n"
              "Examples:\n  monograph devices\n  monograph devices --json | jq .devices[].name\n");
  flags.Add("json", &json, "print one JSON object, whose fields docs/programs.md lists");
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  Result<MachineDevices> machine = FindDevices();
  if (!machine.ok()) return Fail(machine.status());
  std::fputs((json ? DevicesJson(*machine) : FormatDevices(*machine)).c_str(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  static const CommandTable table{
      .program = "monograph",
      .noun = "command",
      .usage =
          "Usage: monograph COMMAND ... ; each has --help. monograph --version shows the "
          "version.\n\n"
          "Examples:\n"
          "  monograph launch --ps=1 --workers=2 -- mnist_replica --num_batches=100\n"
          "  monograph run graph.pb --feeds=x:0=x.npy --fetches=y:0\n\nCommands:\n",
      .missing = "",
      .width = 12,
      .commands = {
          {"checkpoint",
           {CheckpointCommand, "list a checkpoint, or convert it: ours or TensorFlow's"}},
          {"compare",
           {RunCompare, "train in several ways of replication, and draw how they compare"}},
          {"devices", {RunDevices, "list the devices of this machine"}},
          {"graph",
           {GraphCommand, "check, export or list: what of a graph runs here; other formats; ops"}},
          {"keygen", {RunKeygen, "make the key of a cluster"}},
          {"launch", {RunLaunch, "start daemons, run a program against them, end them all"}},
          {"ops", {OpsCommand, "list all ops, ours and borrowed, or describe some"}},
          {"run", {RunCommand, "run a step of a GraphDef, or the steps of a script"}},
          {"status", {RunStatus, "ask every daemon of a cluster what it does"}},
      }};
  AddOwnFolderToPath();
  if (argc > 1 && argv[1] == std::string("--version")) {
    std::printf("monograph %s\n", control::SoftwareVersion().c_str());
    return 0;
  }
  return table.Run(Arguments(argv + std::min(argc, 1), argv + argc));
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) {
  const int code = monograph::Main(argc, argv);
  // A command whose output could not be written has failed.
  return code != 0 ? code : monograph::Flags("monograph", "").Exit(monograph::Status());
}
