#include "executor/worker/step_watch.h"

#include <algorithm>

namespace monograph {

const char* Describe(PartState state) {
  switch (state) {
    case PartState::kNotBegun:
      return "has not begun the step";
    case PartState::kRunning:
      return "runs its part";
    case PartState::kSending:
      return "has ended its part and still sends";
    case PartState::kOver:
      return "has ended its part";
    case PartState::kUnknown:
      break;
  }
  return "has not answered";
}

StepWatch::Due StepWatch::Look(Time now, std::span<const Sight> steps, bool arriving) {
  Due due;
  MutexLock lock(mutex_);
  std::map<uint64_t, Watched> watched;
  std::map<std::pair<int, uint64_t>, Answer> answers;
  for (const Sight& sight : steps) {
    const auto known = steps_.find(sight.step);
    const bool stands = known != steps_.end() && known->second.progress == sight.progress;
    Watched state = stands ? known->second : Watched{sight.progress, now, false};
    if (now - state.since >= kTold && !state.told) {
      state.told = true;
      due.tell.push_back(sight.step);
    }
    watched.emplace(sight.step, state);
    if (now - state.since < kStandsStill) continue;
    bool missing = false;
    for (const Awaited& awaited : sight.awaits) {
      const std::pair<int, uint64_t> about(awaited.peer, awaited.step);
      const auto said = answers_.find(about);
      Answer answer = said == answers_.end() ? Answer{} : said->second;
      if (arriving) answer.since = now;
      if (answers.emplace(about, answer).second) due.ask.push_back(about);
      const bool never = (awaited.lost_if_over && answer.state == PartState::kOver) ||
                         (awaited.lost_if_not_begun && answer.state == PartState::kNotBegun);
      if (never && answer.last - answer.since >= kCertain && !missing) {
        due.missing.push_back({sight.step, awaited, answer.state});
        missing = true;
      }
    }
  }
  steps_.swap(watched);
  answers_.swap(answers);
  return due;
}

void StepWatch::Answered(int peer, uint64_t step, PartState state, Time now) {
  MutexLock lock(mutex_);
  const auto found = answers_.find({peer, step});
  if (found == answers_.end()) return;
  Answer& answer = found->second;
  if (answer.state != state) answer = {state, now, now};
  answer.last = std::max(answer.last, now);
}

PartState StepWatch::StateOf(int peer, uint64_t step) const {
  MutexLock lock(mutex_);
  const auto found = answers_.find({peer, step});
  return found == answers_.end() ? PartState::kUnknown : found->second.state;
}

}  // namespace monograph
