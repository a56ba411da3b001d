#include <atomic>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "executor/borrowed.h"

namespace monograph {
namespace {

// Default order: set once, before there are graphs.
std::atomic<const KernelRegistry::Entry*> process_kernel{nullptr};

struct Listeners {
  static Listeners& Get() {
    static auto* const listeners = new Listeners;
    return *listeners;
  }

  Mutex mutex;
  std::set<const CrashListener*> all MG_GUARDED_BY(mutex);
};

}  // namespace

const KernelRegistry::Entry* BorrowedKernel() { return process_kernel.load(); }

void SetBorrowedKernel(const KernelRegistry::Entry* entry) { process_kernel.store(entry); }

CrashListener::CrashListener(std::function<void(const std::string& computed)> on_crash)
    : heard(std::move(on_crash)) {
  Listeners& listeners = Listeners::Get();
  MutexLock lock(listeners.mutex);
  listeners.all.insert(this);
}

CrashListener::~CrashListener() {
  Listeners& listeners = Listeners::Get();
  MutexLock lock(listeners.mutex);
  listeners.all.erase(this);
}

void TellOfCrash(const std::string& computed) {
  Listeners& listeners = Listeners::Get();
  MutexLock lock(listeners.mutex);
  for (const CrashListener* listener : listeners.all) listener->heard(computed);
}

std::string_view BorrowedName(const std::string& op) {
  static Mutex mutex;
  static auto* const names = new std::set<std::string>;
  MutexLock lock(mutex);
  return *names->insert(op + " (borrowed)").first;
}

}  // namespace monograph
