// The comparison from its options to its files: checks what can be known before anything runs, runs
// every mode in turn (repeat by repeat, so that runs that are compared stand beside each other in
// time), notes the load of the machine during each run, and writes table, page and JSON.
#include "tools/compare.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "tools/compare/load.h"
#include "tools/compare/report.h"
#include "tools/compare/run.h"
#include "tools/compare/scratch.h"
#include "tools/compare/words.h"
#include "tools/output_path.h"
#include "transport/control/hello.h"

namespace monograph {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

Status Check(const CompareOptions& options) {
  if (options.command.empty()) return InvalidArgument("no program to run; give it after --");
  if (options.repeats < 1) return InvalidArgument("--repeats must be at least 1");
  if (options.ps < 1) return InvalidArgument("--ps must be at least 1");
  if (options.batch_per_worker < 0) return InvalidArgument("--batch_per_worker must be 0 or more");
  if (!(options.run_timeout > 0)) return InvalidArgument("--run_timeout must be greater than 0");
  if (options.out == options.json)
    return InvalidArgument("--out and --json name the same file, '" + options.out + "'");
  if (options.workers.empty()) return InvalidArgument("--workers names no number");
  for (const int workers : options.workers) {
    if (workers < 1)
      return InvalidArgument("--workers: " + std::to_string(workers) +
                             " is not a number of workers");
    if (std::count(options.workers.begin(), options.workers.end(), workers) > 1)
      return InvalidArgument("--workers: " + std::to_string(workers) + " is given twice");
  }
  return Status();
}

// As execvp finds it.
Status CheckProgram(const std::string& what, const std::string& name) {
  std::vector<std::string> tried = {name};
  if (name.find('/') == std::string::npos) {
    tried.clear();
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
      tried.push_back((folder.empty() ? "." : folder) + "/" + name);
  }
  for (const std::string& file : tried) {
    std::error_code error;
    if (access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file, error))
      return Status();
  }
  return NotFound(what + " '" + name + "' is no program that can be run" +
                  (name.find('/') == std::string::npos
                       ? ": no folder of the PATH has it; give its path, as in ./" + name
                       : ""));
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? Status() : FailedPrecondition("cannot write '" + path + "'");
}

std::string UsedByOthers(const RunLoad& load) {
  return "other work uses " + Fixed(load.others, 2) + " of " + Plural(load.processors, "processor");
}

// Before the first run, so that nobody waits long for a comparison that can conclude nothing.
void WarnIfBusy() {
  const std::optional<LoadCounters> before = ReadLoadCounters();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::optional<LoadCounters> after = ReadLoadCounters();
  if (!before || !after) return;
  if (const RunLoad load = LoadBetween(*before, *after); load.busy())
    std::fprintf(stderr,
                 "The machine is busy: %s. Nothing is concluded from runs on a busy machine.\n",
                 UsedByOthers(load).c_str());
}

class Comparison {
 public:
  explicit Comparison(const CompareOptions& options) : options_(options) {}
  Result<int> Run();

 private:
  ComparedRun RunOne(const CompareMode& mode, int workers, int repeat);
  void Tell(const ComparedRun& run, size_t total) const;

  const CompareOptions& options_;
  CompareReport report_;
  Scratch scratch_;
  std::string logs_;
  Interrupts interrupts_;
};

ComparedRun Comparison::RunOne(const CompareMode& mode, int workers, int repeat) {
  ComparedRun run{.mode = mode.name, .workers = workers, .repeat = repeat};
  LaunchOptions launch;
  launch.workers = workers;
  launch.ps = mode.uses_ps ? options_.ps : 0;
  launch.clients = mode.per_worker ? LaunchClients::kPerWorker : LaunchClients::kOne;
  launch.executor = options_.executor;
  launch.executor_flags = mode.executor_flags;
  launch.executor_flags.insert(launch.executor_flags.end(), options_.executor_flags.begin(),
                               options_.executor_flags.end());
  launch.command = options_.command;
  launch.command.insert(launch.command.end(), mode.flags.begin(), mode.flags.end());
  if (options_.batch_per_worker > 0)
    launch.command.push_back("--batch_size=" + std::to_string(options_.batch_per_worker * workers));
  run.command = "monograph launch" + (launch.ps > 0 ? " --ps=" + std::to_string(*launch.ps) : "") +
                " --workers=" + std::to_string(workers) +
                (launch.executor_flags.empty()
                     ? ""
                     : " --executor_flags='" + Joined(launch.executor_flags) + "'") +
                " -- " + Joined(launch.command);
  const std::string name = mode.name + "_" + std::to_string(workers) + "_" + std::to_string(repeat);
  const std::string results = scratch_.File(name + ".json");
  launch.command.push_back("--result_file=" + results);
  const std::optional<LoadCounters> before = ReadLoadCounters();
  const Status status =
      RunLaunched(launch, logs_ + "/" + name + ".log",
                  std::chrono::duration<double>(options_.run_timeout), &interrupts_);
  if (const std::optional<LoadCounters> after = ReadLoadCounters(); before && after)
    run.load = LoadBetween(*before, *after);
  Result<std::vector<RunResult>> clients =
      status.ok() ? ReadResults(results) : Result<std::vector<RunResult>>(status);
  if (clients.ok()) {
    run.clients = std::move(clients).value();
  } else {
    run.error = clients.status().message();
  }
  return run;
}

