// ExchangePlan: who sends what to whom, and adds it up, in a collective of GPUs. It depends on
// nothing but the numbers that it is made of: what the GPUs do by it is in members_exchange.cc, and
// a test or a simulation can do it without any.
//
// What is exchanged is cut into units, which only the caller knows; each kind of collective goes
// in steps. In one step a rank's sends and receives go all together, then it adds up. Both ends of
// a transfer are in the same step, and what goes from one rank to another in it is in the same
// order at both. So the steps of one rank may be enqueued one behind the other without a cycle of
// waits.
//
// A reduction. Ranks [first of n, first of n + 1) are on node n. Each node cuts the units into a
// share for each of its GPUs; a lane is what lies between two cuts, of whichever node, so it has an
// owner on each. A lane is cut into pieces, and a piece goes along the nodes, one in a step:
//
//   node 0   r0 ─┐                    node 1   r3 ─┐                   node 2   r5
//            r1 ─┴► owner: r0+r1+r2 ─────────► owner: (..)+r3+r4 ──────────► owner: (..)+r5
//            r2 ─┘                             r4 ─┘                                 │
//            ◄─ to its node ─ owner ◄───────────────── owner ◄──────── the sum ──────┘
//
// The additions are those of rank order, so the bits are, whatever the nodes. While a piece is on
// one node the next piece is on the node before. With P pieces and H nodes that is P + 2 H - 1
// steps. A node sends S bytes in each direction of the chain, whatever the number of its GPUs. With
// one node it is the exchange of each with all: everyone's inputs of a share to its owner, and the
// sum to everyone.
//
// A broadcast goes the same way as a sum that is there: the sender deals the lanes out in its node,
// and they go from node to node, in a ring that begins at it. P + H steps.
//
// A gather sends each rank's value to the ranks of its node and to one of each other node, which
// passes it on there. 2 steps; 1 with one node.
//
// Bytes that leave a node of G GPUs, of H nodes and N = G H ranks; S: what is summed, sent, or has
// been gathered.
//
//   sum         2 S (S from the first and the last node)     each with all: 2 S G (N - G) / N
//   broadcast   S (nothing from the ring's last node)        about S G
//   gather      S (H - 1) / H                                S (N - G) / H
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace monograph {

// How the ranks of a group lie on nodes.
enum class NodeOrder : uint8_t {
  kOneNode,
  kOneEach,    // no two ranks on one
  kRuns,       // the ranks of each node follow each other, and one node has several
  kScattered,  // other nodes' ranks are between those of one
};
// `nodes`: by rank, equal numbers for one node.
NodeOrder NodeOrderOf(std::span<const uint64_t> nodes);

// The first rank of each node, and then the number of ranks.
using NodeRanks = std::vector<int>;

// The nodes along which `bytes` go (of a sum or a broadcast; of all that is gathered): those that
// there are if their ranks come in runs, else one, which has all ranks. So it is for few bytes,
// too: the steps from node to node then take longer than the bytes that they spare.
NodeRanks ChooseNodes(std::span<const uint64_t> nodes, size_t bytes);
inline constexpr size_t kSmallNodeBytes = 64 << 10;  // of the GPUs of a node together

// Into how many pieces the lanes of so many bytes are cut. With few, filling and emptying the chain
// takes much of the time: at 4 for each of these steps, a quarter more than the bytes alone. With
// many, what each costs by itself does: a step takes some tens of microseconds to launch, in which
// a GPU sends one or two MiB through a network of 400 Gbit/s.
int ChoosePieces(const NodeRanks& nodes, size_t bytes);
inline constexpr size_t kPieceBytesOfAGpu = 1 << 20;  // at least, if there are several
inline constexpr int kPiecesPerStep = 4;              // of filling and emptying; at most

struct UnitRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  friend bool operator==(const UnitRange&, const UnitRange&) = default;
};

class ExchangePlan {
 public:
  enum class Place : uint8_t {
    kInput,   // the rank's own input
    kTerm,    // a receiver's: until this step's sums are made
    kResult,  // where the result will be; until then partial sums are
  };
  struct Move {
    int rank = 0;  // the other one
    UnitRange units;
    Place place = Place::kResult;
  };
  // result = [result +] input of rank `begin` + ... + input of rank `end - 1`, in this order. There
  // are at least two terms. All inputs but the own one came as terms, of these units, in this step.
  struct Sum {
    UnitRange units;
    bool continues = false;  // with what is in the result
    int begin = 0, end = 0;
  };
  struct Step {
    std::vector<Move> sends, receives;
    std::vector<Sum> sums;  // when all of these have come
  };

  // `nodes`: of ChooseNodes. `pieces`: of ChoosePieces.
  static ExchangePlan Reduce(NodeRanks nodes, int64_t units, int pieces);
  // Where the sender's value is its result's place.
  static ExchangePlan Broadcast(NodeRanks nodes, int64_t units, int pieces, int sender);
  // Unit r is the value of rank r, which is in its place at the beginning.
  static ExchangePlan Gather(NodeRanks nodes);

  int steps() const;
  // What `rank` does in step `step`, from 0.
  Step At(int step, int rank) const;

 private:
  enum class Kind : uint8_t { kReduce, kBroadcast, kGather };
  struct Lane {
    UnitRange units;
    std::vector<int> owners;  // by node, a rank
  };
  ExchangePlan(Kind kind, NodeRanks nodes, int64_t units, int pieces, int sender);
  int nodes() const { return static_cast<int>(first_.size()) - 1; }
  int NodeOf(int rank) const;
  UnitRange Piece(const Lane& lane, int piece) const;  // empty if there is none
  template <typename Fn>
  void ForMates(int rank, Fn fn) const;  // the other ranks of its node, in order
  void AddReduce(const Lane& lane, int step, int rank, Step* todo) const;
  void AddBroadcast(const Lane& lane, int step, int rank, Step* todo) const;
  void AddGather(int step, int rank, Step* todo) const;

  const Kind kind_;
  const NodeRanks first_;
  const int pieces_, sender_;
  std::vector<Lane> lanes_;  // in the order of units
};

}  // namespace monograph
