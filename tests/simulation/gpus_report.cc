// Each figure is the second step of a session of its own: the first one connects the GPUs. A step
// is measured from its first kernel to its last; what the host does in between takes the simulated
// network's time and no other.
#include "tests/simulation/gpus_report.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>

#include "client/registries.h"
#include "client/session.h"
#include "ops/collective/collective.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sim_gpus.h"

namespace monograph::simulation {
namespace {

enum class Pass {
  kCompute,     // the kernels alone
  kExchange,    // the sums alone, all at once
  kOverlapped,  // each sum as soon as its bucket is there
  kOneByOne,    // the sums when all has been computed
};

struct Measured {
  double span_ms = 0, busiest_ms = 0;
  double computes_ms = 0, moves_ms = 0, both_ms = 0;  // of the mean GPU
  GpuWorld::Traffic gpu, node;                        // the most of any
  int other_order = 0;  // GPUs whose buckets were ready in another order than the first one's
  bool one_order = true;
};

std::vector<int> OrderOf(const GpuReport& report) {
  std::vector<int> order(static_cast<size_t>(report.buckets));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; report.shuffle && i > 0; --i)
    std::swap(order[i], order[Draw(i + 1)]);
  return order;
}

double Milliseconds(GpuWorld::Nanoseconds time) { return static_cast<double>(time) / 1e6; }

Measured Measure(const GpuReport& report, Pass pass) {
  HoldThreads(false);
  ComputeInNoTime(true);
  GpuCluster cluster(report.topology, [](const std::string& text) { Fail(text); });
  const Graph graph = NewGraph();
  GpuGraph parts(&cluster, const_cast<Graph*>(&graph));
  CollectiveGroup group{.size = report.gpus, .key = 1, .timeout_seconds = 100};
  for (int gpu = 0; gpu < report.gpus; ++gpu) group.members.push_back(cluster.device(gpu));
  const auto elements = static_cast<int64_t>(report.megabytes * 1e6 / 4 / report.buckets);
  std::vector<Operation> targets;
  for (int gpu = 0; gpu < report.gpus; ++gpu) {
    const double slower = 1 + report.spread / 100 * (gpu * 7 % report.gpus) / report.gpus;
    const std::chrono::nanoseconds takes(static_cast<int64_t>(
        pass == Pass::kExchange ? 0 : report.backward_ms * 1e6 / report.buckets * slower));
    std::vector<Operation> after;
    std::map<int, Output> made;
    for (const int bucket : OrderOf(report)) {
      made[bucket] = parts.Make(gpu, bucket, gpu, 0, elements, takes, after);
      if (pass != Pass::kExchange) after = {made[bucket]};
    }
    for (const auto& [bucket, value] : made) {
      if (pass == Pass::kCompute) {
        targets.push_back(value);
        continue;
      }
      Scope place = parts.root().WithDevice(cluster.device(gpu));
      if (pass == Pass::kOneByOne) place = place.WithControlDependencies(after);
      const Output sum = CollectiveReduce(place, value, group, bucket + 1);
      targets.push_back(parts.Use(gpu, sum, 0, {{0, report.gpus}}, bucket, {}));
    }
  }
  SessionOptions options;
  options.optimizer.level = 0;
  auto session = Session::Connect(cluster.spec(), graph, std::move(options));
  if (!session.ok()) Fail("no session: " + session.status().ToString());
  GpuWorld& world = cluster.world();
  for (int step = 0; step < 2; ++step) {
    world.ClearCounts();
    if (const auto ran = (*session)->Run(parts.feeds(), {}, targets); !ran.ok())
      Fail("a step failed: " + ran.status().ToString());
  }
  Measured measured{.span_ms = Milliseconds(world.Span()),
                    .busiest_ms = world.BusiestLinkSeconds() * 1e3};
  for (int gpu = 0; gpu < report.gpus; ++gpu) {
    const GpuWorld::Times& times = world.times(gpu);
    measured.computes_ms += Milliseconds(times.computes) / report.gpus;
    measured.moves_ms += Milliseconds(times.moves) / report.gpus;
    measured.both_ms += Milliseconds(times.both) / report.gpus;
    measured.gpu.out = std::max(measured.gpu.out, world.gpu_traffic(gpu).out);
    measured.gpu.in = std::max(measured.gpu.in, world.gpu_traffic(gpu).in);
    if (world.ReadyOf(gpu) != world.ReadyOf(0)) ++measured.other_order;
    if (world.LaunchesOf(gpu) != world.LaunchesOf(0)) measured.one_order = false;
  }
  for (int node = 0; node < report.nodes; ++node) {
    measured.node.out = std::max(measured.node.out, world.node_traffic(node).out);
    measured.node.in = std::max(measured.node.in, world.node_traffic(node).in);
  }
  (void)(*session)->Close();
  return measured;
}

Measured MeasureOnce(const GpuReport& report, Pass pass) {
  Measured measured;
  RunSchedule({.seed = 1, .most_decisions = UINT64_MAX}, [&] { measured = Measure(report, pass); });
  return measured;
}

bool ReadValue(std::string_view flag, std::string_view name, double* value) {
  if (!flag.starts_with(name)) return false;
  flag.remove_prefix(name.size());
  const char* const end = flag.data() + flag.size();
  return std::from_chars(flag.data(), end, *value).ptr == end && !flag.empty() && *value >= 0;
}

}  // namespace

