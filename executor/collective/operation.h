// Operation: one round of a collective, as one task sees it: the parts of its own members, what
// came from the others, and what is to be computed. The manager (executor/collective/collective.cc)
// owns it and guards it by its lock; Merge and Assemble run without the lock, on parts that no
// longer change. Private to the executor folder.
//
// A reduction is cut into pieces, each within one tensor. Each piece goes by a lane of the route
// (executor/collective/route.h):
//
//   tensors   |-------- a --------|-- b --|------------- c -------------|
//   lanes     |------ lane 0 ------|------ lane 1 ------|---- lane 2 ----|   equal shares
//   pieces    |---|---|---|---|---||-|---|-|---|---|---||---|---|---|----|   Route::piece_bytes
//
// A station gets the pieces of its ranks from the members elsewhere (kPiece), merges them in rank
// order as they come, right into its outputs, behind what the station before it has sent (kPrefix,
// which lands in the outputs, too), and sends the result to the next station. The last one's result
// is the sum, which every task gets once (kSum), right into its outputs, and passes on.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "executor/collective/collective.h"
#include "executor/collective/message.h"
#include "executor/collective/route.h"

namespace monograph::collective {

using Clock = std::chrono::steady_clock;

inline constexpr int kWindow = 4;  // pieces of an operation that are on their way to one task

// What makes a round unique. In a group whose members were given, the epoch is the session and the
// round its step. `meeting`: CollectiveRequest::meeting.
struct Key {
  uint64_t epoch = 0, round = 0;
  int32_t group = 0, instance = 0;
  uint8_t meeting = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Piece {
  uint32_t tensor = 0;
  size_t offset = 0;  // bytes, in the tensor
  size_t bytes = 0;
  size_t at = 0;  // bytes, in all tensors together
  size_t lane = 0;
  int merged = 0;  // at a station: ranks before this one are merged
  bool busy = false;
};

// What one session has sent for operations that no member of this task has begun. Counted down by
// whoever releases a message, with the manager's lock or without. Default order: once per message.
struct ParkedCount {
  std::atomic<int64_t> messages{0}, bytes{0};
};

// Such a message, counted as long as it lives.
class Parked {
 public:
  Parked(CollectiveMessage what, Payload tensor, std::shared_ptr<ParkedCount> count)
      : message(std::move(what)),
        payload(std::move(tensor)),
        bytes_(static_cast<int64_t>(payload.bytes)),
        count_(std::move(count)) {
    ++count_->messages;
    count_->bytes += bytes_;
  }
  Parked(Parked&&) = default;
  Parked& operator=(Parked&&) = delete;
  ~Parked() {
    if (count_ == nullptr) return;
    --count_->messages;
    count_->bytes -= bytes_;
  }

  CollectiveMessage message;
  Payload payload;

 private:
  int64_t bytes_;
  std::shared_ptr<ParkedCount> count_;  // nullptr: it was moved elsewhere
};

struct Operation {
  using Request = std::shared_ptr<CollectiveRequest>;

  Key key;
  Clock::time_point deadline;
  // Messages that came before a member of this task began the operation.
  std::vector<Parked> parked;

