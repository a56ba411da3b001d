// The CollectiveManager's inside: one lock, and the state that it guards. rounds.cc has what
// happens to an operation, order.cc which step is next, groups.cc how members find each other,
// executor/collective/collective.cc what comes from outside and when. Private to the executor
// folder.
//
// Functions with the lock held collect what is to be done without it (Actions): sending, merging,
// telling the kernels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "executor/collective/collective.h"
#include "executor/collective/message.h"
#include "executor/collective/operation.h"

namespace monograph {
namespace collective {

// Extra time beyond a member's deadline: the leader, which knows who is missing, answers first.
// Operations, too, are kept for this much longer, since messages for them may still come.
inline constexpr std::chrono::milliseconds kLeaderGrace{2000};

// Bounds of what a session's peers may send for operations that no member of this task has begun:
// messages, and how long one is kept whatever its sender asks for. Their bytes may be half of the
// host pool's limit.
inline constexpr int64_t kMostParked = 1 << 17;
inline constexpr std::chrono::hours kLongestParked{1};
// Devices that wait at a leader for their groups to be complete, and such groups.
inline constexpr size_t kMostJoining = 1 << 16;
inline constexpr size_t kMostForming = 1 << 10;

std::string GroupName(int group);  // "collective group 1"
uint32_t Milliseconds(std::chrono::milliseconds time);

}  // namespace collective

class CollectiveManager::Impl : public std::enable_shared_from_this<CollectiveManager::Impl> {
 public:
  using Clock = collective::Clock;
  using Key = collective::Key;
  using Members = std::shared_ptr<const CollectiveMembers>;
  using Operation = collective::Operation;
  using OperationPtr = collective::OperationPtr;
  using Request = Operation::Request;

  Impl(CollectiveHost* host, ThreadPools* pools) : host_(host), pools_(pools) {}

  void Start(const Request& request);
  void Leave(const Request& request);
  void Cancel(const Request& request);
  void StepBegins(uint64_t session, uint64_t step, const CollectiveHome* home);
  void StepEnds(uint64_t session, uint64_t step, bool ok);
  void StepFailed(uint64_t session, uint64_t step, const Status& status);
  void PeerLost(uint64_t session, const std::string& task, const Status& why);
  std::set<std::string> AwaitedTasks(uint64_t session);
  void SessionClosed(uint64_t session, const Status& why);
  void SessionGone(uint64_t session);
  bool Awaits(const StepMessage& message);
  bool AwaitsOthers();
  bool AwaitsPartsOf(uint64_t session);
  PayloadSink OnMessage(const StepMessage& message, size_t payload_bytes);
  void OnDelivered(const StepMessage& message, Payload payload);
  void Stop();

 private:
  // What is to be done once the lock is given back, in this order.
  struct Actions {
    struct Send {
      uint64_t session;
      std::string task;
      int32_t group;
      uint64_t round;  // 1 where there is none
      CollectiveMessage message;
      Payload payload;
      OperationPtr operation;  // fails if the payload does not arrive
    };
    struct End {
      Request request;
      Status status;
      std::vector<Tensor> outputs;
    };
    std::vector<Send> sends;
    std::vector<OperationPtr> enqueue;  // threads to start at work
    std::vector<OperationPtr> work;     // for this thread
    std::vector<End> ends;
    std::vector<Request> broken;  // whose epoch has ended
  };

  // One own device in a group that is found.
  struct Member {
    enum class State { kOut, kJoining, kIn };
    State state = State::kOut;
    uint64_t session = 0;
    int size = 0;
    uint64_t epoch = 0;
    bool one_session = false;
    Members members;
    std::vector<uint64_t> sessions;  // by rank: whose steps it is in, and its parts come by
    std::vector<std::string> links;  // by rank
    // Parts of a member on `task` come by `by`, a session.
    bool Awaits(uint64_t by, const std::string& task) const;
    std::map<int, uint64_t> rounds;  // by instance
    uint64_t last_step = 0;          // that used the epoch
    std::vector<Request> waiting;    // kJoining
    std::string leader;
    // The last epoch that was broken: what the steps that used it are told.
    uint64_t broken_session = 0, broken_step = 0;
    Status broken;
  };

  // A message about the end of an epoch that is withheld until the cause is known, or until `due`.
  struct Withheld {
    std::string device;  // the member that ended it
    Clock::time_point due;
    Actions::Send send;
  };

  // At the leader: a group that is not complete.
  struct Joiner {
    uint64_t session = 0;
    std::string task;
    std::chrono::milliseconds timeout{0};
    Clock::time_point deadline;
    std::string link;
  };
  struct Forming {
    int size = 0;
    std::map<std::string, Joiner> joined;  // by device
  };

