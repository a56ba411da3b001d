#include "tests/conformance/transport/transport_suite.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>

#include "base/pool_allocator.h"

namespace monograph {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

steady_clock::time_point In(milliseconds time) { return steady_clock::now() + time; }

void Recorder::set_on_message(OnMessageFunction function) {
  std::lock_guard lock(mutex_);
  on_message_ = std::move(function);
}

void Recorder::set_on_delivered(OnDeliveredFunction function) {
  std::lock_guard lock(mutex_);
  on_delivered_ = std::move(function);
}

namespace {
Allocator* gpu_memory = nullptr;  // of the case that runs
}

PayloadSink Recorder::OnMessage(std::string_view header, size_t payload_bytes) {
  return Take(header, payload_bytes, HostAllocator());
}

PayloadSink Recorder::OnGpuMessage(std::string_view header, size_t payload_bytes) {
  return Take(header, payload_bytes, gpu_memory != nullptr ? gpu_memory : HostAllocator());
}

PayloadSink Recorder::Take(std::string_view header, size_t payload_bytes, Allocator* memory) {
  OnMessageFunction function;
  {
    std::lock_guard lock(mutex_);
    headers_.emplace_back(header);
    function = on_message_;
  }
  if (function) return function(header, payload_bytes);
  Buffer buffer = Buffer::Allocate(memory, payload_bytes);
  void* data = buffer.data();
  const auto add = [this, buffer, payload_bytes, name = std::string(header)](const Status& status) {
    Add({name, Payload{buffer, 0, payload_bytes}, status});
  };
  return {data, add, buffer, !memory->on_host()};
}

void Recorder::OnDelivered(std::string_view header, Payload payload) {
  OnDeliveredFunction function;
  {
    std::lock_guard lock(mutex_);
    headers_.emplace_back(header);
    function = on_delivered_;
  }
  if (function) {
    function(header, std::move(payload));
  } else {
    Add({std::string(header), std::move(payload), Status()});
  }
}

void Recorder::Add(Message message) {
  std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  changed_.notify_all();
}

bool Recorder::WaitFor(size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, seconds(20), [&] { return messages_.size() >= count; });
}

size_t Recorder::count() const {
  std::lock_guard lock(mutex_);
  return messages_.size();
}

std::vector<Recorder::Message> Recorder::messages() const {
  std::lock_guard lock(mutex_);
  return messages_;
}

std::vector<std::string> Recorder::header_order() const {
  std::lock_guard lock(mutex_);
  return headers_;
}

Done Completions::Add() {
  std::lock_guard lock(state_->mutex);
  ++state_->added;
  return [state = state_](const Status& status) {
    std::lock_guard inner(state->mutex);
    state->codes.push_back(status.code());
    state->changed.notify_all();
  };
}

bool Completions::WaitForAll() {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(
      lock, seconds(20), [&] { return static_cast<int>(state_->codes.size()) >= state_->added; });
}

int Completions::added() const {
  std::lock_guard lock(state_->mutex);
  return state_->added;
}

int Completions::ran() const {
  std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->codes.size());
}

int Completions::ok() const { return with(Code::kOk); }

int Completions::with(Code code) const {
  std::lock_guard lock(state_->mutex);
  return static_cast<int>(std::count(state_->codes.begin(), state_->codes.end(), code));
}

Payload MakePayload(size_t bytes, uint32_t seed) {
  const bool on_gpu = gpu_memory != nullptr;
  Payload payload{Buffer::Allocate(on_gpu ? gpu_memory : HostAllocator(), bytes), 0, bytes, on_gpu};
  auto* data = static_cast<unsigned char*>(payload.buffer.data());
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 13);
  return payload;
}

bool PayloadIs(const Payload& payload, size_t bytes, uint32_t seed) {
  if (payload.bytes != bytes) return false;
  const Payload expected = MakePayload(bytes, seed);
  return bytes == 0 || std::memcmp(payload.data(), expected.data(), bytes) == 0;
}

