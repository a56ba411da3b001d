// ControlMethods: what clients may call at a daemon, without the sockets that bring the calls. Each
// method parses a protobuf message, calls the Worker and encodes the answer; the messages are those
// of executor/worker/worker.proto. A session belongs to the connection that created it.
//
// Threads: all methods, and those of Map, may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "executor/worker/worker.h"
#include "transport/control/server.h"
#include "transport/control/worker_pool.h"

namespace monograph {

class ControlMethods {
 public:
  // The worker and the ops outlive it. `cluster` is what Status tells.
  ControlMethods(Worker* worker, const OpRegistry* ops, std::string cluster);
  ~ControlMethods() { Join(); }
  ControlMethods(const ControlMethods&) = delete;
  ControlMethods& operator=(const ControlMethods&) = delete;

  // By name. They are called no more when this object goes.
  std::map<std::string, control::Method> Map();
  // Closes the sessions of the connection, each on a thread of its own: closing waits for running
  // kernels.
  void ClientGone(const control::ConnectionInfo& connection, const Status& why);
  // From now on there are no new sessions and graphs. False if that was so before.
  bool Drain();
  // Waits for the sessions that are being closed.
  void Join() { closer_.Join(/*finish_queue=*/true); }

 private:
  using Clock = std::chrono::steady_clock;
  // Of one connection.
  struct Owned {
    std::shared_ptr<const control::ConnectionInfo> connection;
    std::vector<uint64_t> sessions;
  };

  // False if the connection has ended: then nobody would close the session.
  bool OwnSession(const std::shared_ptr<const control::ConnectionInfo>& connection,
                  uint64_t session);
  // Until clients that say nothing have said something, or are lost and their steps have ended: a
  // step of a client whose machine is gone must not update what the next client has restored.
  void WaitForSilentClients(const control::CallContext& context);
  bool HasSilentClient(uint64_t but) const MG_REQUIRES(mutex_);
  Status CheckNotDraining();

  Worker& worker_;
  const OpRegistry* const ops_;
  const std::string cluster_;
  Mutex mutex_;
  bool draining_ MG_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Owned> owned_ MG_GUARDED_BY(mutex_);  // by connection
  int being_freed_ MG_GUARDED_BY(mutex_) = 0;              // sessions of clients that are gone
  Clock::time_point last_gone_ MG_GUARDED_BY(mutex_);      // the last of them
  CondVar freed_;
  // The connections that ended last: calls of theirs may still be running.
  std::deque<uint64_t> gone_ MG_GUARDED_BY(mutex_);
  // Closes the sessions of clients that are gone.
  control::WorkerPool closer_;
};

}  // namespace monograph
