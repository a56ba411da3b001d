#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/conformance/transport/transport_suite.h"
#include "transport/control/key.h"
#include "transport/transports.h"

namespace monograph {
namespace {

// Tasks of one machine with a key. All transports of the program share a port, as those of a
// process do.
TransportCase Lanes(std::string name, std::string lanes, std::string expected_lane,
                    bool by_reference = false) {
  return {.name = std::move(name),
          .make = [lanes = std::move(lanes), factory = TransportFactory()](
                      MessageHandler* handler) mutable -> Result<std::unique_ptr<Transport>> {
            if (!factory) {
              MG_ASSIGN_OR_RETURN(const control::Key key, control::GenerateKey());
              MG_ASSIGN_OR_RETURN(
                  factory,
                  ChooseTransport({.lanes = lanes},
                                  {.loopback = true, .key = key, .bind_address = "127.0.0.1"}));
            }
            return factory(handler);
          },
          .by_reference = by_reference,
          .expected_lane = std::move(expected_lane)};
}

// The memory of an emulated GPU (tests/gpu/emulated), of a UCX that finds it: both are in the
// library path of a run that wants them (tests/campaigns/ucx_of_pypi).
class EmulatedGpuMemory : public Allocator {
 public:
  static EmulatedGpuMemory* Find() {
    static EmulatedGpuMemory* const found = [] {
      void* const runtime = dlopen("libemulated_gpu.so", RTLD_NOW);
      void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
      const bool here = runtime != nullptr && driver != nullptr;
      return here ? new EmulatedGpuMemory(runtime, driver) : nullptr;
    }();
    return found;
  }
  std::string name() const override { return "emulated GPU"; }
  void* Allocate(size_t bytes) override {
    void* data = nullptr;
    if (allocate_(&data, bytes == 0 ? 1 : bytes) != 0) return nullptr;
    ++live;
    return data;
  }
  void Deallocate(void* data, size_t) noexcept override {
    --live;
    (void)free_(data);
  }
  bool on_host() const override { return false; }
  uint64_t copied() const { return copied_(); }  // bytes that UCX has had copied

  std::atomic<int> live{0};

 private:
  EmulatedGpuMemory(void* runtime, void* driver)
      : allocate_(reinterpret_cast<int (*)(void**, size_t)>(dlsym(runtime, "cudaMalloc"))),
        free_(reinterpret_cast<int (*)(void*)>(dlsym(runtime, "cudaFree"))),
        copied_(reinterpret_cast<uint64_t (*)()>(dlsym(driver, "MgEmulatedUcxCopied"))) {}

  int (*const allocate_)(void**, size_t);
  int (*const free_)(void*);
  uint64_t (*const copied_)();
};

TransportFactory GpuLanes(GpuTransfers transfers, bool gpus) {
  Result<TransportFactory> factory =
      ChooseTransport({.lanes = "^reference", .gpu_transfers = transfers},
                      {.loopback = true, .gpus = gpus, .bind_address = "127.0.0.1"});
  EXPECT_TRUE(factory.ok()) << factory.status();
  return factory.ok() ? *factory : nullptr;
}

std::vector<TransportCase> OfGpus() {
  Allocator* const gpu = EmulatedGpuMemory::Find();
  if (gpu == nullptr) return {};
  return {
      {.name = "gpu_memory",
       .make =
           [](MessageHandler* handler) { return GpuLanes(GpuTransfers::kDirect, true)(handler); },
       .expected_lane = "GPU memory directly",
       .gpu = gpu}};
}

// Two transports, each of a task with GPUs or without.
class MemoryOfGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (EmulatedGpuMemory::Find() == nullptr)
      GTEST_SKIP() << "no emulated GPU in the library path: tests/campaigns/ucx_of_pypi has it";
  }
  void TearDown() override {
    for (const auto& transport : {a_.get(), b_.get()}) {
      if (transport == nullptr) continue;
      transport->Close();
      transport->Join();
    }
  }
  void Meet(const TransportFactory& a, const TransportFactory& b) {
    a_ = a(&at_a_).value();
    b_ = b(&at_b_).value();
    b_of_a_ = a_->Connect(b_->address(), "/job:b").value();
    a_of_b_ = b_->Connect(a_->address(), "/job:a").value();
  }

  static constexpr size_t kBytes = 3'000'001;
  Recorder at_a_, at_b_;
  std::unique_ptr<Transport> a_, b_;
  PeerId b_of_a_ = 0, a_of_b_ = 0;
};