std::unique_ptr<Transport> TransportConformance::Make(MessageHandler* handler) {
  auto made = GetParam().make(handler);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? std::move(made).value() : nullptr;
}

void TransportConformance::Shut(std::unique_ptr<Transport>& transport) {
  if (transport == nullptr) return;
  transport->Close();
  transport->Join();
  transport.reset();
}

TransportConformance::~TransportConformance() { gpu_memory = nullptr; }

void TransportConformance::SetUp() {
  gpu_memory = GetParam().gpu;
  a_ = Make(&at_a_);
  b_ = Make(&at_b_);
  ASSERT_NE(a_, nullptr);
  ASSERT_NE(b_, nullptr);
  auto b_of_a = a_->Connect(b_->address(), "/job:b");
  auto a_of_b = b_->Connect(a_->address(), "/job:a");
  ASSERT_TRUE(b_of_a.ok()) << b_of_a.status();
  ASSERT_TRUE(a_of_b.ok()) << a_of_b.status();
  b_of_a_ = *b_of_a;
  a_of_b_ = *a_of_b;
}

void TransportConformance::TearDown() {
  Shut(a_);
  Shut(b_);
}

TEST_P(TransportConformance, DeliversPayloadsOfEverySize) {
  const std::vector<size_t> sizes = {0,    1,    7,     64,    1000,   4096,    8191,
                                     8192, 8257, 20000, 65536, 300001, 1 << 20, 5 << 20};
  Completions sent;
  for (size_t i = 0; i < sizes.size(); ++i) {
    a_->Send(b_of_a_, "size " + std::to_string(i), MakePayload(sizes[i], static_cast<uint32_t>(i)),
             sent.Add());
  }
  ASSERT_TRUE(at_b_.WaitFor(sizes.size()));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), sent.added());
  for (const auto& message : at_b_.messages()) {
    const size_t i = std::stoul(message.header.substr(5));
    EXPECT_TRUE(message.status.ok()) << message.status;
    EXPECT_TRUE(PayloadIs(message.payload, sizes[i], static_cast<uint32_t>(i)))
        << sizes[i] << " bytes";
  }
}

TEST_P(TransportConformance, SendsPartOfABuffer) {
  Payload whole = MakePayload(100000, 3);
  Completions sent;
  a_->Send(b_of_a_, "part", Payload{whole.buffer, 5000, 20000}, sent.Add());
  ASSERT_TRUE(at_b_.WaitFor(1));
  const auto message = at_b_.messages()[0];
  ASSERT_EQ(message.payload.bytes, 20000u);
  EXPECT_EQ(
      std::memcmp(message.payload.data(), static_cast<char*>(whole.buffer.data()) + 5000, 20000),
      0);
  EXPECT_TRUE(sent.WaitForAll());
}

TEST_P(TransportConformance, DeliversHeadersWithoutPayload) {
  const std::string longest(kMaxHeaderBytes, 'h');
  a_->Send(b_of_a_, "", {}, nullptr);
  a_->Send(b_of_a_, "x", {}, nullptr);
  a_->Send(b_of_a_, longest, {}, nullptr);
  a_->Send(b_of_a_, longest, MakePayload(100000, 1), nullptr);
  ASSERT_TRUE(at_b_.WaitFor(4));
  EXPECT_EQ(at_b_.header_order(), (std::vector<std::string>{"", "x", longest, longest}));
}

TEST_P(TransportConformance, RefusesAHeaderThatIsTooLong) {
  Completions sent;
  a_->Send(b_of_a_, std::string(kMaxHeaderBytes + 1, 'h'), {}, sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.with(Code::kInvalidArgument), 1);
}

TEST_P(TransportConformance, KeepsTheOrderOfHeaders) {
  std::vector<std::string> expected;
  for (int i = 0; i < 600; ++i) {
    expected.push_back(std::to_string(i));
    const size_t bytes = i % 7 == 3 ? 200000 : i % 3 == 0 ? 0 : i % 5 == 1 ? 20000 : 100;
    a_->Send(b_of_a_, expected.back(), bytes == 0 ? Payload{} : MakePayload(bytes, 0), nullptr);
  }
  ASSERT_TRUE(at_b_.WaitFor(expected.size()));
  EXPECT_EQ(at_b_.header_order(), expected);
}

