// Random graphs that TensorFlow wrote (tests/campaigns/random_graphs.py), with its answers in them:
// on one device, with nodes on any of two, and with nodes on any of two tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "client/registries.h"
#include "client/session.h"
#include "executor/worker/server.h"
#include "graph/graph_file.h"
#include "graph/references.h"
#include "tests/conformance/ops/evaluator.h"
#include "transport/transports.h"

namespace monograph {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

fs::path Folder() {
  const char* other = std::getenv("MONOGRAPH_RANDOM_GRAPHS");
  return other != nullptr ? other : MG_RANDOM_GRAPHS;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Folder())) names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

// Tensors of these types stay on their task.
bool Stays(DType dtype) { return dtype == DT_RESOURCE || dtype == DT_VARIANT; }

// The nodes that a graph's author could have put anywhere: they are not colocated with any other,
// and have no part in state.
std::vector<NodeId> FreeNodes(const Graph& graph) {
  std::set<std::string, std::less<>> anchors;
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    const auto classes = graph.attrs(node).GetOr<std::vector<std::string>>("_class", {});
    for (const std::string& text : classes) anchors.insert(text.substr(std::strlen("loc:@")));
    bool free = classes.empty() && !graph.op(node).stateful();
    const auto inputs = graph.inputs(node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      free = free && !Stays(graph.dtype(inputs[i])) && !TakesReference(graph, node, i);
    }
    for (int i = 0; i < graph.num_outputs(node); ++i) free = free && !Stays(graph.dtype({node, i}));
    if (free) nodes.push_back(node);
  }
  std::erase_if(nodes, [&](NodeId node) { return anchors.contains(graph.name(node)); });
  return nodes;
}

void Scatter(Graph* graph, const std::vector<std::string>& devices, const std::string& seed) {
  std::seed_seq bits(seed.begin(), seed.end());
  std::mt19937 random(bits);
  for (const NodeId node : FreeNodes(*graph)) {
    graph->SetDevice(node, graph->InternDevice(devices[random() % devices.size()]).value());
  }
}

class RandomGraph : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    for (int task = 0; task < 2; ++task) {
      Registries& registries = DefaultRegistries();
      ServerOptions options;
      options.worker.task = {.job = "worker", .replica = 0, .task = task};
      options.worker.ops = &registries.ops;
      options.worker.kernels = &registries.kernels;
      options.worker.make_transport = ChooseTransport({}, {.loopback = true}).value();
      daemons.push_back(Server::Start(std::move(options)).value());
    }
  }
  static void TearDownTestSuite() { daemons.clear(); }

  Graph Read(const std::vector<std::string>& devices) {
    Result<Graph> graph = ReadGraph(Folder() / (GetParam() + ".pb"), &DefaultRegistries().ops);
    EXPECT_TRUE(graph.ok()) << graph.status();
    Scatter(&*graph, devices, GetParam());
    return std::move(graph).value();
  }

  static void Compare(Session& session, const Graph& graph) {
    const auto has = [&](const std::string& name) { return graph.Find(name) >= 0; };
    const RunOptions limit{.timeout = 60s};
    const auto initialized = session.RunByName({}, {}, {"initialize"}, limit);
    ASSERT_TRUE(initialized.ok()) << initialized.status();
    for (int step = 0; has("step" + std::to_string(step) + "/run"); ++step) {
      const std::string prefix = "step" + std::to_string(step) + "/";
      std::vector<std::string> fetches, expected;
      for (int i = 0; has(prefix + std::to_string(i) + "/fetch"); ++i) {
        const std::string fetch = prefix + std::to_string(i);
        fetches.push_back(fetch + "/fetch");
        expected.insert(expected.end(), {fetch + "/expect", fetch + "/tolerance"});
      }
      const auto got = session.RunByName({}, fetches, {prefix + "run"}, limit);
      ASSERT_TRUE(got.ok()) << prefix << ": " << got.status();
      const auto wanted = session.RunByName({}, expected, {}, limit);
      ASSERT_TRUE(wanted.ok()) << wanted.status();
      for (size_t i = 0; i < fetches.size(); ++i) {
        const double tolerance = (*wanted)[2 * i + 1].scalar<double>();
        EXPECT_EQ(optest::Difference((*got)[i], (*wanted)[2 * i], 0, tolerance), "")
            << fetches[i] << " of " << graph.TensorName(graph.inputs(graph.Find(fetches[i]))[0]);
      }
    }
  }

  static std::vector<std::unique_ptr<Server>> daemons;
};
std::vector<std::unique_ptr<Server>> RandomGraph::daemons;

INSTANTIATE_TEST_SUITE_P(All, RandomGraph, ::testing::ValuesIn(Names()),
                         [](const auto& graph) { return graph.param; });

TEST_P(RandomGraph, HasTensorFlowsAnswersOnOneDevice) {
  const Graph graph = Read({""});
  Compare(*Session::Local(graph).value(), graph);
}

TEST_P(RandomGraph, HasThemWithNodesOnAnyOfTwoDevices) {
  const Graph graph = Read({"/device:CPU:0", "/device:CPU:1"});
  SessionOptions options;
  options.device_count = {{kCpu, 2}};
  Compare(*Session::Local(graph, options).value(), graph);
}

TEST_P(RandomGraph, HasThemWithNodesOnAnyOfTwoTasks) {
  const Graph graph = Read({"/job:worker/task:0", "/job:worker/task:1"});
  const ClusterSpec cluster =
      ClusterSpec::FromHosts({{"worker", daemons[0]->address() + "," + daemons[1]->address()}})
          .value();
  const auto session = Session::Connect(cluster, graph).value();
  Compare(*session, graph);
  EXPECT_TRUE(session->Reset().ok());  // the next graph's variables have the same names
}

}  // namespace
}  // namespace monograph
