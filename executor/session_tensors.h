// SessionTensors: tensors that a session keeps at one task between its steps, under handles
// (tf.get_session_handle). They go with the session, if they are not deleted before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/status.h"
#include "base/tensor.h"
#include "executor/kernel.h"

namespace monograph {

// Thread-safe.
class SessionTensors {
 public:
  // The handle, as TensorFlow writes it: "node;number;device". No two are the same.
  std::string Keep(std::string_view node, std::string_view device, Tensor tensor)
      MG_EXCLUDES(mutex_);
  // InvalidArgument if there is no tensor of this handle.
  Result<Tensor> Find(std::string_view handle) const MG_EXCLUDES(mutex_);
  Status Delete(std::string_view handle) MG_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  uint64_t last_ MG_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Tensor, std::less<>> tensors_ MG_GUARDED_BY(mutex_);
};

// Offered by the constructions of kernels that are made for a task.
class SessionTensorsConstruction {
 public:
  virtual ~SessionTensorsConstruction() = default;
  // nullptr: the kernel runs in no session.
  virtual std::shared_ptr<SessionTensors> session_tensors() const = 0;
};

}  // namespace monograph
