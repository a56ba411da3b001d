// Every op by name: whether it has a kernel for GPUs, or a reason; and on a GPU, the reference
// cases through a session. Where there is no GPU these say why and are skipped.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "client/registries.h"
#include "client/session.h"
#include "executor/gpu/plugin.h"
#include "graph/attr_proto.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/conformance/ops/golden.h"
#include "tests/conformance/ops/gpu_reasons.h"
#include "tests/conformance/ops/update_cases.h"
#include "tools/op_table.h"

namespace monograph::optest {
namespace {

constexpr char kCpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";

// What a GPU may differ from the reference by, beyond what the case itself allows: sums in another
// order, and functions of the device's own library.
struct Tolerance {
  double rtol, atol;
};
Tolerance ToleranceOf(const OpCase& op_case, DType dtype) {
  const double unit = dtype == DT_DOUBLE     ? 1e-12
                      : dtype == DT_HALF     ? 2e-3
                      : dtype == DT_BFLOAT16 ? 1.6e-2
                                             : 1e-5;
  return {std::max(static_cast<double>(op_case.rtol()), unit),
          std::max(static_cast<double>(op_case.atol()), unit)};
}

std::vector<std::string> OpsWithCases() {
  std::set<std::string> names;
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) names.insert(op_case.node().op());
  }
  return {names.begin(), names.end()};
}

using NamedFeeds = std::vector<std::pair<std::string, Tensor>>;

// The case's node on the GPU, and placeholders of its inputs on the CPU.
Result<Graph> GraphOf(const OpCase& op_case, NamedFeeds* feeds) {
  GraphDef def;
  for (int i = 0; i < op_case.inputs_size(); ++i) {
    MG_ASSIGN_OR_RETURN(Tensor value, TensorFromProto(op_case.inputs(i)));
    NodeDef* node = def.add_node();
    node->set_name("in" + std::to_string(i));
    node->set_op("Placeholder");
    node->set_device(kCpu0);
    (*node->mutable_attr())["dtype"].set_type(op_case.inputs(i).dtype());
    (*node->mutable_attr())["shape"].mutable_shape()->set_unknown_rank(true);
    feeds->emplace_back(node->name(), std::move(value));
  }
  *def.add_node() = op_case.node();
  def.mutable_node(def.node_size() - 1)->set_device(kGpu0);
  return GraphFromDef(def, &DefaultRegistries().ops, {.keep_unknown_ops = false});
}

Result<std::vector<Tensor>> RunOnGpu(const OpCase& op_case, const Graph& graph,
                                     const NamedFeeds& feeds, const GpuOptions& gpu) {
  std::vector<std::string> fetches;
  for (int i = 0; i < op_case.outputs_size(); ++i)
    fetches.push_back(op_case.node().name() + ":" + std::to_string(i));
  SessionOptions options;
  options.gpu = gpu;
  options.gpu.allow_growth = true;
  MG_ASSIGN_OR_RETURN(const auto session, Session::Local(graph, options));
  const std::vector<std::string> targets{op_case.node().name()};  // it may have no output
  // Twice: the second step may be a replay of the first.
  MG_RETURN_IF_ERROR(session->RunByName(feeds, fetches, targets).status());
  return session->RunByName(feeds, fetches, targets);
}

// The plug-in's table of kernels; reading it needs no driver. nullptr without CUDA's libraries.
const KernelRegistry* GpuKernels() {
  static const KernelRegistry* const kernels = []() -> const KernelRegistry* {
    if (const KernelRegistry* opened = CudaKernels()) return opened;
    void* library = dlopen(MG_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const std::string why = dlerror();
      // CUDA's own libraries may be absent where the bundle runs; nothing else may.
      const bool absent = why.starts_with("libcublasLt.so") || why.starts_with("libcudnn.so");
      EXPECT_TRUE(absent) << why;
      return nullptr;
    }
    const auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(library, kCudaPluginEntry));
    auto* registry = new KernelRegistry;
    entry(LogLevel::kWarning)->register_kernels(registry);
    return registry;
  }();
  return kernels;
}

