// The CUDA driver and the device above it, on a GPU. Without one each test skips and says why.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "executor/gpu/cuda/captured.h"
#include "executor/gpu/cuda/driver.h"
#include "executor/gpu/cuda/make_devices.h"
#include "executor/gpu/cuda/stream.h"
#include "executor/gpu/gpu_device.h"
#include "tests/executor/cuda/kernels.h"

namespace monograph {
namespace {

using cudatest::AddOne;
using cudatest::Poke;
using cudatest::SlowFill;

constexpr int64_t kCount = 1 << 16;
constexpr size_t kBytes = kCount * sizeof(int32_t);

// "" if there is a GPU, else why not.
std::string WhyNoGpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(error);
  return count > 0 ? "" : "no GPU: the driver finds none";
}

class CudaDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
    driver_ = cuda::MakeCudaDriver(0, GpuOptions()).value();
    ASSERT_TRUE(driver_->Enter().ok());
    data_ = static_cast<int32_t*>(driver_->AllocateDevice(kBytes).value());
    host_ = static_cast<int32_t*>(driver_->AllocatePinned(kBytes).value());
    std::memset(host_, 0, kBytes);
  }
  void TearDown() override {
    if (driver_ == nullptr) return;
    driver_->FreeDevice(data_);
    driver_->FreePinned(host_);
  }
  CUstream_st* compute() { return static_cast<cuda::Stream*>(driver_->stream())->stream; }
  EventId Event(bool timed = false) { return driver_->MakeEvent(timed).value(); }
  bool WaitDone(EventId event) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const Result<bool> done = driver_->Done(event);
      EXPECT_TRUE(done.ok()) << done.status();
      if (!done.ok() || *done) return done.ok();
      std::this_thread::yield();
    }
    return false;
  }

  std::shared_ptr<StreamDriver> driver_;
  int32_t* data_ = nullptr;
  int32_t* host_ = nullptr;
};

TEST_F(CudaDriver, ACopyBehindAnEventSeesWhatASlowKernelWrote) {
  const EventId filled = Event(), copied = Event();
  int ran_on = 0;  // rounds in which the kernel still ran when the host went on
  for (int32_t round = 1; round <= 20; ++round) {
    SlowFill(compute(), data_, round, kCount, 2000);
    ASSERT_TRUE(driver_->Record(filled, Queue::kCompute).ok());
    if (!driver_->Done(filled).value()) ++ran_on;
    ASSERT_TRUE(driver_->Wait(Queue::kToHost, *driver_, filled).ok());
    ASSERT_TRUE(driver_->Copy(Queue::kToHost, host_, data_, kBytes).ok());
    ASSERT_TRUE(driver_->Record(copied, Queue::kToHost).ok());
    ASSERT_TRUE(WaitDone(copied));
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(host_[i], round) << i;
  }
  EXPECT_GT(ran_on, 0);
}

TEST_F(CudaDriver, AKernelBehindAnEventSeesWhatACopyBrought) {
  const EventId brought = Event(), copied = Event();
  for (int32_t round = 1; round <= 20; ++round) {
    for (int64_t i = 0; i < kCount; ++i) host_[i] = round;
    ASSERT_TRUE(driver_->Copy(Queue::kToDevice, data_, host_, kBytes).ok());
    ASSERT_TRUE(driver_->Record(brought, Queue::kToDevice).ok());
    ASSERT_TRUE(driver_->Wait(Queue::kCompute, *driver_, brought).ok());
    AddOne(compute(), data_, kCount);
    ASSERT_TRUE(driver_->Record(copied, Queue::kCompute).ok());
    ASSERT_TRUE(driver_->Wait(Queue::kToHost, *driver_, copied).ok());
    ASSERT_TRUE(driver_->Copy(Queue::kToHost, host_, data_, kBytes).ok());
    ASSERT_TRUE(driver_->Record(copied, Queue::kToHost).ok());
    ASSERT_TRUE(WaitDone(copied));
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(host_[i], round + 1) << i;
  }
}

