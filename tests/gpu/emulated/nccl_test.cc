// What the emulated NCCL refuses and waits for, as NCCL's documentation says that the real one
// does.
#include "executor/gpu/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/emulated/nccl_peers.h"

namespace monograph {
namespace {

constexpr size_t kBytes = 1000;

bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

ncclResult_t State(ncclComm_t comm) {
  ncclResult_t state = ncclNumResults;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}
// That it comes to in the end.
ncclResult_t Outcome(ncclComm_t comm) {
  EXPECT_TRUE(Eventually([&] { return State(comm) != ncclInProgress; }));
  return State(comm);
}

// Two cards, and a rank on each.
class EmulatedNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      Card& card = cards_[static_cast<size_t>(i)];
      ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
      ASSERT_EQ(cudaStreamCreateWithFlags(&card.stream, cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaEventCreateWithFlags(&card.event, cudaEventDisableTiming), cudaSuccess);
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&card.data), 2 * kBytes), cudaSuccess);
      ASSERT_EQ(cudaMemsetAsync(card.data, i + 1, kBytes, card.stream), cudaSuccess);
      ASSERT_EQ(cudaMemsetAsync(card.data + kBytes, 0, kBytes, card.stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(card.stream), cudaSuccess);
    }
    (void)cudaSetDevice(0);
  }
  void TearDown() override {
    for (const ncclComm_t comm : joined_) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (size_t i = 0; i < 2; ++i) {
      (void)cudaSetDevice(static_cast<int>(i));
      EXPECT_EQ(cudaFree(cards_[i].data), cudaSuccess);
      EXPECT_EQ(cudaEventDestroy(cards_[i].event), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(cards_[i].stream), cudaSuccess);
    }
    (void)cudaSetDevice(0);
    (void)cudaGetLastError();
  }

  ncclComm_t Join(const ncclUniqueId& id, int rank, int size, int device) {
    (void)cudaSetDevice(device);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclInProgress);
    joined_.push_back(comm);
    (void)cudaSetDevice(0);
    return comm;
  }
  void Abort(ncclComm_t comm) {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    std::erase(joined_, comm);
  }
  // A communicator of both cards.
  void JoinBoth() {
    const ncclUniqueId id = NewId();
    for (int i = 0; i < 2; ++i) comms_[static_cast<size_t>(i)] = Join(id, i, 2, i);
    for (const ncclComm_t comm : comms_) ASSERT_EQ(Outcome(comm), ncclSuccess);
  }
  ncclResult_t Send(int from, size_t bytes, size_t at = 0) {
    const Card& card = cards_[static_cast<size_t>(from)];
    return ncclSend(card.data + at, bytes, ncclUint8, 1 - from, comms_[static_cast<size_t>(from)],
                    card.stream);
  }
  ncclResult_t Receive(int to, size_t bytes, size_t at = kBytes) {
    const Card& card = cards_[static_cast<size_t>(to)];
    return ncclRecv(card.data + at, bytes, ncclUint8, 1 - to, comms_[static_cast<size_t>(to)],
                    card.stream);
  }
  // One group of each card: sends `sent` bytes and receives `received`.
  void Exchange(int rank, size_t sent, size_t received) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(Send(rank, sent), ncclSuccess);
    EXPECT_EQ(Receive(rank, received), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  void Record(int card) {
    (void)cudaSetDevice(card);
    const Card& c = cards_[static_cast<size_t>(card)];
    ASSERT_EQ(cudaEventRecord(c.event, c.stream), cudaSuccess);
    (void)cudaSetDevice(0);
  }
  bool Done(int card) {
    return cudaEventQuery(cards_[static_cast<size_t>(card)].event) == cudaSuccess;
  }
  // What the card's memory holds, as the host may read it here.
  int At(int card, size_t at) {
    return static_cast<int>(cards_[static_cast<size_t>(card)].data[at]);
  }

  struct Card {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    std::byte* data = nullptr;  // kBytes of the card's number + 1, and as many zeros
  };
  std::array<Card, 2> cards_;
  std::array<ncclComm_t, 2> comms_{};
  std::vector<ncclComm_t> joined_;
};