  // Set when the first member of this task begins.
  bool started = false;
  bool epoch_breaks = false;  // its failure ends the group's epoch
  bool over = false;          // with `status`; stays for a while to catch what still comes
  Status status;
  CollectiveRequest spec;  // the first own member's, without its tensors
  std::shared_ptr<const CollectiveMembers> members;
  int self = 0;  // index of this task
  uint64_t signature = 0;
  std::vector<Request> local;  // by rank
  int local_missing = 0;       // own members that have not begun
  std::vector<bool> heard;     // by rank
  std::vector<Payload> whole;  // by rank: inputs that came whole
  std::vector<Shape> shapes;   // by rank, of a gather
  std::vector<Shape> tensors;  // reduce
  Route route;
  std::vector<Piece> pieces;
  std::vector<Payload> slots;     // pieces x ranks: what came of pieces that this task merges
  std::vector<Payload> prefixes;  // by piece: what the station before has sent
  size_t pieces_left = 0;
  // By task: pieces of own members that are to be sent there, and how many are on their way.
  struct Outgoing {
    std::deque<std::pair<uint32_t, int>> waiting;  // piece, rank
    int sent = 0;
  };
  std::vector<Outgoing> outgoing;
  std::vector<bool> summed;  // by piece
  std::vector<Tensor> outputs;
  bool have_value = false;     // broadcast: outputs[0] is there
  bool assembling = false;     // gather
  std::deque<uint32_t> ready;  // pieces to merge; kAssemble
  int workers = 0;             // threads at work on `ready`
  bool asked = false;          // the deadline has passed: others were asked who is there
  int answers = 0;             // to kAsk, that may still come

  static constexpr uint32_t kAssemble = UINT32_MAX;

  int ranks() const { return members->size(); }
  bool alone() const { return members->tasks.size() == 1; }
  bool is_local(int rank) const { return members->task_of[static_cast<size_t>(rank)] == self; }
  bool small() const { return route.way == Route::Way::kWhole; }
  const Lane& lane(const Piece& piece) const { return route.lanes[piece.lane]; }
  // This task's station of the piece's lane; nullptr: it has none.
  const Station* mine(const Piece& piece) const {
    const int station = my_stations_[piece.lane];
    return station < 0 ? nullptr : &lane(piece).stations[static_cast<size_t>(station)];
  }
  // The station after and before this task's; nullptr: it is the last, the first.
  const Station* next(const Piece& piece) const { return Beside(piece, 1); }
  const Station* previous(const Piece& piece) const { return Beside(piece, -1); }
  // The station that merges the rank.
  const Station& StationOf(const Piece& piece, int rank) const;
  // All ranks before this one have begun.
  void HearUpTo(int rank) { std::fill_n(heard.begin(), rank, true); }
  bool all_heard() const { return std::find(heard.begin(), heard.end(), false) == heard.end(); }

  // Takes what the first own request says. `hosts`: of ChooseRoute. ResourceExhausted if there is
  // no memory for outputs.
  Status Begin(const Request& request, std::shared_ptr<const CollectiveMembers> group,
               int self_task, const std::function<std::vector<uint64_t>()>& hosts);
  // Piece `index` of an own member's input.
  Payload LocalPiece(int rank, const Piece& piece) const;
  // The own member's whole input as one payload.
  Payload LocalWhole(int rank) const;
  Payload SumOf(const Piece& piece) const;
  // What this task's station sends to the next one.
  Payload PrefixFor(const Piece& piece) const;
  // This station's ranks that can be merged into the piece now: those before the first that is
  // missing.
  int Available(uint32_t piece) const;
  // Merges ranks [from, to) of this task's station into the piece's part of the outputs, and
  // finishes it if they are the last.
  void Merge(uint32_t piece, int from, int to) const;
  // The gather's output.
  Result<Tensor> Assemble() const;
  // "collective 'CollectiveReduceV2' (group 1, instance 7)"
  std::string Describe() const;
  // Who is late: "rank 1 (...)", and if all have come, tasks whose sums are missing. `task`, if
  // given, gets the first one's task.
  std::string Missing(std::string* task = nullptr) const;
  // Releases the tensors. REQUIRES: workers == 0.
  void Clear();

 private:
  const char* Data(int rank, uint32_t piece) const;
  void CutPieces();
  const Station* Beside(const Piece& piece, int step) const;

  std::vector<int> my_stations_;  // by lane: index; -1: none
};

using OperationPtr = std::shared_ptr<Operation>;

// A hash of what the members must agree on.
uint64_t SignatureOf(const CollectiveRequest& request);

}  // namespace monograph::collective