TEST(GpuCoverage, EveryOpHasAKernelForGpusOrAReason) {
  if (std::string_view(MG_CUDA_PLUGIN).empty()) GTEST_SKIP() << "this build is without CUDA";
  if (GpuKernels() == nullptr) GTEST_SKIP() << "CUDA's libraries are not here";
  const OpRegistry structural;
  for (const OpDef* op : Ops().All()) {
    // What works by reference becomes what works by handle.
    if (structural.Find(op->name()) != nullptr || op->handle_form() != nullptr) continue;
    if (!op->added_as().empty()) continue;
    const bool has = GpuKernels()->HasOp(op->name(), kGpu);
    const bool excused = WithoutGpuKernel().contains(op->name());
    EXPECT_TRUE(has || excused) << op->name() << " has no kernel for GPUs and no reason why";
    EXPECT_FALSE(has && excused) << op->name() << " has a kernel; its excuse is out of date";
  }
}

// docs/ops.md is made of it, also where no library of CUDA's is.
TEST(GpuCoverage, TheTableOfOpsHasTheTypesOfThePlugInsKernels) {
  if (std::string_view(MG_CUDA_PLUGIN).empty()) GTEST_SKIP() << "this build is without CUDA";
  if (GpuKernels() == nullptr) GTEST_SKIP() << "CUDA's libraries are not here";
  for (const OpDef* op : Ops().All()) {
    if (op->name().starts_with('_') || !op->added_as().empty()) continue;
    const std::string computed_by = op->handle_form() ? op->handle_form()->op : op->name();
    const bool has = GpuKernels()->HasOp(computed_by, kGpu);
    const std::string types = has ? KernelTypes(*op, *GpuKernels(), kGpu) : "";
    const char* const listed = GpuTypes(op->name());
    EXPECT_EQ(listed == nullptr ? "" : listed, types)
        << "tools/gpu_types.cc: {\"" << op->name() << "\", \"" << types << "\"},";
  }
}

TEST(GpuCoverage, EveryKernelIsOfADefinedOpAndNamesItsArguments) {
  if (std::string_view(MG_CUDA_PLUGIN).empty()) GTEST_SKIP() << "this build is without CUDA";
  if (GpuKernels() == nullptr) GTEST_SKIP() << "CUDA's libraries are not here";
  for (const KernelRegistry::Entry* entry : GpuKernels()->All()) {
    EXPECT_EQ(entry->def.device, kGpu) << entry->def.op;
    const OpDef* op = Ops().Find(entry->def.op);
    ASSERT_NE(op, nullptr) << entry->def.op;
    for (const auto& [attr, dtype] : entry->def.types)
      EXPECT_NE(op->FindAttr(attr), nullptr) << entry->def.op << " has no attribute " << attr;
    for (const std::string& host : entry->def.host_args) {
      const auto named = [&](const ArgDef& arg) { return arg.name == host; };
      EXPECT_TRUE(std::any_of(op->inputs().begin(), op->inputs().end(), named) ||
                  std::any_of(op->outputs().begin(), op->outputs().end(), named))
          << entry->def.op << " has no argument " << host;
    }
  }
}

TEST(GpuCoverage, EveryKernelForGpusIsComparedWithTheCpusByName) {
  if (std::string_view(MG_CUDA_PLUGIN).empty()) GTEST_SKIP() << "this build is without CUDA";
  if (GpuKernels() == nullptr) GTEST_SKIP() << "CUDA's libraries are not here";
  std::set<std::string> compared;
  for (const std::string& op : OpsWithCases()) compared.insert(op);
  for (const UpdateCase& update : kUpdateCases) compared.insert(update.op);
  const OpRegistry structural;
  for (const OpDef* op : Ops().All()) {
    if (structural.Find(op->name()) != nullptr || !GpuKernels()->HasOp(op->name(), kGpu)) continue;
    const bool has = compared.contains(op->name()),
               elsewhere = ComparedOnGpuBy().contains(op->name());
    EXPECT_TRUE(has || elsewhere) << op->name() << ": nothing compares its kernel for GPUs";
    EXPECT_FALSE(has && elsewhere) << op->name() << " has a case; its reason is out of date";
  }
}

// The reference cases of an op on the GPU. How many there are of types that it has a kernel for.
int CompareWithReference(const std::string& op, const GpuOptions& gpu) {
  int checked = 0;
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) {
      // A wrong index does not fail a step on a GPU; other errors are the simulated grid's to test.
      if (op_case.node().op() != op || !op_case.error().empty()) continue;
      SCOPED_TRACE(family.file + ": " + op_case.name());
      NamedFeeds feeds;
      const auto graph = GraphOf(op_case, &feeds);
      EXPECT_TRUE(graph.ok()) << graph.status();
      if (!graph.ok()) return checked;
      const NodeId node = graph->Find(op_case.node().name());
      const std::string& runs = graph->op(node).name();  // another op, if `op` is its other name
      if (!CudaKernels()->Find(runs, kGpu, graph->attrs(node)).ok()) continue;  // not for this type
      const auto outputs = RunOnGpu(op_case, *graph, feeds, gpu);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      if (!outputs.ok()) return checked;
      for (size_t i = 0; i < outputs->size(); ++i) {
        const Tensor expected = TensorFromProto(op_case.outputs(static_cast<int>(i))).value();
        const Tolerance tolerance = ToleranceOf(op_case, expected.dtype());
        EXPECT_EQ(Difference((*outputs)[i], expected, tolerance.rtol, tolerance.atol), "")
            << "output " << i;
      }
      ++checked;
    }
  }
  return checked;
}

