// Sending: Queue appends a message to queue_; Pump encodes the front of it into out_, the bytes
// that the control stream still owes, and hands large payloads to transfers_, from which each bulk
// stream takes its next chunk when it has written one. Receiving: the control stream's bytes go
// through in_, since its messages are small; a bulk stream reads into the sink's memory. Each step
// does a bounded amount of work, so that a large payload keeps no header waiting.
#include "transport/tls/tls_link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/duration.h"
#include "base/log.h"

namespace monograph {
namespace {

using State = TlsStream::State;
using std::chrono::milliseconds;
using Io = TlsStream::State;

constexpr size_t kInputBytes = 64 << 10;
static_assert(kInputBytes > TlsFrame::kPrefixBytes + kMaxHeaderBytes + kMaxInlineBytes);
// More is not encoded while so much is unsent: a peer that reads nothing costs this memory and what
// the senders themselves hold.
constexpr size_t kMaxStaged = 256 << 10;
constexpr uint32_t kMaxChunkBytes = 512 << 10;
// The other side counts a transfer until it has read it, this one until it is written.
constexpr size_t kMaxTransfers = kMaxAnnounced / 2;
// Work of one step: bytes of one bulk stream and way, reads of the control stream.
constexpr size_t kQuantum = 128 << 10;
constexpr int kReadsPerStep = 16;
// How long the other streams may go on without a byte after one has ended.
constexpr milliseconds kEndGrace{1000};
// Close goes on while the peer's host has acknowledged written bytes within kLeaveGrace (more than
// TCP's retransmission timeout), then waits kCloseGrace for the peer to close its side.
constexpr milliseconds kLeaveGrace{700}, kCloseGrace{200};
constexpr int kLastReads = 128;  // of a broken connection; more than the system keeps for a socket

char* Scratch(size_t* bytes) {
  static thread_local char scratch[16 << 10];
  *bytes = sizeof scratch;
  return scratch;
}

}  // namespace

TlsLink::TlsLink(Owner* owner, uint64_t instance, std::string where, uint64_t token)
    : owner_(owner), instance_(instance), token_(token), name_(std::move(where)) {}

TlsLink::~TlsLink() = default;

void TlsLink::AddPeer(const TlsPeer& peer) {
  ++peers_;
  if (!std::exchange(named_, true)) name_ = peer.name;
}

std::string TlsLink::Describe() const {
  switch (state_) {
    case State::kConnecting:
      return "tls (connecting)";
    case State::kOpen:
      return lane_;
    case State::kLost:
      return "tls (lost: " + why_lost_ + ")";
    default:
      return "not connected";
  }
}

bool TlsLink::Adopt(TlsArrival* arrival) {
  if (state_ != State::kConnecting || arrival->dialed != dials_) return false;
  if (streams_.empty()) {
    for (int i = 0; i < arrival->count; ++i) {
      streams_.push_back(std::make_unique<Stream>());
      streams_.back()->link = this;
      streams_.back()->index = i;
    }
    in_ = std::make_unique<char[]>(kInputBytes);
  }
  if (arrival->count != streams_.size() || streams_[arrival->index]->there) return false;
  Stream& stream = *streams_[arrival->index];
  stream.io = std::move(arrival->stream);
  stream.there = true;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &stream;
  if (epoll_ctl(owner_->epoll_fd(), EPOLL_CTL_ADD, stream.io.fd(), &event) != 0) {
    Lose("there is no memory to watch its connection");
    return true;
  }
  if (++there_ == streams_.size()) {
    state_ = State::kOpen;
    opens_by_ = {};
    const std::string how = stream.io.Describe();
    lane_ = std::string(how == "plain tcp" ? "tcp" : "tls") + "(" + how + ", " +
            std::to_string(streams_.size()) + " streams, " + arrival->where + ")";
    owner_->StateChanged(this);
    Pump();
  } else if (opens_by_ == Clock::time_point()) {
    // A deadline even if nothing is sent: otherwise a peer that opens only some streams holds them
    // forever.
    opens_by_ = Clock::now() + owner_->patience();
    owner_->NeedsClock();
  }
  return true;
}

void TlsLink::Queue(TlsSend* send) {
  if (!usable()) return owner_->FinishSend(send, LostTo(*send));
  queue_.push_back(send);
  if (state_ == State::kConnecting && opens_by_ == Clock::time_point()) {
    opens_by_ = Clock::now() + owner_->patience();
    owner_->NeedsClock();
  }
  Pump();
}

void TlsLink::Pump() {
  while (state_ == State::kOpen && !queue_.empty() && staged() < kMaxStaged) {
    TlsSend* send = queue_.front();
    const bool is_inline = send->payload.bytes <= kMaxInlineBytes;
    if (!is_inline && transfers_.size() >= kMaxTransfers) return;
    queue_.pop_front();
    AppendMessage(send);
    if (is_inline) {
      owner_->FinishSend(send, Status());
    } else {
      transfers_.push_back(send);
    }
  }
}

void TlsLink::AppendMessage(TlsSend* send) {
  if (out_begin_ == out_.size()) {
    out_.clear();
    out_begin_ = 0;
  }
  TlsFrame frame;
  frame.header_bytes = static_cast<uint16_t>(send->header_bytes);
  frame.payload_bytes = send->payload.bytes;
  const bool is_inline = send->payload.bytes <= kMaxInlineBytes;
  if (!is_inline) {
    frame.type = TlsFrame::kAnnounce;
    frame.transfer = send->transfer = ++last_transfer_;
    send->assigned = send->written = 0;
  }
  AppendFrame(frame, &out_);
  out_.append(send->header, send->header_bytes);
  if (is_inline && send->payload.bytes > 0)
    out_.append(static_cast<const char*>(send->payload.data()), send->payload.bytes);
}

void TlsLink::FlushControl() {
  if (streams_.empty()) return;
  Stream& stream = control();
  while (staged() > 0 && stream.there && stream.writable && !lost() && !over()) {
    const TlsStream::Moved moved = stream.io.Write(out_.data() + out_begin_, staged());
    if (moved.state != Io::kMoved) {
      Settle(stream, moved.state, false);
      continue;
    }
    out_begin_ += moved.bytes;
    // What is sent is dropped now and then, so that the rest need not move often.
    if (out_begin_ >= kMaxStaged) {
      out_.erase(0, out_begin_);
      out_begin_ = 0;
    }
    Pump();
  }
  if (state_ == State::kClosing) CheckClosed();
}

void TlsLink::OnReady(Stream* stream, uint32_t events) {
  // A hang-up is for the next read or write to find.
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) stream->readable = true;
  if ((events & ~static_cast<uint32_t>(EPOLLIN | EPOLLRDHUP)) != 0) {
    stream->writable = true;
    stream->readable = true;  // a read may have waited to write TLS's own messages
  }
}