TEST_F(CudaDriver, AGraphRunsOncePerLaunchAndNotWhileItIsCaptured) {
  const EventId done = Event();
  SlowFill(compute(), data_, 5, kCount, 0);
  ASSERT_TRUE(driver_->BeginCapture().ok());
  for (int i = 0; i < 10; ++i) AddOne(compute(), data_, kCount);
  // The pool may grow meanwhile.
  Result<void*> more = driver_->AllocateDevice(1 << 20);
  EXPECT_TRUE(more.ok()) << more.status();
  const Result<GraphId> graph = driver_->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(driver_->Launch(*graph).ok());
  ASSERT_TRUE(driver_->Record(done, Queue::kCompute).ok());
  ASSERT_TRUE(WaitDone(done));
  ASSERT_TRUE(driver_->Copy(Queue::kToHost, host_, data_, kBytes).ok());
  ASSERT_TRUE(driver_->Record(done, Queue::kToHost).ok());
  ASSERT_TRUE(WaitDone(done));
  EXPECT_EQ(host_[0], 205);
  EXPECT_EQ(host_[kCount - 1], 205);
  driver_->DropGraph(*graph);
  if (more.ok()) driver_->FreeDevice(*more);
}

TEST_F(CudaDriver, AGraphKeepsWhatItsKernelsNeedUntilItIsDropped) {
  auto& stream = *static_cast<cuda::Stream*>(driver_->stream());
  std::weak_ptr<const int> needed, elsewhere;
  const auto keep = [&](std::weak_ptr<const int>* seen) {
    auto need = std::make_shared<const int>(1);
    *seen = need;
    cuda::KeepForGraph(stream, std::move(need));
  };
  ASSERT_TRUE(driver_->BeginCapture().ok());
  AddOne(compute(), data_, kCount);
  keep(&needed);
  const Result<GraphId> graph = driver_->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  keep(&elsewhere);  // nothing is captured any more
  EXPECT_TRUE(elsewhere.expired());
  EXPECT_FALSE(needed.expired());
  driver_->DropGraph(*graph);
  EXPECT_TRUE(needed.expired());
}

TEST_F(CudaDriver, TimedEventsTellHowLongAKernelRan) {
  const EventId begin = Event(true), end = Event(true);
  ASSERT_TRUE(driver_->Record(begin, Queue::kCompute).ok());
  SlowFill(compute(), data_, 1, 1, 5000);
  ASSERT_TRUE(driver_->Record(end, Queue::kCompute).ok());
  ASSERT_TRUE(WaitDone(end));
  EXPECT_GE(driver_->ElapsedNs(begin, end).value(), 4'900'000);
}

TEST_F(CudaDriver, TwoPartsOfOneGpuExchangeMemory) {
  auto other = cuda::MakeCudaDriver(0, GpuOptions()).value();
  auto* there = static_cast<int32_t*>(other->AllocateDevice(kBytes).value());
  const EventId filled = Event(), done = other->MakeEvent(false).value();
  SlowFill(compute(), data_, 77, kCount, 3000);
  ASSERT_TRUE(driver_->Record(filled, Queue::kCompute).ok());
  ASSERT_TRUE(other->Wait(Queue::kPeer, *driver_, filled).ok());
  ASSERT_TRUE(other->CopyFromPeer(there, *driver_, data_, kBytes).ok());
  ASSERT_TRUE(other->Record(done, Queue::kPeer).ok());
  ASSERT_TRUE(other->Wait(Queue::kToHost, *other, done).ok());
  ASSERT_TRUE(other->Copy(Queue::kToHost, host_, there, kBytes).ok());
  const EventId copied = other->MakeEvent(false).value();
  ASSERT_TRUE(other->Record(copied, Queue::kToHost).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!other->Done(copied).value() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(host_[kCount - 1], 77);
  other->FreeDevice(there);
}

TEST_F(CudaDriver, MemoryThatIsToBePoisonedIsFullOfNaN) {
  setenv("MONOGRAPH_GPU_POISON", "1", 1);
  const auto poisons = cuda::MakeCudaDriver(0, GpuOptions()).value();
  unsetenv("MONOGRAPH_GPU_POISON");
  void* const data = poisons->AllocateDevice(kBytes).value();
  const EventId copied = Event();
  ASSERT_TRUE(driver_->Copy(Queue::kToHost, host_, data, kBytes).ok());
  ASSERT_TRUE(driver_->Record(copied, Queue::kToHost).ok());
  ASSERT_TRUE(WaitDone(copied));
  EXPECT_EQ(std::count(host_, host_ + kCount, -1), kCount);
  poisons->FreeDevice(data);
}

TEST(CudaDrivers, WorkOnTheirOwnGpuOnThreadsThatHaveNamedNone) {
  if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) GTEST_SKIP() << "there is one GPU only";
  auto driver = cuda::MakeCudaDriver(1, GpuOptions()).value();
  constexpr size_t kTaken = size_t{64} << 20;
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  };
  const size_t before = free_bytes();
  void* data = nullptr;
  std::thread([&] { data = driver->AllocateDevice(kTaken).value(); }).join();
  EXPECT_LE(free_bytes() + kTaken, before) << "it is another GPU's memory";
  std::thread([&] {
    const EventId event = driver->MakeEvent(false).value();
    EXPECT_TRUE(driver->Record(event, Queue::kToDevice).ok());
    EXPECT_TRUE(driver->Wait(Queue::kCompute, *driver, event).ok());
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 1);
    driver->DropEvent(event);
    driver->FreeDevice(data);
  }).join();
}

