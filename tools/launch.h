// Launch: starts the daemons of a cluster on this machine, or on others over ssh, runs a program
// against them, and ends them all whatever happens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

// How many copies of the program: one client, or one per task of job worker.
enum class LaunchClients {
  // Per worker if the command says --replication=between_graph or hybrid or, without that flag, if
  // the program's name ends in _between_graph or _hybrid.
  kAuto,
  kOne,
  kPerWorker
};

struct LaunchOptions {
  // None: 1, or 0 if the command says --variable_update=replicated or central, which need no ps.
  std::optional<int> ps = {};
  // On this machine. None: one for each GPU or, if the command says --num_gpus=N, for each N;
  // without GPUs 2.
  std::optional<int> workers = {};
  LaunchClients clients = LaunchClients::kAuto;
  // "host1:2,host2": two workers on host1, on host2 one for each of its GPUs (as above; without
  // GPUs one), ps on the first, started over ssh; empty: all on this machine, on free ports.
  std::string hosts;
  int base_port = 2222;                                // on other machines
  std::string executor;                                // path of monograph-executor on this machine
  std::string remote_executor = "monograph-executor";  // on other machines: a path, or in the PATH
  std::vector<std::string> executor_flags;
  std::vector<std::string> trusted_network;  // --trusted_network of all daemons and clients
  std::vector<std::string> command;          // the program and its arguments
  // Folder that gets what each process prints: worker_0.log, ps_0.log, client.log or client_0.log.
  // Empty: none does.
  std::string log_dir;
  double grace_seconds = 12;  // what a daemon gets between SIGTERM and SIGKILL
  // A daemon that was up and ends by a signal or with a failure, as it does when a GPU's context is
  // lost (status 75), is started anew, at most so many times each. 0: none is, and daemons go on
  // without a GPU that is lost.
  int restarts = 3;
};

// Runs the command with --cluster=FILE and --key_file=FILE appended, MONOGRAPH_CLUSTER (the cluster
// as JSON) and MONOGRAPH_KEY_FILE in its environment. The key is a fresh one, in a file of mode
// 0600 that goes with the launch; daemons on other machines read it from their standard input. A
// number of tasks that the options leave open is told in one line on standard error. Every line
// that a daemon prints is prefixed "[worker/1] ", to standard error or, with `log_dir`, written to
// its log alone. A client per worker runs on this machine, gets --job_name=worker and
// --task_index=N too, and every line that it prints is prefixed "[client/N] ", to standard output.
// If the command is hybrid, workers get --cpu_devices=N with the N of its --replicas_per_worker (2
// if it has none), unless `executor_flags` say it.
// Returns the program's exit code (128 + signal if one ended it, so 130 after Ctrl-C), of many
// clients the first that is not 0; they all run to their end. A daemon that ends before the
// program, and one of many clients that fails, is reported. If a daemon ends before every daemon
// was up, the program, which would wait for it in vain, gets SIGTERM, and the result is Unavailable
// with the daemon's name and its last words. One that ends later is started anew (`restarts`),
// under its name and address, without what it held; the rest is the program's business.
// InvalidArgument names an option that cannot be, FailedPrecondition a log that cannot be written;
// nothing was started then. Uses signals and child processes: for main() of a program with one
// thread.
Result<int> Launch(const LaunchOptions& options);

}  // namespace monograph