void TlsLink::Settle(Stream& stream, TlsStream::State state, bool reading) {
  switch (state) {
    case Io::kMoved:
      return;
    case Io::kNeedsInput:
    case Io::kNeedsOutput:
      (reading ? stream.readable : stream.writable) = false;
      return;
    case Io::kEnded:
      End(stream);
      return;
    case Io::kFailed:
      stream.readable = stream.writable = false;
      if (state_ == State::kClosing) {
        stream.ended = true;
        return;
      }
      if (breaking_) return;
      for (const auto& other : streams_) other->readable = other->there && !other->ended;
      if (reading) stream.readable = false;
      return Break("the connection broke: " + stream.io.error().message());
  }
}

void TlsLink::End(Stream& stream) {
  stream.ended = true;
  stream.readable = stream.writable = false;
  if (state_ == State::kClosing) return;
  const bool cut =
      stream.index == 0 ? in_begin_ != in_end_ : stream.in_prefix_got != 0 || stream.in_left != 0;
  if (cut) return Break("it closed the connection in the middle of a message");
  if (ends_by_ == Clock::time_point()) {
    ends_by_ = Clock::now() + kEndGrace;
    owner_->NeedsClock();
  }
  CheckEnd();
}

// Nothing more can come when the control stream has ended and what it announced is there.
void TlsLink::CheckEnd() {
  if (usable() && control().ended && arrivals_.empty()) Lose("it closed the connection");
}

