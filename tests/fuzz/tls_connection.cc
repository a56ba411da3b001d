// A connection of the TLS transport, behind its handshake: a control stream and a bulk stream, both
// without TLS. Bytes: pieces, each after a byte whose bit 7 chooses the bulk stream and whose other
// bits are the piece's length. Before an empty piece the connection is read.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/fuzz/targets.h"
#include "transport/tls/tls_link.h"

namespace monograph::fuzz {
namespace {

constexpr size_t kMostPayload = 64 << 10;  // the handler takes no larger one

// The transport and its handler. Everything runs on one thread.
class Side : public TlsLink::Owner, public MessageHandler {
 public:
  Side() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

  MessageHandler* handler() override { return this; }
  int epoll_fd() const override { return epoll_.get(); }
  std::chrono::milliseconds patience() const override { return std::chrono::seconds(1); }
  void FinishSend(TlsSend*, Status) override { MG_CHECK(false); }  // nothing is sent
  void Complete(Done done, Status status) override {
    if (done) done(status);
  }
  void CountReceived(size_t) override {}
  void NeedsClock() override {}
  void StateChanged(TlsLink*) override {}

  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override {
    MG_CHECK(header.size() <= kMaxHeaderBytes && payload_bytes > 0);
    if (payload_bytes > kMostPayload || header.starts_with('x')) return {};
    ++open_;
    auto memory = std::make_unique<char[]>(payload_bytes);
    char* const data = memory.get();
    memory_.push_back(std::move(memory));
    return {data, [this](const Status&) { --open_; }, {}};
  }
  void OnDelivered(std::string_view header, Payload payload) override {
    MG_CHECK(header.size() <= kMaxHeaderBytes && payload.bytes == 0);
  }

  // Reads what there is, as the transport does.
  void Read(TlsLink* link) {
    epoll_event events[4];
    const int count = epoll_wait(epoll_.get(), events, 4, 0);
    for (int i = 0; i < count; ++i) {
      auto* const stream = static_cast<TlsLink::Stream*>(events[i].data.ptr);
      stream->link->OnReady(stream, events[i].events);
    }
    while (link->usable()) {
      const bool control = link->DriveControl(), bulk = link->DriveBulk();
      if (!control && !bulk) break;
    }
  }

  // Each payload that was begun has ended.
  void CheckNothingOpen() {
    MG_CHECK(open_ == 0);
    memory_.clear();
  }

 private:
  const Descriptor epoll_;
  std::vector<std::unique_ptr<char[]>> memory_;
  int open_ = 0;
};

}  // namespace

void tls_connection(std::string_view bytes) {
  static Side side;
  TlsLink link(&side, 1, "peer", 0);
  std::array<Descriptor, 2> ends;
  for (uint8_t i = 0; i < ends.size(); ++i) {
    int fds[2];
    MG_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    ends[i] = Descriptor(fds[0]);
    TlsArrival arrival;
    arrival.stream = TlsStream(Descriptor(fds[1]), TlsStream::Side::kAcceptor, nullptr, 0);
    arrival.index = i;
    arrival.count = static_cast<uint8_t>(ends.size());
    arrival.where = "peer";
    MG_CHECK(link.Adopt(&arrival));
  }
  while (!bytes.empty()) {
    const auto mark = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    const std::string_view piece = bytes.substr(0, mark & 127);
    bytes.remove_prefix(piece.size());
    if (piece.empty()) side.Read(&link);
    (void)send(ends[mark >> 7].get(), piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  for (Descriptor& end : ends) end.Close();
  side.Read(&link);
  link.Expire(TlsLink::Clock::now() + std::chrono::seconds(5));
  MG_CHECK(link.lost());
  side.CheckNothingOpen();
}

}  // namespace monograph::fuzz
