// The UCX transport against bare UCX, in one interleaved run: the same buffers and idle policy.
//
// Round trip: a 64 B message to each of K processes and a 64 B answer from each; all must answer
// before the next step. Transfer: a payload from huge-page memory into huge-page memory of another
// process, `window` of them at a time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/harness.h"
#include "bench/raw_ucx.h"
#include "tests/transport/inproc_transport.h"
#include "transport/transports.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using bench::Child;
using bench::Now;
using bench::Side;

constexpr size_t kLargest = 64 << 20;

void Check(bool ok, const char* what) {
  if (!ok) bench::Die(std::string(what) + " failed");
}

class Ours : public MessageHandler {
 public:
  explicit Ours(char* sink) : sink_(sink) {
    auto made = ChooseTransport({.spin = bench::kSpin}, {.loopback = true}).value()(this);
    Check(made.ok(), "making a transport");
    transport = std::move(made).value();
  }
  PayloadSink OnMessage(std::string_view, size_t) override {
    return {sink_,
            [this](const Status& status) {
              Check(status.ok(), "a transfer");
              if (++large == answer_at) transport->Send(0, message, {}, nullptr);
            },
            {}};
  }
  void OnDelivered(std::string_view, Payload) override {
    ++small;
    if (echo) transport->Send(0, message, {}, nullptr);
  }

  const std::string message = std::string(64, 'm');
  bool echo = false;
  std::atomic<long> answer_at{0};
  std::atomic<long> small{0}, large{0};
  std::unique_ptr<Transport> transport;

 private:
  char* const sink_;
};

// A server process: "echo" answers each small message from now on, "sink N" one message when N more
// payloads have come.
void Serve(Child::Channel& parent) {
  Ours ours(bench::HugePages(kLargest));
  parent.WriteLine(bench::ToHex(ours.transport->address()));
  Check(ours.transport->Connect(bench::FromHex(parent.ReadLine()), "client").ok(), "Connect");
  parent.WriteLine("connected");
  while (true) {
    std::istringstream command(parent.ReadLine());
    std::string what;
    long count = 0;
    command >> what >> count;
    if (what == "echo") {
      ours.echo = true;
    } else {
      ours.answer_at = ours.large + count;
    }
    parent.WriteLine("ready");
  }
}

// Two transports of one process; the other one answers on its progress thread.
class Counting : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t) override { return {}; }
  void OnDelivered(std::string_view header, Payload) override {
    count.store(count.load(std::memory_order_relaxed) + 1);
    if (answer_through != nullptr) answer_through->Send(0, header, {}, nullptr);
  }
  std::atomic<long> count{0};
  Transport* answer_through = nullptr;
};

// Seconds per round trip between two transports of one process.
double InprocRoundTrip() {
  Counting asker, answerer;
  auto a = MakeInprocTransport(&asker);
  auto b = MakeInprocTransport(&answerer);
  Check(a->Connect(b->address(), "b").ok() && b->Connect(a->address(), "a").ok(), "Connect");
  answerer.answer_through = b.get();
  const std::string message(64, 'm');
  constexpr long kSteps = 4000;
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  const double start = Now();
  for (long i = 0; i < kSteps; ++i) {
    const long want = asker.count + 1;
    a->Send(0, message, {}, nullptr);
    Check(a->DriveUntil([&] { return asker.count >= want; }, deadline), "waiting for an answer");
  }
  const double seconds = (Now() - start) / kSteps;
  for (const auto& transport : {a.get(), b.get()}) {
    transport->Close();
    transport->Join();
  }
  return seconds;
}