bool ReadGpuFlag(std::string_view flag, GpuReport* report) {
  double value = 0;
  const auto is = [&](std::string_view name) { return ReadValue(flag, name, &value); };
  if (is("--gpus=")) {
    report->gpus = static_cast<int>(value);
    return report->gpus >= 2 && report->gpus <= 64;
  }
  if (is("--nodes=")) {
    report->nodes = static_cast<int>(value);
    return report->nodes >= 1 && report->nodes <= 64;
  }
  if (is("--buckets=")) {
    report->buckets = static_cast<int>(value);
    return report->buckets >= 1 && report->buckets <= 1000;
  }
  if (is("--nvlink=")) {
    report->topology.port = value * 1e9;
    return value > 0;
  }
  if (is("--nic=")) {
    report->topology.nic = value * 1e9;
    return value > 0;
  }
  if (is("--nics=")) {
    report->topology.nics = static_cast<int>(value);
    return value <= 64;
  }
  if (is("--mb=")) {
    report->megabytes = value;
    return value > 0 && value <= 4000;
  }
  if (is("--backward_ms=")) {
    report->backward_ms = value;
    return true;
  }
  if (is("--spread=")) {
    report->spread = value;
    return true;
  }
  if (flag == "--shuffle") return report->shuffle = true;
  if (flag == "--process_each") return report->topology.process_each = true;
  if (flag == "--any_order") return report->topology.any_order = true;
  return false;
}

int PrintGpuReport(GpuReport report) {
  if (report.nodes > report.gpus) {
    std::fprintf(stderr, "%d GPUs are too few for %d nodes\n", report.gpus, report.nodes);
    return 2;
  }
  report.topology.nodes = SpreadOver(report.nodes, report.gpus);
  const Measured computed = MeasureOnce(report, Pass::kCompute);
  const Measured exchanged = MeasureOnce(report, Pass::kExchange);
  const Measured together = MeasureOnce(report, Pass::kOverlapped);
  const Measured apart = MeasureOnce(report, Pass::kOneByOne);
  const double bytes = report.megabytes * 1e6;
  const double ranks = report.gpus, on_node = ranks / report.nodes;
  std::printf(
      "%d GPUs on %d nodes, simulated: %.0f GB/s within a node, %.0f GB/s for each of %s to others "
      "(each direction); %.0f MB of gradients in %d buckets, %.1f ms of kernels\n",
      report.gpus, report.nodes, report.topology.port / 1e9, report.topology.nic / 1e9,
      report.topology.nics == 0
          ? "the GPUs' NICs"
          : (std::to_string(report.topology.nics) + " NICs of a node").c_str(),
      report.megabytes, report.buckets, report.backward_ms);
  std::printf("time    kernels %.2f ms, sums %.2f ms (the busiest link: %.2f ms)\n",
              computed.span_ms, exchanged.span_ms, exchanged.busiest_ms);
  std::printf("        one after the other %.2f ms, overlapped %.2f ms; at least %.2f ms\n",
              apart.span_ms, together.span_ms, std::max(computed.span_ms, exchanged.busiest_ms));
  std::printf("overlap %.0f %% of the time in which a GPU moves bytes it computes, too\n",
              100 * together.both_ms / std::max(together.moves_ms, 1e-9));
  std::printf("bytes   a GPU: out %.1f MB, in %.1f MB; 2 S (1 - 1/N) is %.1f MB\n",
              together.gpu.out / 1e6, together.gpu.in / 1e6, 2 * bytes * (1 - 1 / ranks) / 1e6);
  if (report.nodes > 1) {
    std::printf(
        "        a node: out %.1f MB, in %.1f MB; 2 S is %.1f MB, each with all 2 S G (N - G) / N "
        "is "
        "%.1f MB\n",
        together.node.out / 1e6, together.node.in / 1e6, 2 * bytes / 1e6,
        2 * bytes * on_node * (ranks - on_node) / ranks / 1e6);
  }
  std::printf("order   %d GPUs have their buckets ready in another order than GPU 0; %s\n",
              together.other_order,
              together.one_order ? "all launch in one order" : "THEY LAUNCH IN DIFFERENT ORDERS");
  return together.one_order ? 0 : kFailed;
}

}  // namespace monograph::simulation
