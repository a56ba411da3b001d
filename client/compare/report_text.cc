// The report as text and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/columns.h"
#include "client/compare/report.h"

namespace monograph {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kQuantiles = 200;  // points of a step time curve

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string WithRange(const Spread& spread, const char* format, double scale) {
  if (spread.count == 0) return "-";
  const std::string median = Format(format, spread.median * scale);
  if (spread.count == 1) return median;
  return median + " (" + Format(format, spread.low * scale) + ".." +
         Format(format, spread.high * scale) + ")";
}

Json ToJsonValue(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"median", spread.median},
          {"low", spread.low},
          {"high", spread.high},
          {"count", spread.count}};
}

double MedianOf(const Cell& cell, const std::string& task, double RunFigures::Traffic::*figure) {
  std::vector<double> values;
  for (const RunFigures& figures : cell.figures) {
    for (const RunFigures::Traffic& traffic : figures.tasks) {
      if (traffic.task == task) values.push_back(traffic.*figure);
    }
  }
  return SpreadOf(values).median;
}

Json TasksJson(const Cell& cell) {
  Json tasks = Json::array();
  if (cell.figures.empty()) return tasks;
  for (const RunFigures::Traffic& first : cell.figures[0].tasks) {
    using Traffic = RunFigures::Traffic;
    tasks.push_back(
        {{"task", first.task},
         {"sent", MedianOf(cell, first.task, &Traffic::sent)},
         {"received", MedianOf(cell, first.task, &Traffic::received)},
         {"messages_sent", MedianOf(cell, first.task, &Traffic::messages_sent)},
         {"messages_received", MedianOf(cell, first.task, &Traffic::messages_received)}});
  }
  return tasks;
}

// The traced step of the run whose step time is the median.
Json PathJson(const Cell& cell) {
  const CriticalPath* best = nullptr;
  const ComparedRun* from = nullptr;
  double distance = INFINITY;
  for (size_t i = 0; i < cell.runs.size(); ++i) {
    const auto& path = cell.runs[i]->clients[0].critical_path;
    const double off = std::abs(cell.figures[i].step_p50_us - cell.step_p50_us.median);
    if (!path || off >= distance) continue;
    best = &*path;
    from = cell.runs[i];
    distance = off;
  }
  if (best == nullptr) return nullptr;
  Json segments = Json::array();
  for (const PathSegment& segment : best->segments)
    segments.push_back({PathKindName(segment.kind), segment.name, segment.op, segment.task,
                        segment.start_us, segment.us});
  return {{"repeat", from->repeat},         {"total_us", best->total_us},
          {"compute_us", best->compute_us}, {"transfer_us", best->transfer_us},
          {"wait_us", best->wait_us},       {"segments", std::move(segments)}};
}

Json StepCurve(const Cell& cell) {
  std::vector<double> all;
  for (const RunFigures& figures : cell.figures)
    all.insert(all.end(), figures.step_us.begin(), figures.step_us.end());
  Json curve = Json::array();
  if (all.empty()) return curve;
  std::sort(all.begin(), all.end());
  for (int i = 0; i <= kQuantiles; ++i)
    curve.push_back(std::round(Quantile(all, static_cast<double>(i) / kQuantiles) * 10) / 10);
  return curve;
}