TEST_P(TransportConformance, TakesMessagesFromManyThreads) {
  constexpr int kThreads = 6, kEach = 300;
  Completions sent;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string header = std::to_string(t) + ":" + std::to_string(i);
        a_->Send(b_of_a_, header, i % 10 == 0 ? MakePayload(30000, t) : Payload{}, sent.Add());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(at_b_.WaitFor(kThreads * kEach));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), kThreads * kEach);
  std::vector<int> next(kThreads, 0);
  for (const std::string& header : at_b_.header_order()) {
    const size_t colon = header.find(':');
    const int t = std::stoi(header.substr(0, colon));
    EXPECT_EQ(std::stoi(header.substr(colon + 1)), next[t]++) << "of thread " << t;
  }
  EXPECT_EQ(a_->stats().messages_sent, static_cast<uint64_t>(kThreads * kEach));
  EXPECT_EQ(b_->stats().messages_received, static_cast<uint64_t>(kThreads * kEach));
}

TEST_P(TransportConformance, SendsBothWaysAtOnce) {
  constexpr int kEach = 40;
  Completions sent;
  for (int i = 0; i < kEach; ++i) {
    a_->Send(b_of_a_, "to b", MakePayload(400000, 1), sent.Add());
    b_->Send(a_of_b_, "to a", MakePayload(400000, 2), sent.Add());
  }
  ASSERT_TRUE(at_a_.WaitFor(kEach));
  ASSERT_TRUE(at_b_.WaitFor(kEach));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), 2 * kEach);
  EXPECT_TRUE(PayloadIs(at_a_.messages().back().payload, 400000, 2));
}

TEST_P(TransportConformance, NeverRunsACallbackInsideTheCall) {
  thread_local bool inside = false;
  std::atomic<int> inline_calls{0}, calls{0};
  const ShutAtEnd shut(this);
  at_b_.set_on_delivered([&](std::string_view, Payload) { inline_calls += inside; });
  for (int i = 0; i < 200; ++i) {
    inside = true;
    a_->Send(b_of_a_, "m", i % 2 == 0 ? Payload{} : MakePayload(100, 0), [&](const Status&) {
      inline_calls += inside;
      ++calls;
    });
    a_->Send(12345, "nobody", {}, [&](const Status&) {
      inline_calls += inside;
      ++calls;
    });
    inside = false;
  }
  EXPECT_TRUE(a_->DriveUntil([&] { return calls == 400; }, In(seconds(20))));
  EXPECT_EQ(inline_calls, 0);
}

TEST_P(TransportConformance, DropsACallbackAfterItHasRun) {
  // The callback's captures are freed: whoever waits for a destructor gets it.
  auto bomb = std::make_shared<int>(1);
  std::weak_ptr<int> alive = bomb;
  Completions sent;
  a_->Send(b_of_a_, "m", MakePayload(100000, 0),
           [bomb, done = sent.Add()](const Status& status) { done(status); });
  bomb.reset();
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_TRUE(a_->DriveUntil([&] { return alive.expired(); }, In(seconds(5))));
}

TEST_P(TransportConformance, LetsCallbacksSend) {
  std::atomic<int> rounds{0};
  const ShutAtEnd shut(this);
  at_b_.set_on_delivered(
      [&](std::string_view header, Payload) { b_->Send(a_of_b_, header, {}, nullptr); });
  at_a_.set_on_delivered([&](std::string_view header, Payload) {
    if (++rounds < 500) a_->Send(b_of_a_, header, {}, nullptr);
  });
  a_->Send(b_of_a_, "ball", {}, nullptr);
  EXPECT_TRUE(a_->DriveUntil([&] { return rounds == 500; }, In(seconds(20))));
}

