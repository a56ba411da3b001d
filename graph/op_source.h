// Where registries look for ops that they lack: at most one source in a process, whose ops another
// library computes ("borrowed", executor/borrowed.h).
#pragma once

#include <string>
#include <string_view>

#include "graph/op_def.h"

namespace monograph {

// Thread-safe.
class OpSource {
 public:
  virtual ~OpSource() = default;
  // nullptr if it has none of that name. What it returns lives as long as the source. The first
  // call may take seconds.
  virtual const OpDef* Find(std::string_view name) = 0;
  // Why it has no such op, and what would help. Empty: nothing would.
  virtual std::string Remedy(std::string_view name) = 0;
  // The shape function of all its ops, and of no others.
  virtual ShapeFn shape() const = 0;
};

// Sets the process's source, once, before it has graphs; it lives until the process ends.
void SetOpSource(OpSource* source);

// Of the source; nullptr if there is none of that name, or no source.
const OpDef* FindBorrowed(std::string_view name);
// Whether `op` is one of the source's. Such ops run on CPUs and are never folded.
bool IsBorrowed(const OpDef& op);
// The source's remedy as the end of a sentence that says what is lacking: "; ..." or nothing.
std::string BorrowingRemedy(std::string_view name);

}  // namespace monograph
