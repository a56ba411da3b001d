// Runs one training program on daemons of its own, in a child process that is a `monograph launch`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "tools/launch.h"
#include "tools/run_metrics.h"

namespace monograph {

// Ctrl-C and the like, from the object's making on: they no longer end this process but stand here,
// and are passed on to the run that is on its way.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();  // as it was before
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int signal() const { return signal_; }  // 0: none yet

 private:
  friend Status RunLaunched(const LaunchOptions& options, const std::string& log,
                            std::chrono::duration<double> limit, Interrupts* interrupts);
  Descriptor descriptor_;
  int signal_ = 0;
};

// What the daemons and the program print goes to the file `log`. Every process that it starts has
// ended when it returns. Unknown with the program's exit code and what it printed last;
// DeadlineExceeded after `limit`; Cancelled after an interrupt.
Status RunLaunched(const LaunchOptions& options, const std::string& log,
                   std::chrono::duration<double> limit, Interrupts* interrupts);

// The results of all clients. NotFound says which file is missing, and that the program must know
// --result_file.
Result<std::vector<RunResult>> ReadResults(const std::string& path);

}  // namespace monograph