TEST_P(TransportConformance, LetsACompletionSend) {
  Completions sent;
  a_->Send(b_of_a_, "first", MakePayload(200000, 0), [&, done = sent.Add()](const Status& status) {
    a_->Send(b_of_a_, "second", {}, nullptr);
    done(status);
  });
  EXPECT_TRUE(at_b_.WaitFor(2));
  EXPECT_TRUE(sent.WaitForAll());
}

TEST_P(TransportConformance, DropsAPayloadThatNobodyWants) {
  if (GetParam().by_reference) GTEST_SKIP() << "payloads by reference need no sink";
  const ShutAtEnd shut(this);
  at_b_.set_on_message([](std::string_view, size_t) { return PayloadSink{}; });
  Completions sent;
  a_->Send(b_of_a_, "large", MakePayload(2 << 20, 0), sent.Add());
  a_->Send(b_of_a_, "small", MakePayload(100, 0), sent.Add());
  a_->Send(b_of_a_, "empty", {}, sent.Add());
  EXPECT_TRUE(at_b_.WaitFor(1));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), 3);
  EXPECT_EQ(at_b_.header_order(), (std::vector<std::string>{"large", "small", "empty"}));
}

TEST_P(TransportConformance, WritesALargePayloadIntoTheSinkItself) {
  if (GetParam().by_reference) GTEST_SKIP() << "payloads by reference need no sink";
  Buffer sink = Buffer::Allocate(HostAllocator(), 8 << 20);
  std::memset(sink.data(), 0, sink.size());
  std::atomic<int> done{0};
  const ShutAtEnd shut(this);
  at_b_.set_on_message([&](std::string_view, size_t) {
    return PayloadSink{static_cast<char*>(sink.data()) + 100,
                       [&](const Status& status) { done += status.ok() ? 1 : 100; }, sink};
  });
  a_->Send(b_of_a_, "m", MakePayload(7 << 20, 5), nullptr);
  EXPECT_TRUE(b_->DriveUntil([&] { return done != 0; }, In(seconds(20))));
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(PayloadIs(Payload{sink, 100, 7 << 20}, 7 << 20, 5));
  EXPECT_EQ(static_cast<char*>(sink.data())[99], 0);
}

TEST_P(TransportConformance, CancelsForAnUnknownPeer) {
  Completions sent;
  a_->Send(777, "m", {}, sent.Add());
  a_->Send(777, "m", MakePayload(100000, 0), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.with(Code::kCancelled), 2);
  a_->Disconnect(777);
}

TEST_P(TransportConformance, RefusesBytesThatAreNoAddress) {
  const std::string good = b_->address();
  std::string flipped = good;
  flipped[flipped.size() - 1] = static_cast<char>(flipped.back() ^ 0x55);
  for (const std::string& bad :
       {std::string(), std::string("x"), std::string(1000, '\0'), std::string(300, '\xff'),
        good.substr(0, good.size() / 2), good + "x", flipped}) {
    auto peer = a_->Connect(bad, "/job:bad/task:3");
    EXPECT_FALSE(peer.ok());
    EXPECT_EQ(peer.status().code(), Code::kInvalidArgument);
    EXPECT_NE(peer.status().message().find("/job:bad/task:3"), std::string::npos) << peer.status();
  }
  a_->Send(b_of_a_, "still fine", {}, nullptr);
  EXPECT_TRUE(at_b_.WaitFor(1));
}

TEST_P(TransportConformance, ConnectsToItself) {
  auto self = a_->Connect(a_->address(), "/job:a");
  ASSERT_TRUE(self.ok()) << self.status();
  Completions sent;
  a_->Send(*self, "none", {}, sent.Add());
  a_->Send(*self, "small", MakePayload(50, 1), sent.Add());
  a_->Send(*self, "large", MakePayload(1 << 20, 2), sent.Add());
  ASSERT_TRUE(at_a_.WaitFor(3));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), 3);
  EXPECT_EQ(at_a_.header_order(), (std::vector<std::string>{"none", "small", "large"}));
  EXPECT_TRUE(PayloadIs(at_a_.messages()[2].payload, 1 << 20, 2));
}

