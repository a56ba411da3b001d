// KeyRing: the keys of a task as they are now. Those of a file follow the file, so that the key of
// a running cluster can be changed (docs/programs.md, "Changing the key"). A copy is the same ring.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/control/key.h"

namespace monograph::control {

class KeyRing {
 public:
  // Fixed keys. Implicit: an option that is a ring takes a key.
  KeyRing(const Key& key) : KeyRing(Keys(key)) {}
  KeyRing(const Keys& keys);
  // The keys of a file, as ReadKeyFile.
  static Result<KeyRing> FromFile(const std::string& path);

  // What a connection that begins now uses: dial with the first key, accept both. The same object
  // as long as the keys are the same. A file is read again by each call, some 10 us; if it cannot
  // be, what it held last goes on to count, and the log says so once.
  std::shared_ptr<const Keys> Current() const;

 private:
  struct State;
  explicit KeyRing(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace monograph::control
