// Coordinator: ends a group of threads together. The first error that one of them reports stops
// all.
//
//   Coordinator coordinator;
//   coordinator.Start("reader", [&]() -> Status {
//     while (!coordinator.ShouldStop()) MG_RETURN_IF_ERROR(ReadSome());
//     return Status();
//   });
//   ...
//   coordinator.RequestStop();
//   Status first_error = coordinator.Join();
//
// Threads. Every method may be called from any thread, Join and the destructor from outside the
// group only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/scope.h"

namespace monograph {

class Session;

class Coordinator {
 public:
  Coordinator();
  ~Coordinator();  // requests a stop, and waits for every thread
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Runs `body` on a thread of the group. An error that it returns is as RequestStop with it; after
  // a success the others go on.
  void Start(const std::string& name, std::function<Status()> body);

  // The first call counts. OutOfRange (the end of the data) is a clean stop, as OK is.
  void RequestStop(const Status& status = Status());
  bool ShouldStop() const;
  // True once a stop is requested; false if `timeout` passes before.
  bool WaitForStop(std::chrono::milliseconds timeout) const;
  // What RequestStop was given; OK while there was none, or for a clean stop.
  Status status() const;

  // Waits until every thread has ended; after a stop is requested for at most `grace`. Gives the
  // first error, else DeadlineExceeded with the names of threads that still run (the destructor
  // waits for them). Threads that nobody stops are waited for without limit.
  Status Join(std::chrono::milliseconds grace = std::chrono::seconds(120));

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// QueueRunner: threads that fill a queue by running its enqueue operations again and again.
//
//   QueueRunner runner({put, put}, QueueClose(scope, queue), QueueClose(scope, queue, true));
//   runner.Start(session, &coordinator);
//
// Each operation has a thread, which ends with OutOfRange or Cancelled (the data or the queue has
// ended); the last one that ends closes the queue, so that its consumers take what is left and then
// get OutOfRange. Another error stops the coordinator. When the coordinator stops for any reason,
// `cancel` ends enqueueing that waits.
class QueueRunner {
 public:
  QueueRunner(std::vector<Operation> enqueue, Operation close, Operation cancel);

  // Session and coordinator must outlive the threads: join the coordinator first.
  void Start(Session* session, Coordinator* coordinator) const;

 private:
  const std::vector<Operation> enqueue_;
  const Operation close_, cancel_;
};

}  // namespace monograph
