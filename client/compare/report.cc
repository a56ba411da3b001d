#include "client/compare/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>

#include "base/device_name.h"

namespace monograph {
namespace {

std::string Number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

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

bool Synchronous(const CompareReport& report, const ComparedRun& run) {
  return std::any_of(report.modes.begin(), report.modes.end(), [&](const CompareMode& mode) {
    return mode.name == run.mode && mode.synchronous;
  });
}

// The number of workers that the headline speaks of.
int HeadlineWorkers(const std::vector<Ratio>& ratios) {
  for (const Ratio& ratio : ratios) {
    if (ratio.workers == 2) return 2;
  }
  return ratios.empty() ? 0 : ratios.back().workers;
}

std::string TitleOf(const CompareReport& report, const std::string& mode) {
  for (const CompareMode& known : report.modes) {
    if (known.name == mode) return known.title;
  }
  return mode;
}

// Inside a sentence: "in-graph", but a name of the user's own stays.
std::string InSentence(std::string title) {
  if (title.size() > 1 && std::isupper(static_cast<unsigned char>(title[0])) &&
      std::islower(static_cast<unsigned char>(title[1])))
    title[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(title[0])));
  return title;
}

std::string WorkersText(int workers) {
  return std::to_string(workers) + (workers == 1 ? " worker" : " workers");
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

std::vector<Ratio> Ratios(const CompareReport& report, const std::vector<Cell>& cells) {
  std::vector<Ratio> ratios;
  for (const Cell& cell : cells) {
    if (cell.mode->name == report.modes[0].name) continue;
    const auto first = std::find_if(cells.begin(), cells.end(), [&](const Cell& other) {
      return other.workers == cell.workers && other.mode->name == report.modes[0].name;
    });
    std::vector<double> values;
    for (size_t i = 0; i < first->runs.size(); ++i) {
      for (size_t k = 0; k < cell.runs.size(); ++k) {
        if (first->runs[i]->repeat == cell.runs[k]->repeat && cell.figures[k].images_per_second > 0)
          values.push_back(first->figures[i].images_per_second / cell.figures[k].images_per_second);
      }
    }
    if (values.empty()) continue;
    Ratio ratio{.mode = cell.mode->name,
                .baseline = report.modes[0].name,
                .workers = cell.workers,
                .ratio = SpreadOf(values)};
    ratio.clear = ratio.ratio.count >= 2 && (ratio.ratio.low > 1 || ratio.ratio.high < 1);
    ratios.push_back(std::move(ratio));
  }
  return ratios;
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

std::string Headline(const CompareReport& report, const std::vector<Ratio>& ratios) {
  const int workers = HeadlineWorkers(ratios);
  for (const Ratio& ratio : ratios) {
    if (ratio.workers != workers) continue;
    const std::string ours = TitleOf(report, ratio.baseline),
                      other = InSentence(TitleOf(report, ratio.mode)),
                      where = " at " + WorkersText(workers);
    if (!ratio.clear && ratio.ratio.count > 1)
      return ours + " and " + other + " are equally fast, within the spread," + where;
    return ours + " is " + Number(ratio.ratio.median, 2) + "x " + other + where;
  }
  const std::vector<Cell> cells = Cells(report);
  const Cell* last = nullptr;
  for (const Cell& cell : cells) {
    if (!cell.runs.empty()) last = &cell;
  }
  if (last == nullptr) return "No run went through";
  return last->mode->title + " trains " + Number(last->images_per_second.median, 0) +
         " images/sec at " + WorkersText(last->workers);
}

std::string Certainty(const CompareReport& report, const std::vector<Ratio>& ratios) {
  const int workers = HeadlineWorkers(ratios);
  for (const Ratio& ratio : ratios) {
    if (ratio.workers != workers) continue;
    const std::string range =
        Number(ratio.ratio.low, 2) + "x to " + Number(ratio.ratio.high, 2) + "x";
    if (ratio.ratio.count == 1) return "One repeat only: the spread is not known.";
    const std::string over = "over " + std::to_string(ratio.ratio.count) + " interleaved repeats";
    if (ratio.clear) return "Every repeat agrees: " + range + " " + over + ".";
    return "The spread is larger than the difference: " + range + " " + over + ".";
  }
  return report.modes.size() == 1 ? "One mode only: there is nothing to compare with." : "";
}

std::string EqualityText(const CompareReport& report, const std::vector<Equality>& equalities) {
  int runs = 0;
  std::string differ;
  for (const Equality& equality : equalities) {
    runs += equality.runs;
    if (!equality.equal()) differ += (differ.empty() ? "" : ", ") + WorkersText(equality.workers);
  }
  if (runs == 0) return "No synchronous run reported its weights.";
  if (!differ.empty())
    return "Weights of synchronous runs are not the same bits at " + differ + ".";
  std::set<std::string> modes;
  for (const ComparedRun& run : report.runs) {
    if (run.error.empty() && Synchronous(report, run)) modes.insert(run.mode);
  }
  if (runs == static_cast<int>(equalities.size()))
    return "One run each: nothing to compare its weights with.";
  return "For each number of workers, all runs of " +
         (modes.size() == 1 ? InSentence(TitleOf(report, *modes.begin()))
                            : std::to_string(modes.size()) + " synchronous modes") +
         " ended with bit-equal weights (" + std::to_string(runs) + " runs).";
}

}  // namespace monograph
