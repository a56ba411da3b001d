// The report as text.
#include <cstdio>

#include "tools/columns.h"
#include "tools/compare/report.h"
#include "tools/compare/sentences.h"
#include "tools/compare/words.h"

namespace monograph {
namespace {

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

std::string MiB(double bytes) { return Format(bytes < 1e5 ? "%.4f" : "%.2f", bytes / (1 << 20)); }

std::string PathText(const CriticalPath* path) {
  if (path == nullptr) return "-";
  return Fixed(path->total_us / 1e3, 2) + ": " + Fixed(path->compute_us / 1e3, 2) + "+" +
         Fixed(path->transfer_us / 1e3, 2) + "+" + Fixed(path->wait_us / 1e3, 2);
}

std::string FiguresTable(const std::vector<Cell>& cells) {
  std::vector<std::vector<std::string>> rows = {
      {"mode", "workers", "clients", "images/sec", "step p50 ms", "step p99 ms",
       "CPU ms/step, all clients", "MiB/step", "critical path ms: compute+transfer+wait",
       "of repeat", "loss", "weights"}};
  for (const Cell& cell : cells) {
    if (cell.runs.empty()) {
      rows.push_back({cell.mode->name, std::to_string(cell.workers), "-", "failed"});
      continue;
    }
    const int repeat = PathRepeat(cells, cell.workers);
    const CriticalPath* path = PathOf(cell, repeat);
    const auto& loss = cell.figures[0].loss;
    rows.push_back(
        {cell.mode->name, std::to_string(cell.workers),
         std::to_string(cell.runs[0]->clients.size()), WithRange(cell.images_per_second, "%.1f", 1),
         WithRange(cell.step_p50_us, "%.2f", 1e-3), WithRange(cell.step_p99_us, "%.2f", 1e-3),
         WithRange(cell.client_cpu_us, "%.3f", 1e-3), MiB(BytesPerStep(cell)), PathText(path),
         path == nullptr ? "-" : std::to_string(repeat),
         loss.empty() ? "-" : Format("%.4f", loss.back().loss),
         cell.runs[0]->clients[0].digest.substr(0, 8)});
  }
  return AlignColumns(rows);
}

std::string RatiosTable(const std::vector<Ratio>& ratios) {
  std::vector<std::vector<std::string>> rows = {
      {"ratio of images/sec", "workers", "median", "range", "what it tells"}};
  for (const Ratio& ratio : ratios) {
    rows.push_back({ratio.baseline + " / " + ratio.mode, std::to_string(ratio.workers),
                    Fixed(ratio.ratio.median, 3),
                    Fixed(ratio.ratio.low, 3) + ".." + Fixed(ratio.ratio.high, 3),
                    (Concludes(ratio.conclusion) ? "" : "no conclusion: ") + RatioText(ratio)});
  }
  return AlignColumns(rows);
}

std::string BytesTable(const std::vector<Cell>& cells) {
  std::vector<std::vector<std::string>> rows = {{"bytes on the wire per step", "workers", "task",
                                                 "sent MiB", "received MiB", "messages sent",
                                                 "received"}};
  for (const Cell& cell : cells) {
    for (const RunFigures::Traffic& task : MedianTraffic(cell)) {
      rows.push_back({cell.mode->name, std::to_string(cell.workers), task.task, MiB(task.sent),
                      MiB(task.received), Fixed(task.messages_sent, 1),
                      Fixed(task.messages_received, 1)});
    }
  }
  return rows.size() > 1 ? AlignColumns(rows) : "";
}

std::string LoadTable(const CompareReport& report) {
  std::vector<std::vector<std::string>> rows = {{"load of the machine", "workers", "repeat",
                                                 "processors used by others", "stolen",
                                                 "pressure %", "load average before", ""}};
  for (const ComparedRun& run : report.runs) {
    if (!run.load) continue;
    rows.push_back({run.mode, std::to_string(run.workers), std::to_string(run.repeat),
                    Fixed(run.load->others, 2), Fixed(run.load->stolen, 2),
                    run.load->pressure ? Fixed(100 * *run.load->pressure, 0) : "-",
                    Fixed(run.load->load_average, 2), run.load->busy() ? "busy" : ""});
  }
  return rows.size() > 1 ? AlignColumns(rows) : "";
}

}  // namespace

std::string ReportTable(const CompareReport& report) {
  const std::vector<Cell> cells = Cells(report);
  const ReportSentences sentences = SentencesOf(report, cells);
  std::string text;
  for (const std::string& line :
       {sentences.headline, sentences.certainty, sentences.throughput, sentences.weights,
        sentences.load, sentences.crowding, sentences.failures}) {
    if (!line.empty()) text += line + (line.ends_with(".") ? "\n" : ".\n");
  }
  text += "\n" + FiguresTable(cells);
  if (const std::vector<Ratio> ratios = Ratios(report, cells); !ratios.empty())
    text += "\n" + RatiosTable(ratios);
  text += "\n" + BytesTable(cells) + "\n" + LoadTable(report);

  for (const ComparedRun& run : report.runs) {
    if (!run.error.empty())
      text += "\nFAILED: " + run.mode + ", " + Plural(run.workers, "worker") + ", repeat " +
              std::to_string(run.repeat) + ": " + run.error + "\n";
  }
  text += "\n" + Plural(report.repeats, "interleaved repeat") + ", " + report.machine.cpu + ", " +
          Plural(report.machine.cores, "core") + ", " + report.date +
          "\nmedian (lowest..highest); a step trains one global batch; CPU of all clients of a run "
          "together\nothers: processes that are not of this comparison; pressure: share of the run "
          "in which a process, one of ours or not, waited for a processor\n";
  return text;
}

}  // namespace monograph