TEST_F(EmulatedNccl, IsWhatTheCodeThatCallsNcclOpens) {
  EXPECT_EQ(cuda::NcclVersion().value(),
            "NCCL " + std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + ".99");
}

TEST_F(EmulatedNccl, ACommunicatorMayBeUsedWhenAllHaveJoined) {
  const ncclUniqueId id = NewId();
  comms_[0] = Join(id, 0, 2, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(State(comms_[0]), ncclInProgress);
  EXPECT_EQ(Send(0, 1), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(comms_[0])).find("not done"), std::string::npos);
  comms_[1] = Join(id, 1, 2, 1);
  EXPECT_EQ(Outcome(comms_[0]), ncclSuccess);
  EXPECT_EQ(Outcome(comms_[1]), ncclSuccess);
}

TEST_F(EmulatedNccl, WhatIsSentIsReceivedInItsOrder) {
  JoinBoth();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(Receive(i, 300), ncclSuccess);
      EXPECT_EQ(Receive(i, 0), ncclSuccess);
      EXPECT_EQ(Receive(i, 100, kBytes + 500), ncclSuccess);
      EXPECT_EQ(Send(i, 300), ncclSuccess);
      EXPECT_EQ(Send(i, 0), ncclSuccess);
      EXPECT_EQ(Send(i, 100, 7), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(Outcome(comms_[static_cast<size_t>(i)]), ncclSuccess);
      Record(i);
      ASSERT_TRUE(Eventually([&] { return Done(i); }));
      EXPECT_EQ(At(i, kBytes + 299), 2 - i);
      EXPECT_EQ(At(i, kBytes + 300), 0);
      EXPECT_EQ(At(i, kBytes + 599), 2 - i);
    }
  }
}

TEST_F(EmulatedNccl, AnAllReduceAddsUp) {
  JoinBoth();
  for (int i = 0; i < 2; ++i) {
    const Card& card = cards_[static_cast<size_t>(i)];
    const auto comm = comms_[static_cast<size_t>(i)];
    ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
    // Bytes of 1 and of 2, as floats.
    ASSERT_EQ(ncclAllReduce(card.data, card.data + kBytes, kBytes / 4, ncclFloat32, ncclSum, comm,
                            card.stream),
              ncclInProgress);
    EXPECT_EQ(ncclAllReduce(card.data, card.data, 1, ncclFloat32, ncclMax, comm, card.stream),
              ncclInvalidUsage);
  }
  float one, two, sum;
  std::memset(&one, 1, sizeof one);
  std::memset(&two, 2, sizeof two);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Outcome(comms_[static_cast<size_t>(i)]), ncclSuccess);
    Record(i);
    ASSERT_TRUE(Eventually([&] { return Done(i); }));
    std::memcpy(&sum, cards_[static_cast<size_t>(i)].data + 2 * kBytes - 4, sizeof sum);
    EXPECT_EQ(sum, one + two);
    EXPECT_EQ(At(i, 0), i + 1);
  }
}

TEST_F(EmulatedNccl, ARankSendsToItselfWithinAGroup) {
  const ncclComm_t comm = Join(NewId(), 0, 1, 0);
  ASSERT_EQ(Outcome(comm), ncclSuccess);
  const Card& card = cards_[0];
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(card.data, kBytes, ncclUint8, 0, comm, card.stream), ncclSuccess);
  EXPECT_EQ(ncclRecv(card.data + kBytes, kBytes, ncclUint8, 0, comm, card.stream), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  ASSERT_EQ(Outcome(comm), ncclSuccess);
  Record(0);
  ASSERT_TRUE(Eventually([&] { return Done(0); }));
  EXPECT_EQ(At(0, 2 * kBytes - 1), 1);
  EXPECT_EQ(ncclSend(card.data, kBytes, ncclUint8, 0, comm, card.stream), ncclInvalidUsage);
}

