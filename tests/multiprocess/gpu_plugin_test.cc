// GPUs come from a library that programs open at run time: what is listed, why there is none, and
// that options and placement reach it. A stand-in for the driver and for the library
// (tests/gpu/fake) makes each case on any machine.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "client/registries.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "tests/multiprocess/command.h"
#include "tests/multiprocess/mnist_jobs.h"

namespace monograph {
namespace {

Ran Devices() { return RunMonograph({"devices"}); }

void ExpectText(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

// Every program that a test starts finds a driver that answers nothing, whatever this machine has.
class GpuPlugin : public ::testing::Test {
 protected:
  GpuPlugin() {
    const std::string before = libraries_ == nullptr ? "" : ":" + std::string(libraries_);
    setenv("LD_LIBRARY_PATH", (MG_FAKES + before).c_str(), 1);
    Use(kPlugin, 2);
  }
  static void Use(const std::string& plugin, int gpus = 0) {
    setenv("MONOGRAPH_CUDA_PLUGIN", plugin.c_str(), 1);
    setenv("FAKE_GPUS", std::to_string(gpus).c_str(), 1);
  }

  static constexpr char kPlugin[] = MG_FAKES "/libfake_plugin.so";
  static constexpr char kLosable[] = MG_FAKES "/libfake_plugin_losable.so";
  static constexpr char kComputing[] = MG_FAKES "/libfake_plugin_computing.so";
  static constexpr char kStale[] = MG_FAKES "/libfake_plugin_stale.so";
  static constexpr char kNeedy[] = MG_FAKES "/libfake_plugin_needy.so";
  static constexpr char kDriver[] = MG_FAKES "/libcuda.so.1";

 private:
  static inline const char* const libraries_ = [] {
    const char* text = getenv("LD_LIBRARY_PATH");
    return text == nullptr ? nullptr : strdup(text);
  }();
};

TEST_F(GpuPlugin, DevicesListsCpuAndGpusWithWhatTheyAre) {
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output,
             {"/device:CPU:0  ", " cores, ", "GiB\n",
              "/device:GPU:0  Fake 0, 8.0 GiB, compute capability 9.0, 4 multiprocessors, PCI "
              "0000:00:00.0, CUDA 13.0 (driver 13.1), cuDNN 9.19.0, NCCL 2.28.9\n",
              "/device:GPU:1  Fake 1"});
  EXPECT_EQ(ran.output.find("no GPU"), std::string::npos) << ran.output;
}

TEST_F(GpuPlugin, DevicesSaysThatTheDriverFindsNone) {
  Use(kPlugin, 0);
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"no GPU: the driver finds no GPU"});
}

TEST_F(GpuPlugin, DevicesSaysWhatCudaSays) {
  Use(kPlugin, -1);
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"no GPU: CUDA does not start: so the test says"});
}

TEST_F(GpuPlugin, DevicesSaysThatTheUserWantsNone) {
  Use("none");
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"no GPU: the environment's MONOGRAPH_CUDA_PLUGIN is 'none'"});
}

TEST_F(GpuPlugin, DevicesSaysThatThePluginIsMissingAndWhereItWasLookedFor) {
  Use("/nowhere/libmonograph_cuda.so");
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"no GPU: the CUDA plug-in is missing", "/nowhere/libmonograph_cuda.so"});
}

TEST_F(GpuPlugin, DevicesNamesTheLibraryThatThePluginLacks) {
  Use(kNeedy);
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  ExpectText(ran.output, {"no GPU: ", "cannot be loaded: libfake_missing.so",
                          "LD_LIBRARY_PATH can name the folder"});
}

TEST_F(GpuPlugin, DevicesSaysThatThereIsNoDriver) {
  unsetenv("LD_LIBRARY_PATH");
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  if (ran.output.find("/device:GPU:0  Fake 0") != std::string::npos)
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  ExpectText(ran.output, {"no GPU: this machine has no NVIDIA driver (libcuda.so.1: "});
}

TEST_F(GpuPlugin, WithNothingNamedTheReasonIsTheBuildOrTheDriver) {
  Use("");
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 0) << ran.error;
  if (!MG_HAVE_CUDA) {
    ExpectText(ran.output, {"no GPU: this program was built without CUDA"});
  } else if (ran.output.find("cannot be loaded: libcu") != std::string::npos) {
    GTEST_SKIP() << "this machine lacks a library of CUDA: " << ran.output;
  } else {  // the real plug-in is asked, and it notices that the driver answers nothing
    ExpectText(ran.output, {"no GPU: the NVIDIA driver"});
  }
}

