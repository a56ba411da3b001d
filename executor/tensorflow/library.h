// TensorFlow's library, opened in this process: its C API and one context, in which all borrowed
// ops of the process run.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "executor/tensorflow/api.h"

namespace monograph::tensorflow {

class Library {
 public:
  // Opens it at the first call, which takes a second or more; it stays open until the process ends.
  // FailedPrecondition says what is missing and what to do.
  static Result<const Library*> Open();

  const Api* operator->() const { return &api_; }
  TFE_Context* context() const { return context_; }
  // OK, or what went wrong in the call that `status` was given to, in TensorFlow's words.
  Status StatusOf(const TF_Status* status) const;

 private:
  Library() = default;
  Status Load();

  Api api_;
  TFE_Context* context_ = nullptr;
};

// While it lives, this thread computes `what` ("node 'x' (Lgamma)") in TensorFlow's library: if the
// process crashes meanwhile, standard error says so, and CrashListeners hear it. `what` outlives
// it.
class Running {
 public:
  explicit Running(const char* what);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// Once, before the library is opened. Starts the thread that tells listeners.
void NameRunningInCrashes();

}  // namespace monograph::tensorflow