void TlsLink::Break(const std::string& why) {
  if (!usable() || std::exchange(breaking_, true)) return;
  // Read what arrived before the failure: a peer closes its sockets only when this host has got all
  // that it sent, so its last messages are valid.
  while (usable() && control().there && control().readable) ReadControl();
  for (size_t i = 1; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    for (int reads = 0; reads < kLastReads && stream.there && stream.readable && !stream.waits;
         ++reads)
      ReadBulk(stream);
  }
  if (!usable()) return;
  LogWarning("data: lost the connection with " + name_ + ": " + why);
  Lose(why);
}

void TlsLink::Lose(const std::string& why) {
  if (!usable()) return;
  state_ = State::kLost;
  why_lost_ = why;
  opens_by_ = ends_by_ = {};
  CloseStreams();
  for (auto* sends : {&queue_, &transfers_}) {
    for (TlsSend* send : *sends)
      owner_->FinishSend(send,
                         TaskLost(send->peer->name, "sending to " + send->peer->name + ": " + why));
    sends->clear();
  }
  EndReceives(TaskLost(name_, "receiving from " + name_ + ": " + why));
  out_ = {};
  out_begin_ = 0;
  in_.reset();
  in_begin_ = in_end_ = 0;
  owner_->StateChanged(this);
}

Status TlsLink::LostTo(const TlsSend& send) const {
  return TaskLost(send.peer->name, "sending to " + send.peer->name + ": " + why_lost_);
}

void TlsLink::EndReceives(const Status& status) {
  for (auto& [transfer, arrival] : arrivals_)
    if (arrival.sink.data != nullptr) owner_->Complete(std::move(arrival.sink.done), status);
  arrivals_.clear();
}

void TlsLink::CloseStreams() {
  for (const auto& stream : streams_) {
    stream->io.Close();
    stream->there = false;
    stream->readable = stream->writable = false;
    stream->sending = nullptr;
  }
}

void TlsLink::CancelSends(const TlsPeer* peer, const Status& status) {
  std::erase_if(queue_, [&](TlsSend* send) {
    if (send->peer != peer) return false;
    owner_->FinishSend(send, status);
    return true;
  });
  for (TlsSend* send : transfers_) {
    if (send->peer != peer || !send->done) continue;
    owner_->Complete(std::exchange(send->done, nullptr), status);
  }
}

void TlsLink::Close(const Status& status) {
  if (lost() || over()) {
    state_ = State::kOver;
    return;
  }
  const bool was_open = state_ == State::kOpen;
  state_ = State::kClosing;
  opens_by_ = ends_by_ = {};
  closes_by_ = Clock::now() + kCloseGrace;
  closes_at_most_ = Clock::now() + owner_->patience();
  for (auto* sends : {&queue_, &transfers_}) {
    for (TlsSend* send : *sends) owner_->FinishSend(send, status);
    sends->clear();
  }
  EndReceives(status);
  for (const auto& stream : streams_) {
    if (stream->index == 0 || !stream->there) continue;
    const bool mid_chunk = stream->sending != nullptr;
    stream->sending = nullptr;
    mid_chunk ? stream->io.Close() : stream->io.EndOutput();
    stream->ended = stream->ended || mid_chunk;
  }
  owner_->StateChanged(this);
  if (!was_open) {
    CloseStreams();
    state_ = State::kOver;
    return;
  }
  owner_->NeedsClock();
  FlushControl();
}

// The control stream's output ends when everything staged is sent; the link is over when the peer
// has ended its side. To close a socket with unread bytes would destroy what the peer has not read.
void TlsLink::CheckClosed() {
  Stream& stream = control();
  if (staged() == 0 && !out_ended_) {
    out_ended_ = true;
    stream.io.EndOutput();
  }
  if (!std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->ended; }))
    return;
  CloseStreams();
  state_ = State::kOver;
}

