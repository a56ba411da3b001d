// Figures from result files: what one run comes to, what the repeats of a mode come to (a cell),
// how two modes compare (a ratio and its conclusion), which repeat's critical paths are shown, and
// whether weights are the same bits. What is said of them stands in sentences.cc and titles.cc.
#include "tools/compare/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <tuple>

#include "base/device_name.h"

namespace monograph {
namespace {

// "/job:worker/replica:0/task:1" is "worker/1".
std::string ShortTask(const std::string& task) {
  const Result<DeviceName> name = DeviceName::Parse(task);
  return name.ok() ? name->job + "/" + std::to_string(name->task) : task;
}

// The time in which every client was training, or of the whole run if that is short.
std::pair<double, double> Window(const std::vector<RunResult>& clients) {
  double first = INFINITY, last = 0, begin = 0, end = INFINITY;
  for (const RunResult& client : clients) {
    first = std::min(first, client.started_at);
    begin = std::max(begin, client.started_at);
    end = std::min(end, client.started_at + client.seconds);
    last = std::max(last, client.started_at + client.seconds);
  }
  return end - begin >= 0.5 * (last - first) ? std::pair(begin, end) : std::pair(first, last);
}

// Of one client between two points in time.
double ImagesIn(const RunResult& client, double begin, double end) {
  if (client.steps.empty()) return 0;
  const double per_step =
      static_cast<double>(client.images) / static_cast<double>(client.steps.size());
  const auto inside =
      std::count_if(client.steps.begin(), client.steps.end(), [&](const RunResult::Step& step) {
        const double ended = client.started_at + (step.start_us + step.us) / 1e6;
        return ended > begin && ended <= end;
      });
  return per_step * static_cast<double>(inside);
}

double ImagesPerSecond(const std::vector<RunResult>& clients) {
  if (clients.size() == 1) return clients[0].images_per_second();
  const auto [begin, end] = Window(clients);
  double images = 0;
  for (const RunResult& client : clients) images += ImagesIn(client, begin, end);
  return end > begin ? images / (end - begin) : 0;
}

// Steps of the whole job while this client was training: what counters of its timed part are
// divided by.
double JobSteps(const RunResult& of, const std::vector<RunResult>& clients) {
  if (clients.size() == 1)
    return static_cast<double>(of.images) / static_cast<double>(of.batch_size);
  double images = 0;
  for (const RunResult& client : clients)
    images += ImagesIn(client, of.started_at, of.started_at + of.seconds + 1e-3);
  return images / static_cast<double>(of.batch_size);
}

RunFigures::Traffic TrafficOf(const RunResult::Task& task, const std::string& name, double steps) {
  const auto per_step = [steps](uint64_t count) {
    return steps > 0 ? static_cast<double>(count) / steps : 0;
  };
  return {name, per_step(task.bytes_sent), per_step(task.bytes_received),
          per_step(task.messages_sent), per_step(task.messages_received)};
}

// At each step that any client displayed, of those that did.
std::vector<RunResult::Progress> MeanLoss(const std::vector<RunResult>& clients) {
  std::map<int64_t, RunResult::Progress> sums;
  std::map<int64_t, size_t> counts;
  for (const RunResult& client : clients) {
    for (const RunResult::Progress& line : client.display) {
      RunResult::Progress& sum = sums[line.step];
      sum.step = line.step;
      sum.us = std::max(sum.us, line.us);
      sum.loss += line.loss;
      sum.accuracy += line.accuracy;
      ++counts[line.step];
    }
  }
  std::vector<RunResult::Progress> means;
  for (auto& [step, sum] : sums) {
    const auto count = static_cast<double>(counts[step]);
    sum.loss /= count;
    sum.accuracy /= count;
    means.push_back(sum);
  }
  return means;
}

// The digest that a run stands for: its clients read the same variables.
std::string DigestOf(const ComparedRun& run) {
  for (const RunResult& client : run.clients) {
    if (client.digest != run.clients[0].digest && !client.digest.empty()) return "clients differ";
  }
  return run.clients.empty() ? "" : run.clients[0].digest;
}

}  // namespace

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {Quantile(values, 0.5), values.front(), values.back(), static_cast<int>(values.size())};
}

