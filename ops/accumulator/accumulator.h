// Conditional accumulators: where the gradients of several workers meet, beside the variable. And
// the step gate, where workers wait for the update that their gradients go into. SyncReplicas
// (train/sync_replicas.h) is made of them.
//
//   Output accumulator = ConditionalAccumulator(beside, DT_FLOAT, {784, 10},
//                                               {.shared_name = "w/grad"});
//   Operation put = AccumulatorApplyGradient(scope, accumulator, local_step, gradient);
//   Output mean = AccumulatorTakeGradient(scope, accumulator, 3);
//
// The ops are TensorFlow's ResourceConditionalAccumulator and ResourceAccumulator*; those that are
// ours alone begin with Monograph. TensorFlow's accumulators of rows have no resource: ours are
// SparseConditionalAccumulator, SparseAccumulatorApplyGradient and SparseAccumulatorTakeGradient
// over a handle, with Monograph before their names. Graphs have TensorFlow's own by reference,
// which add rows up as TensorFlow does.
#pragma once

#include <cstdint>
#include <string>

#include "graph/gradients.h"
#include "graph/scope.h"

namespace monograph {

struct ConditionalAccumulatorOptions {
  // Empty names: the default container, the node's own name. All who name one accumulator must
  // agree in type, shape and reduction.
  std::string container = {}, shared_name = {};
  enum class Reduction { kMean, kSum } reduction = Reduction::kMean;
};
Output ConditionalAccumulator(const Scope& scope, DType dtype, const PartialShape& shape,
                              const ConditionalAccumulatorOptions& options = {});

// Adds a gradient that was computed from the variables of step `local_step` (a scalar int64). One
// that is older than the accumulator's own step is dropped, without an error.
//
// With `rank` >= 0 gradients are kept apart and added in the order of their ranks when they are
// taken: the sum has the bits of AddN in that order, whatever order they came in. A rank counts
// once: if it sends a second gradient for one step (it was restarted), that replaces the first. One
// that is newer than the accumulator's step is dropped, too: it is of a run that has gone back.
// REQUIRES: all gradients of an accumulator have ranks, or none has.
Operation AccumulatorApplyGradient(const Scope& scope, const Output& accumulator,
                                   const Output& local_step, const Output& gradient, int rank = -1);

// Waits for at least `num_required` gradients (int32), then gives their mean or sum, forgets all
// gradients and adds 1 to the accumulator's step. Without ranks all that have come count; with
// ranks exactly the num_required that came first. An ended step takes nothing.
Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator,
                               const Output& num_required);
Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator, int num_required);

// The same for gradients of rows: `shape` is the variable's, `indices_dtype` int32 or int64. Rows
// are kept as they come; what is taken is the rows of all gradients one after the other, with ranks
// in their order, and an index may repeat. With kMean they are divided by the number of gradients,
// as whole ones are. (TensorFlow adds rows of one index up, in order of arrival, and divides each
// by the number of gradients that have it.) Setting the step, counting and ranks are the ops above
// and below.
Output SparseConditionalAccumulator(const Scope& scope, DType dtype, const PartialShape& shape,
                                    DType indices_dtype,
                                    const ConditionalAccumulatorOptions& options = {});
Operation SparseAccumulatorApplyGradient(const Scope& scope, const Output& accumulator,
                                         const Output& local_step, const Gradient& rows,
                                         int rank = -1);
Gradient SparseAccumulatorTakeGradient(const Scope& scope, const Output& accumulator,
                                       const Output& num_required);

// Sets the accumulator's step; gradients older than it are dropped from then on.
Operation AccumulatorSetGlobalStep(const Scope& scope, const Output& accumulator,
                                   const Output& new_global_step);
Output AccumulatorNumAccumulated(const Scope& scope, const Output& accumulator);  // int32
// The ranks whose gradients are there, ascending: an int64 vector.
Output AccumulatorRanks(const Scope& scope, const Output& accumulator);

// A step gate: the number of the step up to which updates were applied.
Output StepGate(const Scope& scope, const std::string& shared_name);
// Opens it at `step` (a scalar int64): everybody who waits with a smaller local step goes on.
// With `restart` the gate may go back; who waits gets Aborted, and is to begin anew from the new
// step.
Operation StepGateSet(const Scope& scope, const Output& gate, const Output& step,
                      bool restart = false);
// Waits until the gate's step is greater than `local_step`, and gives it. Aborted if the gate has
// gone back behind local_step; what StepGateClose said once it is closed. An ended step waits no
// longer. With `replica` it also says, from the first time that it runs, that this replica is there
// until its session ends (or lets go of the signature). Once fewer than `required` of so many
// replicas are left, whose gradients an update needs, everybody who waits for the next step gets
// Unavailable with the names of those that are gone.
struct StepGateReplica {
  int rank = -1, replicas = 0, required = 0;
  std::string name = {};  // "/job:worker/task:1"
};
Output StepGateWait(const Scope& scope, const Output& gate, const Output& local_step,
                    const StepGateReplica& replica = {});
// Everybody who waits, or comes later, gets an error of this code (a scalar int32) and message (a
// string). The first one counts. With OutOfRange, the end of the data, who is behind the gate's
// step is let through all the same. StepGateSet with `restart` opens it again.
Operation StepGateClose(const Scope& scope, const Output& gate, const Output& code,
                        const Output& message);
// Says that this session sets the gate, from now until it ends (or lets go of the signature). Who
// then waits for a step, or comes to wait for one, gets Unavailable with `holder`, the name of who
// was there, until another session holds the gate or restarts it.
Operation StepGateHold(const Scope& scope, const Output& gate, const std::string& holder);
// Its step; -1: never set, or closed.
Output StepGateStep(const Scope& scope, const Output& gate);

}  // namespace monograph
