// A checkpoint of variables that lie on several tasks, restored onto another number of them.
#include <numeric>

#include "client/collections.h"
#include "client/device_setter.h"
#include "client/registries.h"
#include "client/saver.h"
#include "client/variable_scope.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// A table in as many parts as there are parameter servers, and a vector beside it.
struct Program {
  explicit Program(const ClusterSpec& cluster) : root(&graph) {
    const Scope placed = root.WithDeviceFunction(
        ReplicaDeviceSetter(cluster, {.worker_device = "/job:worker/task:0"}).value());
    const VariableScope variables(placed, &collections);
    table = variables
                .Get("table", {7, 2},
                     {.initializer = ZerosInitializer(),
                      .partitioner = FixedSizePartitioner(cluster.num_tasks("ps"))})
                .value;
    vector = variables.Get("vector", {3}, {.initializer = ZerosInitializer()}).value;
    std::vector<Operation> initializers;
    for (const ModelVariable& variable : GlobalVariables(collections)) {
      initializers.push_back(variable.initializer);
      handles.push_back(variable.handle);
    }
    init = Group(root, initializers);
    saver = std::make_unique<Saver>(root);
    EXPECT_TRUE(root.ok()) << root.status();
  }
  Graph graph = NewGraph();
  Scope root;
  Collections collections;
  Output table, vector;
  std::vector<Output> handles;
  Operation init;
  std::unique_ptr<Saver> saver;
};

TEST(SaverOnCluster, VariablesOfThreeParameterServersAreRestoredOntoOneOfAnotherCluster) {
  const TemporaryFolder folder;
  std::vector<float> numbers(14);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  std::string path;
  {
    TestCluster cluster({.ps = 3, .workers = 1});
    Program program(cluster.spec());
    // Each part gets its rows of the numbers.
    std::vector<Operation> assigns;
    int64_t row = 0;
    for (size_t part = 0; part < 3; ++part) {
      const int64_t rows = part == 0 ? 3 : 2;
      const std::vector<float> mine(numbers.begin() + row * 2, numbers.begin() + (row + rows) * 2);
      assigns.push_back(
          AssignVariable(program.root, program.handles[part],
                         Const(program.root, Tensor::FromValues<float>({rows, 2}, mine))));
      row += rows;
    }
    auto session = cluster.Connect(program.graph);
    ASSERT_TRUE(session->Run({}, {}, {program.init}).ok());
    const Status assigned = session->Run({}, {}, assigns).status();
    ASSERT_TRUE(assigned.ok()) << assigned;
    const Result<std::string> saved =
        program.saver->Save(session.get(), folder.path() + "/model.ckpt", 5);
    ASSERT_TRUE(saved.ok()) << saved.status();
    path = *saved;
  }
  TestCluster cluster({.ps = 1, .workers = 1});
  Program program(cluster.spec());
  auto session = cluster.Connect(program.graph);
  const Status restored = program.saver->Restore(session.get(), path);
  ASSERT_TRUE(restored.ok()) << restored;
  const auto values = session->Run({}, {program.table, program.vector});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(BitEqual(values->at(0), Tensor::FromValues<float>({7, 2}, numbers)));
  EXPECT_TRUE(BitEqual(values->at(1), Tensor::Vector<float>({0, 0, 0})));
}

}  // namespace
}  // namespace monograph