RunFigures FiguresOf(const std::vector<RunResult>& clients) {
  RunFigures figures;
  if (clients.empty()) return figures;
  figures.images_per_second = ImagesPerSecond(clients);
  for (const RunResult& client : clients) {
    for (const RunResult::Step& step : client.steps) figures.step_us.push_back(step.us);
  }
  std::sort(figures.step_us.begin(), figures.step_us.end());
  if (!figures.step_us.empty()) {
    figures.step_p50_us = Quantile(figures.step_us, 0.5);
    figures.step_p99_us = Quantile(figures.step_us, 0.99);
  }
  for (const RunResult& client : clients) {
    const double steps = JobSteps(client, clients);
    if (steps > 0) figures.client_cpu_us += client.cpu_seconds * 1e6 / steps;
    if (!client.tasks.empty())
      figures.tasks.push_back(TrafficOf(
          client.tasks[0],
          clients.size() == 1 ? "client" : "client " + std::to_string(client.client), steps));
  }
  // A daemon counts for all clients together: one of those that see it is enough.
  std::map<std::string, RunFigures::Traffic> daemons;
  for (const RunResult& client : clients) {
    const double steps = JobSteps(client, clients);
    for (size_t i = 1; i < client.tasks.size(); ++i) {
      const RunResult::Task& task = client.tasks[i];
      const std::string name = ShortTask(task.task);
      if (!daemons.emplace(name, TrafficOf(task, name, steps)).second) continue;
      if (steps > 0) figures.daemon_cpu_us += task.cpu_seconds * 1e6 / steps;
    }
  }
  for (auto& [name, traffic] : daemons) figures.tasks.push_back(std::move(traffic));
  figures.loss = MeanLoss(clients);
  return figures;
}

Machine ThisMachine() {
  Machine machine;
  machine.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.memory_gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    machine.cpu = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  utsname name{};
  if (uname(&name) == 0) machine.kernel = std::string(name.sysname) + " " + name.release;
  return machine;
}