class GpuOp : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuOp, AgreesWithTheReference) {
  if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
  const auto reason = WithoutGpuKernel().find(GetParam());
  if (reason != WithoutGpuKernel().end()) GTEST_SKIP() << reason->second;
  EXPECT_GT(CompareWithReference(GetParam(), {}), 0)
      << "no case of a type that the GPU has a kernel for";
}

// Layers that cuDNN computes, too, by each of the ways that there are (ops/gpu/layer.h).
class GpuLayer : public ::testing::TestWithParam<const char*> {
 protected:
  ~GpuLayer() override { std::remove(gpu_.algorithm_cache.c_str()); }
  void SetUp() override {
    if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
    gpu_.deterministic = false;
    static int files = 0;
    gpu_.algorithm_cache = ::testing::TempDir() + "gpu_layers_" + std::to_string(getpid()) + "_" +
                           std::to_string(files++);
  }
  // For all shapes of all layers.
  void Force(const std::string& way) {
    std::ofstream file(gpu_.algorithm_cache);
    for (const char* family : {"pool", "softmax", "norm"})
      file << family << " 1\t*\t" << way << "\n";
  }
  // Shapes of the op whose ways were timed.
  int Searched(const std::string& op) const {
    std::ifstream file(gpu_.algorithm_cache);
    int count = 0;
    for (std::string line; std::getline(file, line);)
      count += line.find(" " + op + " ") != std::string::npos;
    return count;
  }

  GpuOptions gpu_;
};

TEST_P(GpuLayer, AgreesWithTheReferenceWhenItsFastestWayIsTaken) {
  EXPECT_GT(CompareWithReference(GetParam(), gpu_), 0);
}

TEST_P(GpuLayer, AgreesWithTheReferenceByOurOwnKernel) {
  Force("own");
  EXPECT_GT(CompareWithReference(GetParam(), gpu_), 0);
}

TEST_P(GpuLayer, AgreesWithTheReferenceByCudnn) {
  Force("cudnn");
  EXPECT_GT(CompareWithReference(GetParam(), gpu_), 0);
}

TEST_P(GpuLayer, AgreesWithTheReferenceByCudnnsOtherWays) {
  for (const char* way : {"cudnn-atomic", "cudnn-channel", "cudnn-persistent"}) {
    SCOPED_TRACE(way);
    Force(way);
    EXPECT_GT(CompareWithReference(GetParam(), gpu_), 0);
    std::remove(gpu_.algorithm_cache.c_str());
    gpu_.algorithm_cache += "_";
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuLayer,
                         ::testing::Values("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad",
                                           "Softmax", "LogSoftmax", "FusedBatchNormV3",
                                           "FusedBatchNormGradV3"),
                         [](const auto& op) { return std::string(op.param); });

using GpuLayerSearch = GpuLayer;

TEST_P(GpuLayerSearch, TimesAShapeOnceAndNoneWhoseWayIsGiven) {
  CompareWithReference(GetParam(), gpu_);
  const int shapes = Searched(GetParam());
  EXPECT_GT(shapes, 0);
  CompareWithReference(GetParam(), gpu_);
  EXPECT_EQ(Searched(GetParam()), shapes);
  for (const char* way : {"own", "cudnn"}) {
    gpu_.algorithm_cache += "_";
    Force(way);
    CompareWithReference(GetParam(), gpu_);
    EXPECT_EQ(Searched(GetParam()), 0) << way;
    std::remove(gpu_.algorithm_cache.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuLayerSearch, ::testing::Values("MaxPool", "Softmax"),
                         [](const auto& op) { return std::string(op.param); });

std::string TestName(const ::testing::TestParamInfo<std::string>& op) {
  std::string name = op.param;
  std::replace(name.begin(), name.end(), '_', 'X');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Ops, GpuOp, ::testing::ValuesIn(OpsWithCases()), TestName);

}  // namespace
}  // namespace monograph::optest