Json CellJson(const Cell& cell) {
  Json runs = Json::array();
  for (size_t i = 0; i < cell.runs.size(); ++i) {
    const ComparedRun& run = *cell.runs[i];
    const RunFigures& figures = cell.figures[i];
    Json loss = Json::array();
    for (const RunResult::Progress& line : figures.loss)
      loss.push_back({line.step, line.us, line.loss, line.accuracy});
    runs.push_back(
        {{"repeat", run.repeat},
         {"images_per_second", figures.images_per_second},
         {"step_p50_us", figures.step_p50_us},
         {"step_p99_us", figures.step_p99_us},
         {"client_cpu_us", figures.client_cpu_us},
         {"daemon_cpu_us", figures.daemon_cpu_us},
         {"steps", figures.step_us.size()},
         {"seconds", run.clients[0].seconds},
         {"test_accuracy",
          run.clients[0].test_accuracy ? Json(*run.clients[0].test_accuracy) : Json(nullptr)},
         {"digest", run.clients[0].digest},
         {"loss", std::move(loss)}});
  }
  return {{"mode", cell.mode->name},
          {"workers", cell.workers},
          {"clients", cell.runs.empty() ? 0 : cell.runs[0]->clients.size()},
          {"batch_size", cell.runs.empty() ? 0 : cell.runs[0]->clients[0].batch_size},
          {"images_per_second", ToJsonValue(cell.images_per_second)},
          {"step_p50_us", ToJsonValue(cell.step_p50_us)},
          {"step_p99_us", ToJsonValue(cell.step_p99_us)},
          {"client_cpu_us", ToJsonValue(cell.client_cpu_us)},
          {"daemon_cpu_us", ToJsonValue(cell.daemon_cpu_us)},
          {"step_us", StepCurve(cell)},
          {"tasks", TasksJson(cell)},
          {"critical_path", PathJson(cell)},
          {"runs", std::move(runs)}};
}

std::string MiB(double bytes) { return Format(bytes < 1e5 ? "%.4f" : "%.2f", bytes / (1 << 20)); }

}  // namespace

std::string ReportJson(const CompareReport& report) {
  const std::vector<Cell> cells = Cells(report);
  const std::vector<Ratio> ratios = Ratios(report, cells);
  const std::vector<Equality> equalities = Equalities(report);
  Json modes = Json::array(), cell_list = Json::array(), ratio_list = Json::array(),
       equality_list = Json::array(), runs = Json::array();
  for (const CompareMode& mode : report.modes)
    modes.push_back({{"name", mode.name},
                     {"title", mode.title},
                     {"flags", mode.flags},
                     {"synchronous", mode.synchronous},
                     {"uses_ps", mode.uses_ps}});
  for (const Cell& cell : cells) cell_list.push_back(CellJson(cell));
  for (const Ratio& ratio : ratios)
    ratio_list.push_back({{"mode", ratio.mode},
                          {"baseline", ratio.baseline},
                          {"workers", ratio.workers},
                          {"ratio", ToJsonValue(ratio.ratio)},
                          {"clear", ratio.clear}});
  for (const Equality& equality : equalities)
    equality_list.push_back({{"workers", equality.workers},
                             {"runs", equality.runs},
                             {"equal", equality.equal()},
                             {"digests", equality.digests},
                             {"differ", equality.differ}});
  for (const ComparedRun& run : report.runs)
    runs.push_back({{"mode", run.mode},
                    {"workers", run.workers},
                    {"repeat", run.repeat},
                    {"command", run.command},
                    {"error", run.error}});
  const Json json = {{"monograph_compare", 1},
                     {"headline", Headline(report, ratios)},
                     {"certainty", Certainty(report, ratios)},
                     {"equality_text", EqualityText(report, equalities)},
                     {"program", report.program},
                     {"command", report.command},
                     {"version", report.version},
                     {"date", report.date},
                     {"machine",
                      {{"cpu", report.machine.cpu},
                       {"cores", report.machine.cores},
                       {"memory_gib", report.machine.memory_gib},
                       {"kernel", report.machine.kernel}}},
                     {"repeats", report.repeats},
                     {"interrupted", report.interrupted},
                     {"modes", std::move(modes)},
                     {"workers", report.workers},
                     {"cells", std::move(cell_list)},
                     {"ratios", std::move(ratio_list)},
                     {"equality", std::move(equality_list)},
                     {"runs", std::move(runs)}};
  return json.dump() + "\n";
}

