#include "tools/graph_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "client/registries.h"
#include "graph/graph_file.h"
#include "tools/command_table.h"
#include "tools/flags.h"
#include "tools/graph_report.h"
#include "tools/op_table.h"
#include "tools/session_flags.h"

namespace monograph {
namespace {

using Arguments = std::vector<std::string>;

int Check(const Arguments& arguments) {
  std::vector<std::string> graph;
  Flags flags("monograph graph check",
              "Says what of a GraphDef (.pb or .pbtxt), functions included, cannot run here: ops "
              "that are missing, attributes and types\n"
              "that no kernel for a CPU takes; how often, and where. Exits with 0 if all is there, "
              "with 1 if not, with 2 if the file cannot be read.\n\n"
              "Example:\n  monograph graph check graph.pb\n");
  flags.AddPositional("GRAPH", &graph, 1, "the GraphDef, .pb or .pbtxt");
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  const Result<GraphReport> report = ReportGraph(graph[0]);
  if (!report.ok()) {
    flags.Exit(report.status());
    return 2;
  }
  std::fputs(report->text.c_str(), stdout);
  return report->complete ? 0 : 1;
}

Status ExportPartitions(const Graph& graph, const SessionFlags& flags,
                        const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches,
                        const std::vector<std::string>& targets, const std::filesystem::path& out) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, flags.Cluster());
  MG_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, flags.Open(cluster, graph));
  MG_ASSIGN_OR_RETURN(auto parts, session->PartitionsByName(feeds, fetches, targets));
  for (const auto& [task, part] : parts) {
    // "out.pb" and "/job:worker/replica:0/task:1" give "out.worker_1.pb".
    MG_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(task));
    std::filesystem::path path = out;
    path.replace_extension("." + name.job + "_" + std::to_string(name.task) +
                           out.extension().string());
    MG_RETURN_IF_ERROR(WriteGraph(part, path.string()));
    std::printf("%s: %d nodes of %s\n", path.c_str(), part.num_nodes(), Printable(task).c_str());
  }
  return session->Close();
}

int Export(const Arguments& arguments) {
  std::vector<std::string> path, feeds, fetches, targets;
  std::string out;
  bool partitions = false;
  SessionFlags cluster;
  Flags flags("monograph graph export",
              "Writes a graph in another format: .pb, .pbtxt or .dot, whole or cut into the parts "
              "of a signature.\n\n"
              "Examples:\n"
              "  monograph graph export graph.pb --out=graph.dot\n"
              "  monograph graph export graph.pb --out=part.pbtxt --partitions \\\n"
              "      --fetches=loss:0 --targets=train --cluster=cluster.json\n");
  flags.AddPositional("GRAPH", &path, 1, "the GraphDef, .pb or .pbtxt");
  flags.AddOutputFile("out", &out, "file to write; its ending says the format");
  flags.Add("partitions", &partitions, "one file per task, named after it");
  flags.Add("feeds", &feeds, "fed tensors, separated by commas");
  flags.Add("fetches", &fetches, "fetched tensors");
  flags.Add("targets", &targets, "operations that run");
  cluster.AddClusterTo(&flags);
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  if (out.empty()) return flags.Refuse(InvalidArgument("--out is needed"));
  if (partitions && fetches.empty() && targets.empty()) {
    return flags.Refuse(
        InvalidArgument("--partitions needs to know what runs: --fetches or --targets"));
  }
  Result<Graph> graph = ReadGraph(path[0], &DefaultRegistries().ops);
  if (!graph.ok()) return flags.Exit(graph.status());
  return flags.Exit(partitions
                        ? ExportPartitions(graph.value(), cluster, feeds, fetches, targets, out)
                        : WriteGraph(graph.value(), out));
}

}  // namespace

int OpsCommand(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  Flags flags(
      "monograph ops",
      "Lists all ops by family, as a table in Markdown: types, devices, gradient, ours or "
      "borrowed. Those that TensorFlow lends are in it if MONOGRAPH_TENSORFLOW names one. Of ops "
      "that are named, the definition, the types that they compute on a CPU, and whether they have "
      "a gradient.\n\n"
      "Examples:\n  monograph ops\n  monograph ops MatMul Conv2D\n");
  flags.AddPositional("[OP...]", &names, -1, "ops to describe");
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  if (names.empty()) std::fputs(OpTable().c_str(), stdout);
  for (const std::string& name : names) {
    const Result<std::string> text = DescribeOp(name);
    if (!text.ok()) return flags.Exit(text.status());
    std::fputs(text->c_str(), stdout);
  }
  return 0;
}

int GraphCommand(const std::vector<std::string>& arguments) {
  static const CommandTable words{
      .program = "monograph graph",
      .noun = "word",
      .usage = "Usage: monograph graph WORD ... ; each has --help.\n\nWords:\n",
      .missing = "say what: check, export or ops",
      .width = 8,
      .commands = {
          {"check", {Check, "what of a GraphDef cannot run here"}},
          {"export", {Export, "write a graph as .pb, .pbtxt or .dot, whole or per task"}},
          {"ops", {OpsCommand, "list all ops, or describe some"}},
      }};
  return words.Run(arguments);
}

}  // namespace monograph
