// Plans a launch from its options: how many daemons of each job, on which hosts and ports, how many
// clients, and their command lines. What the user leaves open follows from what the command says
// of its replication (TrainingCommand), so that `monograph launch -- PROGRAM` does for every
// program.
#include "tools/launch/plan.h"

#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "executor/gpu_options.h"
#include "tools/free_ports.h"
#include "tools/launch/gpu_count.h"
#include "transport/trusted_network.h"

namespace monograph {
namespace {

constexpr int kDefaultWorkers = 2;

// Several replicas of one worker have a CPU device each. Empty: as many as a daemon makes anyway,
// or as the user says.
std::string CpuDevicesFlag(const LaunchOptions& options, const TrainingCommand& program) {
  constexpr char kFlag[] = "--cpu_devices";
  for (const std::string& word : options.executor_flags) {
    if (word.starts_with(kFlag)) return "";
  }
  if (!program.hybrid()) return "";
  const std::string& replicas = program.replicas_per_worker;
  return std::string(kFlag) + "=" + (replicas.empty() ? "2" : replicas);
}

// Whether the user says which daemon takes which GPUs.
bool SaysGpus(const LaunchOptions& options) {
  return std::ranges::any_of(options.executor_flags, [](const std::string& word) {
    return word.starts_with("--gpu_share") || word.starts_with("--gpu_devices") ||
           word.starts_with("--visible_device_list");
  });
}

// Workers of one machine divide its GPUs between them, unless the user says who takes which.
std::string GpuShareFlag(const LaunchOptions& options, const std::vector<PlannedTask>& tasks,
                         const PlannedTask& own) {
  if (SaysGpus(options)) return "";
  GpuShare share{.index = 0, .count = 0};
  for (const PlannedTask& task : tasks) {
    if (task.job != own.job || task.host != own.host) continue;
    ++share.count;
    share.index += task.task < own.task ? 1 : 0;
  }
  if (share.count < 2) return "";
  return "--gpu_share=" + std::to_string(share.index) + "/" + std::to_string(share.count);
}

std::string Counted(int count, const std::string& noun) {
  if (count == 0) return "no " + noun;
  return std::to_string(count) + " " + noun;
}

std::string Commas(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

}  // namespace

Result<LaunchPlan> LaunchPlan::Make(const LaunchOptions& options) {
  if (options.command.empty()) return InvalidArgument("no program to run; give it after --");
  if (options.restarts < 0) return InvalidArgument("--restarts must be 0 or more");
  for (const auto& [flag, count] : {std::pair("--ps", options.ps.value_or(0)),
                                    std::pair("--workers", options.workers.value_or(0))}) {
    if (count < 0)
      return InvalidArgument(std::string(flag) + " must be 0 or more, not " +
                             std::to_string(count));
  }
  if (options.base_port < 1 || options.base_port > 65535)
    return InvalidArgument("--base_port must be a port, 1 to 65535, not " +
                           std::to_string(options.base_port));
  if (!options.hosts.empty() && options.workers)
    return InvalidArgument(
        "--workers is for this machine; with -H each host has its number: -H node1:2,node2:2");
  MG_RETURN_IF_ERROR(
      ParseNetworks(options.trusted_network).status().WithContext("--trusted_network"));
  if (options.hosts.empty() && !options.trusted_network.empty())
    return InvalidArgument(
        "--trusted_network is for tasks on other machines (-H): those of one share memory");
  LaunchPlan plan(options);
  MG_RETURN_IF_ERROR(plan.PlaceTasks());
  MG_RETURN_IF_ERROR(plan.GiveAddresses());
  return plan;
}

// As many workers on `host` as leave each the GPUs that the program wants for it, one if it does
// not say; `otherwise` without GPUs.
int LaunchPlan::WorkersFor(const std::string& host, int otherwise) {
  const int gpus = SaysGpus(*options_) ? 0 : CountGpus(*options_, host);
  const int workers = gpus / std::max(1, program_.num_gpus);
  if (workers == 0) return otherwise;
  by_gpus_ = true;
  return workers;
}

Status LaunchPlan::PlaceTasks() {
  std::string first_host;
  if (!remote()) {
    const int workers = options_->workers ? *options_->workers : WorkersFor("", kDefaultWorkers);
    for (int i = 0; i < workers; ++i) tasks_.push_back({"worker", i, ""});
  } else {
    std::istringstream list(options_->hosts);
    std::string entry;
    while (std::getline(list, entry, ',')) {
      const size_t colon = entry.find(':');
      const std::string count = colon == std::string::npos ? "1" : entry.substr(colon + 1);
      if (entry.empty() || entry[0] == '-' || colon == 0 || count.empty() || count.size() > 4 ||
          count.find_first_not_of("0123456789") != std::string::npos || std::stoi(count) == 0) {
        return InvalidArgument("-H: '" + entry + "' is not HOST or HOST:COUNT");
      }
      const std::string host = entry.substr(0, colon);
      if (first_host.empty()) first_host = host;
      const int workers = colon == std::string::npos ? WorkersFor(host, 1) : std::stoi(count);
      for (int i = 0; i < workers; ++i)
        tasks_.push_back({"worker", static_cast<int>(tasks_.size()), host});
    }
    if (tasks_.empty()) return InvalidArgument("-H names no host");
  }
  for (int i = 0; i < options_->ps.value_or(program_.needs_ps() ? 1 : 0); ++i)
    tasks_.push_back({"ps", i, first_host});
  if (tasks_.empty()) return InvalidArgument("at least one worker or ps is needed");
  return Status();
}

Status LaunchPlan::GiveAddresses() {
  std::vector<int> ports;
  if (!remote()) {
    MG_ASSIGN_OR_RETURN(ports, FreePorts(static_cast<int>(tasks_.size())));
  }
  std::map<std::string, int> next_port;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const PlannedTask& task = tasks_[i];
    const std::string address =
        remote() ? task.host + ":" + std::to_string(options_->base_port + next_port[task.host]++)
                 : "127.0.0.1:" + std::to_string(ports[i]);
    MG_RETURN_IF_ERROR(cluster_.AddTask(task.job, task.task, address));
  }
  return Status();
}

std::string LaunchPlan::Choices() const {
  const bool ps = !options_->ps, workers = !options_->workers && (!remote() || by_gpus_);
  if (!ps && !workers) return "";
  std::string text = "starting " + Counted(cluster_.num_tasks("ps"), "ps") + " and " +
                     Counted(NumWorkers(), NumWorkers() == 1 ? "worker" : "workers");
  if (by_gpus_) {
    text += ", one for each " +
            (program_.num_gpus > 1 ? std::to_string(program_.num_gpus) + " GPUs" : "GPU");
  }
  if (client_per_worker()) text += " with a client each";
  if (ps && !program_.needs_ps())
    text += " (--variable_update=" + program_.variable_update + " needs no ps)";
  return text + "; " + (ps ? "--ps" : "") + (ps && workers ? " and " : "") +
         (!workers   ? ""
          : remote() ? "-H HOST:COUNT"
                     : "--workers") +
         (ps && workers ? " say" : " says") + " how many";
}

bool LaunchPlan::client_per_worker() const {
  if (options_->clients != LaunchClients::kAuto)
    return options_->clients == LaunchClients::kPerWorker;
  return program_.client_per_worker();
}

std::vector<std::string> LaunchPlan::DaemonCommand(const PlannedTask& task,
                                                   const LaunchFiles& files) const {
  std::vector<std::string> argv;
  if (remote()) {
    // The key goes over standard input; that input's end stops the daemon, also if this program
    // is killed.
    argv = {"ssh",
            "-o",
            "BatchMode=yes",
            task.host,
            "exec",
            ShellWord(options_->remote_executor),
            "--key_stdin",
            "--exit_on_stdin_end",
            "'--cluster=" + cluster_.ToJson() + "'"};
  } else {
    argv = {options_->executor, "--exit_with_parent", "--cluster=" + files.cluster,
            "--key_file=" + files.key};
  }
  argv.push_back("--say_ready");
  argv.push_back("--job=" + task.job);
  argv.push_back("--task=" + std::to_string(task.task));
  // Who holds parameters leaves GPUs and their memory to who computes, unless the user says more.
  if (task.job == "ps") argv.push_back("--gpu_devices=0");
  const std::string cpu_devices = CpuDevicesFlag(*options_, program_);
  if (task.job == "worker" && !cpu_devices.empty()) argv.push_back(cpu_devices);
  const std::string gpu_share = GpuShareFlag(*options_, tasks_, task);
  if (task.job == "worker" && !gpu_share.empty()) argv.push_back(gpu_share);
  if (options_->restarts > 0) argv.push_back("--exit_when_gpu_lost");
  if (!options_->trusted_network.empty())
    argv.push_back("--trusted_network=" + Commas(options_->trusted_network));
  argv.insert(argv.end(), options_->executor_flags.begin(), options_->executor_flags.end());
  return argv;
}

std::vector<ChildCommand> LaunchPlan::Commands(const LaunchFiles& files) const {
  std::vector<ChildCommand> commands;
  for (const PlannedTask& task : tasks_) {
    ChildCommand daemon{.label = task.job + "/" + std::to_string(task.task)};
    daemon.argv = DaemonCommand(task, files);
    daemon.host = task.host;
    daemon.input = remote() ? files.key_line : nullptr;
    commands.push_back(std::move(daemon));
  }
  ChildCommand client{.label = "client"};
  client.client = true;
  client.argv = options_->command;
  client.argv.push_back("--cluster=" + files.cluster);
  client.argv.push_back("--key_file=" + files.key);
  client.environment = {{"MONOGRAPH_CLUSTER", cluster_.ToJson()},
                        {"MONOGRAPH_KEY_FILE", files.key}};
  if (!options_->trusted_network.empty())
    client.environment.emplace_back("MONOGRAPH_TRUSTED_NETWORK", Commas(options_->trusted_network));
  if (client_per_worker()) {
    for (int i = 0; i < NumWorkers(); ++i) {
      ChildCommand one = client;
      one.label += "/" + std::to_string(i);
      one.argv.insert(one.argv.end(), {"--job_name=worker", "--task_index=" + std::to_string(i)});
      commands.push_back(std::move(one));
    }
  } else {
    client.output = options_->log_dir.empty() ? ChildOutput::kInherited : ChildOutput::kCopied;
    commands.push_back(std::move(client));
  }
  if (!options_->log_dir.empty()) {
    for (ChildCommand& command : commands) {
      std::string name = command.label;
      std::replace(name.begin(), name.end(), '/', '_');
      command.log = (std::filesystem::path(options_->log_dir) / (name + ".log")).string();
    }
  }
  return commands;
}

std::string AdviceFor(const Child& daemon, const LaunchOptions& options) {
  if (!WIFEXITED(daemon.status) || WEXITSTATUS(daemon.status) != 127) return "";
  const auto said = [&](const std::string& text) {
    return std::any_of(
        daemon.last_lines.begin(), daemon.last_lines.end(),
        [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  const std::string& host = daemon.command.host;
  if (said("error while loading shared libraries")) {
    return (host.empty() ? "" : "on host '" + host + "' ") +
           std::string(
               "monograph-executor lacks a library: install it there, or name it in "
               "LD_LIBRARY_PATH");
  }
  if (host.empty()) {
    return "there is no '" + options.executor +
           "' that can be run: give the path of monograph-executor with --executor";
  }
  if (said(std::string(kCannotRun) + "ssh'"))
    return "-H reaches other machines with ssh, which this machine lacks: install openssh-client";
  return "host '" + host + "' has no '" + options.remote_executor +
         "': install it there where ssh's commands find it (their PATH), or give its path on "
         "that host with --remote_executor";
}

}  // namespace monograph
