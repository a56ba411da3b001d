#include <atomic>
#include <set>
#include <string>

#include "base/mutex.h"
#include "executor/borrowed.h"

namespace monograph {
namespace {

// Default order: set once, before there are graphs.
std::atomic<const KernelRegistry::Entry*> process_kernel{nullptr};

}  // namespace

const KernelRegistry::Entry* BorrowedKernel() { return process_kernel.load(); }

void SetBorrowedKernel(const KernelRegistry::Entry* entry) { process_kernel.store(entry); }

std::string_view BorrowedName(const std::string& op) {
  static Mutex mutex;
  static auto* const names = new std::set<std::string>;
  MutexLock lock(mutex);
  return *names->insert(op + " (borrowed)").first;
}

}  // namespace monograph
