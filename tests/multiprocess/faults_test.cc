// Faults while steps run: a kernel that fails, a daemon that is killed or stopped, a client that is
// killed, junk on the port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <regex>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/queue/queue.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/monitored_training_session.h"

namespace monograph {
namespace {

constexpr char kWorker1Full[] = "/job:worker/replica:0/task:1";

// Thousands of small products one after the other on a worker, so that its step is under way for
// many seconds and can be aborted between two of them; and something short that needs the other
// tasks only.
struct Program {
  Program() : graph(NewGraph()), root(&graph) {
    x = Placeholder(root.WithOpName("x"), DT_FLOAT, {256, 256});
    const Scope far = root.WithDevice(kWorker1);
    Output product = Identity(far, x);
    for (int i = 0; i < 4000; ++i) product = MatMul(far, product, x);
    const Output waits = Identity(root.WithDevice(kWorker0).WithOpName("waits"), product);
    long_sum = Sum(root.WithDevice(kPs).WithOpName("long_sum"), waits, {0, 1});
    short_sum = Sum(root.WithDevice(kPs), Neg(root.WithDevice(kWorker0), x), {0, 1});
    everywhere = Sum(root.WithDevice(kWorker1), Neg(root.WithDevice(kWorker0), x), {0, 1});
    EXPECT_TRUE(root.ok()) << root.status();
    value = Tensor::Allocate(DT_FLOAT, Shape{256, 256}).value();
    std::fill_n(value.data<float>(), 256 * 256, 0.0f);
    value.data<float>()[0] = 1.0f;
  }
  Graph graph;
  Scope root;
  Output x, long_sum, short_sum, everywhere;
  Tensor value;
};

struct Ended {
  Status status;
  Clock::time_point at;
};

// Starts a long step in a thread, and returns once the daemon runs it.
std::future<Ended> StartLongStep(TestCluster& cluster, Session& session, const Program& program) {
  std::future<Ended> ended = std::async(std::launch::async, [&] {
    const Status status = session.Run({{program.x, program.value}}, {program.long_sum}).status();
    return Ended{status, Clock::now()};
  });
  EXPECT_TRUE(cluster.WaitForStatus("worker", 1,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  return ended;
}

void ExpectUsable(Session& session, const Program& program) {
  auto values = session.Run({{program.x, program.value}}, {program.short_sum});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), -1.0f);
}

TEST(Faults, ADaemonThatDrainsEndsOrIsStartedAnewIsALossAndATimeoutOfTheUsersIsNone) {
  TestCluster cluster;
  Program program;
  auto session = cluster.Connect(program.graph);
  const auto run = [&](const Output& fetch, std::chrono::milliseconds timeout = 0ms) {
    return session->Run({{program.x, program.value}}, {fetch}, {}, {.timeout = timeout}).status();
  };
  const Status late = run(program.long_sum, 50ms);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_FALSE(IsLoss(late)) << late;
  // It drains as long as a step runs.
  std::future<Ended> step = StartLongStep(cluster, *session, program);
  ChildProcess& daemon = cluster.daemon("worker", 1);
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitForError(": draining")) << daemon.error();
  const Status draining = run(program.everywhere);
  EXPECT_TRUE(IsLoss(draining)) << draining;
  step.wait();
  ASSERT_TRUE(daemon.Wait(20s)) << daemon.error();
  const Status ended = run(program.everywhere);
  EXPECT_TRUE(IsLoss(ended)) << ended;
  const auto none = Session::Connect(cluster.spec(), program.graph, {.start_timeout = 300ms});
  EXPECT_TRUE(IsLoss(none.status())) << none.status();
  cluster.Start("worker", 1);
  const Status old = run(program.everywhere);
  EXPECT_TRUE(IsLoss(old)) << old;
  session = cluster.Connect(program.graph);
  const Status fresh = run(program.everywhere);
  EXPECT_TRUE(fresh.ok()) << fresh;
}

TEST(Faults, AFailingKernelIsNamedWithItsNodeAndTaskOnceAndTheNextStepRuns) {
  TestCluster cluster;
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_INT32, {});
  Outputs towers;
  for (const char* device : {kWorker0, kWorker1}) {
    const Scope tower = root.SubScope("tower").WithDevice(device);
    const Output offset = Const(tower, device == kWorker1 ? 1 : 100);
    towers.push_back(
        FloorDiv(tower.WithOpName("quotient"), Const(tower, 12), Sub(tower, x, offset)));
  }
  const Output sum = AddN(root.WithDevice(kPs), towers);
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster.Connect(graph);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Status status = session->Run({{x, Tensor::Scalar<int32_t>(1)}}, {sum}).status();
    ExpectError(status, Code::kInvalidArgument, {"tower_1/quotient", "FloorDiv", kWorker1Full});
    EXPECT_EQ(status.message().find("tower/quotient"), std::string::npos) << status;
    EXPECT_EQ(status.message().find("abort"), std::string::npos) << status;
    auto good = session->Run({{x, Tensor::Scalar<int32_t>(4)}}, {sum});
    ASSERT_TRUE(good.ok()) << good.status();
    EXPECT_EQ(good->at(0).scalar<int32_t>(), 4 - 1);  // 12 // 3 + 12 // -96
  }
}