void TlsLink::Discard(Stream& stream) {
  size_t bytes = 0;
  char* const scratch = Scratch(&bytes);
  for (size_t done = 0; done < kQuantum && stream.readable && !stream.ended;) {
    const TlsStream::Moved moved = stream.io.Read(scratch, bytes);
    if (moved.state != Io::kMoved) Settle(stream, moved.state, true);
    done += std::max<size_t>(moved.bytes, 1);
  }
}

// A socket that is closed while its bytes are under way loses them if the peer sends something. So
// the link stays until the peer's host has all.
bool TlsLink::Leaves(Clock::time_point now) {
  if (std::any_of(streams_.begin(), streams_.end(),
                  [](const auto& stream) { return stream->io.Leaves(kLeaveGrace); }))
    closes_by_ = now + kCloseGrace;
  return now < closes_by_ && now < closes_at_most_;
}

bool TlsLink::Expire(Clock::time_point now) {
  const auto passed = [now](Clock::time_point time) {
    return time != Clock::time_point() && now >= time;
  };
  if (state_ == State::kClosing && !Leaves(now)) {
    CloseStreams();
    state_ = State::kOver;
  }
  if (usable() && passed(opens_by_))
    Lose("there was no connection with it within " + Seconds(owner_->patience()));
  if (usable() && passed(ends_by_)) Lose("it closed the connection");
  for (const auto& stream : streams_) {
    if (usable() && stream->waits && passed(stream->waits_until))
      Break("it broke the protocol: it sent a payload (transfer " +
            std::to_string(stream->transfer) + ") that it did not announce within " +
            Seconds(owner_->patience()));
  }
  if (state_ == State::kClosing) return true;
  return usable() &&
         (opens_by_ != Clock::time_point() || ends_by_ != Clock::time_point() ||
          std::any_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->waits; }));
}

bool TlsLink::HasWork() const {
  if (lost() || over()) return false;
  for (const auto& stream : streams_) {
    if (!stream->there || stream->ended) continue;
    if (stream->readable && !stream->waits) return true;
    if (!stream->writable) continue;
    if (stream->index == 0 ? staged() > 0
                           : stream->sending != nullptr ||
                                 (state_ == State::kOpen && !transfers_.empty() &&
                                  transfers_.back()->assigned < transfers_.back()->payload.bytes))
      return true;
  }
  return false;
}

bool TlsLink::DriveControl() {
  FlushControl();
  if (streams_.empty() || !control().there || !control().readable) return false;
  if (state_ == State::kClosing) {
    Discard(control());
    CheckClosed();
    return false;
  }
  return usable() && ReadControl();
}

bool TlsLink::DriveBulk() {
  for (size_t i = 1; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    if (!stream.there) continue;
    if (state_ == State::kClosing) {
      Discard(stream);
      CheckClosed();
      continue;
    }
    if (stream.writable && state_ == State::kOpen) WriteBulk(stream);
    if (stream.readable && !stream.waits && usable()) ReadBulk(stream);
  }
  return HasWork();
}

bool TlsLink::ReadControl() {
  Stream& stream = control();
  for (int reads = 0; reads < kReadsPerStep; ++reads) {
    while (usable() && HandleFrame()) {
    }
    if (!usable() || !stream.readable) return false;
    if (in_begin_ > 0) {
      std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
      in_end_ -= std::exchange(in_begin_, 0);
    }
    const TlsStream::Moved moved = Read(stream, in_.get() + in_end_, kInputBytes - in_end_);
    in_end_ += moved.bytes;
    if (moved.state != Io::kMoved) Settle(stream, moved.state, true);
  }
  return true;
}