std::vector<Cell> Cells(const CompareReport& report) {
  std::vector<Cell> cells;
  for (const int workers : report.workers) {
    for (const CompareMode& mode : report.modes) {
      Cell cell{.mode = &mode, .workers = workers};
      for (const ComparedRun& run : report.runs) {
        if (run.mode != mode.name || run.workers != workers || !run.error.empty()) continue;
        cell.runs.push_back(&run);
        cell.figures.push_back(FiguresOf(run.clients));
      }
      const auto spread = [&cell](double RunFigures::*figure) {
        std::vector<double> values;
        for (const RunFigures& figures : cell.figures) values.push_back(figures.*figure);
        return SpreadOf(values);
      };
      cell.images_per_second = spread(&RunFigures::images_per_second);
      cell.step_p50_us = spread(&RunFigures::step_p50_us);
      cell.step_p99_us = spread(&RunFigures::step_p99_us);
      cell.client_cpu_us = spread(&RunFigures::client_cpu_us);
      cell.daemon_cpu_us = spread(&RunFigures::daemon_cpu_us);
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::string ConclusionName(Conclusion conclusion) {
  switch (conclusion) {
    case Conclusion::kClear:
      return "clear";
    case Conclusion::kEqual:
      return "equal";
    case Conclusion::kUnclear:
      return "unclear";
    case Conclusion::kFewRepeats:
      return "few repeats";
    case Conclusion::kBusy:
      return "busy";
  }
  return "";
}

Ratio RatioOf(const Cell& baseline, const Cell& mode) {
  Ratio ratio{.mode = mode.mode->name, .baseline = baseline.mode->name, .workers = mode.workers};
  std::vector<double> all, calm;
  for (size_t i = 0; i < baseline.runs.size(); ++i) {
    for (size_t k = 0; k < mode.runs.size(); ++k) {
      if (baseline.runs[i]->repeat != mode.runs[k]->repeat ||
          mode.figures[k].images_per_second <= 0)
        continue;
      all.push_back(baseline.figures[i].images_per_second / mode.figures[k].images_per_second);
      if (!baseline.runs[i]->busy() && !mode.runs[k]->busy()) calm.push_back(all.back());
    }
  }
  ratio.repeats = static_cast<int>(all.size());
  ratio.busy = static_cast<int>(all.size() - calm.size());
  const bool enough = calm.size() >= kMinRepeats;
  ratio.ratio = SpreadOf(enough ? calm : all);
  const Spread& spread = ratio.ratio;
  const bool one_side = spread.low > 1 || spread.high < 1;
  const auto within = [](double value, double distance) {
    return value <= 1 + distance && value >= 1 / (1 + distance);
  };
  const bool near = within(spread.low, kEqualWithin) && within(spread.high, kEqualWithin);
  const bool shown_as_one = within(spread.median, 0.005);
  if (!enough) {
    ratio.conclusion = ratio.repeats < kMinRepeats ? Conclusion::kFewRepeats : Conclusion::kBusy;
  } else if (one_side && !(near && shown_as_one)) {
    ratio.conclusion = Conclusion::kClear;
  } else {
    ratio.conclusion = near ? Conclusion::kEqual : Conclusion::kUnclear;
  }
  return ratio;
}

std::vector<Ratio> Ratios(const CompareReport& report, const std::vector<Cell>& cells) {
  std::vector<Ratio> ratios;
  for (const Cell& cell : cells) {
    if (cell.mode->name == report.modes[0].name) continue;
    const auto first = std::find_if(cells.begin(), cells.end(), [&](const Cell& other) {
      return other.workers == cell.workers && other.mode->name == report.modes[0].name;
    });
    Ratio ratio = RatioOf(*first, cell);
    if (ratio.ratio.count > 0) ratios.push_back(std::move(ratio));
  }
  return ratios;
}

int PathRepeat(const std::vector<Cell>& cells, int workers) {
  struct Repeat {
    int traced = 0, busy = 0;
    double off = 0;  // distance from the medians, as a share of them
  };
  std::map<int, Repeat> repeats;
  for (const Cell& cell : cells) {
    if (cell.workers != workers) continue;
    for (size_t i = 0; i < cell.runs.size(); ++i) {
      if (PathOf(cell, cell.runs[i]->repeat) == nullptr) continue;
      Repeat& repeat = repeats[cell.runs[i]->repeat];
      ++repeat.traced;
      if (cell.runs[i]->busy()) ++repeat.busy;
      if (cell.step_p50_us.median > 0)
        repeat.off += std::abs(cell.figures[i].step_p50_us / cell.step_p50_us.median - 1);
    }
  }
  const auto worse = [](const auto& a, const auto& b) {
    const Repeat &x = a.second, &y = b.second;
    return std::tuple(x.traced, -x.busy, -x.off) < std::tuple(y.traced, -y.busy, -y.off);
  };
  const auto best = std::max_element(repeats.begin(), repeats.end(), worse);
  return best == repeats.end() ? 0 : best->first;
}

const CriticalPath* PathOf(const Cell& cell, int repeat) {
  for (const ComparedRun* run : cell.runs) {
    if (run->repeat == repeat && run->clients[0].critical_path)
      return &*run->clients[0].critical_path;
  }
  return nullptr;
}

std::vector<Equality> Equalities(const CompareReport& report) {
  std::vector<Equality> equalities;
  for (const int workers : report.workers) {
    Equality equality{.workers = workers};
    const ComparedRun* first = nullptr;
    std::set<std::string> differ;
    for (const ComparedRun& run : report.runs) {
      if (run.workers != workers || !run.error.empty() || !Synchronous(report, run)) continue;
      const std::string digest = DigestOf(run);
      if (digest.empty()) continue;
      ++equality.runs;
      ++equality.digests[digest];
      if (first == nullptr) first = &run;
      for (const auto& [name, value] : run.clients[0].variables) {
        const auto other = first->clients[0].variables.find(name);
        if (other == first->clients[0].variables.end() || other->second != value)
          differ.insert(name);
      }
    }
    equality.differ.assign(differ.begin(), differ.end());
    if (equality.runs > 0) equalities.push_back(std::move(equality));
  }
  return equalities;
}

bool Synchronous(const CompareReport& report, const ComparedRun& run) {
  return std::any_of(report.modes.begin(), report.modes.end(), [&](const CompareMode& mode) {
    return mode.name == run.mode && mode.synchronous;
  });
}

std::vector<RunFigures::Traffic> MedianTraffic(const Cell& cell) {
  using Traffic = RunFigures::Traffic;
  std::vector<Traffic> medians;
  if (cell.figures.empty()) return medians;
  for (const Traffic& first : cell.figures[0].tasks) {
    const auto median = [&](double Traffic::*figure) {
      std::vector<double> values;
      for (const RunFigures& figures : cell.figures) {
        for (const Traffic& traffic : figures.tasks) {
          if (traffic.task == first.task) values.push_back(traffic.*figure);
        }
      }
      return SpreadOf(values).median;
    };
    medians.push_back({first.task, median(&Traffic::sent), median(&Traffic::received),
                       median(&Traffic::messages_sent), median(&Traffic::messages_received)});
  }
  return medians;
}

double BytesPerStep(const Cell& cell) {
  double sum = 0;
  for (const RunFigures::Traffic& traffic : MedianTraffic(cell)) sum += traffic.sent;
  return sum;
}

}  // namespace monograph
