// Which process a transport's address belongs to, and what has become of it.
#pragma once

#include <cstdint>

namespace monograph {

struct UcxProcess {
  uint64_t space = 0;  // names the process table that knows `id`; 0: not known
  uint32_t id = 0;
  uint64_t started = 0;  // clock ticks after boot: tells it from a later process of the same id
};

enum class ProcessState {
  kUnknown,  // of another host, or of a container with processes of its own
  kRuns,
  kStopped,  // by a signal or a debugger; it may go on
  kEnded,    // it executes nothing any more; perhaps nobody has asked for its exit status yet
};

UcxProcess ThisProcess();
ProcessState StateOf(const UcxProcess& process);

// Names a namespace of this process ("net", "pid") on this boot of the host, equal in all processes
// that are in it. 0: not known.
uint64_t NamespaceNumber(const char* kind);

}  // namespace monograph
