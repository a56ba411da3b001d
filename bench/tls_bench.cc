// The TLS transport against bare OpenSSL between two processes of this machine, in one interleaved
// run: the same cipher, key, buffers and number of streams.
//
// Round trip: a 64 B message and a 64 B answer. Ours spins for a while before it sleeps, so that a
// bare loop that spins, too, is what it is to be compared with. Transfer: a payload from memory on
// huge pages into such memory of the other process, two at a time, as TLS has no rendezvous to
// hide.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/harness.h"
#include "bench/raw_tls.h"
#include "bench/raw_ucx.h"
#include "transport/tls/tls_transport.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;
using bench::Child;
using bench::Goal;
using bench::Now;
using bench::Side;

constexpr size_t kLargest = 64 << 20;
constexpr std::array<int, 3> kStreams = {2, 1, 4};  // for payloads; the first is the default
constexpr int kMostStreams = *std::max_element(kStreams.begin(), kStreams.end());

void Check(bool ok, const char* what) {
  if (!ok) bench::Die(std::string(what) + " failed");
}

class Ours : public MessageHandler {
 public:
  Ours(const control::Key& key, int streams, char* sink) : sink_(sink) {
    auto listener = TlsListener::Start({.key = key});
    Check(listener.ok(), "listening");
    auto made = MakeTlsTransport(*listener, {.spin = bench::kSpin, .bulk_streams = streams}, this);
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
void Serve(const control::Key& key, int streams, Child::Channel& parent) {
  Ours ours(key, streams, bench::HugePages(kLargest));
  parent.WriteLine(bench::ToHex(ours.transport->address()));
  Check(ours.transport->Connect(bench::FromHex(parent.ReadLine()), "client").ok(), "Connect");
  parent.WriteLine("connected");
  while (true) {
    std::istringstream command(parent.ReadLine());
    std::string what;
    long count = 0;
    command >> what >> count;
    ours.echo = what == "echo";
    if (!ours.echo) ours.answer_at = ours.large + count;
    parent.WriteLine("ready");
  }
}

// This process's side of one pair of transports.
class Pair {
 public:
  Pair(const control::Key& key, int streams)
      : key_(key),
        streams_(streams),
        server_(Child::Fork([=](Child::Channel& parent) { Serve(key, streams, parent); })) {}

  void Connect(char* source) {
    ours_ = std::make_unique<Ours>(key_, streams_, source);
    const std::optional<std::string> address = server_->Hear();
    Check(address.has_value(), "starting a process");
    Check(transport().Connect(bench::FromHex(*address), "server").ok(), "Connect");
    server_->Ask(bench::ToHex(transport().address()));
    buffer_ = Buffer::Wrap(source, kLargest, nullptr);
  }
  double RoundTrip(long steps) {
    server_->Ask("echo");
    const double start = Now();
    for (long i = 0; i < steps; ++i) {
      const long want = ours_->small.load(std::memory_order_relaxed) + 1;
      transport().Send(0, ours_->message, {}, nullptr);
      Until([&] { return ours_->small.load(std::memory_order_relaxed) >= want; });
    }
    return (Now() - start) / static_cast<double>(steps);
  }
  double Transfer(size_t bytes, long count) {
    server_->Ask("sink " + std::to_string(count));
    const long want = ours_->small + 1;
    std::atomic<long> sent{0};
    const double start = Now();
    for (long i = 0; i < count; ++i) {
      transport().Send(0, ours_->message, {buffer_, 0, bytes}, [&](const Status& status) {
        Check(status.ok(), "sending");
        ++sent;
      });
      Until([&] { return sent >= i; });
    }
    Until([&] { return sent >= count && ours_->small >= want; });
    return static_cast<double>(bytes) * static_cast<double>(count) / (Now() - start);
  }
  void Close() {
    transport().Close();
    transport().Join();
  }

 private:
  Transport& transport() { return *ours_->transport; }
  void Until(const std::function<bool()>& ready) {
    Check(transport().DriveUntil(ready, Clock::now() + std::chrono::seconds(60)),
          "waiting for an answer");
  }

  const control::Key key_;
  const int streams_;
  std::unique_ptr<Child> server_;
  std::unique_ptr<Ours> ours_;
  Buffer buffer_;
};

int Main(int argc, char** argv) {
  const bench::Args args = bench::Args::Parse(
      argc, argv,
      "tls_bench: messages and payloads over the TLS transport against bare OpenSSL between "
      "processes");
  const auto key = control::GenerateKey();
  Check(key.ok(), "making a key");
  bench::RawTls raw(*key, kMostStreams, kLargest);
  std::vector<std::unique_ptr<Pair>> pairs;  // as kStreams
  for (const int streams : kStreams) pairs.push_back(std::make_unique<Pair>(*key, streams));
  char* const source = bench::HugePages(kLargest);
  for (const auto& pair : pairs) pair->Connect(source);
  raw.Connect();

  bench::Report report(args);
  const std::string round_trip = "round trip";
  if (args.Wants(round_trip)) {
    report.Compare(
        "tls", "us", {{round_trip}},
        Side::Of("ours", [&] { return pairs[0]->RoundTrip(2000) * 1e6; }),
        {Side::Of("bare OpenSSL that spins", [&] { return raw.RoundTrip(2000, true) * 1e6; }),
         Side::Of("bare OpenSSL that sleeps", [&] { return raw.RoundTrip(2000, false) * 1e6; })},
        args.Repetitions(20));
  }
  for (const size_t bytes : {size_t{64} << 10, size_t{4} << 20, kLargest}) {
    const long count = std::clamp<long>(static_cast<long>((256 << 20) / bytes), 4, 500);
    const bool aim = bytes >= size_t{4} << 20;
    for (size_t i = 0; i < kStreams.size(); ++i) {
      const int streams = kStreams[i];
      const std::string name = std::to_string(bytes >> 10) + " KiB, " + std::to_string(streams) +
                               (streams == 1 ? " stream" : " streams");
      if (!args.Wants(name)) continue;
      Pair& pair = *pairs[i];
      bench::Subject subject{name};
      if (aim) subject.goal = Goal{0.8, Goal::kMin};
      std::vector<Side> references = {
          Side::Of("bare OpenSSL", [&] { return raw.Transfer(bytes, streams, count) / 1e9; })};
      if (aim) {
        references.push_back(Side::Of("AES-GCM alone, a core for each side",
                                      [&] { return bench::RawTls::Cipher(kLargest) / 1e9; }));
      }
      report.Compare("tls", "GB/s", {subject},
                     Side::Of("ours", [&] { return pair.Transfer(bytes, count) / 1e9; }),
                     references, args.Repetitions(15));
    }
  }
  for (const auto& pair : pairs) pair->Close();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
