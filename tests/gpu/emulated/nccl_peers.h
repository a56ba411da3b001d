// The ranks of one emulated communicator, in this process and others, connected pair by pair by
// sockets of this machine. Nothing here has a deadline: what waits asks every few milliseconds
// whether it must end.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace monograph::emulated {

struct Send {
  int rank;
  const std::byte* data;
  size_t bytes;
};
struct Receive {
  int rank;
  std::byte* data;
  size_t bytes;
};

class Peers {
 public:
  enum class Outcome {
    kDone,
    kEnded,    // as it was told to
    kLost,     // the process of a rank is gone
    kRefused,  // what the ranks say does not fit together
  };
  struct End {
    Outcome outcome = Outcome::kDone;
    std::string why;  // kLost, kRefused
  };
  using MustEnd = std::function<bool()>;

  Peers(int rank, int size) : rank_(rank), links_(static_cast<size_t>(size)) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Meets the others at `place`, a name that they all have, and no other communicator. `card` is
  // what the rank computes on, and no other may.
  End Meet(const std::string& place, std::string_view card, const MustEnd& must_end);
  // Before the first exchange with them: waits until they connect to this rank, too.
  End Connect(std::span<const int> ranks, const MustEnd& must_end);
  bool connected(int rank) const { return links_[static_cast<size_t>(rank)].connected; }
  // All together. What one rank sends another is received in its order. None is of the own rank.
  End Exchange(std::span<const Send> sends, std::span<const Receive> receives,
               const MustEnd& must_end);
  // Sends nothing any more. Who waits for this rank waits on, until its process ends: by the
  // sockets, which stay open, the others can tell.
  void Leave();

 private:
  struct Link {
    int socket = -1;
    bool connected = false;
  };
  struct Flow;
  End Assemble(const std::string& place, const MustEnd& must_end);
  End Run(std::span<Flow> flows, const MustEnd& must_end) const;

  const int rank_;
  std::vector<Link> links_;  // by rank; none to the own
};

}  // namespace monograph::emulated
