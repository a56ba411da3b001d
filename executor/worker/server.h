// Server: an executor daemon as an object: a Worker, and the control plane by which clients reach
// it. `monograph-executor` is one in a process of its own; any program can host one.
//
// Control methods: Status, CreateSession, ConnectSession, CloseSession, RegisterGraph,
// DeregisterGraph, DropPeer, ReconnectPeers, Reset, TakeTrace; messages in
// executor/worker/worker.proto. A session belongs to the control connection that created it: when
// the client is gone, the session is closed and its steps are freed. Variables stay.
//
// Threads: see transport/control/server.h; all methods may be called from any thread but a
// handler's.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "executor/worker/worker.h"
#include "transport/control/key_ring.h"

namespace monograph {

struct ServerOptions {
  WorkerOptions worker;
  std::string host = "127.0.0.1";
  int port = 0;  // 0 picks a free one
  std::optional<control::KeyRing> key;
  // The cluster that the task belongs to, for clients that know only its address: JSON.
  std::string cluster = {};
};

class Server {
 public:
  // Listens when it returns. FailedPrecondition for a port in use, or a host beyond loopback
  // without a key.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  ~Server();  // Stop with no drain

  const std::string& address() const;  // "127.0.0.1:2222"
  int port() const;
  Worker& worker();

  // Takes no new sessions or steps, lets running steps end for at most `drain`, then closes
  // everything. Idempotent.
  void Stop(std::chrono::milliseconds drain = std::chrono::seconds(0));

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
