// A client's work on a large graph against a hand-written floor, in one interleaved run; only the
// ratio counts.
//
// Both build the same graph (a name, an op, two inputs found by name, two attributes, a device),
// place it, partition it over the tasks with a pair of send and receive for every tensor that
// crosses, write every partition as a GraphDef, and read all of them again. The floor does so with
// plain structs, without checks, shapes, errors or a registry.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/harness.h"
#include "graph/graph_def.h"
#include "graph/op_def.h"
#include "graph/partition.h"
#include "graph/place.h"
#include "graph/shape_inference.h"
#include "graph/wire.h"

namespace monograph {
namespace {

constexpr int kStages = 5;
constexpr const char* kStageNames[kStages] = {"build", "place", "partition", "serialise", "parse"};
constexpr int kParse = 4;  // done by the daemons: not part of the client's total

class StageClock {
 public:
  void Lap(int stage) {
    const auto now = std::chrono::steady_clock::now();
    seconds[static_cast<size_t>(stage)] = std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  std::array<double, kStages> seconds{};
  size_t bytes = 0, crossings = 0;

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// The graph, the same for both: node i of a task reads the one before it and the one twenty before
// it; every fiftieth reads one of task 0 instead.
struct Layout {
  int nodes, tasks;
  int per_task() const { return nodes / tasks; }
  int Task(int i) const { return std::min(i / per_task(), tasks - 1); }
  int Index(int i) const { return i - Task(i) * per_task(); }
  std::string_view Name(int i, char* buffer, size_t size) const {
    const int length = std::snprintf(buffer, size, "replica_%d/layer_%d/op_%d", Task(i),
                                     Index(i) / 20, Index(i) % 20);
    return {buffer, static_cast<size_t>(length)};
  }
  int Second(int i) const {
    if (i % 50 == 0 && Task(i) > 0) return Index(i);
    return Index(i) > 20 ? i - 20 : i - 1;
  }
};

std::string DeviceText(int task) {
  return "/job:worker/replica:0/task:" + std::to_string(task) + "/device:CPU:0";
}

void Require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "graph_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// ---- the floor ----

struct PlainNode {
  std::string name;
  int op = 0, task = -1, inputs = 0;
  int input[2] = {-1, -1};
};

void PutPlainNode(const std::vector<PlainNode>& nodes, const PlainNode& node,
                  std::string_view device, std::string* scratch, std::string* out) {
  scratch->clear();
  wire_format::PutBytes(scratch, 1, node.name);
  wire_format::PutBytes(scratch, 2, node.inputs == 0 ? "Source" : "Combine");
  for (int k = 0; k < node.inputs; ++k)
    wire_format::PutBytes(scratch, 3, nodes[static_cast<size_t>(node.input[k])].name);
  wire_format::PutBytes(scratch, 4, device);
  wire_format::PutBytes(scratch, 5, "\x0a\x01T\x12\x02\x30\x01");
  wire_format::PutBytes(scratch, 5, std::string_view("\x0a\x0btranspose_a\x12\x02\x28\x00", 17));
  wire_format::PutBytes(out, 1, *scratch);
}

StageClock RunFloor(const Layout& layout) {
  StageClock clock;
  std::vector<PlainNode> nodes;
  std::unordered_map<std::string_view, int> index;
  nodes.reserve(static_cast<size_t>(layout.nodes));
  index.reserve(static_cast<size_t>(layout.nodes));
  char buffer[96];
  for (int i = 0; i < layout.nodes; ++i) {
    PlainNode& node = nodes.emplace_back();
    node.name = layout.Name(i, buffer, sizeof buffer);
    node.op = i % 40;
    if (layout.Index(i) > 0) {
      node.input[node.inputs++] = index.find(nodes[static_cast<size_t>(i - 1)].name)->second;
      node.input[node.inputs++] =
          index.find(nodes[static_cast<size_t>(layout.Second(i))].name)->second;
    }
    index.emplace(node.name, i);
  }
  clock.Lap(0);

  for (int i = 0; i < layout.nodes; ++i) nodes[static_cast<size_t>(i)].task = layout.Task(i);
  clock.Lap(1);

  // Order, then nodes and crossing tensors by task.
  const auto count = static_cast<size_t>(layout.nodes);
  std::vector<int> offsets(count + 1, 0), pending(count), order;
  for (const PlainNode& node : nodes) {
    for (int k = 0; k < node.inputs; ++k) ++offsets[static_cast<size_t>(node.input[k]) + 1];
  }
  for (size_t i = 0; i < count; ++i) offsets[i + 1] += offsets[i];
  std::vector<int> targets(static_cast<size_t>(offsets[count])), next(offsets);
  for (size_t i = 0; i < count; ++i) {
    pending[i] = nodes[i].inputs;
    for (int k = 0; k < nodes[i].inputs; ++k) {
      targets[static_cast<size_t>(next[static_cast<size_t>(nodes[i].input[k])]++)] =
          static_cast<int>(i);
    }
    if (pending[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (size_t head = 0; head < order.size(); ++head) {
    const auto source = static_cast<size_t>(order[head]);
    for (int t = offsets[source]; t < offsets[source + 1]; ++t) {
      const int target = targets[static_cast<size_t>(t)];
      if (--pending[static_cast<size_t>(target)] == 0) order.push_back(target);
    }
  }
  if (order.size() != count) Require(Internal("the floor's graph has a cycle"));
  struct Part {
    std::vector<int> nodes;
    std::vector<std::pair<int, int>> sends, receives;  // node, other task
  };
  std::vector<Part> parts(static_cast<size_t>(layout.tasks));
  for (int id : order)
    parts[static_cast<size_t>(nodes[static_cast<size_t>(id)].task)].nodes.push_back(id);
  std::vector<int> seen(count, -1);
  for (int task = 0; task < layout.tasks; ++task) {
    for (int id : parts[static_cast<size_t>(task)].nodes) {
      const PlainNode& node = nodes[static_cast<size_t>(id)];
      for (int k = 0; k < node.inputs; ++k) {
        const auto source = static_cast<size_t>(node.input[k]);
        if (nodes[source].task == task || seen[source] == task) continue;
        seen[source] = task;
        parts[static_cast<size_t>(task)].receives.emplace_back(node.input[k], task);
        parts[static_cast<size_t>(nodes[source].task)].sends.emplace_back(node.input[k], task);
        ++clock.crossings;
      }
    }
  }
  clock.Lap(2);

  std::vector<std::string> bytes(parts.size());
  std::string scratch;
  for (size_t task = 0; task < parts.size(); ++task) {
    const std::string device = DeviceText(static_cast<int>(task));
    bytes[task].reserve(parts[task].nodes.size() * 128);
    for (int id : parts[task].nodes) {
      PutPlainNode(nodes, nodes[static_cast<size_t>(id)], device, &scratch, &bytes[task]);
    }
    for (const auto* crossing : {&parts[task].sends, &parts[task].receives}) {
      for (const auto& [id, other] : *crossing) {
        PlainNode transfer;
        transfer.name = nodes[static_cast<size_t>(id)].name + "/_" + std::to_string(other);
        PutPlainNode(nodes, transfer, device, &scratch, &bytes[task]);
      }
    }
    clock.bytes += bytes[task].size();
  }
  clock.Lap(3);

  size_t names = 0;
  for (const std::string& text : bytes) {
    std::vector<std::string> found;
    const char *at = text.data(), *end = at + text.size();
    const auto varint = [](const char*& p) {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(*p++);
        value |= static_cast<uint64_t>(byte & 127) << shift;
        if (byte < 128) return value;
      }
    };
    while (at < end) {
      ++at;
      const uint64_t size = varint(at);
      for (const char *field = at, *stop = at + size; field < stop;) {
        const char tag = *field++;
        const uint64_t length = varint(field);
        if (tag >> 3 == 1) found.emplace_back(field, length);
        field += length;
      }
      at += size;
    }
    names += found.size();
  }
  if (names != count + 2 * clock.crossings)
    Require(Internal("the floor read something else than it wrote"));
  clock.Lap(kParse);
  return clock;
}

// ---- ours ----

void AddBenchOps(OpRegistry* registry) {
  registry->Add(OpDef("Source")
                    .Output("out: T")
                    .Attr("T: type = DT_FLOAT")
                    .Attr("transpose_a: bool = false")
                    .Shape(ScalarShape));
  registry->Add(OpDef("Combine")
                    .Input("a: T")
                    .Input("b: T")
                    .Output("out: T")
                    .Attr("transpose_a: bool = false")
                    .Attr("T: {float, double}")
                    .Shape(BroadcastShape));
}

StageClock RunOurs(const Layout& layout, const OpRegistry& registry) {
  std::vector<DeviceInfo> devices;
  std::vector<std::string> texts;
  for (int task = 0; task < layout.tasks; ++task) {
    texts.push_back(DeviceText(task));
    devices.push_back({.name = DeviceName::Parse(texts.back()).value()});
  }
  const auto attrs = std::make_shared<const Attrs>(Attrs{{"T", DT_FLOAT}, {"transpose_a", false}});

  StageClock clock;
  Graph graph(&registry);
  graph.Reserve(layout.nodes);
  char buffer[96];
  for (int i = 0; i < layout.nodes; ++i) {
    std::array<Endpoint, 2> inputs;
    NodeSpec spec{.name = layout.Name(i, buffer, sizeof buffer),
                  .op = "Source",
                  .attrs = attrs,
                  .device = texts[static_cast<size_t>(layout.Task(i))]};
    if (layout.Index(i) > 0) {
      inputs[0] = {graph.Find(graph.name(i - 1)), 0};
      inputs[1] = {graph.Find(graph.name(layout.Second(i))), 0};
      spec.op = "Combine";
      spec.inputs = inputs;
    }
    Require(graph.AddNode(spec).status());
  }
  clock.Lap(0);

  Require(Place(&graph, devices, {}, nullptr));
  clock.Lap(1);

  auto parts = PartitionGraph(
      graph, {.client = DeviceName::Parse("/job:client/replica:0/task:0/device:CPU:0").value()});
  Require(parts.status());
  clock.crossings = parts->edges.size();
  clock.Lap(2);

  std::vector<std::string> bytes;
  for (const Partition& part : parts->partitions) {
    bytes.push_back(SerializeGraph(part.graph));
    clock.bytes += bytes.back().size();
  }
  clock.Lap(3);

  int nodes = 0;
  for (const std::string& text : bytes) {
    auto graph_again = ParseGraph(text, &registry);
    Require(graph_again.status());
    nodes += graph_again->num_nodes();
  }
  if (nodes != layout.nodes + 2 * static_cast<int>(clock.crossings)) {
    Require(Internal("read " + std::to_string(nodes) + " nodes and " +
                     std::to_string(clock.crossings) + " crossings"));
  }
  clock.Lap(kParse);
  return clock;
}

int Main(int argc, char** argv) {
  const bench::Args args =
      bench::Args::Parse(argc, argv,
                         "graph_bench: building, placing, partitioning and serialising a graph of "
                         "100,000 nodes over 2 tasks, against a hand-written floor");
  if (!args.Wants("100000 nodes")) return 0;
  const Layout layout{100000, 2};
  OpRegistry registry;
  AddBenchOps(&registry);
  // A repetition gives the client's total, then the stages.
  const auto microseconds = [&](const StageClock& clock) {
    std::vector<double> values = {0};
    for (int stage = 0; stage < kStages; ++stage) {
      values.push_back(clock.seconds[static_cast<size_t>(stage)] / layout.nodes * 1e6);
      if (stage != kParse) values[0] += values.back();
    }
    return std::optional(values);
  };
  std::vector<bench::Subject> subjects = {{"100000 nodes", bench::Goal{6, bench::Goal::kMax}}};
  for (const char* stage : kStageNames) subjects.push_back({std::string("of it, ") + stage});
  subjects.back().name = "100000 nodes, read by the daemons";
  bench::Report report(args);
  report.Compare("graph", "us/node", subjects,
                 {"ours", [&] { return microseconds(RunOurs(layout, registry)); }},
                 {{"hand-written", [&] { return microseconds(RunFloor(layout)); }}},
                 args.Repetitions(10));
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