TEST(Faults, ADaemonKilledInAStepIsNamedWithinHalfASecondAndTheOthersStayUsable) {
  ExpectWithin(500ms, [](Clock::duration* took) {
    TestCluster cluster;
    Program program;
    auto session = cluster.Connect(program.graph);
    ExpectUsable(*session, program);
    std::future<Ended> step = StartLongStep(cluster, *session, program);
    const auto killed = Clock::now();
    cluster.daemon("worker", 1).Signal(SIGKILL);
    const Ended ended = step.get();
    ExpectError(ended.status, Code::kUnavailable, {kWorker1Full});
    EXPECT_EQ(ended.status.lost_task(), kWorker1Full);
    *took = ended.at - killed;
    ExpectUsable(*session, program);
    // A step that needs the lost task fails at once, with its name.
    const auto asked = Clock::now();
    ExpectError(session->Run({{program.x, program.value}}, {program.everywhere}).status(),
                Code::kUnavailable, {kWorker1Full});
    *took = std::max(*took, Clock::now() - asked);
    EXPECT_TRUE(session->Close().ok());
    // Nothing of the step is left in the others.
    for (const auto& [job, task] : {std::pair("ps", 0), std::pair("worker", 0)}) {
      const wire::StatusResponse status = cluster.StatusOf(job, task);
      EXPECT_EQ(status.sessions(), 0);
      EXPECT_EQ(status.running_steps(), 0);
    }
    // The task started anew serves a new session.
    EXPECT_TRUE(cluster.daemon("worker", 1).Wait(5s));
    cluster.Start("worker", 1);
    auto again = cluster.Connect(program.graph);
    EXPECT_TRUE(again->Run({{program.x, program.value}}, {program.everywhere}).ok());
  });
}

TEST(Faults, ADaemonKilledWhileAnotherIsInsideALongKernelIsStillNamedWithinHalfASecond) {
  ExpectWithin(500ms, [](Clock::duration* took) {
    TestCluster cluster;
    Graph graph = NewGraph();
    Scope root(&graph);
    const LongKernel kernel(root, kWorker0);
    const Output x = Placeholder(root, DT_INT64, {});
    const Output both = Add(root.WithDevice(kWorker1), kernel.sum, x);
    auto session = cluster.Connect(graph);
    ASSERT_TRUE(
        session
            ->Run({{kernel.side, Tensor::Scalar<int32_t>(4)}, {x, Tensor::Scalar<int64_t>(1)}},
                  {both})
            .ok());
    // Seconds of work; how long, does not matter.
    const pid_t busy = cluster.daemon("worker", 0).pid();
    const auto idle = CpuTimeOf(busy);
    std::future<Ended> step = std::async(std::launch::async, [&] {
      const Tensor side = Tensor::Scalar<int32_t>(kSanitized ? 1000 : 1600);
      const Status status =
          session->Run({{kernel.side, side}, {x, Tensor::Scalar<int64_t>(1)}}, {both}).status();
      return Ended{status, Clock::now()};
    });
    for (const auto until = Clock::now() + 20s;
         Clock::now() < until && CpuTimeOf(busy) - idle < 150ms;)
      std::this_thread::yield();
    const auto killed = Clock::now();
    cluster.daemon("worker", 1).Signal(SIGKILL);
    const Ended ended = step.get();
    ExpectError(ended.status, Code::kUnavailable, {kWorker1Full});
    *took = ended.at - killed;
  });
}

