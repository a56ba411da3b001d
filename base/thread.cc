#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace monograph {
namespace {

sigset_t BlockSignals() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  return before;
}

}  // namespace

void AdoptThread(const std::string& name) {
  BlockSignals();
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

std::thread StartThread(const std::string& name, std::function<void()> body) {
  // Blocked before it starts: no signal finds it in between.
  const sigset_t before = BlockSignals();
  std::thread thread([name, body = std::move(body)] {
    AdoptThread(name);
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace monograph
