// Runs scenarios under many seeds:
//
//   simulation [--scenario=NAME] [--schedules=N] [--seed=FIRST] [--failures=MOST] [--twice]
//              [--trace] [--list]
//   simulation --gpus=N ...    a report instead (tests/simulation/gpus_report.h)
//
// Seeds FIRST to FIRST + N - 1, each with one of the scenarios, or with the one named. Schedules
// run in processes of their own, some hundred in each, so that one that fails, crashes or never
// ends costs that process alone. Each failure is told with its seed: with it, and --schedules=1,
// the same schedule runs again, with --trace every switch of threads and every message is told.
// --twice runs each twice and compares all decisions. After 20 failures, or as many as --failures
// says, it stops. Exit status: 0, or 3 if something failed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/log.h"
#include "base/pool_allocator.h"
#include "tests/simulation/gpus_report.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sockets.h"

namespace monograph::simulation {
namespace {

constexpr uint64_t kPerProcess = 250;
constexpr uint64_t kWarmSeeds = 5;
constexpr double kStuckSeconds = 120;  // of the processor's time, in one schedule

struct Options {
  std::string scenario;
  uint64_t schedules = 2000, first = 1, failures = 20;
  bool twice = false, trace = false;
};

// What the processes that run schedules tell the one that started them.
struct Progress {
  std::atomic<uint64_t> seed;  // that runs
  std::atomic<uint64_t> done, decisions, switches, threads, most_decisions, hash;
  std::atomic<uint64_t> simulated_ns;
};

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

const Scenario& ScenarioOf(const Options& options, uint64_t seed) {
  const auto all = Scenarios();
  if (options.scenario.empty()) return all[seed % all.size()];
  for (const Scenario& scenario : all) {
    if (options.scenario == scenario.name) return scenario;
  }
  std::fprintf(stderr, "there is no scenario '%s'; --list names them\n", options.scenario.c_str());
  std::exit(2);
}

ScheduleResult RunOne(const Options& options, uint64_t seed) {
  const Scenario& scenario = ScenarioOf(options, seed);
  const int64_t before = HostPool().bytes_in_use();
  const ScheduleResult result = RunSchedule({.seed = seed,
                                             .longest = scenario.longest,
                                             .most_decisions = scenario.most_decisions,
                                             .trace = options.trace},
                                            [&] { scenario.run(); });
  if (const int64_t after = HostPool().bytes_in_use(); after != before) {
    std::fprintf(stderr, "seed %llu: %lld bytes of tensors are not given back\n",
                 static_cast<unsigned long long>(seed), static_cast<long long>(after - before));
    _exit(kFailed);
  }
  if (const size_t open = OpenDescriptors(); open > 0) {
    std::fprintf(stderr, "seed %llu: %zu descriptors are not closed\n",
                 static_cast<unsigned long long>(seed), open);
    _exit(kFailed);
  }
  return result;
}

void RunSeeds(const Options& options, uint64_t first, uint64_t end, Progress* progress) {
  for (uint64_t seed = first; seed < end; ++seed) {
    progress->seed = seed;
    const ScheduleResult result = RunOne(options, seed);
    if (options.twice && RunOne(options, seed).hash != result.hash) {
      std::fprintf(stderr, "seed %llu: its second run took other decisions\n",
                   static_cast<unsigned long long>(seed));
      _exit(kFailed);
    }
    ++progress->done;
    progress->decisions += result.decisions;
    progress->switches += result.switches;
    progress->threads += result.threads;
    progress->most_decisions = std::max(progress->most_decisions.load(), result.decisions);
    progress->simulated_ns += static_cast<uint64_t>(result.simulated.count());
    progress->hash += result.hash;  // in whatever order
  }
}

// Waits for the process; ends it if it uses the processor without getting on.
int WaitFor(pid_t process, const Progress& progress) {
  uint64_t seed = 0;
  clockid_t clock = 0;
  double began = 0;
  const bool has_clock = clock_getcpuclockid(process, &clock) == 0;
  const auto used = [&] {
    timespec time{};
    if (!has_clock || clock_gettime(clock, &time) != 0) return 0.0;
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  };
  for (int status = 0;; usleep(2000)) {
    if (waitpid(process, &status, WNOHANG) == process) return status;
    if (const uint64_t now = progress.seed; now != seed) {
      seed = now;
      began = used();
    } else if (used() - began > kStuckSeconds) {
      kill(process, SIGABRT);
    }
  }
}

std::string CommandOf(const Options& options, uint64_t seed) {
  return std::string("simulation --scenario=") + ScenarioOf(options, seed).name +
         " --schedules=1 --seed=" + std::to_string(seed);
}

// Runs these seeds in a process of their own. False if one failed, which is told: progress->seed.
bool RunInProcess(const Options& options, uint64_t first, uint64_t end, Progress* progress) {
  const pid_t process = fork();
  if (process == 0) {
    RunSeeds(options, first, end, progress);
    _exit(0);
  }
  if (process < 0) {
    std::perror("fork");
    std::exit(2);
  }
  const int status = WaitFor(process, *progress);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  const uint64_t seed = progress->seed;
  if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "seed %llu: ended by signal %d (%s)\n",
                 static_cast<unsigned long long>(seed), WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
  }
  std::fprintf(stderr, "FAILED: %s\n\n", CommandOf(options, seed).c_str());
  return false;
}

// What a process makes once is made here, before schedules are compared: by the first schedule of
// each scenario that another process has shown to be well. Returns how many were not.
uint64_t Warm(Options options, Progress* progress) {
  uint64_t failures = 0;
  const std::string only = options.scenario;
  options.trace = options.twice = false;
  for (const Scenario& scenario : Scenarios()) {
    if (!only.empty() && only != scenario.name) continue;
    options.scenario = scenario.name;
    for (uint64_t seed = 0; seed < kWarmSeeds; ++seed) {
      if (RunInProcess(options, seed, seed + 1, progress)) {
        RunOne(options, seed);
        break;
      }
      ++failures;
    }
  }
  new (progress) Progress();
  return failures;
}

int Run(const Options& options) {
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (progress == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  uint64_t failures = Warm(options, new (progress) Progress());
  const double began = Now();
  const uint64_t end = options.first + options.schedules;
  double told = began;
  for (uint64_t next = options.first; next < end && failures < options.failures;) {
    const uint64_t until = std::min(end, next + kPerProcess);
    if (RunInProcess(options, next, until, progress)) {
      next = until;
    } else {
      ++failures;
      next = progress->seed + 1;
    }
    if (Now() - told > 60) {
      told = Now();
      std::printf("%llu schedules in %.0f s, %llu failed\n",
                  static_cast<unsigned long long>(progress->done.load()), told - began,
                  static_cast<unsigned long long>(failures));
      std::fflush(stdout);
    }
  }
  const auto done = static_cast<double>(std::max<uint64_t>(1, progress->done));
  const double took = Now() - began;
  std::printf(
      "%llu schedules, %llu failed, in %.1f s (%.2f ms each); on average %.0f threads, %.0f "
      "decisions, "
      "%.0f switches, %.2f s simulated; at most %llu decisions; hash %016llx\n",
      static_cast<unsigned long long>(progress->done.load()),
      static_cast<unsigned long long>(failures), took, took / done * 1e3,
      static_cast<double>(progress->threads) / done,
      static_cast<double>(progress->decisions) / done,
      static_cast<double>(progress->switches) / done,
      static_cast<double>(progress->simulated_ns) / done / 1e9,
      static_cast<unsigned long long>(progress->most_decisions.load()),
      static_cast<unsigned long long>(progress->hash.load()));
  return failures == 0 ? 0 : kFailed;
}

bool ReadNumber(std::string_view text, uint64_t* number) {
  const char* const end = text.data() + text.size();
  return std::from_chars(text.data(), end, *number).ptr == end && !text.empty();
}

int Main(int argc, char** argv) {
  Options options;
  GpuReport report;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    bool known = true;
    if (flag.starts_with("--scenario=")) {
      options.scenario = flag.substr(11);
    } else if (flag.starts_with("--schedules=")) {
      known = ReadNumber(flag.substr(12), &options.schedules);
    } else if (flag.starts_with("--seed=")) {
      known = ReadNumber(flag.substr(7), &options.first);
    } else if (flag.starts_with("--failures=")) {
      known = ReadNumber(flag.substr(11), &options.failures);
    } else if (flag == "--twice") {
      options.twice = true;
    } else if (flag == "--trace") {
      options.trace = true;
    } else if (flag == "--list") {
      for (const Scenario& scenario : Scenarios())
        std::printf("%-20s %s\n", scenario.name, scenario.what);
      return 0;
    } else {
      known = ReadGpuFlag(flag, &report);
    }
    if (!known) {
      std::fprintf(stderr,
                   "'%s' is not understood; usage: simulation [--scenario=NAME] [--schedules=N] "
                   "[--seed=FIRST] [--failures=MOST] [--twice] [--trace] [--list]\n"
                   "or: simulation %s\n",
                   argv[i], kGpuReportFlags);
      return 2;
    }
  }
  ScenarioOf(options, 0);
  SetLogLevel(options.trace ? LogLevel::kDebug : LogLevel::kOff);
  (void)ScratchFolder();  // one for all processes
  const LeftOut pool(&HostPool(), sizeof(PoolAllocator));
  const int result = report.gpus > 0 ? PrintGpuReport(report) : Run(options);
  std::error_code ignored;
  std::filesystem::remove_all(ScratchFolder(), ignored);
  return result;
}

}  // namespace
}  // namespace monograph::simulation

int main(int argc, char** argv) { return monograph::simulation::Main(argc, argv); }
