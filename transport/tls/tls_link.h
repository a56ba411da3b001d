// TlsLink: the connections between this transport and one other, from the first dial to the end.
//
//   connecting --all streams are there--> open --EOF, failure, broken protocol, patience--> lost
//        \------------------------------------\--Close--> closing --flushed, or 250 ms--> over
//
// Lost is final. What the peers of a lost link send fails at once.
//
// Threads: everything under the transport's lock; those that may call the handler on the driver
// only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/tls/tls_frame.h"
#include "transport/tls/tls_inbox.h"
#include "transport/transport.h"

namespace monograph {

class TlsLink;

struct TlsPeer {
  PeerId id = 0;
  std::string name;
  bool self = false;
  bool connected = true;
  TlsLink* link = nullptr;  // nullptr: not connected yet, self, or disconnected
};

// One message from Send to Done, or another call that waits for the lock. Recycled. A message's
// life in TlsTransport:
//
//   Submit --small--> in the bytes of the control stream ---------> `ready_` --driver--> Done
//      \-----large--> TlsLink::transfers_ --written by streams----/
//       \--Disconnect, Close, a lost connection------------------/
struct TlsSend {
  enum class Kind : uint8_t { kMessage, kConnect, kDisconnect, kClose };
  TlsSend* next = nullptr;  // among what was submitted
  Kind kind = Kind::kMessage;
  PeerId to = 0;
  const TlsPeer* peer = nullptr;
  Payload payload;
  Done done;
  Status status;
  size_t assigned = 0, written = 0;  // bytes of the payload: given to streams, written by them
  uint32_t transfer = 0;
  uint32_t header_bytes = 0;
  char header[kMaxHeaderBytes];
};

class TlsLink {
 public:
  using Clock = std::chrono::steady_clock;

  // What the transport does for its links.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual MessageHandler* handler() = 0;
    virtual int epoll_fd() const = 0;
    virtual std::chrono::milliseconds patience() const = 0;  // transport/tls/tls_transport.h
    // These two let the driver call Done, later. FinishSend takes the record back.
    virtual void FinishSend(TlsSend* send, Status status) = 0;
    virtual void Complete(Done done, Status status) = 0;
    virtual void CountReceived(size_t bytes) = 0;
    // The link has a deadline now: call Expire now and then.
    virtual void NeedsClock() = 0;
    virtual void StateChanged(TlsLink* link) = 0;
  };

  struct Stream {
    TlsLink* link = nullptr;
    int index = 0;
    TlsStream io;
    bool there = false, ended = false;
    bool readable = true, writable = true;  // as far as is known
    // The chunk that is written.
    TlsSend* sending = nullptr;
    const char* from = nullptr;
    uint32_t out_left = 0;
    char out_prefix[TlsChunk::kPrefixBytes];
    size_t out_prefix_left = 0;
    // The chunk that is read.
    char in_prefix[TlsChunk::kPrefixBytes];
    size_t in_prefix_got = 0;
    uint32_t transfer = 0;
    char* into = nullptr;  // nullptr: nobody wants it
    uint32_t in_left = 0;
    bool waits = false;  // for the frame that announces the chunk
    Clock::time_point waits_until;
  };

  // `where` is for messages until the link has a peer with a name.
  TlsLink(Owner* owner, uint64_t instance, std::string where, uint64_t token);
  ~TlsLink();

  uint64_t instance() const { return instance_; }
  uint64_t token() const { return token_; }
  bool usable() const { return state_ == State::kConnecting || state_ == State::kOpen; }
  bool over() const { return state_ == State::kOver; }
  bool lost() const { return state_ == State::kLost; }
  int peers() const { return peers_; }
  void AddPeer(const TlsPeer& peer);
  void RemovePeer() { --peers_; }
  void set_dials() { dials_ = true; }
  bool dials() const { return dials_; }
  std::string Describe() const;

  // A stream that goes with the others, or false.
  bool Adopt(TlsArrival* arrival);
  void Queue(TlsSend* send);
  // Calls no handler.
  void FlushControl();
  // True if there is more to do at once. On the driver.
  bool DriveControl();
  bool DriveBulk();
  bool HasWork() const;
  void OnReady(Stream* stream, uint32_t events);

  // Done(status) for what the peer has pending; bytes that the other side was told of still go.
  void CancelSends(const TlsPeer* peer, const Status& status);
  // Everything pending completes with Unavailable, with each peer's name as the lost task.
  void Lose(const std::string& why);
  // Everything pending completes with `status`. What was written still goes, as long as some of it
  // moves, and for the owner's patience at most.
  void Close(const Status& status);
  // Ends what has waited for too long; true while some deadline is left.
  bool Expire(Clock::time_point now);

 private:
  enum class State { kConnecting, kOpen, kLost, kClosing, kOver };
  struct Arrival {
    PayloadSink sink;
    size_t bytes = 0;
    size_t unclaimed = 0;  // bytes that no chunk has named
    size_t left = 0;       // bytes that have not come
  };

  void Pump();
  void AppendMessage(TlsSend* send);
  bool ReadControl();
  bool HandleFrame();
  void Announce(const TlsFrame& frame, std::string_view header);
  void WriteBulk(Stream& stream);
  bool NextChunk(Stream& stream);
  void ReadBulk(Stream& stream);
  TlsStream::Moved Read(Stream& stream, void* into, size_t bytes);
  bool BeginChunk(Stream& stream);
  void EndChunk(Stream& stream);
  void Discard(Stream& stream);
  // What follows from a step that moved nothing.
  void Settle(Stream& stream, TlsStream::State state, bool reading);
  void End(Stream& stream);
  // The peer broke the protocol, or the connection broke: what came before still counts.
  void Break(const std::string& why);
  void CheckEnd();
  bool Leaves(Clock::time_point now);
  Status LostTo(const TlsSend& send) const;
  void EndReceives(const Status& status);
  void CloseStreams();
  void CheckClosed();
  size_t staged() const { return out_.size() - out_begin_; }
  Stream& control() { return *streams_[0]; }

  Owner* const owner_;
  const uint64_t instance_;
  const uint64_t token_;
  std::string name_;
  State state_ = State::kConnecting;
  std::string why_lost_;
  int peers_ = 0;
  bool named_ = false;
  bool dials_ = false;
  bool breaking_ = false;   // Break is at work
  bool out_ended_ = false;  // closing: the control stream's output is complete
  std::string lane_;
  Clock::time_point opens_by_{}, ends_by_{};          // zero: no such deadline
  Clock::time_point closes_by_{}, closes_at_most_{};  // in kClosing

  std::vector<std::unique_ptr<Stream>> streams_;
  size_t there_ = 0;

  std::deque<TlsSend*> queue_;      // not in out_ yet
  std::deque<TlsSend*> transfers_;  // announced, not completely written
  uint32_t last_transfer_ = 0;
  std::string out_;  // of the control stream
  size_t out_begin_ = 0;

  std::unique_ptr<char[]> in_;  // of the control stream
  size_t in_begin_ = 0, in_end_ = 0;
  std::unordered_map<uint32_t, Arrival> arrivals_;
  uint32_t last_announced_ = 0;
};

}  // namespace monograph
