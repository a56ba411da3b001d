// A thread of a schedule as the processor sees it: a stack and registers, and what the language
// keeps for each thread (thread_local variables of this program, exceptions under way, errno). All
// of them share one thread of the system, so a switch costs a few hundred instructions.
#pragma once

#include <cstddef>
#include <vector>

namespace monograph::simulation {

class Context {
 public:
  // The thread of the system that calls Switch first.
  Context() = default;
  // Begins with enter(argument) when it is switched to first; `enter` never returns.
  Context(void (*enter)(void*), void* argument);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // From the running context `from` to `to`; returns when somebody switches back.
  static void Switch(Context& from, Context& to);

 private:
  void Save();
  void Restore();

  void* stack_pointer_ = nullptr;
  void* stack_ = nullptr;  // nullptr: the system's
  // Of this context while another one runs.
  std::vector<char> locals_;
  char exceptions_[2 * sizeof(void*)] = {};
  int error_ = 0;
};

}  // namespace monograph::simulation