TEST_F(EmulatedNccl, AGroupWithACallThatFailedDoesNothing) {
  JoinBoth();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  const Card& card = cards_[0];
  const std::vector<std::function<ncclResult_t()>> calls = {
      [&] { return ncclSend(card.data, 1, ncclUint8, 2, comms_[0], card.stream); },
      [&] { return ncclSend(card.data, 1, ncclUint8, -1, comms_[0], card.stream); },
      [&] { return ncclSend(nullptr, 1, ncclUint8, 1, comms_[0], card.stream); },
      [&] { return ncclSend(card.data, 1, ncclNumTypes, 1, comms_[0], card.stream); },
      [&] { return ncclRecv(card.data, 1, ncclUint8, 1, nullptr, card.stream); }};
  for (const auto& call : calls) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(Send(0, 1), ncclSuccess);
    EXPECT_EQ(call(), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(State(comms_[0]), ncclSuccess);
  }
  Record(0);
  EXPECT_TRUE(Eventually([&] { return Done(0); }));
}

TEST_F(EmulatedNccl, TheFirstExchangeIsEnqueuedWhenTheOtherRankBeginsOne) {
  JoinBoth();
  Exchange(0, 10, 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(State(comms_[0]), ncclInProgress);
  EXPECT_EQ(Send(0, 1), ncclInvalidArgument);
  Exchange(1, 10, 10);
  EXPECT_EQ(Outcome(comms_[0]), ncclSuccess);
  EXPECT_EQ(Outcome(comms_[1]), ncclSuccess);
  // Later ones are, before.
  Exchange(0, 10, 10);
  EXPECT_EQ(Outcome(comms_[0]), ncclSuccess);
  Record(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(Done(0));
  Exchange(1, 10, 10);
  EXPECT_TRUE(Eventually([&] { return Done(0); }));
}

TEST_F(EmulatedNccl, RanksThatDoNotFitTogetherAreRefused) {
  const auto expect_refused = [&](std::array<int, 2> ranks, std::array<int, 2> devices,
                                  const std::string& why) {
    const ncclUniqueId id = NewId();
    const ncclComm_t one = Join(id, ranks[0], 2, devices[0]);
    const ncclComm_t other = Join(id, ranks[1], 2, devices[1]);
    EXPECT_TRUE(Eventually(
        [&] { return State(one) == ncclInvalidUsage || State(other) == ncclInvalidUsage; }));
    EXPECT_NE(std::string(ncclGetLastError(one)).find(why), std::string::npos)
        << ncclGetLastError(one);
    Abort(one);
    Abort(other);
  };
  expect_refused({0, 1}, {0, 0}, "Duplicate GPU detected");
  expect_refused({0, 0}, {0, 1}, "rank 0 has joined already");
}

TEST_F(EmulatedNccl, WhatIsNoCommunicatorIsNotJoined) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, NewId(), 2, &config), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 0, NewId(), 0, &config), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, ncclUniqueId{}, 0, &config), ncclInvalidArgument);
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, NewId(), 0, &config), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, NewId(), 0, &config), ncclInvalidUsage);
  EXPECT_EQ(comm, nullptr);
}