TEST_F(GpuPlugin, APluginOfAnotherBuildIsAnErrorAndNotPassedOver) {
  Use(kStale, 2);
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"is of another build (long ago)", "build and install both together"});
}

TEST_F(GpuPlugin, ALibraryThatIsNoPluginIsAnError) {
  Use(kDriver);
  const Ran ran = Devices();
  EXPECT_EQ(ran.code, 1);
  ExpectText(ran.error, {"is no CUDA plug-in of Monograph"});
}

TEST_F(GpuPlugin, TheOptionsOfADaemonReachItsGpus) {
  TestCluster cluster({.ps = 1,
                       .workers = 1,
                       .flags = {"--gpu_devices=1", "--gpu_memory_fraction=0.25", "--allow_growth",
                                 "--visible_device_list=1,0", "--allow_tf32", "--nocuda_graphs",
                                 "--programmatic_dependent_launch", "--nodeterministic",
                                 "--algorithm_cache=found.txt"}});
  Graph graph = NewGraph();
  auto session = cluster.Connect(graph);
  const wire::StatusResponse status = cluster.StatusOf("worker", 0);
  ASSERT_EQ(status.devices_size(), 2);
  EXPECT_EQ(status.devices(1).name(), "/job:worker/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(status.devices(1).description(),
            "list=1,0 fraction=0.250000 growth tf32 programmatic cache=found.txt loading=EAGER");
}

TEST_F(GpuPlugin, TheDriverIsOpenedSoThatItLoadsKernelsAtOnceUnlessTheUserSaysOtherwise) {
  const auto loading = [] {
    TestCluster cluster({.ps = 0, .workers = 1});
    const std::string text = cluster.StatusOf("worker", 0).devices(1).description();
    return text.substr(text.rfind(' ') + 1);
  };
  unsetenv("CUDA_MODULE_LOADING");
  EXPECT_EQ(loading(), "loading=EAGER");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  EXPECT_EQ(loading(), "loading=LAZY");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_F(GpuPlugin, TheClientPlacesByWhatTheDaemonsGpusCompute) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--virtual_gpus=2x1024;4096"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Scope gpu = root.WithDevice("/job:worker/task:0/device:GPU:1");
  const Output real = Placeholder(root, DT_FLOAT), whole = Placeholder(root, DT_INT32);
  const Output on_gpu = Neg(gpu.WithOpName("float"), real);
  const Output not_this_type = Neg(gpu.WithOpName("int"), whole);
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster.Connect(graph, {.allow_soft_placement = true});
  // Placing is all that such a GPU is good for.
  EXPECT_FALSE(session
                   ->Run({{real, Tensor::Scalar(1.0f)}, {whole, Tensor::Scalar<int32_t>(1)}},
                         {on_gpu, not_this_type})
                   .ok());
  EXPECT_EQ(session->DeviceOf(Operation(on_gpu)).value().ToString(),
            "/job:worker/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(session->DeviceOf(Operation(not_this_type)).value().ToString(),
            "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_NE(
      cluster.StatusOf("worker", 0).devices(1).description().find(" split:1024:1024 split:4096"),
      std::string::npos);
}

TEST_F(GpuPlugin, WrongOptionsOfADaemonAreRefusedByName) {
  const auto refused = [](const std::string& flag, const std::vector<std::string>& parts) {
    const Ran ran =
        RunToEnd({ExecutorPath(), "--worker_hosts=localhost:1", "--job=worker", "--task=0", flag});
    EXPECT_EQ(ran.code, 2) << flag;
    ExpectText(ran.error, parts);
  };
  refused("--gpu_memory_fraction=1.5", {"per_process_gpu_memory_fraction is 1.5"});
  refused("--visible_device_list=0,0", {"visible_device_list '0,0': GPU 0 is there twice"});
  refused("--virtual_gpus=lots", {"virtual_gpus 'lots'", "MiB"});
}

