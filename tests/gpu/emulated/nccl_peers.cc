// Between two ranks go frames: a header, and as many bytes as it says.
#include "tests/gpu/emulated/nccl_peers.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

namespace monograph::emulated {
namespace {

constexpr int kLookMs = 5;

enum class Kind : uint32_t { kHello = 1, kConnect = 2, kData = 3 };

struct Header {
  Kind kind{};
  uint32_t unused = 0;
  uint64_t bytes = 0;
};

struct Hello {
  char card[64] = {};
};

struct Address {
  Address(const std::string& place, int rank) {
    const std::string name = "monograph-nccl/" + place + "/" + std::to_string(rank);
    un.sun_family = AF_UNIX;
    name.copy(un.sun_path + 1, sizeof un.sun_path - 1);  // an abstract one: no file
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                   std::min(name.size(), sizeof un.sun_path - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
  sockaddr_un un{};
  socklen_t bytes;
};

int NewSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

Peers::End Refused(std::string why) { return {Peers::Outcome::kRefused, std::move(why)}; }
Peers::End Lost(int rank) {
  return {Peers::Outcome::kLost, "the process of rank " + std::to_string(rank) + " is gone"};
}

}  // namespace

// What is on its way to and from one rank.
struct Peers::Flow {
  struct Out {
    Header header;
    const std::byte* data;
  };
  struct In {
    Header expected;
    std::byte* data;
  };
  enum class Step { kGoes, kSilent, kLost, kRefused };

  void Add(Kind kind, const void* data, size_t bytes) {
    out.push_back({{kind, 0, bytes}, static_cast<const std::byte*>(data)});
  }
  void Await(Kind kind, void* data, size_t bytes) {
    in.push_back({{kind, 0, bytes}, static_cast<std::byte*>(data)});
  }
  bool done() const { return out_at == out.size() && in_at == in.size(); }
  bool reads() const { return in_at < in.size() && !silent; }

  // As much as goes without waiting.
  Step Write() {
    while (out_at < out.size()) {
      const Out& frame = out[out_at];
      const bool head = sent < sizeof frame.header;
      const auto* from = head ? reinterpret_cast<const std::byte*>(&frame.header) + sent
                              : frame.data + (sent - sizeof frame.header);
      const size_t left =
          (head ? sizeof frame.header : sizeof frame.header + frame.header.bytes) - sent;
      if (left > 0) {
        const ssize_t count = send(socket, from, left, MSG_NOSIGNAL);
        if (count < 0) return errno == EAGAIN || errno == EINTR ? Step::kGoes : Step::kLost;
        sent += static_cast<size_t>(count);
      }
      if (sent == sizeof frame.header + frame.header.bytes) ++out_at, sent = 0;
    }
    return Step::kGoes;
  }
  Step Read() {
    while (in_at < in.size()) {
      const In& frame = in[in_at];
      const bool head = got < sizeof header;
      auto* to =
          head ? reinterpret_cast<std::byte*>(&header) + got : frame.data + (got - sizeof header);
      const size_t left = (head ? sizeof header : sizeof header + frame.expected.bytes) - got;
      if (left > 0) {
        const ssize_t count = recv(socket, to, left, 0);
        if (count == 0) return Step::kSilent;
        if (count < 0) return errno == EAGAIN || errno == EINTR ? Step::kGoes : Step::kLost;
        got += static_cast<size_t>(count);
      }
      if (got == sizeof header &&
          (header.kind != frame.expected.kind || header.bytes != frame.expected.bytes))
        return Step::kRefused;
      if (got == sizeof header + frame.expected.bytes) ++in_at, got = 0;
    }
    return Step::kGoes;
  }