// Handles the first frame of in_ if all of it is there.
bool TlsLink::HandleFrame() {
  const size_t have = in_end_ - in_begin_;
  if (have < TlsFrame::kPrefixBytes) return false;
  const char* bytes = in_.get() + in_begin_;
  const Result<TlsFrame> decoded = DecodeFrame(bytes);
  if (!decoded.ok()) {
    control().readable = false;
    Break("it broke the protocol: " + decoded.status().message());
    return false;
  }
  const TlsFrame& frame = *decoded;
  const bool is_inline = frame.type == TlsFrame::kInline;
  const size_t payload_bytes = is_inline ? frame.payload_bytes : 0;
  const size_t whole = TlsFrame::kPrefixBytes + frame.header_bytes + payload_bytes;
  if (have < whole) return false;
  in_begin_ += whole;
  const std::string_view header(bytes + TlsFrame::kPrefixBytes, frame.header_bytes);
  if (!is_inline) {
    Announce(frame, header);
    return true;
  }
  owner_->CountReceived(frame.header_bytes + payload_bytes);
  if (payload_bytes == 0) {
    owner_->handler()->OnDelivered(header, {});
    return true;
  }
  PayloadSink sink = owner_->handler()->OnMessage(header, payload_bytes);
  if (sink.data == nullptr) return true;
  std::memcpy(sink.data, header.data() + header.size(), payload_bytes);
  sink.keep = Buffer();  // whoever gets the memory now is its only owner
  if (sink.done) sink.done(Status());
  return true;
}

void TlsLink::Announce(const TlsFrame& frame, std::string_view header) {
  if (frame.transfer != last_announced_ + 1 || arrivals_.size() >= kMaxAnnounced) {
    control().readable = false;
    return Break("it broke the protocol: it announced transfer " + std::to_string(frame.transfer) +
                 " after " + std::to_string(last_announced_) + ", with " +
                 std::to_string(arrivals_.size()) + " open");
  }
  last_announced_ = frame.transfer;
  owner_->CountReceived(frame.header_bytes + frame.payload_bytes);
  Arrival arrival;
  arrival.sink = owner_->handler()->OnMessage(header, frame.payload_bytes);
  arrival.bytes = arrival.unclaimed = arrival.left = frame.payload_bytes;
  arrivals_.emplace(frame.transfer, std::move(arrival));
  for (const auto& stream : streams_) stream->waits = false;
}

bool TlsLink::NextChunk(Stream& stream) {
  const auto found = std::find_if(transfers_.begin(), transfers_.end(), [](const TlsSend* send) {
    return send->assigned < send->payload.bytes;
  });
  if (found == transfers_.end()) return false;
  TlsSend* send = *found;
  TlsChunk chunk;
  chunk.transfer = send->transfer;
  chunk.offset = send->assigned;
  chunk.bytes =
      static_cast<uint32_t>(std::min<size_t>(kMaxChunkBytes, send->payload.bytes - send->assigned));
  EncodeChunk(chunk, stream.out_prefix);
  stream.out_prefix_left = sizeof stream.out_prefix;
  stream.sending = send;
  stream.from = static_cast<const char*>(send->payload.data()) + send->assigned;
  stream.out_left = chunk.bytes;
  send->assigned += chunk.bytes;
  return true;
}

void TlsLink::WriteBulk(Stream& stream) {
  for (size_t done = 0; done < kQuantum && stream.writable && state_ == State::kOpen;) {
    if (stream.sending == nullptr && !NextChunk(stream)) return;
    const bool prefix = stream.out_prefix_left > 0;
    const TlsStream::Moved moved =
        prefix
            ? stream.io.Write(stream.out_prefix + sizeof stream.out_prefix - stream.out_prefix_left,
                              stream.out_prefix_left)
            : stream.io.Write(stream.from, stream.out_left);
    if (moved.state != Io::kMoved) {
      Settle(stream, moved.state, false);
      continue;
    }
    done += moved.bytes;
    if (prefix) {
      stream.out_prefix_left -= moved.bytes;
      continue;
    }
    stream.from += moved.bytes;
    stream.out_left -= static_cast<uint32_t>(moved.bytes);
    TlsSend* send = stream.sending;
    send->written += moved.bytes;
    if (stream.out_left > 0) continue;
    stream.sending = nullptr;
    if (send->written < send->payload.bytes) continue;
    transfers_.erase(std::find(transfers_.begin(), transfers_.end(), send));
    owner_->FinishSend(send, Status());
    Pump();
  }
}