  // A step that runs here and has collectives.
  struct OpenStep {
    const CollectiveHome* home = nullptr;
    std::set<CollectiveHome::Use> made;  // of groups that are found
  };

  // A payload on its way.
  struct Arrival {
    std::shared_ptr<Impl> impl;
    Key key;
    uint64_t session = 0;
    CollectiveMessage message;
    Payload payload;
    OperationPtr into;  // a sum or prefix that lands in the operation's outputs
  };

  // rounds.cc:
  OperationPtr FindOrPark(const Key& key, uint32_t timeout_ms) MG_REQUIRES(mutex_);
  // Keeps the message for the operation, which has not begun. ResourceExhausted if the session has
  // too many or too large ones here.
  Status Park(Operation* operation, uint64_t session, const CollectiveMessage& message,
              Payload payload) MG_REQUIRES(mutex_);
  void Begin(const Request& request, const Key& key, const Members& members, bool epoch_breaks,
             Actions* actions) MG_REQUIRES(mutex_);
  void Contribute(const OperationPtr& operation, int rank, Actions* actions) MG_REQUIRES(mutex_);
  void Apply(const OperationPtr& operation, const CollectiveMessage& message, Payload payload,
             Actions* actions) MG_REQUIRES(mutex_);
  void ApplyReduce(const OperationPtr& operation, const CollectiveMessage& message, Payload payload,
                   Actions* actions) MG_REQUIRES(mutex_);
  static bool Expects(const Operation& op, const CollectiveMessage& message);
  void MakeReady(Operation* operation, uint32_t piece) MG_REQUIRES(mutex_);
  void MakeAllReady(Operation* operation) MG_REQUIRES(mutex_);
  void Schedule(const OperationPtr& operation, bool may_enqueue, Actions* actions)
      MG_REQUIRES(mutex_);
  void PrefixDone(const OperationPtr& operation, uint32_t piece, Payload prefix)
      MG_REQUIRES(mutex_);
  void StationDone(const OperationPtr& operation, uint32_t piece, Actions* actions)
      MG_REQUIRES(mutex_);
  void SumDone(const OperationPtr& operation, uint32_t piece, Actions* actions) MG_REQUIRES(mutex_);
  void SendPart(const OperationPtr& operation, CollectiveWhat what, uint32_t piece, int task,
                Payload payload, Actions* actions) MG_REQUIRES(mutex_);
  void CheckComplete(const OperationPtr& operation, Actions* actions) MG_REQUIRES(mutex_);
  void Fail(const OperationPtr& operation, const Status& status, Actions* actions)
      MG_REQUIRES(mutex_);
  void FailLate(const OperationPtr& operation, Actions* actions) MG_REQUIRES(mutex_);
  bool AskWhoIsHere(const OperationPtr& operation, Actions* actions) MG_REQUIRES(mutex_);
  void AnswerWhoIsHere(const Arrival& arrival, Actions* actions) MG_REQUIRES(mutex_);
  void HandleHere(const Arrival& arrival, Actions* actions) MG_REQUIRES(mutex_);
  void EndLocal(const OperationPtr& operation, const Status& status, Actions* actions)
      MG_REQUIRES(mutex_);
  static CollectiveMessage MessageOf(const Operation& op, CollectiveWhat what, int rank);
  void SendPieces(const OperationPtr& operation, size_t task, Actions* actions) MG_REQUIRES(mutex_);
  void SendToOthers(const OperationPtr& operation, CollectiveMessage message,
                    const Payload& payload, Actions* actions) MG_REQUIRES(mutex_);
  // order.cc:
  bool MustWait(const CollectiveRequest& request) const MG_REQUIRES(mutex_);
  void TakePart(const Request& request, Actions* actions) MG_REQUIRES(mutex_);
  void LetGo(Actions* actions) MG_REQUIRES(mutex_);
  void EndHeld(const std::function<bool(const CollectiveRequest&)>& which, const Status& status,
               Actions* actions) MG_REQUIRES(mutex_);
  // groups.cc:
  void Join(Member* member, const Request& request, Actions* actions) MG_REQUIRES(mutex_);
  void HandleJoin(uint64_t session, const std::string& task, int32_t group,
                  const CollectiveMessage& m, Actions* actions) MG_REQUIRES(mutex_);
  void HandleLeave(uint64_t session, int32_t group, const std::string& device) MG_REQUIRES(mutex_);
  void HandleFormed(uint64_t session, int32_t group, const CollectiveMessage& message,
                    const Payload& payload, Actions* actions) MG_REQUIRES(mutex_);
  void HandleRefused(uint64_t session, int32_t group, const CollectiveMessage& message,
                     Actions* actions) MG_REQUIRES(mutex_);
  void HandleControl(uint64_t session, int32_t group, const CollectiveMessage& message,
                     const Payload& payload, Actions* actions) MG_REQUIRES(mutex_);
  void Answer(const Joiner& joiner, int32_t group, CollectiveMessage message, Payload payload,
              Actions* actions) MG_REQUIRES(mutex_);
  void Refuse(int32_t group, const std::string& device, const Joiner& joiner, const Status& status,
              Actions* actions) MG_REQUIRES(mutex_);
  void StopJoining(Member* member, const Status& status, Actions* actions) MG_REQUIRES(mutex_);
  // Moves the kBroken messages out of `actions`: they are sent once the cause is known (Tell), or
  // after kCauseGrace.
  void Withhold(const std::string& device, Actions* actions) MG_REQUIRES(mutex_);
  // Forgets the session's rounds that none of its members here is in, with what came for them.
  void EraseIdle(uint64_t session) MG_REQUIRES(mutex_);
  // Sends the session's withheld messages, each with the status that `cause` gives for its member;
  // if that is OK, unchanged.
  void Tell(uint64_t session, const std::function<Status(const std::string& device)>& cause,
            Actions* actions) MG_REQUIRES(mutex_);
  // Rounds that a member has ended before it left: by instance.
  using Rounds = std::map<int32_t, uint64_t>;
  Rounds EndedRounds(const Member& member) const MG_REQUIRES(mutex_);
  // Ends the epoch. `ended` (by instance): rounds up to these are not broken, since everything for
  // them has been sent.
  void Break(uint64_t epoch, const Status& status, bool tell, Actions* actions,
             const Rounds& ended = {}) MG_REQUIRES(mutex_);
  // A message of `session` was not kept, so its operation can never end: fails it when it begins,
  // or, in a group that was found, ends the epoch.
  void GiveUp(const Key& key, uint64_t session, const Status& status, Actions* actions)
      MG_REQUIRES(mutex_);
  void RunInEpoch(int32_t group, Member* member, const Request& request, Actions* actions)
      MG_REQUIRES(mutex_);
  void Tick(Clock::time_point now, Actions* actions) MG_REQUIRES(mutex_);
  bool Land(Arrival* arrival, size_t payload_bytes);  // takes the lock
  // Starts the timer, or wakes it, since something now has a deadline.
  void WakeTimer() MG_REQUIRES(mutex_) {
    if (!timer_.joinable() && !stopped_)
      timer_ = StartThread("mg-collective", [this] { TimeLoop(); });
    if (waiting_) changed_.NotifyAll();
  }
  Status Overdue(int32_t group, const Forming& forming, const Joiner& joiner) const
      MG_REQUIRES(mutex_);

