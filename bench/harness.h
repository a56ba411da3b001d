// What the benchmark programs share: arguments, interleaved repetitions, the rows they report,
// child processes, peers.
//
// A benchmark compares ours with references in one run: every repetition runs ours, each reference,
// and ours again, so that all sides meet the same machine. A row's ratio is the median over the
// repetitions of (ours / reference within one repetition); low and high are its tenth and ninetieth
// percentiles. The two runs of ours in a repetition are identical: `spread` tells how far the
// medians of the first and the second differ, relative to the ratio.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace monograph::bench {

double Now();  // seconds of a steady clock
double Median(std::vector<double> values);
// Ends the program with a message.
[[noreturn]] void Die(const std::string& message);

struct Args {
  std::string program;
  std::string json;     // file that gets one row per line, appended
  bool quick = false;   // a third of the repetitions: for a look, not for a figure
  int repetitions = 0;  // 0: the benchmark's own number
  std::string only;     // cases whose names contain it
  std::string tensorflow, ray,
      torch;             // Python interpreters that have them; empty: leave the peer out
  bool profile = false;  // benchmark's own meaning: where the time goes
  bool plan = false;     // of gpu_bench: print what each node has to do, without a GPU
  bool small = false;    // of gpu_bench: sizes that an emulated GPU computes in seconds
  bool list = false;     // only print the names of the cases

  // Ends the program for --help (0) and for what it does not know (2).
  static Args Parse(int argc, char** argv, const char* what);
  // With `list` prints the name and wants nothing.
  bool Wants(const std::string& name) const;
  int Repetitions(int standard) const;
};

struct Goal {
  double value;
  enum Is { kMin, kMax } is;
};

struct Subject {
  std::string name;               // the row's case
  std::optional<Goal> goal = {};  // of the ratio to the first reference
};

// One of the compared. A repetition gives one value per subject, or nothing if it cannot go on:
// then it is left out from there.
struct Side {
  std::string name;
  std::function<std::optional<std::vector<double>>()> repetition;
  int every = 1;  // runs only in every so-manieth repetition: for references that are slow
  std::optional<Goal> goal = {};  // of the ratio to it, where it is not the first reference
  std::string version = {};       // of a peer

  static Side Of(std::string name, std::function<double()> repetition);  // one subject
};

class Report {
 public:
  explicit Report(const Args& args);
  ~Report();
  Report(const Report&) = delete;

  // Runs all sides in turn, one time first that does not count, and reports a row for every subject
  // and reference.
  void Compare(const std::string& bench, const std::string& unit,
               const std::vector<Subject>& subjects, const Side& ours,
               const std::vector<Side>& references, int repetitions);

 private:
  void Add(const std::string& bench, const std::string& unit, const std::string& name,
           const std::optional<Goal>& goal, const Side& reference, const std::vector<double>& first,
           const std::vector<double>& second, const std::vector<double>& theirs);

  const Args& args_;
  FILE* json_ = nullptr;
};

// A process that speaks lines with its parent and ends with it.
class Child {
 public:
  // What runs in it: reads and writes lines. ReadLine ends the process when its parent has closed
  // the pipe.
  class Channel {
   public:
    Channel(Descriptor in, Descriptor out) : in_(std::move(in)), out_(std::move(out)) {}
    std::string ReadLine();
    void WriteLine(const std::string& line);

   private:
    friend class Child;
    std::optional<std::string> TryReadLine();
    Descriptor in_, out_;
    std::string buffer_;
  };

  // Forks. REQUIRES: this process has no other threads yet. `core`: where it is pinned; -1:
  // nowhere.
  static std::unique_ptr<Child> Fork(const std::function<void(Channel&)>& body, int core = -1);
  static std::unique_ptr<Child> Start(const std::vector<std::string>& command);
  ~Child();  // ends it and waits for it

  void Tell(const std::string& line) { channel_.WriteLine(line); }
  std::optional<std::string> Hear() { return channel_.TryReadLine(); }  // nothing: it has ended
  std::string Ask(const std::string& line);                             // dies if it has ended

 private:
  Child(pid_t pid, Descriptor in, Descriptor out)
      : pid_(pid), channel_(std::move(in), std::move(out)) {}
  pid_t pid_;
  Channel channel_;
};

// A program of bench/peers that serves repetitions. Starts in the background; WaitReady before the
// first.
class Peer {
 public:
  // nullptr without an interpreter. `on_monograph`: the script is a program of TensorFlow's that
  // runs on ours (python -m monograph.tensorflow).
  static std::unique_ptr<Peer> Start(const std::string& python, const std::string& script,
                                     const std::vector<std::string>& arguments,
                                     bool on_monograph = false);
  // False, with a line on standard error, if it did not start.
  bool WaitReady();
  // A side that runs its case `name`. `more`: what its answer has for the subjects after the first.
  Side AsSide(const std::string& system, const std::string& name, int every,
              const std::vector<std::string>& more = {});

 private:
  std::string script_, version_;
  std::unique_ptr<Child> child_;
};

// Pins the calling thread, and the threads that it starts from now on, to the core-th of the cores
// that this process may use.
void PinTo(int core);

}  // namespace monograph::bench