TEST_F(EmulatedNccl, OtherBytesThanTheRankSendsAreAnErrorAndNoEnd) {
  JoinBoth();
  Exchange(0, 100, 100);
  Exchange(1, 100, 99);
  EXPECT_TRUE(Eventually([&] { return State(comms_[1]) == ncclInvalidUsage; }));
  EXPECT_NE(std::string(ncclGetLastError(comms_[1])).find("rank 0 sends 100 bytes"),
            std::string::npos)
      << ncclGetLastError(comms_[1]);
  EXPECT_EQ(Send(1, 1), ncclInvalidUsage);
  Record(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(Done(1));
  Abort(comms_[1]);
  EXPECT_TRUE(Eventually([&] { return Done(1); }));
}

TEST_F(EmulatedNccl, AStreamIsThatOfTheCommunicatorsDevice) {
  JoinBoth();
  for (int i = 0; i < 2; ++i) {
    const size_t other = static_cast<size_t>(1 - i);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(cards_[static_cast<size_t>(i)].data, 1, ncclUint8, 1 - i,
                       comms_[static_cast<size_t>(i)], cards_[other].stream),
              ncclSuccess);
    EXPECT_EQ(ncclRecv(cards_[static_cast<size_t>(i)].data, 1, ncclUint8, 1 - i,
                       comms_[static_cast<size_t>(i)], cards_[other].stream),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  EXPECT_EQ(Outcome(comms_[0]), ncclUnhandledCudaError);
  EXPECT_EQ(Outcome(comms_[1]), ncclUnhandledCudaError);
}

TEST_F(EmulatedNccl, MemoryIsThatOfTheCommunicatorsDevice) {
  JoinBoth();
  std::byte here[8] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(Send(i, 8), ncclSuccess);
    EXPECT_EQ(ncclRecv(here, 8, ncclUint8, 1 - i, comms_[static_cast<size_t>(i)],
                       cards_[static_cast<size_t>(i)].stream),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  }
  EXPECT_EQ(Outcome(comms_[0]), ncclUnhandledCudaError);
  EXPECT_EQ(Outcome(comms_[1]), ncclUnhandledCudaError);
}

// Within one, NCCL sets it itself.
TEST_F(EmulatedNccl, OutsideOfAGroupTheThreadsDeviceIsTheCommunicators) {
  JoinBoth();
  EXPECT_EQ(Send(1, 10), ncclInvalidUsage);
  EXPECT_EQ(Send(0, 10), ncclInProgress);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(Receive(1, 10), ncclInProgress);
  ASSERT_EQ(Outcome(comms_[1]), ncclSuccess);
  Record(1);
  ASSERT_TRUE(Eventually([&] { return Done(1); }));
  EXPECT_EQ(At(1, kBytes + 9), 1);
}

// Each launch of the graphs is an exchange; none happens while they are captured.
TEST_F(EmulatedNccl, ACapturedExchangeIsMadeByEachLaunchAndItsGraphEndsBeforeTheCommunicator) {
  JoinBoth();
  std::array<cudaGraphExec_t, 2> graphs{};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(cards_[static_cast<size_t>(i)].stream,
                                     cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
  }
  for (int i = 0; i < 2; ++i) Exchange(i, 10, 10);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Outcome(comms_[static_cast<size_t>(i)]), ncclSuccess);
    ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(cards_[static_cast<size_t>(i)].stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&graphs[static_cast<size_t>(i)], graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(At(1, kBytes), 0);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2; ++i) {
      const Card& card = cards_[static_cast<size_t>(i)];
      ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
      ASSERT_EQ(cudaMemsetAsync(card.data, i + 1 + 2 * round, kBytes, card.stream), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(graphs[static_cast<size_t>(i)], card.stream), cudaSuccess);
      Record(i);
    }
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Eventually([&] { return Done(i); }));
    EXPECT_EQ(At(1, kBytes + 9), 1 + 2 * round);
    EXPECT_EQ(At(0, kBytes), 2 + 2 * round);
  }
  for (const cudaGraphExec_t graph : graphs) EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

TEST_F(EmulatedNccl, ASecondStreamIsNotEmulated) {
  JoinBoth();
  for (int i = 0; i < 2; ++i) Exchange(i, 1, 1);
  // An exchange that still runs would hold up the end of its communicator's peer.
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Outcome(comms_[static_cast<size_t>(i)]), ncclSuccess);
    Record(i);
    ASSERT_TRUE(Eventually([&] { return Done(i); }));
  }
  cudaStream_t second = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(ncclSend(cards_[0].data, 1, ncclUint8, 1, comms_[0], second), ncclInvalidUsage);
  EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
}

