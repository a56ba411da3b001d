// Child: a daemon or a client that the launcher has started, and what it prints.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/status.h"

namespace monograph {

// How the line of a command that cannot be executed begins; its name and "'" follow.
inline constexpr char kCannotRun[] = "cannot run '";

// What becomes of a child's standard output and standard error.
enum class ChildOutput {
  kInherited,  // they are ours
  kLines,      // we read both as one stream of lines, and show each with the child's label
  kCopied      // we read both, and copy each to ours as it comes
};

struct ChildCommand {
  std::string label;                                             // "worker/1", "client/1", "client"
  std::vector<std::string> argv;                                 // searched in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // besides ours
  bool client = false;
  ChildOutput output = ChildOutput::kLines;
  std::string host;  // of a daemon on another machine
  std::string log;   // file that gets what it prints; none if empty
  const std::string* input =
      nullptr;  // what it reads first; its input ends with the object. None: ours
};

// A stream of a child that we read.
struct ChildStream {
  Descriptor pipe;
  int shown_on = -1;  // our descriptor
  std::string line;   // begun, not ended
};

struct Child {
  ChildCommand command;
  pid_t pid = -1;
  std::vector<ChildStream> streams;
  Descriptor input;  // kept open: its end tells a daemon on another machine to stop
  Descriptor log;
  bool ready = false;  // a daemon that said so
  bool quiet = false;  // all is being ended: what a daemon logs as information is not shown
  std::deque<std::string> last_lines;   // of a daemon
  int restarts = 0;                     // how often it was started anew
  std::optional<int64_t> kills_before;  // OutOfMemoryKills when it was started
  bool running = false;
  int status = 0;
};

// Opens (and empties) the command's log, if it has one. FailedPrecondition names the file.
Result<Descriptor> OpenLog(const ChildCommand& command);

// Starts the command. What it prints goes to `log`, too, if that is open; a daemon's lines then are
// not shown. ResourceExhausted or Internal if there can be no more processes or pipes; a command
// that cannot be executed ends with 127 after a line that says so.
Result<Child> Spawn(ChildCommand command, Descriptor log);

// Shows and keeps what there is to read on the stream, which must be one of the child's. False at
// the stream's end.
bool Forward(Child& child, ChildStream& stream);
// The same for all that has been printed and not read yet, on every stream.
void Drain(Child& child);

// How it ended: "exit code 3", "signal Terminated"; of SIGKILL also whether the system has killed
// it for lack of memory, or that this is not known. REQUIRES: it has ended.
std::string DescribeExit(const Child& child);

}  // namespace monograph