  void Do(Actions* actions);
  void Work(const OperationPtr& operation);
  static void RunTask(void* context, int32_t);
  void OnSent(const OperationPtr& operation, const std::string& task, bool piece,
              const Status& status);
  void OnArrival(const std::shared_ptr<Arrival>& arrival, const Status& status);
  void TimeLoop();

  CollectiveHost* const host_;
  ThreadPools* const pools_;

  Mutex mutex_;
  CondVar changed_;  // for the timer
  CondVar drained_;  // after Stop: working_ == 0
  std::map<Key, OperationPtr> operations_ MG_GUARDED_BY(mutex_);
  // By group and device.
  std::map<std::pair<int32_t, std::string>, Member> members_ MG_GUARDED_BY(mutex_);
  std::map<int32_t, Forming> forming_ MG_GUARDED_BY(mutex_);
  // By session and step.
  std::map<std::pair<uint64_t, uint64_t>, OpenStep> open_ MG_GUARDED_BY(mutex_);
  std::vector<Request> held_ MG_GUARDED_BY(mutex_);  // wait for an earlier step to begin the same
  std::vector<Request> entered_ MG_GUARDED_BY(mutex_);  // and not left, their epoch not ended
  std::vector<Withheld> withheld_ MG_GUARDED_BY(mutex_);
  std::map<uint64_t, std::vector<std::string>> lost_ MG_GUARDED_BY(mutex_);  // tasks, by session
  std::map<uint64_t, std::shared_ptr<collective::ParkedCount>> parked_
      MG_GUARDED_BY(mutex_);  // by session
  // Epochs that ended before this task was told of them, or because a message was not kept.
  std::map<uint64_t, Status> broken_ MG_GUARDED_BY(mutex_);
  std::map<Key, Status> given_up_ MG_GUARDED_BY(mutex_);  // of groups whose members are given
  int working_ MG_GUARDED_BY(mutex_) = 0;                 // threads inside Work, queued ones too
  bool stopped_ MG_GUARDED_BY(mutex_) = false;
  bool waiting_ MG_GUARDED_BY(mutex_) = false;  // the timer sleeps until it is told
  std::thread timer_;
};

}  // namespace monograph