TEST_P(TransportConformance, GivesTwoPeersForTwoConnections) {
  auto again = a_->Connect(b_->address(), "/job:b again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(*again, b_of_a_);
  a_->Disconnect(b_of_a_);
  Completions sent;
  a_->Send(*again, "m", MakePayload(300000, 1), sent.Add());
  EXPECT_TRUE(at_b_.WaitFor(1));
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), 1);
}

TEST_P(TransportConformance, TakesNothingFromAConnectionWhenTheOtherSideEndsOneOfItsOwn) {
  const auto second = a_->Connect(b_->address(), "/job:b again");
  const auto other = b_->Connect(a_->address(), "/job:a again");
  ASSERT_TRUE(second.ok() && other.ok());
  Completions sent;
  a_->Send(b_of_a_, "m", MakePayload(1 << 20, 1), sent.Add());
  b_->Send(a_of_b_, "m", MakePayload(1 << 20, 1), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  b_->Disconnect(a_of_b_);
  b_->Send(*other, "m", MakePayload(1 << 20, 1), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  for (int i = 0; i < 20; ++i)
    a_->Send(i % 2 == 0 ? b_of_a_ : *second, "m", MakePayload(1 << 20, 1), sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok(), sent.added());
  EXPECT_TRUE(at_b_.WaitFor(21));
}

TEST_P(TransportConformance, CancelsWhatIsPendingAtADisconnect) {
  Completions sent;
  for (int i = 0; i < 300; ++i) {
    a_->Send(b_of_a_, "m", i % 3 == 0 ? MakePayload(100, 0) : MakePayload(1 << 20, 0), sent.Add());
  }
  a_->Disconnect(b_of_a_);
  a_->Send(b_of_a_, "late", {}, sent.Add());
  EXPECT_TRUE(sent.WaitForAll());
  EXPECT_EQ(sent.ok() + sent.with(Code::kCancelled), sent.added());
  EXPECT_GE(sent.with(Code::kCancelled), 1);
  a_->Disconnect(b_of_a_);
  Shut(a_);
  EXPECT_EQ(sent.ran(), sent.added());  // none twice
}

TEST_P(TransportConformance, CancelsWhatIsPendingAtClose) {
  Completions sent;
  for (int i = 0; i < 200; ++i) a_->Send(b_of_a_, "m", MakePayload(1 << 20, 0), sent.Add());
  a_->Close();
  a_->Send(b_of_a_, "late", {}, sent.Add());
  a_->Close();
  const auto start = steady_clock::now();
  a_->Join();
  EXPECT_LT(steady_clock::now() - start, seconds(5));
  EXPECT_EQ(sent.ran(), sent.added());
  EXPECT_GE(sent.with(Code::kCancelled), 1);
  EXPECT_EQ(sent.ok() + sent.with(Code::kCancelled), sent.added());
  a_.reset();
}

TEST_P(TransportConformance, ClosesWhileItsPeerAnswersNothing) {
  std::promise<void> closed;
  const ShutAtEnd shut(this);
  Completions met;
  a_->Send(b_of_a_, "m", MakePayload(1 << 20, 0), met.Add());
  b_->Send(a_of_b_, "m", MakePayload(1 << 20, 0), met.Add());
  ASSERT_TRUE(met.WaitForAll());
  at_b_.set_on_delivered(
      [answer = closed.get_future().share()](std::string_view, Payload) { answer.wait(); });
  a_->Send(b_of_a_, "block", {}, nullptr);
  const auto blocked = [&] { return at_b_.header_order().size() == 2; };
  ASSERT_TRUE(a_->DriveUntil(blocked, In(seconds(20))));
  Completions sent;
  for (int i = 0; i < 10; ++i) a_->Send(b_of_a_, "m", MakePayload(1 << 20, 0), sent.Add());
  Shut(a_);
  EXPECT_EQ(sent.ran(), sent.added());
  closed.set_value();
}

TEST_P(TransportConformance, PartsInTheMiddleOfLargePayloadsAndGivesTheirMemoryBack) {
  TearDown();
  const Payload payload = MakePayload(16 << 20, 1);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const int64_t before = HostPool().bytes_in_use();
    Completions sent, received;
    const auto take = [&received](std::string_view, size_t bytes) {
      const Buffer buffer = Buffer::Allocate(HostAllocator(), bytes);
      return PayloadSink{buffer.data(), received.Add(), buffer};
    };
    SetUp();
    const ShutAtEnd shut(this);
    for (Recorder* const end : {&at_a_, &at_b_}) end->set_on_message(take);
    const size_t at_a = at_a_.header_order().size(), at_b = at_b_.header_order().size();
    for (int i = 0; i < 4; ++i) {
      a_->Send(b_of_a_, "m", payload, sent.Add());
      b_->Send(a_of_b_, "m", payload, sent.Add());
    }
    ASSERT_TRUE(a_->DriveUntil(
        [&] { return at_a_.header_order().size() > at_a && at_b_.header_order().size() > at_b; },
        In(seconds(20))));
    std::this_thread::sleep_for(round * milliseconds(1));
    if (round % 3 != 0) a_->Disconnect(b_of_a_);
    if (round % 3 != 1) b_->Disconnect(a_of_b_);
    std::this_thread::sleep_for(milliseconds(20));  // the other one hears of it, if it does
    Shut(round % 2 == 0 ? a_ : b_);
    TearDown();
    EXPECT_EQ(sent.ran(), sent.added());
    EXPECT_EQ(received.ran(), received.added());
    EXPECT_LE(HostPool().bytes_in_use(), before + (1 << 20));
  }
  for (Recorder* const end : {&at_a_, &at_b_}) end->set_on_message(nullptr);
}

TEST_P(TransportConformance, SurvivesAPeerThatCloses) {
  Completions sent;
  for (int i = 0; i < 50; ++i) a_->Send(b_of_a_, "m", MakePayload(1 << 20, 0), sent.Add());
  Shut(b_);
  for (int i = 0; i < 200; ++i) a_->Send(b_of_a_, "m", {}, sent.Add());
  a_->Disconnect(b_of_a_);
  EXPECT_TRUE(sent.WaitForAll());
  Shut(a_);
  EXPECT_EQ(sent.ran(), sent.added());
}

TEST_P(TransportConformance, ReturnsFromDriveUntilAtTheDeadline) {
  const auto start = steady_clock::now();
  EXPECT_FALSE(a_->DriveUntil([] { return false; }, In(milliseconds(120))));
  const auto took = steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(119));
  EXPECT_LT(took, seconds(10));
  EXPECT_TRUE(a_->DriveUntil([] { return true; }, steady_clock::now() - seconds(1)));
  EXPECT_FALSE(a_->DriveUntil([] { return false; }, steady_clock::now() - seconds(1)));
}