TEST_F(MemoryOfGpus, IsCopiedByUcxOnBothSidesAndLandsWhereTheReceiverWants) {
  EmulatedGpuMemory* const memory = EmulatedGpuMemory::Find();
  Meet(GpuLanes(GpuTransfers::kAuto, true), GpuLanes(GpuTransfers::kAuto, true));
  ASSERT_TRUE(a_->TakesGpuMemory(b_of_a_));
  const Payload host = MakePayload(kBytes, 5);
  Payload on_gpu{Buffer::Allocate(memory, kBytes), 0, kBytes, true};
  std::memcpy(on_gpu.buffer.data(), host.data(), kBytes);
  // From a GPU to the host, from there to a GPU, and from a GPU to a GPU.
  for (const auto& [from, to] : {std::pair(true, false), {false, true}, {true, true}}) {
    const Buffer landing =
        Buffer::Allocate(to ? static_cast<Allocator*>(memory) : HostAllocator(), kBytes);
    Completions both;
    at_b_.set_on_message([&, lands = to](std::string_view, size_t) -> PayloadSink {
      return {landing.data(), both.Add(), landing, lands};
    });
    const uint64_t before = memory->copied();
    a_->Send(b_of_a_, "", from ? on_gpu : host, both.Add());
    ASSERT_TRUE(both.WaitForAll());
    ASSERT_TRUE(a_->DriveUntil([&] { return both.added() == 2; }, In(std::chrono::seconds(20))));
    ASSERT_TRUE(both.WaitForAll());
    EXPECT_EQ(both.ok(), 2);
    EXPECT_TRUE(PayloadIs({landing, 0, kBytes, to}, kBytes, 5));
    EXPECT_GE(memory->copied(), before + kBytes * (static_cast<size_t>(from) + to));
  }
}

TEST_F(MemoryOfGpus, DoesNotGoToATaskWithoutGpus) {
  Meet(GpuLanes(GpuTransfers::kDirect, true), GpuLanes(GpuTransfers::kAuto, false));
  EXPECT_FALSE(a_->TakesGpuMemory(b_of_a_));
  EXPECT_FALSE(b_->TakesGpuMemory(a_of_b_));
  Completions sent;
  a_->Send(b_of_a_, "", MakePayload(kBytes, 5), sent.Add());
  b_->Send(a_of_b_, "", MakePayload(kBytes, 6), sent.Add());
  EXPECT_TRUE(at_a_.WaitFor(1) && at_b_.WaitFor(1) && sent.WaitForAll());
  EXPECT_EQ(sent.ok(), 2);
}

TEST_F(MemoryOfGpus, IsRefusedWhereItIsToGoByWayOfTheHost) {
  Meet(GpuLanes(GpuTransfers::kAuto, true), GpuLanes(GpuTransfers::kStaged, true));
  EXPECT_FALSE(a_->TakesGpuMemory(b_of_a_));
  EXPECT_FALSE(b_->TakesGpuMemory(a_of_b_));
  EXPECT_NE(a_->Describe(b_of_a_).find("GPU memory through the host (--gpu_transfers=staged)"),
            std::string::npos);
  Completions sent;
  EmulatedGpuMemory* const memory = EmulatedGpuMemory::Find();
  a_->Send(b_of_a_, "", {Buffer::Allocate(memory, kBytes), 0, kBytes, true}, sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.with(Code::kInvalidArgument), 1);
  at_a_.set_on_message([&](std::string_view, size_t bytes) -> PayloadSink {
    const Buffer buffer = Buffer::Allocate(HostAllocator(), bytes);
    return {buffer.data(), sent.Add(), buffer};
  });
  b_->Send(a_of_b_, "", MakePayload(kBytes, 1), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
}

// A peer that is lost while payloads are under way: they stay until UCX is through with them.
TEST_F(MemoryOfGpus, IsKeptAsLongAsUcxReadsIt) {
  EmulatedGpuMemory* const memory = EmulatedGpuMemory::Find();
  const int before = memory->live;
  for (int round = 0; round < 8; ++round) {
    Meet(GpuLanes(GpuTransfers::kDirect, true), GpuLanes(GpuTransfers::kDirect, true));
    at_b_.set_on_message([&](std::string_view, size_t bytes) -> PayloadSink {
      const Buffer buffer = Buffer::Allocate(memory, bytes);
      return {buffer.data(), [](const Status&) {}, buffer, true};
    });
    Completions sent;
    for (int i = 0; i < 12; ++i)
      a_->Send(b_of_a_, "", {Buffer::Allocate(memory, kBytes), 0, kBytes, true}, sent.Add());
    // The loss comes at another point of the transfers in each round: before they begin, or in
    // them.
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(round));
    (round % 3 == 0 ? a_ : b_)->Disconnect(round % 3 == 0 ? b_of_a_ : a_of_b_);
    if (round % 3 != 0) a_->Disconnect(b_of_a_);
    EXPECT_TRUE(sent.WaitForAll());
    TearDown();
    a_ = nullptr;
    b_ = nullptr;
    EXPECT_EQ(memory->live, before);
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(OfGpus, TransportConformance, ::testing::ValuesIn(OfGpus()), CaseName);

INSTANTIATE_TEST_SUITE_P(Lanes, TransportConformance,
                         ::testing::Values(Lanes("shared_memory", "^reference", "shm(posix"),
                                           Lanes("by_reference", "", "shm(posix", true),
                                           Lanes("tls_alone", "tls", "tls 1.3")),
                         CaseName);

}  // namespace monograph
