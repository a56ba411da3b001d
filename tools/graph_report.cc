// A report gathers what is lacking from two sides: CheckGraph looks at definitions, and each node
// that passes there is offered to the CPU's kernels, which know types, and refuse some attributes
// only when they are made. Equal problems become one row.
#include "tools/graph_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "client/registries.h"
#include "executor/node_construction.h"
#include "graph/function.h"
#include "graph/graph_check.h"
#include "graph/references.h"
#include "tools/columns.h"

namespace monograph {
namespace {

constexpr const char* kCpu0 = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr size_t kShownNodes = 3;

std::string Count(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "T=complex64, out_type=string": the node's values of the attributes that kernels distinguish.
std::string Types(const std::string& op, const Attrs& attrs) {
  std::set<std::string> names;
  for (const KernelRegistry::Entry* entry : DefaultRegistries().kernels.All()) {
    if (entry->def.op != op) continue;
    for (const auto& [name, dtype] : entry->def.types) names.insert(name);
  }
  std::string text;
  for (const std::string& name : names) {
    const AttrValue* value = attrs.Find(name);
    if (value != nullptr) text += (text.empty() ? "" : ", ") + name + "=" + AttrToString(*value);
  }
  return text;
}

// Why the CPU cannot run a node whose op is known; "" if nothing speaks against it.
std::string KernelProblem(const Graph& graph, NodeId id) {
  const KernelRegistry& kernels = DefaultRegistries().kernels;
  const HandleForm* form = graph.op(id).handle_form();  // of references that will run
  const std::string& op = form != nullptr ? form->op : graph.op(id).name();
  if (!kernels.HasOp(op, kCpu)) return "";  // calls, and ops that only passes add
  const Attrs attrs = form != nullptr ? HandleFormAttrs(graph, id) : graph.attrs(id);
  const auto entry = kernels.Find(op, kCpu, attrs);
  if (!entry.ok()) return "no kernel for " + Types(op, attrs);
  if (form != nullptr) return "";
  const auto inputs = graph.inputs(id);
  const bool typed = std::none_of(inputs.begin(), inputs.end(), [&](const Endpoint& input) {
    return graph.dtype(input) == DT_INVALID;
  });
  if (!typed) return "";
  // Other failures come from what a kernel finds only where it runs, as the members of a
  // collective.
  const auto kernel = (*entry)->factory(NodeConstruction(graph, id, kCpu0));
  return kernel.status().code() == Code::kUnimplemented ? kernel.status().message() : "";
}

void AddKernelProblems(const Graph& graph, const std::string& function,
                       std::vector<NodeProblem>* problems) {
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!graph.op(id).known()) continue;
    if (std::string why = KernelProblem(graph, id); !why.empty())
      problems->push_back(
          {graph.op(id).name(), std::move(why), std::string(graph.name(id)), function});
  }
}

// One row for each op and reason, the most frequent first.
std::string Table(const std::vector<NodeProblem>& problems) {
  struct Row {
    std::string op, why, where;
    size_t count = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const NodeProblem& problem : problems) {
    Row& row = rows[{problem.op, problem.why}];
    row.op = problem.op;
    row.why = problem.why;
    if (row.count++ >= kShownNodes) continue;
    row.where += (row.where.empty() ? "" : ", ") + problem.node;
    if (!problem.function.empty()) row.where += " (function " + problem.function + ")";
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Row& a, const Row& b) { return a.count > b.count; });
  std::vector<std::vector<std::string>> words = {{"op", "nodes", "what is missing", "where"}};
  for (const Row& row : sorted) {
    const size_t more = row.count - std::min(row.count, kShownNodes);
    words.push_back({Printable(row.op, Lines::kOne), std::to_string(row.count),
                     Printable(row.why, Lines::kOne),
                     Printable(row.where, Lines::kOne) +
                         (more > 0 ? ", and " + std::to_string(more) + " more" : "")});
  }
  return AlignColumns(words, 4);
}

}  // namespace

Result<GraphReport> ReportGraph(const std::string& path) {
  MG_ASSIGN_OR_RETURN(GraphCheck check, CheckGraph(path, &DefaultRegistries().ops));
  std::vector<NodeProblem>& problems = check.problems;
  if (check.graph.ok()) {
    AddKernelProblems(*check.graph, "", &problems);
    for (const auto& [name, function] : check.graph->functions().all())
      AddKernelProblems(*function.body, name, &problems);
  }
  const Status& load = check.graph.status();
  // Calls without end fail when they are replaced by what they run.
  const Status calls = load.ok() ? InlineFunctions(*check.graph).status() : Status();
  if (problems.empty() && !load.ok() && load.code() != Code::kUnimplemented)
    return load.WithContext("graph file '" + path + "'");
  const std::string size =
      Count(static_cast<size_t>(check.nodes), "node") + ", " + Count(check.ops.size(), "op");
  if (problems.empty() && load.ok() && calls.ok())
    return GraphReport{path + ": all is there (" + size + ")\n", true};
  const std::string unread =
      !load.ok()    ? "The graph does not load: " + Printable(load.message(), Lines::kOne) + "\n"
      : !calls.ok() ? "Its calls cannot run: " + Printable(calls.message(), Lines::kOne) + "\n"
                    : "";
  if (problems.empty()) return GraphReport{path + ": " + size + "\n" + unread, false};
  std::set<std::string> ops;
  for (const NodeProblem& problem : problems) ops.insert(problem.op);
  return GraphReport{path + ": " + Count(problems.size(), "node") + " of " +
                         Count(ops.size(), "op") + " cannot run here (of " + size + ")\n\n" +
                         Table(problems) + "\n" + unread,
                     false};
}

}  // namespace monograph