TEST_P(TransportConformance, LooksAgainAfterWake) {
  std::atomic<bool> flag{false};
  std::atomic<bool> inside{false};
  std::thread waker([&] {
    while (!inside) std::this_thread::yield();
    std::this_thread::sleep_for(
        milliseconds(20));  // lets the driver fall asleep; the test holds without it
    flag = true;
    a_->Wake();
  });
  const auto start = steady_clock::now();
  EXPECT_TRUE(a_->DriveUntil(
      [&] {
        inside = true;
        return flag.load();
      },
      In(seconds(20))));
  EXPECT_LT(steady_clock::now() - start, seconds(10));
  waker.join();
}

TEST_P(TransportConformance, RunsCallbacksOnTheThreadInsideDriveUntil) {
  std::atomic<int> here{0}, total{0};
  const auto me = std::this_thread::get_id();
  const ShutAtEnd shut(this);
  at_b_.set_on_delivered(
      [&](std::string_view, Payload) { b_->Send(a_of_b_, "answer", {}, nullptr); });
  at_a_.set_on_delivered([&](std::string_view, Payload) {
    here += std::this_thread::get_id() == me;
    ++total;
  });
  for (int i = 0; i < 200; ++i) {
    a_->Send(b_of_a_, "ask", {}, nullptr);
    ASSERT_TRUE(a_->DriveUntil([&] { return total == i + 1; }, In(seconds(20))));
  }
  EXPECT_GT(here, 100);
}

