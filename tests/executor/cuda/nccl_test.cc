// NCCL as the plug-in uses it. It loads and gives ids on every machine; the rest needs a GPU.
#include "executor/gpu/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "executor/gpu/cuda/driver.h"
#include "executor/gpu/driver.h"

namespace monograph {
namespace {

bool HaveGpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(Nccl, IsOpenedAndGivesADifferentIdEachTime) {
  const Result<std::string> version = cuda::NcclVersion();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_TRUE(version->starts_with("NCCL 2.")) << *version;
  const auto nccl = cuda::MakeNcclCommunicators(nullptr, /*any_order=*/false);
  const Result<std::string> one = nccl->NewId(), other = nccl->NewId();
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_EQ(one->size(), 128u);
  EXPECT_NE(*one, *other);
}

TEST(Nccl, AnIdThatIsNoneIsRefused) {
  const auto nccl = cuda::MakeNcclCommunicators(nullptr, /*any_order=*/false);
  EXPECT_EQ(nccl->Join("short", 0, 2).status().code(), Code::kDataLoss);
}

TEST(Nccl, JoiningWithoutAGpuIsAnErrorAndNoWait) {
  if (HaveGpu()) GTEST_SKIP() << "this machine has a GPU";
  const auto nccl = cuda::MakeNcclCommunicators(nullptr, /*any_order=*/false);
  const Result<std::string> id = nccl->NewId();
  ASSERT_TRUE(id.ok()) << id.status();
  auto joined = nccl->Join(*id, 0, 2);
  Status status = joined.status();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (status.ok() && std::chrono::steady_clock::now() < deadline) {
    const Result<bool> ready = (*joined)->Ready();
    ASSERT_FALSE(ready.ok() && *ready);
    status = ready.status();
    std::this_thread::yield();
  }
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("NCCL"), std::string::npos) << status;
}

// One card allows only one rank, which may send to itself. The memory comes after it has joined.
void ExchangeWithItself() {
  const auto driver = cuda::MakeCudaDriver(0, GpuOptions()).value();
  ASSERT_TRUE(driver->Enter().ok());
  ASSERT_NE(driver->communicators(), nullptr);
  auto communicator =
      driver->communicators()->Join(driver->communicators()->NewId().value(), 0, 1).value();
  const auto wait = [&](auto done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const Result<bool> is = done();
      if (!is.ok() || *is) return is.status();
      std::this_thread::yield();
    }
    return DeadlineExceeded("a minute has passed");
  };
  ASSERT_TRUE(wait([&] { return communicator->Ready(); }).ok());
  constexpr size_t kBytes = size_t{1} << 20;
  auto* host = static_cast<char*>(driver->AllocatePinned(kBytes).value());
  auto* result = static_cast<char*>(driver->AllocatePinned(kBytes).value());
  auto* from = static_cast<char*>(driver->AllocateDevice(kBytes).value());
  auto* to = static_cast<char*>(driver->AllocateDevice(kBytes).value());
  const EventId event = driver->MakeEvent(false).value();
  for (int round = 1; round <= 3; ++round) {
    std::memset(host, round, kBytes);
    ASSERT_TRUE(driver->Copy(Queue::kToDevice, from, host, kBytes).ok());
    ASSERT_TRUE(driver->Record(event, Queue::kToDevice).ok());
    ASSERT_TRUE(driver->Wait(Queue::kMembers, *driver, event).ok());
    const Communicator::Send send{0, from, kBytes};
    const Communicator::Receive receive{0, to, kBytes};
    const Status exchanged = communicator->Exchange({&send, 1}, {&receive, 1});
    ASSERT_TRUE(exchanged.ok()) << exchanged;
    ASSERT_TRUE(wait([&] { return communicator->Ready(); }).ok());
    ASSERT_TRUE(driver->Record(event, Queue::kMembers).ok());
    ASSERT_TRUE(driver->Wait(Queue::kToHost, *driver, event).ok());
    std::memset(result, 0, kBytes);  // the other one may not be read yet
    ASSERT_TRUE(driver->Copy(Queue::kToHost, result, to, kBytes).ok());
    ASSERT_TRUE(driver->Record(event, Queue::kToHost).ok());
    ASSERT_TRUE(wait([&] { return driver->Done(event); }).ok());
    for (size_t i = 0; i < kBytes; i += 4099) ASSERT_EQ(result[i], round);
  }
  communicator = nullptr;
  driver->DropEvent(event);
  driver->FreeDevice(from);
  driver->FreeDevice(to);
  driver->FreePinned(host);
  driver->FreePinned(result);
}

TEST(Nccl, ARankExchangesWithItselfOnTheQueueOfCollectives) {
  if (!HaveGpu()) GTEST_SKIP() << "no GPU";
  ExchangeWithItself();
}

TEST(Nccl, ARankExchangesWithItselfFromARegisteredPool) {
  if (!HaveGpu()) GTEST_SKIP() << "no GPU";
  setenv("MONOGRAPH_NCCL_POOL", "1", 1);
  EXPECT_TRUE(cuda::WantsNcclPool(GpuOptions()));
  EXPECT_FALSE(cuda::WantsNcclPool({.deterministic = false}));
  ExchangeWithItself();
  unsetenv("MONOGRAPH_NCCL_POOL");
}

}  // namespace
}  // namespace monograph
