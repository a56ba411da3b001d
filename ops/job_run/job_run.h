// JobRun: one run of a job of several clients, as the task that counts its steps knows it: whether
// the model is ready, whether the chief is there, and who takes part. It keeps clients off
// variables that an earlier run has left behind.
//
//   Output run = JobRun(beside_global_step, "job_run");
//   chief:  JobRunBegin, then it initialises the variables, then JobRunReady
//   others: JobRunJoin until it gives kJoined
//   chief, when all is done: JobRunFinish
#pragma once

#include <cstdint>
#include <string>

#include "graph/scope.h"

namespace monograph {

Output JobRun(const Scope& scope, const std::string& shared_name);

// A new run, of which nothing is ready.
Operation JobRunBegin(const Scope& scope, const Output& run);
// The model is ready, and the chief there until the session that runs this ends (or lets go of the
// signature).
Operation JobRunReady(const Scope& scope, const Output& run);
// The run has ended as it should.
Operation JobRunFinish(const Scope& scope, const Output& run);
// A bool scalar: whether it has.
Output JobRunFinished(const Scope& scope, const Output& run);

enum class JobRunJoined : int32_t {
  kJoined = 0,
  kNotReady = 1,  // no chief has got it ready
  kLeftOver = 2,  // what is there is of a run that this client has no part in
  kRejoined = 3   // as kJoined, but this replica has joined this run before: it comes back
};
// An int32 scalar, a JobRunJoined: whether replica `rank` may train now. It may if the model is
// ready and the chief there. Once the chief has gone it may if it has not trained in this run yet
// and the run has finished (it came late, and will find nothing left to do), or if it says that it
// comes back (`rejoin`).
Output JobRunJoin(const Scope& scope, const Output& run, int rank, bool rejoin);

}  // namespace monograph