TEST_F(GpuPlugin, AProgramThatWantsNoGpuOpensNothing) {
  Use(kStale, 2);  // opening it would fail
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--gpu_devices=0"}});
  Graph graph = NewGraph();
  auto session = cluster.Connect(graph);
  EXPECT_EQ(cluster.StatusOf("worker", 0).devices_size(), 1);
}

// What a short run says of how well the model does, line by line: of clients that speak at the same
// time, in no order. Each of `devices` has work.
std::multiset<std::string> Learned(const std::vector<std::string>& launch,
                                   const std::vector<std::string>& flags,
                                   const std::vector<std::string>& devices) {
  std::vector<std::string> argv = {MonographPath(), "launch", "--ps=1"};
  argv.insert(argv.end(), launch.begin(), launch.end());
  for (const char* word :
       {"--", MG_MNIST_REPLICA, "--data_name=synthetic", "--num_batches=6", "--display_every=1",
        "--num_warmup_batches=0", "--batch_size=16", "--fc=32", "--log_device_placement=summary"})
    argv.push_back(word);
  argv.insert(argv.end(), flags.begin(), flags.end());
  const Ran ran = RunToEnd(argv);
  EXPECT_EQ(ran.code, 0) << ran.error;
  std::multiset<std::string> lines;
  std::istringstream text(ran.output);
  for (std::string line; std::getline(text, line);) {
    if (line.find("ccuracy") != std::string::npos)
      lines.insert(line.substr(0, line.find("  images/sec")));
  }
  EXPECT_FALSE(lines.empty()) << ran.output;
  for (const std::string& device : devices)
    EXPECT_NE(ran.output.find("/job:worker/replica:0/task:" + device), std::string::npos)
        << device << " has no work: " << ran.output;
  return lines;
}

struct Way {
  const char* name;
  std::vector<std::string> flags;
  bool in_step = true;  // what it learns is the same in every run
};

TEST_F(GpuPlugin, AReplicaOnEachGpuOfEachWorkerLearnsAsOneOnEachOfAsManyCpus) {
  for (const Way& way :
       {Way{"parameter server", {}}, Way{"replicated", {"--variable_update=replicated"}},
        Way{"central", {"--variable_update=central"}},
        Way{"client", {"--variable_update=central", "--central_device=client"}},
        Way{"async", {"--async"}, false}}) {
    SCOPED_TRACE(way.name);
    std::vector<std::string> flags = way.flags;
    flags.push_back("--num_gpus=2");
    Use(kComputing, 2);
    const auto gpus =
        Learned({"--workers=2"}, flags,
                {"0/device:GPU:0", "0/device:GPU:1", "1/device:GPU:0", "1/device:GPU:1"});
    if (!way.in_step) continue;
    Use("none");
    EXPECT_EQ(gpus, Learned({"--workers=4"}, way.flags, {}));
  }
}

TEST_F(GpuPlugin, AClientOfEachWorkerTrainsOnItsGpusAsOnCpus) {
  const std::vector<std::string> hybrid = {"--replication=hybrid", "--replicas_per_worker=2"};
  for (const Way& way :
       {Way{"sync", {"--replication=between_graph", "--sync"}},
        Way{"replicated", {"--replication=between_graph", "--variable_update=replicated"}},
        Way{"async", {"--replication=between_graph"}, false}, Way{"hybrid", hybrid, false}}) {
    SCOPED_TRACE(way.name);
    std::vector<std::string> flags = way.flags;
    flags.push_back("--num_gpus=2");
    Use(kComputing, 2);
    // One replica each goes to the GPU of its task's number, as TensorFlow's mnist_replica does.
    std::vector<std::string> devices = {"0/device:GPU:0", "1/device:GPU:1"};
    if (way.flags == hybrid) devices.insert(devices.end(), {"0/device:GPU:1", "1/device:GPU:0"});
    const auto gpus = Learned({"--workers=2"}, flags, devices);
    if (!way.in_step) continue;
    Use("none");
    EXPECT_EQ(gpus, Learned({"--workers=2"}, way.flags, {}));
  }
}

