// The watches over peers and steps, with a simulated clock.
#include <gtest/gtest.h>

#include "executor/worker/peer_watch.h"
#include "executor/worker/step_watch.h"

namespace monograph {
namespace {

using namespace std::chrono_literals;
using Time = PeerWatch::Time;
constexpr Time kStart{1000s};

TEST(PeerWatch, APeerIsAskedTwiceASecondAndStaysAsLongAsItAnswers) {
  PeerWatch watch;
  const std::vector<int> peers = {3};
  int asked = 0;
  Time now = kStart;
  for (int look = 0; look < 40; ++look) {
    const PeerWatch::Due due = watch.Look(now, peers);
    EXPECT_TRUE(due.lost.empty());
    ASSERT_TRUE(due.next);
    EXPECT_GT(*due.next, now);
    if (!due.ask.empty()) {
      ++asked;
      watch.Heard(3, now + 10ms);
    }
    now = *due.next;
  }
  EXPECT_EQ(asked, 39) << "not at the first look: most steps are over before the second";
  EXPECT_EQ(now, kStart + 40 * 500ms);
}

TEST(PeerWatch, ASilentPeerIsLostOnceTwoAndAHalfSecondsAfterItWasHeardLast) {
  PeerWatch watch;
  const std::vector<int> peers = {0, 1};
  const Time cut = kStart + 1700ms;
  std::vector<std::pair<int, Time>> lost;
  for (Time now = kStart; now < kStart + 10s;) {
    const PeerWatch::Due due = watch.Look(now, peers);
    for (const int peer : due.ask) {
      if (peer == 0 || now < cut) watch.Heard(peer, now);
    }
    for (const int peer : due.lost) lost.emplace_back(peer, now);
    if (!lost.empty()) break;
    now = *due.next;
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].first, 1);
  EXPECT_EQ(lost[0].second, kStart + 1500ms + PeerWatch::kPatience);
  EXPECT_LE(lost[0].second - cut, 2500ms);
}

TEST(PeerWatch, APeerThatWasNotWatchedHasItsWholePatienceAgain) {
  PeerWatch watch;
  const std::vector<int> peers = {1}, none;
  (void)watch.Look(kStart, peers);
  EXPECT_FALSE(watch.Look(kStart + 1s, none).next);
  for (auto after = 0ms; after < PeerWatch::kPatience; after += 500ms)
    EXPECT_TRUE(watch.Look(kStart + 60s + after, peers).lost.empty());
  EXPECT_EQ(watch.Look(kStart + 60s + PeerWatch::kPatience, peers).lost, peers);
}

TEST(PeerWatch, WhoDidNotRunItselfReadsBeforeItJudges) {
  PeerWatch watch;
  const std::vector<int> peers = {1};
  (void)watch.Look(kStart, peers);
  const Time awake = kStart + 20s;  // this process was stopped
  const PeerWatch::Due due = watch.Look(awake, peers);
  EXPECT_TRUE(due.lost.empty());
  EXPECT_EQ(due.ask, peers);
  EXPECT_EQ(due.next, awake + PeerWatch::kGrace);
  EXPECT_EQ(watch.Look(*due.next, peers).lost, peers);
  (void)watch.Look(kStart + 40s, peers);
  (void)watch.Look(kStart + 60s, peers);
  watch.Heard(1, kStart + 60s + 1ms);
  EXPECT_TRUE(watch.Look(kStart + 60s + 500ms, peers).lost.empty());
}

TEST(Pulse, WhoDidNotRunItselfReadsForItsWholeGrace) {
  using control::Pulse;
  Pulse pulse(kStart, {500ms, 2500ms, 750ms});
  const Time awake = kStart + 20s;
  EXPECT_EQ(pulse.Judge(awake), Pulse::Verdict::kAsk);
  EXPECT_EQ(pulse.wake(), awake + 500ms);
  EXPECT_EQ(pulse.Judge(awake + 500ms), Pulse::Verdict::kAsk);
  EXPECT_EQ(pulse.wake(), awake + 750ms);
  EXPECT_EQ(pulse.Judge(awake + 750ms), Pulse::Verdict::kLost);
}

TEST(PeerWatch, APeerThatDoesNotHearThisTaskIsLostAtOnce) {
  PeerWatch watch;
  const std::vector<int> peers = {1, 2};
  (void)watch.Look(kStart, peers);
  watch.Heard(2, kStart + 1ms);
  watch.IsUnheard(2);
  EXPECT_EQ(watch.Look(kStart + 2ms, peers).lost, std::vector<int>{2});
}

// A step that awaits edge 7 from peer 1, looked at every half second; the peer answers each
// question with what `says` gives. Returns when it was found missing, if it was.
template <typename Says>
std::optional<std::chrono::milliseconds> MissingAfter(StepWatch::Awaited awaited, Says says,
                                                      bool arriving = false) {
  StepWatch watch;
  awaited.peer = 1;
  awaited.step = 64;
  awaited.what = 7;
  const StepWatch::Sight sight{64, 5, {awaited}};
  for (auto after = 0ms; after < 20s; after += 500ms) {
    const Time now = kStart + after;
    const StepWatch::Due due = watch.Look(now, std::span(&sight, 1), arriving);
    for (const auto& [peer, step] : due.ask) {
      EXPECT_EQ(peer, 1);
      EXPECT_EQ(step, 64u);
      watch.Answered(peer, step, says(after), now + 5ms);
    }
    if (due.missing.empty()) continue;
    EXPECT_EQ(due.missing.size(), 1u);
    EXPECT_EQ(due.missing[0].awaited.what, 7);
    return after;
  }
  return std::nullopt;
}

TEST(StepWatch, WhatASenderThatIsOverHasNotSentNeverComes) {
  const auto over = [](auto) { return PartState::kOver; };
  const auto after = MissingAfter({}, over);
  ASSERT_TRUE(after);
  EXPECT_LE(*after, 2500ms);
  EXPECT_FALSE(MissingAfter({}, over, /*arriving=*/true)) << "it may be what is arriving";
  EXPECT_FALSE(MissingAfter({.lost_if_over = false}, over));
  // Its part ends late.
  const auto late =
      MissingAfter({}, [](auto t) { return t < 5s ? PartState::kRunning : PartState::kOver; });
  ASSERT_TRUE(late);
  EXPECT_GE(*late, 6500ms);
  EXPECT_LE(*late, 7500ms);
}

TEST(StepWatch, AWaitForAPeerThatRunsOrSendsOrBeginsLaterIsLegitimate) {
  for (const PartState state :
       {PartState::kUnknown, PartState::kNotBegun, PartState::kRunning, PartState::kSending})
    EXPECT_FALSE(MissingAfter({}, [state](auto) { return state; })) << Describe(state);
  // Between two sendings it looks as if it were over.
  EXPECT_FALSE(MissingAfter(
      {}, [](auto t) { return t / 500ms % 3 == 0 ? PartState::kSending : PartState::kOver; }));
}

TEST(StepWatch, WhoSentTheRunStepKnowsThatAPartThatHasNotBegunNeverDoes) {
  const auto after =
      MissingAfter({.lost_if_not_begun = true}, [](auto) { return PartState::kNotBegun; });
  ASSERT_TRUE(after);
  EXPECT_LE(*after, 2500ms);
}

TEST(StepWatch, AStepThatGoesOnAndStandsStillAgainIsToldAgain) {
  StepWatch watch;
  StepWatch::Sight step{64, 100, {}};
  std::vector<std::chrono::milliseconds> told;
  for (auto after = 0ms; after < 60s; after += 500ms) {
    if (after == 15s) --step.progress;
    const StepWatch::Due due = watch.Look(kStart + after, std::span(&step, 1), false);
    if (!due.tell.empty()) told.push_back(after);
  }
  EXPECT_EQ(told, (std::vector<std::chrono::milliseconds>{10s, 25s}));
}

TEST(StepWatch, AStepThatGoesOnIsAskedNothingAndOneThatStandsStillIsToldOnce) {
  StepWatch watch;
  StepWatch::Sight moves{64, 100, {{.peer = 1, .step = 64}}}, stands{128, 9, {}};
  int told = 0;
  for (auto after = 0ms; after < 60s; after += 500ms) {
    --moves.progress;
    const std::vector<StepWatch::Sight> sights = {moves, stands};
    const StepWatch::Due due = watch.Look(kStart + after, sights, false);
    EXPECT_TRUE(due.ask.empty());
    if (due.tell.empty()) continue;
    EXPECT_EQ(due.tell, std::vector<uint64_t>{128});
    EXPECT_EQ(after, 10s);
    ++told;
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace monograph
