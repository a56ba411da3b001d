// One transport whose peers are met in different ways.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "transport/control/key.h"
#include "transport/transports.h"

namespace monograph {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Counter : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t payload_bytes) override {
    Buffer buffer = Buffer::Allocate(HostAllocator(), payload_bytes);
    void* data = buffer.data();
    return {data, [this](const Status& status) { payloads += status.ok(); }, buffer};
  }
  void OnDelivered(std::string_view, Payload) override { ++headers; }

  std::atomic<int> headers{0}, payloads{0};
};

// How many threads of this process have that name.
int Threads(const std::string& name) {
  int found = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string is;
    std::getline(std::ifstream(thread.path() / "comm"), is);
    found += is == name ? 1 : 0;
  }
  return found;
}

class LanesTransport : public ::testing::Test {
 protected:
  ~LanesTransport() override {
    for (const auto& transport : made_) {
      transport->Close();
      transport->Join();
    }
  }
  Transport* Make(const std::string& lanes, MessageHandler* handler,
                  std::vector<std::string> trusted = {}) {
    auto factory = ChooseTransport({.lanes = lanes, .trusted_network = std::move(trusted)},
                                   {.loopback = true, .key = key_, .bind_address = "127.0.0.1"});
    EXPECT_TRUE(factory.ok()) << factory.status();
    auto made = (*factory)(handler);
    EXPECT_TRUE(made.ok()) << made.status();
    made_.push_back(std::move(made).value());
    return made_.back().get();
  }
  static PeerId Meet(Transport* a, Transport* b) {
    const auto peer = a->Connect(b->address(), "/job:b/replica:0/task:0");
    const auto back = b->Connect(a->address(), "/job:a/replica:0/task:0");
    EXPECT_TRUE(peer.ok()) << peer.status();
    EXPECT_TRUE(back.ok()) << back.status();
    return peer.value();
  }

  const control::Key key_ = control::GenerateKey().value();
  std::vector<std::unique_ptr<Transport>> made_;
};

TEST_F(LanesTransport, DrivesPeersOfBothWaysAndWakesItsGuestForEach) {
  Counter here, near, far;
  Transport* a = Make("", &here);
  Transport* b = Make("", &near);
  Transport* c = Make("tls", &far);
  const PeerId by_memory = Meet(a, b), by_tls = Meet(a, c);
  EXPECT_NE(a->Describe(by_memory).find("shm(posix"), std::string::npos);
  EXPECT_NE(a->Describe(by_tls).find("tls 1.3"), std::string::npos);
  const PeerId back = 1;  // the first peer by TLS
  const Payload payload{Buffer::Allocate(HostAllocator(), 1 << 20), 0, 1 << 20};
  std::atomic<int> sent{0};
  const auto count = [&](const Status& status) { sent += status.ok() ? 1 : 1000; };
  for (int i = 0; i < 20; ++i) {
    const auto before = Clock::now();
    a->Send(by_memory, "m", payload, count);
    a->Send(by_tls, "m", payload, count);
    ASSERT_TRUE(a->DriveUntil([&] { return sent == 2 * i + 2; }, before + seconds(20)));
    c->Send(back, "header", {}, nullptr);
    c->Send(back, "payload", payload, nullptr);
    ASSERT_TRUE(a->DriveUntil([&] { return here.headers == i + 1 && here.payloads == i + 1; },
                              before + seconds(20)));
  }
  EXPECT_TRUE(a->DriveUntil([&] { return near.payloads == 20 && far.payloads == 20; },
                            Clock::now() + seconds(20)));
  EXPECT_EQ(a->stats().messages_sent, 40u);
  EXPECT_EQ(a->HostOf(b->address()), a->HostOf(a->address()));
}

TEST_F(LanesTransport, HasAThreadForTlsOnlyOnceAPeerIsMetSo) {
  Counter counter;
  Transport* a = Make("", &counter);
  Transport* b = Make("", &counter);
  const PeerId by_memory = Meet(a, b);
  std::atomic<bool> sent{false};
  a->Send(by_memory, "header", {}, [&](const Status&) { sent = true; });
  ASSERT_TRUE(
      a->DriveUntil([&] { return sent && counter.headers == 1; }, Clock::now() + seconds(20)));
  EXPECT_EQ(Threads("mg-tls-data"), 0);
  Transport* c = Make("tls", &counter);
  EXPECT_EQ(Threads("mg-tls-data"), 0);
  const PeerId by_tls = Meet(a, c);
  a->Send(by_tls, "header", {}, nullptr);
  const auto until = Clock::now() + seconds(20);
  while (counter.headers < 2 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(counter.headers, 2);
  EXPECT_EQ(Threads("mg-tls-data"), 2) << "of the two that met so";
}

TEST_F(LanesTransport, RefusesAtBothEndsAtOnceAndSaysWhatEachOffers) {
  Counter counter;
  Transport* shared = Make("posix,cma", &counter);
  Transport* tcp = Make("tcp", &counter, {"127.0.0.0/8"});
  for (const auto& [from, to] : {std::pair(shared, tcp), std::pair(tcp, shared)}) {
    const auto peer = from->Connect(to->address(), "/job:worker/replica:0/task:1");
    EXPECT_EQ(peer.status().code(), Code::kFailedPrecondition) << peer.status();
    for (const char* part : {"/job:worker/replica:0/task:1", "posix,cma", "tcp at 127.0.0.1"})
      EXPECT_NE(peer.status().message().find(part), std::string::npos) << peer.status();
  }
}

TEST_F(LanesTransport, RefusesLanesThatCannotBe) {
  const auto refused = [](const TransportOptions& options) {
    return ChooseTransport(options, {.loopback = true}).status();
  };
  EXPECT_EQ(refused({.lanes = "tls"}).code(), Code::kInvalidArgument) << "no key";
  EXPECT_EQ(refused({.lanes = "tcp"}).code(), Code::kInvalidArgument) << "no trusted network";
  EXPECT_EQ(refused({.lanes = "sysv"}).code(), Code::kInvalidArgument) << "open to a group";
  EXPECT_EQ(refused({.trusted_network = {"203.0.113.0/24"}}).code(), Code::kInvalidArgument)
      << "no device is there";
  const Status device =
      refused({.lanes = "tcp", .net_devices = "lo", .trusted_network = {"10.0.0.0/8"}});
  EXPECT_EQ(device.code(), Code::kInvalidArgument);
  EXPECT_NE(device.message().find("127.0.0.1, which is not in the trusted network 10.0.0.0/8"),
            std::string::npos)
      << device;
  EXPECT_EQ(refused({.data_port = 4711}).code(), Code::kInvalidArgument) << "no key";
  EXPECT_TRUE(refused({.lanes = "^cma"}).ok());
  const Status direct =
      ChooseTransport({.lanes = "posix,cma", .gpu_transfers = GpuTransfers::kDirect},
                      {.loopback = true, .gpus = true})
          .status();
  EXPECT_EQ(direct.code(), Code::kInvalidArgument) << "no lane for GPUs";
  EXPECT_NE(direct.message().find("it has the lanes posix,cma"), std::string::npos) << direct;
}

}  // namespace
}  // namespace monograph