// The plug-in's own code, on an emulated runtime (tests/gpu/emulated).
TEST_F(GpuPlugin, DaemonsComputeOverTheCodeThatCallsCuda) {
  const std::string plugin = MG_FAKES "/../emulated_gpu/libmonograph_cuda.so";
  if (access(plugin.c_str(), R_OK) != 0) GTEST_SKIP() << "a build without CUDA, or a bundle";
  Use(plugin);
  setenv("MG_EMULATED_GPUS", "2", 1);
  TestCluster cluster({.ps = 0, .workers = 2});
  unsetenv("MG_EMULATED_GPUS");
  EXPECT_EQ(cluster.StatusOf("worker", 1).devices_size(), 3);
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {2, 2});
  const Output twice = Add(root.WithDevice("/job:worker/task:0/device:GPU:1"), x, x);
  const Output product =
      MatMul(root.WithDevice("/job:worker/task:1/device:GPU:0"), twice, Add(root, x, twice));
  auto session = cluster.Connect(graph);
  Tensor fed = Tensor::Allocate(DT_FLOAT, {2, 2}).value();
  for (int i = 0; i < 4; ++i) fed.data<float>()[i] = static_cast<float>(i + 1);
  for (int step = 0; step < 4; ++step) {
    const auto got = session->Run({{x, fed}}, {product});
    ASSERT_TRUE(got.ok()) << got.status();
    // 6 x x, of x = [1 2; 3 4]
    const float expected[] = {42, 60, 90, 132};
    for (int i = 0; i < 4; ++i) EXPECT_EQ((*got)[0].data<float>()[i], expected[i]) << i;
  }
}

// Daemons with a GPU each, whose contexts are lost at the test's word. Their program waits at the
// gate, unless it is given.
class LosableGpus {
 public:
  explicit LosableGpus(std::vector<std::string> flags, std::vector<std::string> command = {}) {
    setenv("FAKE_GPU_LOSE", folder_.File("lose").c_str(), 1);
    EXPECT_EQ(mkfifo(folder_.File("gate").c_str(), 0600), 0);
    if (command.empty()) {
      command = {"sh", "-c",
                 "echo \"$MONOGRAPH_CLUSTER\"; cat \"$MONOGRAPH_KEY_FILE\"; echo told; cat " +
                     folder_.File("gate") + "; exit 4"};
    }
    flags.insert(flags.begin(), {MonographPath(), "launch"});
    flags.push_back("--");
    flags.insert(flags.end(), command.begin(), command.end());
    launch = std::make_unique<ChildProcess>(flags);
  }
  ~LosableGpus() { unsetenv("FAKE_GPU_LOSE"); }

  // A session of the test's own, with the key that the program was given.
  Result<std::unique_ptr<Session>> Connect(const Graph& graph) const {
    EXPECT_TRUE(launch->WaitForOutput("told\n", kLimit)) << launch->error();
    const std::string text = launch->output();
    const size_t end = text.find('\n');
    MG_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::FromFlag(text.substr(0, end)));
    SessionOptions options{.start_timeout = kLimit};
    MG_ASSIGN_OR_RETURN(options.key,
                        control::ParseKey(text.substr(end + 1, text.find('\n', end + 1) - end)));
    return Session::Connect(cluster, graph, std::move(options));
  }
  void Lose() const { folder_.Write("lose", ""); }
  void OpenGate() const { fclose(fopen(folder_.File("gate").c_str(), "w")); }

  std::unique_ptr<ChildProcess> launch;

 private:
  TemporaryFolder folder_;
};

TEST_F(GpuPlugin, ADaemonWhoseGpuIsLostIsStartedAnewAFewTimes) {
  Use(kLosable);
  const LosableGpus gpus({"--workers=1", "--restarts=1"});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {2});
  const Output y = Relu(root.WithDevice("/job:worker/task:0/device:GPU:0"), x);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto run = [&](Session& session) {
    return session.Run({{x, Tensor::FromValues<float>({2}, {-1, 2})}}, {y});
  };
  for (int lost = 0; lost < 2; ++lost) {
    auto session = gpus.Connect(graph);
    ASSERT_TRUE(session.ok()) << session.status() << gpus.launch->error();
    const auto got = run(**session);
    ASSERT_TRUE(got.ok()) << got.status() << gpus.launch->error();
    EXPECT_TRUE(SameBits((*got)[0], Tensor::FromValues<float>({2}, {0, 2})));
    gpus.Lose();
    // The step fails with the reason, or the daemon has ended meanwhile.
    const Status failure = run(**session).status();
    EXPECT_EQ(failure.code(), Code::kUnavailable) << failure;
    EXPECT_NE(failure.message().find("/job:worker/replica:0/task:0"), std::string::npos) << failure;
    EXPECT_TRUE(gpus.launch->WaitForError(
        lost == 0 ? "daemon worker/0 ended with status 75, a GPU's context is lost; it is started "
                    "anew (1 of 1)"
                  : "daemon worker/0 ended before the program: exit code 75, after 1 restart "
                    "(--restarts)",
        kLimit))
        << gpus.launch->error();
  }
  EXPECT_NE(
      gpus.launch->error().find("the context of /job:worker/replica:0/task:0/device:GPU:0 is lost"),
      std::string::npos)
      << gpus.launch->error();
  gpus.OpenGate();
  const std::optional<Exit> exit = gpus.launch->Wait(kLimit);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 4) << gpus.launch->error();
}

