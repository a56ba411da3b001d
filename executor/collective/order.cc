// Steps of one session that are in flight together take part in the rounds of a group that was
// found in the order of their numbers, whichever of them reaches its collective first: otherwise
// the members of different clients would add up different steps.
#include <algorithm>

#include "executor/collective/manager.h"

namespace monograph {

using collective::GroupName;

void CollectiveManager::Impl::StepBegins(uint64_t session, uint64_t step,
                                         const CollectiveHome* home) {
  MutexLock lock(mutex_);
  open_[{session, step}].home = home;
}

void CollectiveManager::Impl::StepEnds(uint64_t session, uint64_t step, bool ok) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    const auto found = open_.find({session, step});
    if (found == open_.end()) return;
    if (ok) found->second.home->order().learned = true;
    open_.erase(found);
    LetGo(&actions);
  }
  Do(&actions);
}

// Whether an earlier step that runs is still to begin the same. What a graph does is known once a
// step of it has ended; until then it may do anything.
bool CollectiveManager::Impl::MustWait(const CollectiveRequest& request) const {
  const CollectiveHome::Use use{request.group_key, request.instance_key, request.device};
  for (auto it = open_.lower_bound({request.session, 0});
       it != open_.end() && it->first < std::pair(request.session, request.step); ++it) {
    const CollectiveHome::Order& order = it->second.home->order();
    if (!it->second.made.contains(use) && (!order.learned || order.uses.contains(use))) return true;
  }
  return false;
}

void CollectiveManager::Impl::TakePart(const Request& request, Actions* actions) {
  if (const auto open = open_.find({request->session, request->step}); open != open_.end()) {
    const CollectiveHome::Use use{request->group_key, request->instance_key, request->device};
    open->second.made.insert(use);
    open->second.home->order().uses.insert(use);
  }
  Member* member = &members_[{request->group_key, request->device}];
  // What was lost stays lost for the session, and data that has ended stays so.
  if (member->state == Member::State::kOut && member->broken_session == request->session &&
      (member->broken.code() == Code::kUnavailable || member->broken.code() == Code::kOutOfRange ||
       (!member->broken.ok() && request->step <= member->broken_step))) {
    actions->ends.push_back({request, member->broken, {}});
    return;
  }
  if (member->state == Member::State::kIn &&
      (member->session != request->session || member->size != request->group_size)) {
    Break(member->epoch,
          Aborted(request->device + " joined " + GroupName(request->group_key) + " anew"), true,
          actions);
  }
  if (member->state == Member::State::kIn) {
    RunInEpoch(request->group_key, member, request, actions);
  } else {
    Join(member, request, actions);
  }
}

void CollectiveManager::Impl::LetGo(Actions* actions) {
  for (size_t i = 0; i < held_.size();) {
    if (MustWait(*held_[i])) {
      ++i;
      continue;
    }
    const Request request = held_[i];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    TakePart(request, actions);
    i = 0;
  }
}

void CollectiveManager::Impl::EndHeld(const std::function<bool(const CollectiveRequest&)>& which,
                                      const Status& status, Actions* actions) {
  std::erase_if(held_, [&](const Request& request) {
    if (!which(*request)) return false;
    actions->ends.push_back({request, status, {}});
    return true;
  });
}

}  // namespace monograph
