#include "bench/transport_ends.h"

#include <chrono>
#include <sstream>
#include <utility>

#include "bench/raw_ucx.h"

namespace monograph::bench {
namespace {

void Require(bool ok, const char* what) {
  if (!ok) Die(std::string(what) + " failed");
}

}  // namespace

TransportEnd::TransportEnd(const TransportFactory& make, char* sink) : sink_(sink) {
  auto made = make(this);
  Require(made.ok(), "making a transport");
  transport = std::move(made).value();
}

PayloadSink TransportEnd::OnMessage(std::string_view, size_t) {
  return {sink_,
          [this](const Status& status) {
            Require(status.ok(), "a transfer");
            if (++large == answer_at) SendMessage(0);
          },
          {}};
}

void TransportEnd::OnDelivered(std::string_view, Payload payload) {
  if (payload.bytes > 0) {
    if (++large == answer_at) SendMessage(0);
    return;
  }
  ++small;
  if (echo.load(std::memory_order_relaxed)) SendMessage(0);
}

void ServeTransport(const TransportFactory& make, size_t largest, Child::Channel& parent) {
  TransportEnd end(make, HugePages(largest));
  parent.WriteLine(ToHex(end.transport->address()));
  Require(end.transport->Connect(FromHex(parent.ReadLine()), "client").ok(), "Connect");
  parent.WriteLine("connected");
  // "echo": answer each small message from now on. "sink N": one message when N more payloads have
  // come.
  while (true) {
    std::istringstream command(parent.ReadLine());
    std::string what;
    long count = 0;
    command >> what >> count;
    end.echo = what == "echo";
    if (!end.echo) end.answer_at = end.large + count;
    parent.WriteLine("ready");
  }
}

TransportClient::TransportClient(const TransportFactory& make, char* source, size_t largest,
                                 std::vector<std::unique_ptr<Child>> servers)
    : servers_(std::move(servers)), end_(make, source) {
  for (const auto& server : servers_) {
    const std::optional<std::string> address = server->Hear();
    Require(address.has_value(), "starting a process");
    const auto peer = end_.transport->Connect(FromHex(*address), "server");
    Require(peer.ok(), "Connect");
    peers_.push_back(*peer);
    server->Ask(ToHex(end_.transport->address()));
  }
  buffer_ = source != nullptr ? Buffer::Wrap(source, largest, nullptr)
                              : Buffer::Allocate(HostAllocator(), largest);
}

template <typename Ready>
void TransportClient::Until(Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Require(end_.transport->DriveUntil(ready, deadline), "waiting for an answer");
}

double TransportClient::RoundTrip(size_t fan_out, long steps) {
  for (size_t k = 0; k < fan_out; ++k) servers_[k]->Ask("echo");
  const double start = Now();
  for (long i = 0; i < steps; ++i) {
    const long want = end_.small.load(std::memory_order_relaxed) + static_cast<long>(fan_out);
    for (size_t k = 0; k < fan_out; ++k) end_.SendMessage(peers_[k]);
    Until([&] { return end_.small.load(std::memory_order_relaxed) >= want; });
  }
  return (Now() - start) / static_cast<double>(steps);
}

double TransportClient::Transfer(size_t bytes, int window, long count) {
  servers_[0]->Ask("sink " + std::to_string(count));
  const long want = end_.small + 1;
  std::atomic<long> sent{0};
  const double start = Now();
  for (long i = 0; i < count; ++i) {
    end_.transport->Send(peers_[0], "payload", {buffer_, 0, bytes}, [&](const Status& status) {
      Require(status.ok(), "sending");
      ++sent;
    });
    Until([&] { return sent >= i + 2 - window; });
  }
  Until([&] { return sent >= count && end_.small >= want; });
  return static_cast<double>(bytes) * static_cast<double>(count) / (Now() - start);
}

void TransportClient::Close() {
  end_.transport->Close();
  end_.transport->Join();
}

}  // namespace monograph::bench
