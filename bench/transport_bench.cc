// The UCX transport against bare UCX, in one interleaved run: the same buffers and idle policy.
//
// Round trip: a 64 B message to each of K processes and a 64 B answer from each; all must answer
// before the next step. Transfer: a payload from huge-page memory into huge-page memory of another
// process, `window` of them at a time. "Read in place": what the receiver finds in memory of the
// sender, a message for each payload.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/raw_ucx.h"
#include "bench/transport_ends.h"
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

Result<std::unique_ptr<Transport>> Make(MessageHandler* handler) {
  return ChooseTransport({.spin = bench::kSpin}, {.loopback = true}).value()(handler);
}

Result<std::unique_ptr<Transport>> MakeInPlace(MessageHandler* handler) {
  return ChooseTransport({.lanes = "posix,cma,reference", .spin = bench::kSpin}, {.loopback = true})
      .value()(handler);
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
  for (int k = 0; k < kServers; ++k) {
    servers.push_back(
        Child::Fork([](Child::Channel& parent) { bench::ServeTransport(Make, kLargest, parent); }));
  }
  std::vector<std::unique_ptr<Child>> readers;
  readers.push_back(Child::Fork(
      [](Child::Channel& parent) { bench::ServeTransport(MakeInPlace, kLargest, parent); }));
  raw.Connect();
  bench::TransportClient ours(Make, bench::HugePages(kLargest), kLargest, std::move(servers));

  bench::TransportClient in_place(MakeInPlace, nullptr, kLargest, std::move(readers));

  bench::Report report(args);
  for (const int fan_out : {1, 2}) {
    const std::string name = "round trip, K=" + std::to_string(fan_out);
    if (!args.Wants(name)) continue;
    report.Compare(
        "transport", "us", {{name}},
        Side::Of("ours", [&] { return ours.RoundTrip(static_cast<size_t>(fan_out), 2000) * 1e6; }),
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
          Side::Of("ours", [&] { return ours.Transfer(bytes, window, count) / 1e9; }),
          {Side::Of("raw UCX", [&] { return raw.Transfer(bytes, window, count) / 1e9; })},
          args.Repetitions(15));
    }
  }
  if (args.Wants("64 MiB read in place")) {
    const auto micros = [](bench::TransportClient& client, size_t bytes) {
      return static_cast<double>(bytes) / client.Transfer(bytes, 1, 1000) * 1e6;
    };
    report.Compare("transport", "us", {{"64 MiB read in place", bench::Goal{2, bench::Goal::kMax}}},
                   Side::Of("ours", [&] { return micros(in_place, kLargest); }),
                   {Side::Of("64 KiB, copied", [&] { return micros(ours, size_t{64} << 10); })},
                   args.Repetitions(15));
  }
  if (args.Wants("round trip in a process")) {
    report.Compare(
        "transport", "us", {{"round trip in a process"}},
        Side::Of("ours", [&] { return InprocRoundTrip() * 1e6; }),
        {Side::Of("raw UCX, two processes", [&] { return raw.NullStep(1, 2000) * 1e6; })},
        args.Repetitions(10));
  }
  ours.Close();
  in_place.Close();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