int Main(int argc, char** argv) {
  const bench::Args args = bench::Args::Parse(argc, argv,
                                              "transport_bench: messages and payloads over the UCX "
                                              "transport against bare UCX between processes");
  constexpr int kServers = 2;
  bench::RawServers raw(kServers, kLargest);
  std::vector<std::unique_ptr<Child>> servers;
  for (int k = 0; k < kServers; ++k) servers.push_back(Child::Fork(Serve));
  raw.Connect();
  char* source = bench::HugePages(kLargest);
  Ours ours(source);
  std::vector<PeerId> peers;
  for (const auto& server : servers) {
    const std::optional<std::string> address = server->Hear();
    Check(address.has_value(), "starting a process");
    auto peer = ours.transport->Connect(bench::FromHex(*address), "server");
    Check(peer.ok(), "Connect");
    peers.push_back(*peer);
    server->Ask(bench::ToHex(ours.transport->address()));
  }
  const auto far = [] { return Clock::now() + std::chrono::seconds(60); };
  const auto steps = [&](size_t fan_out, long count) {
    for (size_t k = 0; k < fan_out; ++k) servers[k]->Ask("echo");
    const auto deadline = far();
    const double start = Now();
    for (long i = 0; i < count; ++i) {
      const long want = ours.small.load(std::memory_order_relaxed) + static_cast<long>(fan_out);
      for (size_t k = 0; k < fan_out; ++k)
        ours.transport->Send(peers[k], ours.message, {}, nullptr);
      Check(ours.transport->DriveUntil(
                [&] { return ours.small.load(std::memory_order_relaxed) >= want; }, deadline),
            "waiting for answers");
    }
    return (Now() - start) / static_cast<double>(count);
  };
  Buffer buffer = Buffer::Wrap(source, kLargest, nullptr);
  const auto transfer = [&](size_t bytes, int window, long count) {
    servers[0]->Ask("sink " + std::to_string(count));
    const long want = ours.small + 1;
    std::atomic<long> sent{0};
    const auto deadline = far();
    const double start = Now();
    for (long i = 0; i < count; ++i) {
      ours.transport->Send(peers[0], ours.message, {buffer, 0, bytes},
                           [&](const Status&) { ++sent; });
      ours.transport->DriveUntil([&] { return sent >= i + 2 - window; }, deadline);
    }
    Check(ours.transport->DriveUntil([&] { return sent >= count && ours.small >= want; }, deadline),
          "waiting for answers");
    return static_cast<double>(bytes) * static_cast<double>(count) / (Now() - start);
  };

  bench::Report report(args);
  for (const int fan_out : {1, 2}) {
    const std::string name = "round trip, K=" + std::to_string(fan_out);
    if (!args.Wants(name)) continue;
    report.Compare(
        "transport", "us", {{name}},
        Side::Of("ours", [&] { return steps(static_cast<size_t>(fan_out), 2000) * 1e6; }),
        {Side::Of("raw UCX", [&] { return raw.NullStep(fan_out, 2000) * 1e6; })},
        args.Repetitions(20));
  }
  for (const size_t bytes : {size_t{64} << 10, size_t{4} << 20, kLargest}) {
    for (const int window : {1, 2}) {
      const std::string name =
          std::to_string(bytes >> 10) + " KiB, " + std::to_string(window) + " at a time";
      if (!args.Wants(name)) continue;
      const long count = std::clamp<long>(static_cast<long>((256 << 20) / bytes), 4, 500);
      report.Compare(
          "transport", "GB/s", {{name}},
          Side::Of("ours", [&] { return transfer(bytes, window, count) / 1e9; }),
          {Side::Of("raw UCX", [&] { return raw.Transfer(bytes, window, count) / 1e9; })},
          args.Repetitions(15));
    }
  }
  if (args.Wants("round trip in a process")) {
    report.Compare(
        "transport", "us", {{"round trip in a process"}},
        Side::Of("ours", [&] { return InprocRoundTrip() * 1e6; }),
        {Side::Of("raw UCX, two processes", [&] { return raw.NullStep(1, 2000) * 1e6; })},
        args.Repetitions(10));
  }
  ours.transport->Close();
  ours.transport->Join();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
