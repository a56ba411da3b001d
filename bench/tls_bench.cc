// The TLS transport against bare OpenSSL between two processes of this machine, in one interleaved
// run: the same cipher, key, buffers and number of streams.
//
// Round trip: a 64 B message and a 64 B answer. Ours spins for a while before it sleeps, so that a
// bare loop that spins, too, is what it is to be compared with. Transfer: a payload from memory on
// huge pages into such memory of the other process, two at a time, as TLS has no rendezvous to
// hide.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/raw_tls.h"
#include "bench/raw_ucx.h"
#include "bench/transport_ends.h"
#include "transport/tls/tls_transport.h"

namespace monograph {
namespace {

using bench::Child;
using bench::Goal;
using bench::Side;

constexpr size_t kLargest = 64 << 20;
constexpr std::array<int, 3> kStreams = {2, 1, 4};  // for payloads; the first is the default
constexpr int kMostStreams = *std::max_element(kStreams.begin(), kStreams.end());

TransportFactory With(const control::Key& key, int streams) {
  return [key, streams](MessageHandler* handler) -> Result<std::unique_ptr<Transport>> {
    MG_ASSIGN_OR_RETURN(auto listener, TlsListener::Start({.key = key}));
    return MakeTlsTransport(std::move(listener), {.spin = bench::kSpin, .bulk_streams = streams},
                            handler);
  };
}

int Main(int argc, char** argv) {
  const bench::Args args = bench::Args::Parse(
      argc, argv,
      "tls_bench: messages and payloads over the TLS transport against bare OpenSSL between "
      "processes");
  const auto key = control::GenerateKey();
  if (!key.ok()) bench::Die(key.status().ToString());
  bench::RawTls raw(*key, kMostStreams, kLargest);
  std::vector<std::unique_ptr<Child>> servers;  // as kStreams
  for (const int streams : kStreams) {
    servers.push_back(Child::Fork([&](Child::Channel& parent) {
      bench::ServeTransport(With(*key, streams), kLargest, parent);
    }));
  }
  char* const source = bench::HugePages(kLargest);
  std::vector<std::unique_ptr<bench::TransportClient>> ours;  // as kStreams
  for (size_t i = 0; i < kStreams.size(); ++i) {
    std::vector<std::unique_ptr<Child>> server;
    server.push_back(std::move(servers[i]));
    ours.push_back(std::make_unique<bench::TransportClient>(With(*key, kStreams[i]), source,
                                                            kLargest, std::move(server)));
  }
  raw.Connect();

  bench::Report report(args);
  const std::string round_trip = "round trip";
  if (args.Wants(round_trip)) {
    report.Compare(
        "tls", "us", {{round_trip}},
        Side::Of("ours", [&] { return ours[0]->RoundTrip(1, 2000) * 1e6; }),
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
      bench::Subject subject{name};
      if (aim) subject.goal = Goal{0.8, Goal::kMin};
      std::vector<Side> references = {
          Side::Of("bare OpenSSL", [&] { return raw.Transfer(bytes, streams, count) / 1e9; })};
      if (aim) {
        references.push_back(Side::Of("AES-GCM alone, a core for each side",
                                      [&] { return bench::RawTls::Cipher(kLargest) / 1e9; }));
      }
      report.Compare("tls", "GB/s", {subject},
                     Side::Of("ours", [&] { return ours[i]->Transfer(bytes, 2, count) / 1e9; }),
                     references, args.Repetitions(15));
    }
  }
  for (const auto& each : ours) each->Close();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
