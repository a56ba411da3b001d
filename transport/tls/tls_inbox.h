// TlsInbox: where the listener leaves connections for one transport. Shared by both, so that a
// connection that is made when its transport has just ended is closed. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "transport/tls/tls_stream.h"

namespace monograph {

// A connection that a transport asks for.
struct TlsDial {
  std::string host;
  uint16_t port = 0;
  uint64_t to = 0, from = 0;  // instances
  uint8_t index = 0, count = 0;
  uint64_t token = 0;  // of the asker; comes back with the stream
};

struct TlsArrival {
  Status status;        // not OK: a connection that was asked for could not be made
  TlsStream stream;     // with OK; what the peer sent behind its hello is unread
  bool dialed = false;  // by this side
  uint64_t token = 0;   // of the TlsDial
  uint64_t from = 0;    // the other instance
  std::string where;    // "10.0.0.2:40312", the other end
  uint8_t index = 0, count = 0;
};

class TlsInbox {
 public:
  // `notify` is called after each Put, on the listener's thread, until Close.
  explicit TlsInbox(std::function<void()> notify) : notify_(std::move(notify)) {}

  void Put(TlsArrival arrival) {
    MutexLock lock(mutex_);
    if (notify_ == nullptr) return;
    arrivals_.push_back(std::move(arrival));
    // Sequentially consistent: the transport looks here after it has said that it sleeps.
    empty_.store(false);
    notify_();
  }
  bool empty() const { return empty_.load(); }
  std::vector<TlsArrival> TakeAll() {
    MutexLock lock(mutex_);
    empty_.store(true);
    return std::exchange(arrivals_, {});
  }
  void Close() {
    MutexLock lock(mutex_);
    notify_ = nullptr;
    arrivals_.clear();
    empty_.store(true);
  }

 private:
  Mutex mutex_;
  std::function<void()> notify_ MG_GUARDED_BY(mutex_);
  std::vector<TlsArrival> arrivals_ MG_GUARDED_BY(mutex_);
  std::atomic<bool> empty_{true};
};

}  // namespace monograph
