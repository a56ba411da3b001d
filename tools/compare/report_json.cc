// The report as JSON: what `--json` writes and what the page draws. Each part of the report has a
// function that makes its object; ReportJson puts them together. Keys keep their order, and a
// figure that was not measured is null.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_value.h"
#include "tools/compare/report.h"
#include "tools/compare/sentences.h"

namespace monograph {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kQuantiles = 200;  // points of a step time curve

OrderedJson ToJsonValue(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"median", spread.median},
          {"low", spread.low},
          {"high", spread.high},
          {"count", spread.count}};
}

OrderedJson TasksJson(const Cell& cell) {
  OrderedJson tasks = OrderedJson::array();
  for (const RunFigures::Traffic& traffic : MedianTraffic(cell)) {
    tasks.push_back({{"task", traffic.task},
                     {"sent", traffic.sent},
                     {"received", traffic.received},
                     {"messages_sent", traffic.messages_sent},
                     {"messages_received", traffic.messages_received}});
  }
  return tasks;
}

OrderedJson PathJson(const CriticalPath* path, int repeat) {
  if (path == nullptr) return nullptr;
  OrderedJson segments = OrderedJson::array();
  for (const PathSegment& segment : path->segments)
    segments.push_back({PathKindName(segment.kind), segment.name, segment.op, segment.task,
                        segment.start_us, segment.us});
  return {{"repeat", repeat},
          {"total_us", path->total_us},
          {"compute_us", path->compute_us},
          {"transfer_us", path->transfer_us},
          {"wait_us", path->wait_us},
          {"segments", std::move(segments)}};
}

OrderedJson LoadJson(const std::optional<RunLoad>& load) {
  if (!load) return nullptr;
  return {{"processors", load->processors},
          {"load_average", load->load_average},
          {"others", load->others},
          {"stolen", load->stolen},
          {"pressure", load->pressure ? OrderedJson(*load->pressure) : OrderedJson(nullptr)},
          {"busy", load->busy()}};
}

OrderedJson WorkersJson(const CompareReport& report, const std::vector<Cell>& cells, int workers) {
  const WorkersSentences sentences = SentencesAt(report, cells, workers);
  return {{"workers", workers},           {"path_repeat", PathRepeat(cells, workers)},
          {"ratios", sentences.ratios},   {"ratios_note", sentences.ratios_note},
          {"steps", sentences.steps},     {"cpu", sentences.cpu},
          {"bytes", sentences.bytes},     {"path", sentences.path},
          {"loss", sentences.loss},       {"loss_note", sentences.loss_note},
          {"verdict", sentences.verdict}, {"verdict_note", sentences.verdict_note}};
}

OrderedJson StepCurve(const Cell& cell) {
  std::vector<double> all;
  for (const RunFigures& figures : cell.figures)
    all.insert(all.end(), figures.step_us.begin(), figures.step_us.end());
  OrderedJson curve = OrderedJson::array();
  if (all.empty()) return curve;
  std::sort(all.begin(), all.end());
  for (int i = 0; i <= kQuantiles; ++i)
    curve.push_back(std::round(Quantile(all, static_cast<double>(i) / kQuantiles) * 10) / 10);
  return curve;
}

OrderedJson CellJson(const Cell& cell, int path_repeat) {
  OrderedJson runs = OrderedJson::array();
  for (size_t i = 0; i < cell.runs.size(); ++i) {
    const ComparedRun& run = *cell.runs[i];
    const RunFigures& figures = cell.figures[i];
    OrderedJson loss = OrderedJson::array();
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
         {"test_accuracy", run.clients[0].test_accuracy ? OrderedJson(*run.clients[0].test_accuracy)
                                                        : OrderedJson(nullptr)},
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
          {"critical_path", PathJson(PathOf(cell, path_repeat), path_repeat)},
          {"runs", std::move(runs)}};
}

}  // namespace

std::string ReportJson(const CompareReport& report) {
  const std::vector<Cell> cells = Cells(report);
  const ReportSentences sentences = SentencesOf(report, cells);
  OrderedJson modes = OrderedJson::array(), cell_list = OrderedJson::array(),
              ratio_list = OrderedJson::array(), equality_list = OrderedJson::array(),
              runs = OrderedJson::array(), titles = OrderedJson::array();
  for (const CompareMode& mode : report.modes)
    modes.push_back({{"name", mode.name},
                     {"title", mode.title},
                     {"flags", mode.flags},
                     {"synchronous", mode.synchronous},
                     {"uses_ps", mode.uses_ps}});
  for (const Cell& cell : cells)
    cell_list.push_back(CellJson(cell, PathRepeat(cells, cell.workers)));
  for (const int workers : report.workers) titles.push_back(WorkersJson(report, cells, workers));
  for (const Ratio& ratio : Ratios(report, cells))
    ratio_list.push_back({{"mode", ratio.mode},
                          {"baseline", ratio.baseline},
                          {"workers", ratio.workers},
                          {"ratio", ToJsonValue(ratio.ratio)},
                          {"repeats", ratio.repeats},
                          {"busy", ratio.busy},
                          {"conclusion", ConclusionName(ratio.conclusion)},
                          {"clear", ratio.conclusion == Conclusion::kClear},
                          {"text", RatioText(ratio)}});
  for (const Equality& equality : Equalities(report))
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
                    {"error", run.error},
                    {"load", LoadJson(run.load)}});
  const OrderedJson json = {{"monograph_compare", 1},
                            {"headline", sentences.headline},
                            {"certainty", sentences.certainty},
                            {"throughput_text", sentences.throughput},
                            {"equality_text", sentences.weights},
                            {"equality_title", sentences.weights_title},
                            {"load_text", sentences.load},
                            {"crowding_text", sentences.crowding},
                            {"failure_text", sentences.failures},
                            {"titles", std::move(titles)},
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
  return JsonText(json) + "\n";
}

}  // namespace monograph