  int rank = -1, socket = -1;
  std::vector<Out> out;
  std::vector<In> in;
  size_t out_at = 0, sent = 0, in_at = 0, got = 0;
  Header header;        // that is being read
  bool silent = false;  // the rank has left
};

Peers::End Peers::Run(std::span<Flow> flows, const MustEnd& must_end) const {
  for (;;) {
    if (must_end()) return {Outcome::kEnded, ""};
    std::vector<pollfd> polled;
    std::vector<Flow*> of;
    bool done = true;
    for (Flow& flow : flows) {
      if (flow.done()) continue;
      done = false;
      const short events = static_cast<short>((flow.reads() ? POLLIN : 0) |
                                              (flow.out_at < flow.out.size() ? POLLOUT : 0));
      polled.push_back({flow.socket, events, 0});
      of.push_back(&flow);
    }
    if (done) return {};
    if (poll(polled.data(), polled.size(), kLookMs) <= 0) continue;
    for (size_t i = 0; i < polled.size(); ++i) {
      Flow& flow = *of[i];
      auto step = Flow::Step::kGoes;
      if ((polled[i].revents & POLLOUT) != 0) step = flow.Write();
      if (step == Flow::Step::kGoes && (polled[i].revents & (POLLIN | POLLHUP)) != 0 &&
          flow.reads())
        step = flow.Read();
      flow.silent = flow.silent || step == Flow::Step::kSilent;
      // Nobody has the other end any more, and all that came was read.
      const bool gone = (polled[i].revents & POLLHUP) != 0 && !flow.reads() && !flow.done();
      if (must_end()) return {Outcome::kEnded, ""};
      if (step == Flow::Step::kLost || gone) return Lost(flow.rank);
      if (step == Flow::Step::kRefused) {
        return Refused("rank " + std::to_string(flow.rank) + " sends " +
                       std::to_string(flow.header.bytes) + " bytes where rank " +
                       std::to_string(rank_) + " receives " +
                       std::to_string(flow.in[flow.in_at].expected.bytes));
      }
    }
  }
}

// Each rank listens for those above, and calls those below.
Peers::End Peers::Assemble(const std::string& place, const MustEnd& must_end) {
  const int size = static_cast<int>(links_.size());
  const Address own(place, rank_);
  const int listener = NewSocket();
  if (bind(listener, own.get(), own.bytes) != 0 || listen(listener, size) != 0) {
    close(listener);
    return Refused("rank " + std::to_string(rank_) + " has joined already");
  }
  End end;
  for (int missing = size - 1; missing > 0;) {
    if (must_end()) {
      end.outcome = Outcome::kEnded;
      break;
    }
    for (int rank = 0; rank < rank_; ++rank) {
      Link& link = links_[static_cast<size_t>(rank)];
      if (link.socket >= 0) continue;
      const int made = NewSocket();
      const Address address(place, rank);
      const int32_t from = rank_;
      if (connect(made, address.get(), address.bytes) == 0 &&
          send(made, &from, sizeof from, MSG_NOSIGNAL) == sizeof from) {
        link.socket = made;
        --missing;
      } else {
        close(made);  // it is not there yet
      }
    }
    pollfd polled{listener, POLLIN, 0};
    (void)poll(&polled, 1, kLookMs);
    const int made = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) continue;
    int32_t from = -1;
    pollfd spoken{made, POLLIN, 0};
    (void)poll(&spoken, 1, 1000);
    if (recv(made, &from, sizeof from, 0) == sizeof from && from > rank_ && from < size &&
        links_[static_cast<size_t>(from)].socket < 0) {
      links_[static_cast<size_t>(from)].socket = made;
      --missing;
    } else {
      close(made);
    }
  }
  close(listener);
  return end;
}

Peers::End Peers::Meet(const std::string& place, std::string_view card, const MustEnd& must_end) {
  if (End end = Assemble(place, must_end); end.outcome != Outcome::kDone) return end;
  std::vector<Hello> hellos(links_.size());
  Hello& own = hellos[static_cast<size_t>(rank_)];
  card.copy(own.card, sizeof own.card - 1);
  std::vector<Flow> flows;
  for (int rank = 0; rank < static_cast<int>(links_.size()); ++rank) {
    if (rank == rank_) continue;
    Flow& flow = flows.emplace_back();
    flow.rank = rank;
    flow.socket = links_[static_cast<size_t>(rank)].socket;
    flow.Add(Kind::kHello, &own, sizeof own);
    flow.Await(Kind::kHello, &hellos[static_cast<size_t>(rank)], sizeof own);
  }
  if (End end = Run(flows, must_end); end.outcome != Outcome::kDone) return end;
  std::set<std::string> cards;
  for (const Hello& hello : hellos) {
    if (!cards.insert(hello.card).second)
      return Refused(std::string("Duplicate GPU detected: two ranks on ") + hello.card);
  }
  return {};
}

Peers::End Peers::Connect(std::span<const int> ranks, const MustEnd& must_end) {
  std::vector<Flow> flows;
  for (const int rank : ranks) {
    Flow& flow = flows.emplace_back();
    flow.rank = rank;
    flow.socket = links_[static_cast<size_t>(rank)].socket;
    flow.Add(Kind::kConnect, nullptr, 0);
    flow.Await(Kind::kConnect, nullptr, 0);
  }
  End end = Run(flows, must_end);
  for (const int rank : ranks)
    links_[static_cast<size_t>(rank)].connected = end.outcome == Outcome::kDone;
  return end;
}

Peers::End Peers::Exchange(std::span<const Send> sends, std::span<const Receive> receives,
                           const MustEnd& must_end) {
  std::map<int, Flow> by_rank;
  for (const Send& send : sends) by_rank[send.rank].Add(Kind::kData, send.data, send.bytes);
  for (const Receive& receive : receives)
    by_rank[receive.rank].Await(Kind::kData, receive.data, receive.bytes);
  std::vector<Flow> flows;
  for (auto& [rank, flow] : by_rank) {
    flow.rank = rank;
    flow.socket = links_[static_cast<size_t>(rank)].socket;
    flows.push_back(std::move(flow));
  }
  return Run(flows, must_end);
}

void Peers::Leave() {
  for (const Link& link : links_) {
    if (link.socket >= 0) (void)shutdown(link.socket, SHUT_WR);
  }
}

}  // namespace monograph::emulated
