#include "graph/op_source.h"

#include <atomic>

namespace monograph {
namespace {

// Default order: set once, before there are graphs.
std::atomic<OpSource*> process_source{nullptr};

}  // namespace

void SetOpSource(OpSource* source) { process_source.store(source); }

const OpDef* FindBorrowed(std::string_view name) {
  OpSource* const source = process_source.load();
  return source == nullptr ? nullptr : source->Find(name);
}

bool IsBorrowed(const OpDef& op) {
  const OpSource* const source = process_source.load();
  return source != nullptr && op.shape() == source->shape();
}

std::string BorrowingRemedy(std::string_view name) {
  OpSource* const source = process_source.load();
  const std::string remedy = source == nullptr ? "" : source->Remedy(name);
  return remedy.empty() ? "" : "; " + remedy;
}

}  // namespace monograph