TEST_P(TransportConformance, DrivesForSeveralWaitersAtOnce) {
  constexpr int kThreads = 4;
  std::atomic<int> answers[kThreads] = {};
  const ShutAtEnd shut(this);
  at_b_.set_on_delivered(
      [&](std::string_view header, Payload) { b_->Send(a_of_b_, header, {}, nullptr); });
  at_a_.set_on_delivered([&](std::string_view header, Payload) { ++answers[header[0] - '0']; });
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        a_->Send(b_of_a_, std::to_string(t), {}, nullptr);
        if (!a_->DriveUntil([&] { return answers[t] == i + 1; }, In(seconds(20)))) ++failed;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
}

TEST_P(TransportConformance, DeliversToASleepingPeer) {
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(milliseconds(30));  // both fall asleep
    const auto start = steady_clock::now();
    a_->Send(b_of_a_, "m", {}, nullptr);
    ASSERT_TRUE(at_b_.WaitFor(i + 1));
    EXPECT_LT(steady_clock::now() - start, seconds(5));
  }
}

TEST_P(TransportConformance, CostsNothingWhenIdle) {
  a_->Send(b_of_a_, "m", {}, nullptr);
  ASSERT_TRUE(at_b_.WaitFor(1));
  a_->DriveUntil([] { return false; }, In(milliseconds(50)));
  auto cpu = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  // Two transports, each below 1 % of a core, in one of some stretches of time: threads of UCX may
  // have something left to do, and on a busy machine it takes them longer.
  auto least = std::chrono::microseconds::max();
  for (int i = 0; i < 10 && least > milliseconds(4); ++i) {
    const auto before = cpu();
    std::this_thread::sleep_for(milliseconds(200));
    least = std::min(least, cpu() - before);
  }
  EXPECT_LE(least, milliseconds(4));
}

TEST_P(TransportConformance, SendsRequestsOfAThreadThatNeverDrives) {
  // A program that only sends: the progress thread completes for it, also right after DriveUntil.
  const ShutAtEnd shut(this);
  at_b_.set_on_delivered(
      [&](std::string_view, Payload) { b_->Send(a_of_b_, "answer", {}, nullptr); });
  for (int i = 0; i < 20; ++i) {
    a_->DriveUntil([] { return false; }, In(milliseconds(1)));
    Completions sent;
    a_->Send(b_of_a_, "ask", {}, sent.Add());
    ASSERT_TRUE(at_a_.WaitFor(i + 1));
    ASSERT_TRUE(sent.WaitForAll());
  }
}

TEST_P(TransportConformance, LeavesDriveUntilAtClose) {
  std::atomic<bool> inside{false};
  std::thread closer([&] {
    while (!inside) std::this_thread::yield();
    a_->Close();
  });
  EXPECT_FALSE(a_->DriveUntil(
      [&] {
        inside = true;
        return false;
      },
      In(seconds(20))));
  closer.join();
  EXPECT_FALSE(a_->DriveUntil([] { return false; }, In(seconds(20))));
  a_->Join();
  a_.reset();
}

TEST_P(TransportConformance, DescribesAPeer) {
  a_->Send(b_of_a_, "m", {}, nullptr);
  ASSERT_TRUE(at_b_.WaitFor(1));
  const std::string line = a_->Describe(b_of_a_);
  EXPECT_NE(line.find(GetParam().expected_lane), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(a_->Describe(999), "not connected");
}

}  // namespace monograph
