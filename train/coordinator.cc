#include "train/coordinator.h"

#include <atomic>
#include <list>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "client/session.h"

namespace monograph {

struct Coordinator::State {
  struct Member {
    std::string name;
    bool ended = false;
    std::thread thread;
  };
  mutable Mutex mutex;
  mutable CondVar changed;
  bool stop MG_GUARDED_BY(mutex) = false;
  Status status MG_GUARDED_BY(mutex);              // what the first RequestStop was given
  std::list<Member> members MG_GUARDED_BY(mutex);  // addresses stay
  int running MG_GUARDED_BY(mutex) = 0;
};

Coordinator::Coordinator() : state_(std::make_unique<State>()) {}

Coordinator::~Coordinator() {
  RequestStop();
  std::list<State::Member> members;
  {
    MutexLock lock(state_->mutex);
    state_->changed.Wait(state_->mutex,
                         [this]() MG_REQUIRES(state_->mutex) { return state_->running == 0; });
    members.swap(state_->members);
  }
  for (State::Member& member : members) member.thread.join();
}

void Coordinator::Start(const std::string& name, std::function<Status()> body) {
  MutexLock lock(state_->mutex);
  State::Member& member = state_->members.emplace_back();
  member.name = name;
  ++state_->running;
  member.thread = StartThread("mg-coordinated", [this, &member, body = std::move(body)] {
    if (Status status = body(); !status.ok()) RequestStop(status);
    MutexLock end(state_->mutex);
    member.ended = true;
    --state_->running;
    state_->changed.NotifyAll();
  });
}

void Coordinator::RequestStop(const Status& status) {
  MutexLock lock(state_->mutex);
  if (std::exchange(state_->stop, true)) return;
  if (status.code() != Code::kOutOfRange) state_->status = status;
  state_->changed.NotifyAll();
}

bool Coordinator::ShouldStop() const {
  MutexLock lock(state_->mutex);
  return state_->stop;
}

bool Coordinator::WaitForStop(std::chrono::milliseconds timeout) const {
  MutexLock lock(state_->mutex);
  return state_->changed.WaitFor(state_->mutex, timeout,
                                 [this]() MG_REQUIRES(state_->mutex) { return state_->stop; });
}

Status Coordinator::status() const {
  MutexLock lock(state_->mutex);
  return state_->status;
}

Status Coordinator::Join(std::chrono::milliseconds grace) {
  MutexLock lock(state_->mutex);
  const auto over = [this]() MG_REQUIRES(state_->mutex) { return state_->running == 0; };
  state_->changed.Wait(state_->mutex,
                       [&]() MG_REQUIRES(state_->mutex) { return over() || state_->stop; });
  if (state_->changed.WaitFor(state_->mutex, grace, over) || !state_->status.ok())
    return state_->status;
  std::string names;
  for (const State::Member& member : state_->members) {
    if (!member.ended) names += (names.empty() ? "" : ", ") + member.name;
  }
  return DeadlineExceeded("Coordinator stopped with threads still running after " +
                          std::to_string(grace.count()) + " ms: " + names);
}

QueueRunner::QueueRunner(std::vector<Operation> enqueue, Operation close, Operation cancel)
    : enqueue_(std::move(enqueue)), close_(close), cancel_(cancel) {}

namespace {

// Filling may wait for as long as consumers like.
constexpr std::chrono::milliseconds kNoTimeout{0};
constexpr std::chrono::seconds kCloseTimeout{10};
constexpr std::chrono::milliseconds kLook{200};

bool IsEnd(const Status& status) {
  return status.code() == Code::kOutOfRange || status.code() == Code::kCancelled;
}

}  // namespace

void QueueRunner::Start(Session* session, Coordinator* coordinator) const {
  // Those that still enqueue. Default order: who ends last must see that the others have ended.
  auto left = std::make_shared<std::atomic<size_t>>(enqueue_.size());
  for (const Operation& enqueue : enqueue_) {
    coordinator->Start(
        "QueueRunner " + std::string(enqueue.name()), [=, close = close_]() -> Status {
          Status status;
          while (status.ok() && !coordinator->ShouldStop())
            status = session->Run({}, {}, {enqueue}, {.timeout = kNoTimeout}).status();
          if (IsEnd(status)) status = Status();
          if (left->fetch_sub(1) > 1 || !status.ok()) return status;
          status = session->Run({}, {}, {close}, {.timeout = kCloseTimeout}).status();
          return IsEnd(status) || coordinator->ShouldStop() ? Status() : status;
        });
  }
  coordinator->Start("QueueRunner's end of " + std::string(cancel_.name()),
                     [=, cancel = cancel_]() -> Status {
                       while (left->load() > 0) {
                         if (!coordinator->WaitForStop(kLook)) continue;
                         (void)session->Run({}, {}, {cancel}, {.timeout = kCloseTimeout});
                         break;
                       }
                       return Status();
                     });
}

}  // namespace monograph
