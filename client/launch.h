// Launch: starts the daemons of a cluster on this machine, or on others over ssh, runs a program against them, and ends them all whatever happens.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

struct LaunchOptions {
  int ps = 0;
  int workers = 1;
  // "host1:2,host2": two workers on host1, one on host2, ps on the first, started over ssh; empty: all on this machine, on free ports.
  std::string hosts;
  int base_port = 2222;               // on other machines
  std::string executor;               // path of monograph-executor; on other machines it must be in the PATH
  std::vector<std::string> executor_flags;
  std::vector<std::string> command;   // the program and its arguments
  double grace_seconds = 12;          // what a daemon gets between SIGTERM and SIGKILL
};

// Runs the command with --cluster=FILE appended and MONOGRAPH_CLUSTER (the cluster as JSON) and, with `hosts`, MONOGRAPH_KEY_FILE in its
// environment. Every line that a daemon prints is prefixed "[worker/1] ". Returns the program's exit code (128 + signal if one ended it). A daemon that ends
// before the program is reported. Uses signals and child processes: for main() of a program with one thread.
Result<int> Launch(const LaunchOptions& options);

// `count` ports that are free on loopback now.
Result<std::vector<int>> FreePorts(int count);

}  // namespace monograph