std::string ReportTable(const CompareReport& report) {
  const std::vector<Cell> cells = Cells(report);
  const std::vector<Ratio> ratios = Ratios(report, cells);
  const std::vector<Equality> equalities = Equalities(report);
  std::string text = Headline(report, ratios) + "\n" + Certainty(report, ratios) + "\n" +
                     EqualityText(report, equalities) + "\n\n";

  std::vector<std::vector<std::string>> rows = {
      {"mode", "workers", "clients", "images/sec", "step p50 ms", "step p99 ms",
       "CPU ms/step, all clients", "MiB/step", "critical path ms: compute+transfer+wait", "loss",
       "weights"}};
  for (const Cell& cell : cells) {
    if (cell.runs.empty()) {
      rows.push_back({cell.mode->name, std::to_string(cell.workers), "-", "failed"});
      continue;
    }
    double sent = 0;
    for (const RunFigures::Traffic& traffic : cell.figures[0].tasks)
      sent += MedianOf(cell, traffic.task, &RunFigures::Traffic::sent);
    const Json path = PathJson(cell);
    const std::string path_text =
        path.is_null() ? "-"
                       : Format("%.2f: ", path["total_us"].get<double>() / 1e3) +
                             Format("%.2f+", path["compute_us"].get<double>() / 1e3) +
                             Format("%.2f+", path["transfer_us"].get<double>() / 1e3) +
                             Format("%.2f", path["wait_us"].get<double>() / 1e3);
    const auto& loss = cell.figures[0].loss;
    rows.push_back(
        {cell.mode->name, std::to_string(cell.workers),
         std::to_string(cell.runs[0]->clients.size()), WithRange(cell.images_per_second, "%.1f", 1),
         WithRange(cell.step_p50_us, "%.2f", 1e-3), WithRange(cell.step_p99_us, "%.2f", 1e-3),
         WithRange(cell.client_cpu_us, "%.3f", 1e-3), MiB(sent), path_text,
         loss.empty() ? "-" : Format("%.4f", loss.back().loss),
         cell.runs[0]->clients[0].digest.substr(0, 8)});
  }
  text += AlignColumns(rows);

  if (!ratios.empty()) {
    text += "\n";
    rows = {{"ratio of images/sec", "workers", "median", "range"}};
    for (const Ratio& ratio : ratios) {
      rows.push_back({ratio.baseline + " / " + ratio.mode, std::to_string(ratio.workers),
                      Format("%.3f", ratio.ratio.median),
                      Format("%.3f", ratio.ratio.low) + ".." + Format("%.3f", ratio.ratio.high) +
                          (ratio.clear ? "" : " (spread larger than the difference)")});
    }
    text += AlignColumns(rows);
  }

  text += "\n";
  rows = {{"bytes on the wire per step", "workers", "task", "sent MiB", "received MiB",
           "messages sent", "received"}};
  for (const Cell& cell : cells) {
    for (const Json& task : TasksJson(cell)) {
      rows.push_back({cell.mode->name, std::to_string(cell.workers),
                      task["task"].get<std::string>(), MiB(task["sent"].get<double>()),
                      MiB(task["received"].get<double>()),
                      Format("%.1f", task["messages_sent"].get<double>()),
                      Format("%.1f", task["messages_received"].get<double>())});
    }
  }
  if (rows.size() > 1) text += AlignColumns(rows);

  for (const ComparedRun& run : report.runs) {
    if (!run.error.empty())
      text += "\nFAILED: " + run.mode + ", " + std::to_string(run.workers) + " workers, repeat " +
              std::to_string(run.repeat) + ": " + run.error + "\n";
  }
  if (report.interrupted) text += "\nInterrupted: the figures are of the runs that had ended.\n";
  text += "\n" + std::to_string(report.repeats) + " interleaved repeats, " + report.machine.cpu +
          ", " + std::to_string(report.machine.cores) + " cores, " + report.date +
          "\nmedian (lowest..highest); a step trains one global batch; CPU of all clients of a run "
          "together\n";
  return text;
}

}  // namespace monograph
