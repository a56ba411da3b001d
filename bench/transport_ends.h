// Transports of ours in a benchmark: a server process at one end, this process at the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/harness.h"
#include "transport/transport.h"

namespace monograph::bench {

// Payloads land in `sink`, unless they come by reference. Any failure ends the program.
class TransportEnd : public MessageHandler {
 public:
  TransportEnd(const TransportFactory& make, char* sink);

  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override;
  void OnDelivered(std::string_view header, Payload payload) override;
  void SendMessage(PeerId peer) { transport->Send(peer, message_, {}, nullptr); }

  std::atomic<bool> echo{false};  // answer each small message
  std::atomic<long> answer_at{0};
  std::atomic<long> small{0}, large{0};  // messages that have come
  std::unique_ptr<Transport> transport;

 private:
  const std::string message_ = std::string(64, 'm');
  char* const sink_;
};

// A server process, for Child::Fork: does what its parent's TransportClient says, for ever.
void ServeTransport(const TransportFactory& make, size_t largest, Child::Channel& parent);

class TransportClient {
 public:
  // Payloads come from `source`, of `largest` bytes; nullptr: from the pool, whose memory the
  // servers read in place if `make` says so. The servers run ServeTransport.
  TransportClient(const TransportFactory& make, char* source, size_t largest,
                  std::vector<std::unique_ptr<Child>> servers);

  // Seconds per step: a message of 64 bytes to each of the first `fan_out` servers, and the answers
  // of all.
  double RoundTrip(size_t fan_out, long steps);
  // Bytes per second into the memory of the first server, `window` transfers at a time.
  double Transfer(size_t bytes, int window, long count);
  void Close();

 private:
  template <typename Ready>
  void Until(Ready ready);

  std::vector<std::unique_ptr<Child>> servers_;
  TransportEnd end_;
  std::vector<PeerId> peers_;
  Buffer buffer_;
};

}  // namespace monograph::bench