TlsStream::Moved TlsLink::Read(Stream& stream, void* into, size_t bytes) {
  const TlsStream::Moved moved = stream.io.Read(into, bytes);
  if (moved.bytes > 0 && ends_by_ != Clock::time_point()) ends_by_ = Clock::now() + kEndGrace;
  return moved;
}

void TlsLink::ReadBulk(Stream& stream) {
  for (size_t done = 0; done < kQuantum && stream.readable && !stream.waits && usable();) {
    if (stream.in_left == 0 && stream.in_prefix_got == sizeof stream.in_prefix) {
      if (!BeginChunk(stream)) return;
      continue;
    }
    size_t bytes = stream.in_left;
    char* into = stream.into;
    if (stream.in_left == 0) {
      into = stream.in_prefix + stream.in_prefix_got;
      bytes = sizeof stream.in_prefix - stream.in_prefix_got;
    } else if (into == nullptr) {
      into = Scratch(&bytes);
      bytes = std::min<size_t>(bytes, stream.in_left);
    }
    const TlsStream::Moved moved = Read(stream, into, bytes);
    if (moved.state != Io::kMoved) {
      Settle(stream, moved.state, true);
      continue;
    }
    done += moved.bytes;
    if (stream.in_left == 0) {
      stream.in_prefix_got += moved.bytes;
      continue;
    }
    if (stream.into != nullptr) stream.into += moved.bytes;
    stream.in_left -= static_cast<uint32_t>(moved.bytes);
    arrivals_.find(stream.transfer)->second.left -= moved.bytes;
    if (stream.in_left == 0) EndChunk(stream);
  }
}

// Finds where the chunk goes whose prefix has been read. False if it must wait, or is wrong.
bool TlsLink::BeginChunk(Stream& stream) {
  const TlsChunk chunk = DecodeChunk(stream.in_prefix);
  stream.transfer = chunk.transfer;
  const auto found = arrivals_.find(chunk.transfer);
  if (found == arrivals_.end()) {
    const uint32_t ahead = chunk.transfer - last_announced_;  // modulo 2^32, as numbers are
    if (ahead == 0 || ahead > kMaxAnnounced) {
      Break("it broke the protocol: it sent a payload (transfer " + std::to_string(chunk.transfer) +
            ") that it did not announce");
      return false;
    }
    stream.waits = true;
    stream.waits_until = Clock::now() + owner_->patience();
    owner_->NeedsClock();
    return false;
  }
  Arrival& arrival = found->second;
  if (chunk.bytes == 0 || chunk.bytes > arrival.unclaimed || chunk.offset > arrival.bytes ||
      chunk.bytes > arrival.bytes - chunk.offset) {
    Break("it broke the protocol: it sent " + std::to_string(chunk.bytes) + " bytes at offset " +
          std::to_string(chunk.offset) + " of a payload of " + std::to_string(arrival.bytes) +
          " bytes, of which " + std::to_string(arrival.unclaimed) + " were missing");
    return false;
  }
  arrival.unclaimed -= chunk.bytes;
  stream.in_left = chunk.bytes;
  stream.into =
      arrival.sink.data == nullptr ? nullptr : static_cast<char*>(arrival.sink.data) + chunk.offset;
  return true;
}

void TlsLink::EndChunk(Stream& stream) {
  stream.in_prefix_got = 0;
  const auto found = arrivals_.find(stream.transfer);
  if (found->second.left > 0) return;
  PayloadSink sink = std::move(found->second.sink);
  arrivals_.erase(found);
  sink.keep = Buffer();  // whoever gets the memory now is its only owner
  if (sink.data != nullptr && sink.done) sink.done(Status());
  if (!streams_.empty()) CheckEnd();
}

}  // namespace monograph