TEST(CudaDevices, AreSplitAndLimitedAsTheOptionsSay) {
  if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
  const DeviceName task = DeviceName::Parse("/job:test/replica:0/task:0").value();
  auto devices = cuda::MakeDevices(
      task, {.visible_device_list = "0", .virtual_device_memory_mb = {{64, 128}}});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1]->name(), "/job:test/replica:0/task:0/device:GPU:1");
  EXPECT_EQ((*devices)[0]->gpu()->memory().limit(), size_t{64} << 20);
  EXPECT_TRUE(Buffer::Allocate((*devices)[0]->allocator(), size_t{60} << 20));
  EXPECT_FALSE(Buffer::Allocate((*devices)[0]->allocator(), size_t{65} << 20));
  EXPECT_TRUE(Buffer::Allocate((*devices)[1]->allocator(), size_t{120} << 20));
  devices->clear();
  EXPECT_EQ(cuda::MakeDevices(task, {.device_count = 1,
                                     .visible_device_list = "0",
                                     .virtual_device_memory_mb = {{64, 64}}})
                .value()
                .size(),
            1u);
  const auto none = cuda::MakeDevices(task, {.visible_device_list = "99"});
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  const auto too_much = cuda::MakeDevices(
      task, {.visible_device_list = "0", .virtual_device_memory_mb = {{int64_t{1} << 30}}});
  EXPECT_EQ(too_much.status().code(), Code::kResourceExhausted);
}

// A context is lost for the whole process: each in one of its own.
struct Waiting : Arrival {
  std::mutex mutex;
  std::condition_variable changed;
  bool arrived = false;
  Status status;
  void Arrived(const Status& how) override {
    std::lock_guard lock(mutex);
    status = how;
    arrived = true;
    changed.notify_all();
  }
};

void LoseTheContext(bool exit_when_lost) {
  auto devices =
      cuda::MakeDevices(
          DeviceName::Parse("/job:test/replica:0/task:0").value(),
          {.device_count = 1, .virtual_device_memory_mb = {{64}}, .exit_when_lost = exit_when_lost})
          .value();
  GpuDevice& gpu = *devices[0]->gpu();
  struct Task : LaunchTask {
    GpuDevice* gpu = nullptr;
    Waiting waiting;
    void Run() override {
      const uint64_t tick = gpu->BeginSegment();
      Poke(static_cast<cuda::Stream*>(gpu->stream())->stream);
      (void)gpu->EndSegment(tick);
      gpu->AwaitLast(Queue::kCompute, &waiting);
    }
  } task;
  task.gpu = &gpu;
  gpu.Post(&task);
  std::unique_lock lock(task.waiting.mutex);
  if (!task.waiting.changed.wait_for(lock, std::chrono::seconds(30),
                                     [&] { return task.waiting.arrived; }))
    std::_Exit(1);
  const bool told = task.waiting.status.code() == Code::kUnavailable &&
                    gpu.health().message().find("is lost") != std::string::npos;
  if (exit_when_lost) task.waiting.changed.wait_for(lock, std::chrono::seconds(20));
  std::_Exit(told && !exit_when_lost ? 42 : 1);
}

TEST(CudaDeathTest, AnIllegalAddressLosesTheContextAndHangsNobody) {
  if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LoseTheContext(false), ::testing::ExitedWithCode(42), "is lost");
}

TEST(CudaDeathTest, AProcessThatIsToEndWhenItsContextIsLostEndsWith75) {
  if (const std::string why = WhyNoGpu(); !why.empty()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LoseTheContext(true), ::testing::ExitedWithCode(75), "is lost");
}

}  // namespace
}  // namespace monograph