TEST(Faults, ADaemonThatIsStoppedIsNamedWithinThreeSeconds) {
  ExpectWithin(3s, [](Clock::duration* took) {
    TestCluster cluster;
    Program program;
    auto session = cluster.Connect(program.graph);
    ExpectUsable(*session, program);
    std::future<Ended> step = StartLongStep(cluster, *session, program);
    const auto stopped = Clock::now();
    cluster.daemon("worker", 1).Signal(SIGSTOP);
    const Ended ended = step.get();
    ExpectError(ended.status, Code::kUnavailable, {kWorker1Full});
    *took = ended.at - stopped;
    ExpectUsable(*session, program);
    // When it goes on, the session that lost it stays without it; a new one has it.
    cluster.daemon("worker", 1).Signal(SIGCONT);
    ExpectError(session->Run({{program.x, program.value}}, {program.everywhere}).status(),
                Code::kUnavailable, {kWorker1Full});
    EXPECT_TRUE(session->Close().ok());
    auto again = cluster.Connect(program.graph);
    EXPECT_TRUE(again->Run({{program.x, program.value}}, {program.everywhere}).ok());
  });
}

TEST(Faults, ARunWhoseGraphIsNotRegisteredInTimeEndsByItsDeadlineAndLosesNothing) {
  TestCluster cluster;
  Program program;
  auto session = cluster.Connect(program.graph);
  ASSERT_TRUE(session->Run({{program.x, program.value}}, {program.short_sum}).ok());
  cluster.daemon("worker", 1).Signal(SIGSTOP);
  const auto begin = Clock::now();
  const Status late =
      session->Run({{program.x, program.value}}, {program.everywhere}, {}, {.timeout = 500ms})
          .status();
  EXPECT_LT(Clock::now() - begin, 1500ms);
  cluster.daemon("worker", 1).Signal(SIGCONT);
  ExpectError(late, Code::kDeadlineExceeded, {"while its graph was registered", kWorker1Full});
  EXPECT_TRUE(late.lost_task().empty());
  EXPECT_TRUE(session->Run({{program.x, program.value}}, {program.everywhere}).ok());
}

TEST(Faults, ADaemonThatDiesBetweenStepsIsNamedByTheNextStep) {
  ExpectWithin(500ms, [](Clock::duration* took) {
    TestCluster cluster;
    Program program;
    auto session = cluster.Connect(program.graph);
    ExpectUsable(*session, program);
    const auto killed = Clock::now();
    cluster.daemon("worker", 1).Signal(SIGKILL);
    // The call may come before the loss is known; it must fail all the same, in time.
    ExpectError(session->Run({{program.x, program.value}}, {program.everywhere}).status(),
                Code::kUnavailable, {kWorker1Full});
    *took = Clock::now() - killed;
    ExpectUsable(*session, program);
  });
}