// Nobody tells the others, who are to be aborted, too.
TEST_F(EmulatedNccl, AbortEndsWhatIsEnqueuedOnItsRankAlone) {
  JoinBoth();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2; ++i) Exchange(i, 10, 10);
    for (const ncclComm_t comm : comms_) ASSERT_EQ(Outcome(comm), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int more = 0; more < 2; ++more) EXPECT_EQ(Receive(1, 10), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  ASSERT_EQ(Outcome(comms_[1]), ncclSuccess);
  Record(1);
  EXPECT_FALSE(Done(1));
  Abort(comms_[1]);
  EXPECT_TRUE(Eventually([&] { return Done(1); }));
  EXPECT_EQ(ncclCommAbort(comms_[1]), ncclInvalidArgument);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comms_[1], &state), ncclInvalidArgument);
  EXPECT_EQ(Send(1, 1), ncclInvalidArgument);
  Exchange(0, 10, 10);
  EXPECT_EQ(Outcome(comms_[0]), ncclSuccess);
  Record(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(Done(0));
  EXPECT_EQ(State(comms_[0]), ncclSuccess);
  // Another one comes meanwhile.
  const ncclUniqueId id = NewId();
  const ncclComm_t next = Join(id, 0, 2, 0);
  EXPECT_EQ(State(next), ncclInProgress);
  Abort(comms_[0]);
  EXPECT_TRUE(Eventually([&] { return Done(0); }));
  const ncclComm_t other = Join(id, 1, 2, 1);
  EXPECT_EQ(Outcome(next), ncclSuccess);
  EXPECT_EQ(Outcome(other), ncclSuccess);
}

TEST_F(EmulatedNccl, WhatIsRegisteredIsItsOwnMemoryAndNoOtherMaySendThen) {
  JoinBoth();
  void *own = nullptr, *handle = nullptr;
  ASSERT_EQ(ncclMemAlloc(&own, 2 * kBytes), ncclSuccess);
  EXPECT_EQ(ncclCommRegister(comms_[0], cards_[0].data, kBytes, &handle), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comms_[0], own, 3 * kBytes, &handle), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comms_[0], own, 2 * kBytes, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommRegister(comms_[0], own, 2 * kBytes, &handle), ncclInvalidUsage);
  EXPECT_EQ(Send(0, 10), ncclInvalidUsage);
  EXPECT_EQ(ncclAllReduce(own, own, 10, ncclFloat32, ncclSum, comms_[0], cards_[0].stream),
            ncclInvalidUsage);
  EXPECT_EQ(ncclSend(own, 10, ncclUint8, 1, comms_[0], cards_[0].stream), ncclInProgress);
  EXPECT_EQ(ncclMemFree(cards_[0].data), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(own), ncclInvalidUsage);
  Abort(comms_[0]);
  EXPECT_EQ(ncclMemFree(own), ncclSuccess);
}

TEST_F(EmulatedNccl, AbortEndsJoiningAndTheFirstExchange) {
  Abort(Join(NewId(), 0, 2, 0));
  JoinBoth();
  Exchange(0, 10, 10);
  Abort(comms_[0]);
}

// A rank of another process, which then is gone.
TEST_F(EmulatedNccl, ARankWhoseProcessIsGoneIsAnErrorWhereItIsWaitedFor) {
  const std::string place = "test" + std::to_string(getpid());
  const pid_t child = fork();
  const auto go_on = [] { return false; };
  if (child == 0) {
    emulated::Peers peers(1, 2);
    const int zero[] = {0};
    const bool met =
        peers.Meet(place, "card 1", go_on).outcome == emulated::Peers::Outcome::kDone &&
        peers.Connect(zero, go_on).outcome == emulated::Peers::Outcome::kDone;
    std::byte byte{7};
    const emulated::Send send{0, &byte, 1};
    const bool sent =
        peers.Exchange({&send, 1}, {}, go_on).outcome == emulated::Peers::Outcome::kDone;
    _exit(met && sent ? 42 : 1);
  }
  emulated::Peers peers(0, 2);
  const int one[] = {1};
  ASSERT_EQ(peers.Meet(place, "card 0", go_on).outcome, emulated::Peers::Outcome::kDone);
  ASSERT_EQ(peers.Connect(one, go_on).outcome, emulated::Peers::Outcome::kDone);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  // What it sent before comes.
  std::byte byte{};
  const emulated::Receive receive{1, &byte, 1};
  EXPECT_EQ(peers.Exchange({}, {&receive, 1}, go_on).outcome, emulated::Peers::Outcome::kDone);
  EXPECT_EQ(byte, std::byte{7});
  const emulated::Peers::End end = peers.Exchange({}, {&receive, 1}, go_on);
  EXPECT_EQ(end.outcome, emulated::Peers::Outcome::kLost);
  EXPECT_EQ(end.why, "the process of rank 1 is gone");
}

}  // namespace
}  // namespace monograph