void Comparison::Tell(const ComparedRun& run, size_t total) const {
  const std::string what = "[" + std::to_string(report_.runs.size()) + "/" + std::to_string(total) +
                           "] " + run.mode + ", " + Plural(run.workers, "worker") + ", repeat " +
                           std::to_string(run.repeat) + ": ";
  if (run.error.empty()) {
    std::fprintf(stderr, "%s%.1f images/sec%s\n", what.c_str(),
                 FiguresOf(run.clients).images_per_second,
                 run.busy() ? (", on a busy machine: " + UsedByOthers(*run.load)).c_str() : "");
  } else {
    std::fprintf(stderr, "%sFAILED: %s\n", what.c_str(), run.error.c_str());
  }
}

Result<int> Comparison::Run() {
  MG_RETURN_IF_ERROR(Check(options_));
  MG_ASSIGN_OR_RETURN(report_.modes, ParseModes(options_.modes));
  MG_RETURN_IF_ERROR(CheckProgram("the program", options_.command[0]));
  MG_RETURN_IF_ERROR(CheckProgram("--executor", options_.executor));
  MG_RETURN_IF_ERROR(scratch_.Make());
  logs_ = options_.log_dir.empty() ? scratch_.File("") : options_.log_dir;
  std::error_code error;
  std::filesystem::create_directories(logs_, error);
  if (error)
    return FailedPrecondition("cannot make the folder '" + logs_ + "': " + error.message());
  // Checked now, and not after the runs; an older page stays until there is a new one.
  MG_RETURN_IF_ERROR(CheckOutputFile(options_.out));
  if (!options_.json.empty()) MG_RETURN_IF_ERROR(CheckOutputFile(options_.json));
  report_.program = std::filesystem::path(options_.command[0]).filename();
  report_.command = Joined(options_.command);
  report_.version = control::SoftwareVersion();
  report_.date = NowUtc();
  report_.machine = ThisMachine();
  report_.repeats = options_.repeats;
  report_.workers = options_.workers;
  WarnIfBusy();

  bool failed = false;
  const size_t total =
      report_.modes.size() * report_.workers.size() * static_cast<size_t>(options_.repeats);
  for (int repeat = 1; repeat <= options_.repeats && interrupts_.signal() == 0; ++repeat) {
    for (const int workers : report_.workers) {
      // Forth and back, so that a machine that gets slower favours nobody.
      std::vector<const CompareMode*> order;
      for (const CompareMode& mode : report_.modes) order.push_back(&mode);
      if (repeat % 2 == 0) std::reverse(order.begin(), order.end());
      for (const CompareMode* mode : order) {
        if (interrupts_.signal() != 0) break;
        ComparedRun run = RunOne(*mode, workers, repeat);
        if (interrupts_.signal() != 0) break;
        failed |= !run.error.empty();
        report_.runs.push_back(std::move(run));
        Tell(report_.runs.back(), total);
      }
    }
  }
  report_.interrupted = interrupts_.signal() != 0;

  std::fputs(ReportTable(report_).c_str(), stdout);
  MG_RETURN_IF_ERROR(WriteFile(options_.out, ReportPage(report_)));
  if (!options_.json.empty()) MG_RETURN_IF_ERROR(WriteFile(options_.json, ReportJson(report_)));
  std::printf("page: %s\n", options_.out.c_str());
  if (report_.interrupted) return 128 + interrupts_.signal();
  return failed ? 1 : 0;
}

}  // namespace

Result<int> Compare(const CompareOptions& options) { return Comparison(options).Run(); }

}  // namespace monograph
