// Queues: tensors that wait in a task until somebody takes them.
//
//   Output queue = FIFOQueue(scope.WithDevice("/job:ps/task:0"), {DT_FLOAT, DT_INT32},
//                            {.capacity = 100, .shapes = {{784}, PartialShape::Scalar()},
//                             .shared_name = "batches"});
//   Operation put = QueueEnqueue(scope, queue, {image, label});
//   Outputs batch = QueueDequeueMany(scope, queue, 32);
//   Operation close = QueueClose(scope, queue);
//
// An element is a tuple of tensors, one per component. A queue lives in the task where its handle
// is computed, outlives sessions and is found by (container, shared_name), so that several clients
// meet in it. It ends with Session::Reset, DestroyResource or the daemon.
//
// Enqueueing into a full queue and dequeueing from an empty one wait, without holding a thread,
// until there is room or enough elements, the queue closes, or the step ends (its deadline, an
// abort, a closed session, a client that died). A step that ends takes nothing out: elements that a
// waiting DequeueMany holds already go back to the front.
//
// After QueueClose, enqueueing fails with Cancelled "FIFOQueue 'q' is closed."; dequeueing goes on
// until there are too few elements, then fails with OutOfRange "FIFOQueue 'q' is closed and has
// insufficient elements (requested 1, current size 0)".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct QueueOptions {
  int64_t capacity = -1;  // elements; -1: no limit
  // Of each component of one element; `{}` is any, a scalar is PartialShape::Scalar(). Empty: any.
  // Where a shape is not fully known the Many and UpTo forms are refused.
  std::vector<PartialShape> shapes = {};
  // Empty names: the default container, the node's own name. All who name one queue must agree on
  // everything here.
  std::string container = {}, shared_name = {};
};

Output FIFOQueue(const Scope& scope, const std::vector<DType>& component_types,
                 const QueueOptions& options = {});

struct RandomShuffleQueueOptions {
  QueueOptions queue = {};
  // While the queue is open, this many elements stay in it, so that the order is well mixed.
  int64_t min_after_dequeue = 0;
  // Both 0: another order each time. Else the order of the elements follows from the seeds and from
  // the order of enqueueing and dequeueing.
  int64_t seed = 0, seed2 = 0;
};
Output RandomShuffleQueue(const Scope& scope, const std::vector<DType>& component_types,
                          const RandomShuffleQueueOptions& options);

// Adds one element.
Operation QueueEnqueue(const Scope& scope, const Output& queue, const Outputs& components);
// Adds the rows of `components` as elements. Needs room for one after the other, not for all at
// once.
Operation QueueEnqueueMany(const Scope& scope, const Output& queue, const Outputs& components);

// Takes one element. `queue` comes from one of the functions above, perhaps through Identity.
Outputs QueueDequeue(const Scope& scope, const Output& queue);
// Takes n elements (an int32 scalar) and stacks them along a new first dimension.
Outputs QueueDequeueMany(const Scope& scope, const Output& queue, const Output& n);
Outputs QueueDequeueMany(const Scope& scope, const Output& queue, int n);
// The same, but of a closed queue takes what is left, if there is anything.
Outputs QueueDequeueUpTo(const Scope& scope, const Output& queue, const Output& n);
Outputs QueueDequeueUpTo(const Scope& scope, const Output& queue, int n);

// Waits for enqueue operations that wait already, then closes. With `cancel_pending_enqueues`
// closes at once and fails them with Cancelled.
Operation QueueClose(const Scope& scope, const Output& queue, bool cancel_pending_enqueues = false);
Output QueueSize(const Scope& scope, const Output& queue);      // int32
Output QueueIsClosed(const Scope& scope, const Output& queue);  // bool

}  // namespace monograph
