// The interpreter that has TensorFlow, run in a process of its own: where the library lies, which
// ops it has, and the shapes of their outputs.
#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/shape.h"
#include "base/status.h"

namespace monograph::tensorflow {

// Thread-safe. The process starts at the first question and ends when it was idle for a while, or
// with this one.
class Helper {
 public:
  // The process's only one. It never dies.
  static Helper& Get();

  // Before the first question.
  void SetInterpreter(std::string interpreter);

  struct Package {
    std::string library;  // path of libtensorflow_cc.so.2
    std::string version;
    std::string ops;      // a serialised OpList
    std::string kernels;  // a serialised KernelList
  };
  // What the interpreter has; asked once. FailedPrecondition says what is missing and what to do.
  Result<const Package*> package();

  // The shapes of the outputs of the node "node" of a serialised GraphDef. InvalidArgument, in
  // TensorFlow's words, if the inputs can never fit; any other failure says nothing of them.
  Result<std::vector<PartialShape>> InferShapes(const std::string& graph_def);

 private:
  Helper() = default;
  Status Start() MG_REQUIRES(mutex_);
  void Stop() MG_REQUIRES(mutex_);
  Status Send(const std::string& question) MG_REQUIRES(mutex_);
  Result<std::string> Receive(int deadline_ms) MG_REQUIRES(mutex_);

  Mutex mutex_;
  std::string interpreter_ MG_GUARDED_BY(mutex_);
  bool asked_ MG_GUARDED_BY(mutex_) = false;
  Status why_not_ MG_GUARDED_BY(mutex_);
  Package package_ MG_GUARDED_BY(mutex_);
  int socket_ MG_GUARDED_BY(mutex_) = -1;
  int process_ MG_GUARDED_BY(mutex_) = -1;
};

}  // namespace monograph::tensorflow