TEST(Faults, EveryStepInFlightThroughALostDaemonEndsAndTheOthersDoNot) {
  TestCluster cluster;
  Program program;
  auto session = cluster.Connect(program.graph);
  ExpectUsable(*session, program);
  auto lost = session->MakeCallable({program.x}, {program.long_sum});
  ASSERT_TRUE(lost.ok()) << lost.status();
  std::mutex mutex;
  std::vector<Status> statuses;
  std::promise<void> all;
  for (int i = 0; i < 8; ++i) {
    session->RunAsync(*lost, std::span(&program.value, 1),
                      [&](const Result<std::vector<Tensor>>& result) {
                        std::lock_guard lock(mutex);
                        statuses.push_back(result.status());
                        if (statuses.size() == 8) all.set_value();
                      });
  }
  ASSERT_TRUE(cluster.WaitForStatus("worker", 1,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  cluster.daemon("worker", 1).Signal(SIGKILL);
  ASSERT_EQ(all.get_future().wait_for(5s), std::future_status::ready);
  for (const Status& status : statuses) ExpectError(status, Code::kUnavailable, {kWorker1Full});
  ExpectUsable(*session, program);
}

// A step whose part on worker 1 is over at once, while that on worker 0 waits for an element of a
// queue.
struct WaitingStep {
  WaitingStep() : graph(NewGraph()), root(&graph) {
    const Scope here = root.WithDevice(kWorker0);
    x = Placeholder(root, DT_INT32, PartialShape::Scalar());
    const Output queue = FIFOQueue(here.WithOpName("q"), {DT_INT32},
                                   {.capacity = 4, .shapes = {PartialShape::Scalar()}});
    put = QueueEnqueue(root, queue, {x});
    const Output far = Neg(root.WithDevice(kWorker1).WithOpName("far"), x);
    sum = Add(here, QueueDequeue(here.WithOpName("get"), queue)[0], far);
    EXPECT_TRUE(root.ok()) << root.status();
  }
  // Runs the step, until its part on worker 1 has ended.
  std::future<Status> Start(TestCluster& cluster, Session& session) {
    std::future<Status> ended = std::async(std::launch::async, [this, &session] {
      return session.Run({{x, Tensor::Scalar<int32_t>(3)}}, {sum}).status();
    });
    EXPECT_TRUE(cluster.WaitForStatus("worker", 1,
                                      [](const auto& status) { return status.steps_done() > 0; }));
    EXPECT_TRUE(cluster.WaitForStatus(
        "worker", 0, [](const auto& status) { return status.running_steps() > 0; }));
    return ended;
  }
  Graph graph;
  Scope root;
  Output x, sum;
  Operation put;
};

TEST(Faults, AStepThatMayAwaitALostDaemonEndsAlsoIfThatHadReportedItsPartDone) {
  TestCluster cluster;
  WaitingStep step;
  auto session = cluster.Connect(step.graph);
  std::future<Status> ended = step.Start(cluster, *session);
  const auto killed = Clock::now();
  cluster.daemon("worker", 1).Signal(SIGKILL);
  ASSERT_EQ(ended.wait_for(20s), std::future_status::ready);
  EXPECT_LT(Clock::now() - killed, 3s);
  const Status status = ended.get();
  ExpectError(status, Code::kUnavailable, {kWorker1Full});
  EXPECT_EQ(status.lost_task(), kWorker1Full);
}

TEST(Faults, ALegitimateWaitIsToldOnceInTheLogAndEndsNothing) {
  TestCluster cluster;
  WaitingStep step;
  auto session = cluster.Connect(step.graph);
  std::future<Status> ended = step.Start(cluster, *session);
  const ChildProcess& waits = cluster.daemon("worker", 0);
  ASSERT_TRUE(waits.WaitForError("has made no progress at /job:worker/replica:0/task:0 for 10 s"))
      << waits.error();
  EXPECT_NE(waits.error().find("waits for node 'get' (QueueDequeueV2) of 'q' (FIFOQueueV2)"),
            std::string::npos)
      << waits.error();
  EXPECT_EQ(ended.wait_for(1s), std::future_status::timeout);
  ASSERT_TRUE(session->Run({{step.x, Tensor::Scalar<int32_t>(4)}}, {}, {step.put}).ok());
  const Status status = ended.get();
  EXPECT_TRUE(status.ok()) << status;
  const std::string log = waits.error();
  EXPECT_EQ(log.find("no progress"), log.rfind("no progress")) << log;
}

TEST(Faults, ALongKernelIsToldByNameInTheLogAndToWhomAwaitsItsTensorByItsEdge) {
  TestCluster cluster;
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel kernel(root, kWorker0);
  const Output awaits = Neg(root.WithDevice(kWorker1).WithOpName("awaits"), kernel.sum);
  auto session = cluster.Connect(graph);
  // A minute of work, which ends with the session; its matrices are filled in far less than 10 s.
  std::future<Status> ended = std::async(std::launch::async, [&] {
    return session->Run({{kernel.side, Tensor::Scalar<int32_t>(8'000)}}, {awaits}).status();
  });
  const ChildProcess& computes = cluster.daemon("worker", 0);
  EXPECT_TRUE(computes.WaitForError(
      "has made no progress at /job:worker/replica:0/task:0 for 10 s; it waits for node "
      "'long_product' (MatMul), which computes\n",
      60s))
      << computes.error();
  const ChildProcess& waits = cluster.daemon("worker", 1);
  EXPECT_TRUE(waits.WaitForError("has made no progress", 60s)) << waits.error();
  const std::regex told(
      "step [0-9]+ of session [0-9]+ has made no progress at /job:worker/replica:0/task:1 for 10 "
      "s; it waits for 'long_sum:0' \\(edge [0-9]+\\) from /job:worker/replica:0/task:0, which "
      "runs its part\n");
  EXPECT_TRUE(std::regex_search(waits.error(), told)) << waits.error();
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(ended.get().code(), Code::kCancelled);
}

TEST(Faults, InASessionOfOneProcessLongKernelsAndWaitsForQueuesAreToldByNameToo) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel kernel(root, "/device:CPU:0");
  const Output queue = FIFOQueue(root.WithOpName("q"), {DT_INT32},
                                 {.capacity = 4, .shapes = {PartialShape::Scalar()}});
  const Output got = QueueDequeue(root.WithOpName("get"), queue)[0];
  ASSERT_TRUE(root.ok()) << root.status();
  ::testing::internal::CaptureStderr();
  {
    auto session = Session::Local(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto waits =
        std::async(std::launch::async, [&] { return (*session)->Run({}, {got}).status(); });
    const auto computes = std::async(std::launch::async, [&] {
      return (*session)
          ->Run({{kernel.side, Tensor::Scalar<int32_t>(8'000)}}, {kernel.sum})
          .status();
    });
    EXPECT_EQ(computes.wait_for(12s), std::future_status::timeout);
    EXPECT_TRUE((*session)->Close().ok());
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const std::string wait : {"node 'get' (QueueDequeueV2) of 'q' (FIFOQueueV2)\n",
                                 "node 'long_product' (MatMul), which computes\n"}) {
    EXPECT_NE(said.find("has made no progress at /job:localhost/replica:0/task:0 for 10 s; it "
                        "waits for " +
                        wait),
              std::string::npos)
        << said;
  }
}

TEST(Faults, ALongKernelIsNoFailure) {
  TestCluster cluster;
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel kernel(root, kWorker1);
  auto session = cluster.Connect(graph);
  // Longer than the heartbeats' patience, found by trying; the daemon has nothing else to do.
  for (int side = 1024;; side = side * 5 / 4) {
    const auto begin = Clock::now();
    auto values = session->Run({{kernel.side, Tensor::Scalar<int32_t>(side)}}, {kernel.sum});
    const auto took = Clock::now() - begin;
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->at(0).scalar<int64_t>(), int64_t{side} * side * side);
    if (took > 3500ms) break;
    // The time grows with the cube: near the goal at once.
    const double missing = 3.5 / std::chrono::duration<double>(took).count();
    if (missing > 2) side = static_cast<int>(side * std::cbrt(missing) * 0.8);
  }
}

TEST(Faults, AKilledClientIsFreedWithinFiveSecondsAndTheNextOneIsServed) {
  ExpectWithin(5s, [](Clock::duration* took) {
    TestCluster cluster;
    Program program;
    TemporaryFolder folder;
    ASSERT_TRUE(WriteGraph(program.graph, folder.File("graph.pb")).ok());
    // The client is a program of its own: `monograph run`; 256 x 256 zeros with a one in front.
    std::string npy = std::string("\x93NUMPY\x01\0", 8);
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }";
    header += std::string(118 - header.size() - 1, ' ') + "\n";
    npy += static_cast<char>(header.size());
    npy += '\0';
    npy += header;
    npy.append(reinterpret_cast<const char*>(program.value.raw()), program.value.bytes());
    folder.Write("x.npy", npy);
    folder.Write("steps.json",
                 R"({"steps": [{"feeds": {"x:0": "x.npy"}, "fetches": ["long_sum:0"]}]})");
    ChildProcess client({MonographPath(), "run", folder.File("graph.pb"),
                         "--script=" + folder.File("steps.json"), "--out=" + folder.File("out"),
                         "--cluster=" + cluster.json()});
    ASSERT_TRUE(cluster.WaitForStatus("worker", 1, [](const auto& status) {
      return status.running_steps() > 0;
    })) << client.error();
    const auto killed = Clock::now();
    client.Signal(SIGKILL);
    for (const auto& [job, task] :
         {std::pair("ps", 0), std::pair("worker", 0), std::pair("worker", 1)}) {
      EXPECT_TRUE(cluster.WaitForStatus(
          job, task,
          [](const auto& status) { return status.sessions() == 0 && status.running_steps() == 0; },
          20s));
    }
    *took = Clock::now() - killed;
    EXPECT_TRUE(cluster.daemon("worker", 1).WaitForError("freed session"))
        << cluster.daemon("worker", 1).error();
    auto session = cluster.Connect(program.graph);
    EXPECT_TRUE(session->Run({{program.x, program.value}}, {program.everywhere}).ok());
  });
}

TEST(Faults, AClientThatDiesWhileItOpensASessionLeavesNothing) {
  TestCluster cluster({.ps = 0, .workers = 1});
  control::ChannelOptions options;
  options.hello.task_name = "/job:client/replica:0/task:0";
  Result<std::unique_ptr<control::Channel>> channel =
      control::Channel::Connect(cluster.address("worker", 0), std::move(options));
  ASSERT_TRUE(channel.ok()) << channel.status();
  wire::CreateSessionRequest request;
  request.set_session(7);
  const Result<std::string> answer =
      (*channel)->Call("CreateSession", request.SerializeAsString(), 20s);
  ASSERT_TRUE(answer.ok()) << answer.status();
  wire::CreateSessionResponse response;
  ASSERT_TRUE(response.ParseFromString(*answer));
  EXPECT_NE(response.transport_address(), "");
  EXPECT_EQ(cluster.StatusOf("worker", 0).sessions(), 1);
  channel->reset();
  EXPECT_TRUE(cluster.WaitForStatus("worker", 0,
                                    [](const auto& status) { return status.sessions() == 0; }));
  EXPECT_TRUE(cluster.daemon("worker", 0).WaitForError("freed session 7 of"));
}

TEST(Faults, JunkOnTheControlPortIsClosedAndLoggedAndNothingElse) {
  TestCluster cluster;
  Program program;
  auto session = cluster.Connect(program.graph);
  const std::string address = cluster.address("worker", 1);
  const int port = std::stoi(address.substr(address.find(':') + 1));
  for (const std::string& junk : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                                  std::string(100000, '\xff'), std::string(64, '\0')}) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    [[maybe_unused]] const ssize_t sent = send(fd, junk.data(), junk.size(), MSG_NOSIGNAL);
    timeval limit{10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char buffer[512];
    ssize_t count;
    while ((count = recv(fd, buffer, sizeof buffer, 0)) > 0) {
    }
    EXPECT_TRUE(count == 0 || errno == ECONNRESET) << "the daemon did not close the connection";
    close(fd);
  }
  EXPECT_TRUE(cluster.daemon("worker", 1).WaitForError("refused a connection"))
      << cluster.daemon("worker", 1).error();
  EXPECT_TRUE(session->Run({{program.x, program.value}}, {program.everywhere}).ok());
  auto second = cluster.Connect(program.graph);
  EXPECT_TRUE(second->Run({{program.x, program.value}}, {program.everywhere}).ok());
}

}  // namespace
}  // namespace monograph