TEST_F(GpuPlugin, WithoutRestartsADaemonWhoseGpuIsLostLivesAndRefusesGraphsForIt) {
  Use(kLosable);
  const LosableGpus gpus({"--workers=1", "--restarts=0"});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {2});
  const Output y = Relu(root.WithDevice("/job:worker/task:0/device:GPU:0"), x);
  const Output on_cpu = Relu(root.WithDevice("/job:worker/task:0/device:CPU:0"), x);
  const Output twice = Add(root.WithDevice("/job:worker/task:0/device:CPU:0"), y, y);
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = gpus.Connect(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const Feed fed{x, Tensor::FromValues<float>({2}, {-1, 2})};
  gpus.Lose();
  const Status lost = (*session)->Run({fed}, {y}).status();
  ExpectError(lost, Code::kUnavailable,
              {"the context of /job:worker/replica:0/task:0/device:GPU:0 is lost"});
  // Another signature, which was not registered yet.
  ExpectError((*session)->MakeCallable({x}, {twice}).status(), Code::kUnavailable,
              {"the context of /job:worker/replica:0/task:0/device:GPU:0 is lost"});
  EXPECT_TRUE((*session)->Run({fed}, {on_cpu}).ok());
  gpus.OpenGate();
  EXPECT_TRUE(gpus.launch->Wait(kLimit).has_value());
}

TEST_F(GpuPlugin, AJobWhoseReplicasKeepTheirOwnPaceGoesOnWithTheOneWhoseGpuWasLost) {
  Use(kLosable);
  const LosableGpus gpus(
      {"--ps=1", "--workers=2"},
      {MG_MNIST_REPLICA, "--replication=in_graph", "--async", "--data_name=synthetic", "--fc=16",
       "--batch_size=20", "--num_warmup_batches=0", "--display_every=5", kForever});
  ASSERT_TRUE(gpus.launch->WaitForOutput(", Step: ", kLimit)) << gpus.launch->error();
  gpus.Lose();
  for (const char* text :
       {"Going on without replica ", "is started anew (1 of 3)", "Going on with replica "}) {
    EXPECT_TRUE(gpus.launch->WaitForError(text, kLimit)) << text << ": " << gpus.launch->error();
  }
  EXPECT_TRUE(gpus.launch->WaitForMoreOutput(", Step: ", kLimit)) << gpus.launch->error();
}

TEST_F(GpuPlugin, AJobInStepGoesOnFromItsCheckpointWhenTheDaemonsWhoseGpusWereLostAreBack) {
  Use(kLosable);
  const TemporaryFolder dir;
  const LosableGpus gpus(
      {"--ps=1", "--workers=2"},
      {MG_MNIST_REPLICA, "--replication=in_graph", "--data_name=synthetic", "--fc=16",
       "--batch_size=20", "--num_warmup_batches=0", "--display_every=5", "--save_steps=5",
       "--train_dir=" + dir.path(), kForever});
  ASSERT_TRUE(gpus.launch->WaitForOutput("step 10 ", kLimit)) << gpus.launch->error();
  gpus.Lose();
  for (const char* text : {"is started anew (1 of 3)", "the session is made anew, attempt 1 of 5",
                           "Restoring parameters from ", "Going on at global step "}) {
    EXPECT_TRUE(gpus.launch->WaitForError(text, kLimit)) << text << ": " << gpus.launch->error();
  }
  EXPECT_TRUE(gpus.launch->WaitForMoreOutput("step ", kLimit)) << gpus.launch->error();
}

}  // namespace
}  // namespace monograph
