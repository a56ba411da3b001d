// The table of a session's steps in flight: which numbers and slots steps get, and what finds them.
#include "client/session/steps_in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace monograph {
namespace {

uint64_t SlotOf(const StepIds& steps) { return steps.first % kStepSlots; }

class StepsInFlightTest : public ::testing::Test {
 protected:
  StepInFlight* Begin(uint32_t count = 1, uint64_t number = 0, uint64_t stride = 1) {
    EXPECT_TRUE(steps_.HasRoom(count));
    return steps_.Begin(number, count, stride).value();
  }
  // Begins a step in each slot of the ring; ends all but those of `stay`.
  std::vector<StepInFlight*> LeaveOnly(const std::vector<uint64_t>& stay) {
    std::vector<StepInFlight*> left;
    for (uint64_t slot = 0; slot < kStepSlots; ++slot) {
      StepInFlight* const step = Begin();
      EXPECT_EQ(SlotOf(step->steps), slot);
      if (std::find(stay.begin(), stay.end(), slot) != stay.end()) {
        left.push_back(step);
      } else {
        steps_.End(*step);
      }
    }
    return left;
  }
  StepsInFlight steps_;
};

TEST_F(StepsInFlightTest, AStepIsFoundByItsIdFromBeginToEnd) {
  StepInFlight* const first = Begin();
  StepInFlight* const second = Begin();
  EXPECT_EQ(StepNumberOf(first->steps.last), 1u);
  EXPECT_EQ(StepNumberOf(second->steps.last), 2u);
  EXPECT_EQ(steps_.Find(first->steps.last), first);
  EXPECT_EQ(steps_.FindLast(second->steps.last), second);
  EXPECT_EQ(steps_.size(), 2);
  EXPECT_EQ(steps_.All(), (std::vector<StepInFlight*>{first, second}));
  const uint64_t ended = first->steps.last;
  steps_.End(*first);
  EXPECT_EQ(steps_.Find(ended), nullptr);
  EXPECT_EQ(steps_.FindLast(ended), nullptr);
  EXPECT_EQ(steps_.Find(second->steps.last), second);
  EXPECT_EQ(steps_.All(), std::vector<StepInFlight*>{second});
}

TEST_F(StepsInFlightTest, SlotsAreTakenInTurnAndOthersGoAroundAStepThatStays) {
  StepInFlight* const stays = LeaveOnly({5}).front();
  for (int round = 0; round < 3; ++round) {
    for (uint64_t slot = 0; slot < kStepSlots; ++slot) {
      if (slot == 5) continue;
      StepInFlight* const step = Begin();
      EXPECT_EQ(SlotOf(step->steps), slot);
      steps_.End(*step);
    }
  }
  EXPECT_EQ(steps_.Find(stays->steps.last), stays);
}

TEST_F(StepsInFlightTest, ThereIsRoomForSoManyStepsAsMayBeInFlight) {
  std::vector<StepInFlight*> begun;
  for (int i = 0; i < kMaxStepsInFlight; ++i) begun.push_back(Begin());
  EXPECT_EQ(steps_.size(), kMaxStepsInFlight);
  EXPECT_FALSE(steps_.HasRoom(1));
  steps_.End(*begun[7]);
  EXPECT_TRUE(steps_.HasRoom(1));
  EXPECT_FALSE(steps_.HasRoom(2));
}

TEST_F(StepsInFlightTest, ARowIsFoundByEachOfItsStepsAndEndsAsOne) {
  StepInFlight* const row = Begin(4, 10, 3);
  EXPECT_EQ(steps_.size(), 4);
  EXPECT_EQ(row->steps.count(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t id = row->steps.first + i * row->steps.stride;
    EXPECT_EQ(StepNumberOf(id), 10 + 3 * i);
    EXPECT_EQ(id % kStepSlots, i) << "slots are side by side";
    EXPECT_EQ(steps_.Find(id), row);
    EXPECT_EQ(steps_.FindLast(id), i == 3 ? row : nullptr);
  }
  EXPECT_EQ(steps_.Find(StepId(11, 0)), nullptr) << "a number between those of the row";
  EXPECT_EQ(SlotOf(Begin()->steps), 4u);
  steps_.End(*row);
  EXPECT_EQ(steps_.Find(row->steps.first), nullptr);
  EXPECT_EQ(steps_.size(), 1);
}

TEST_F(StepsInFlightTest, ARowNeedsFreeSlotsSideBySide) {
  const std::vector<StepInFlight*> stay = LeaveOnly({15, 31, 47, 63});
  EXPECT_TRUE(steps_.HasRoom(15));
  EXPECT_FALSE(steps_.HasRoom(16)) << "the last run of slots does not go on at the first";
  steps_.End(*stay[2]);
  EXPECT_EQ(SlotOf(Begin(16)->steps), 32u);
}

TEST_F(StepsInFlightTest, NumbersGrowAndHaveALimit) {
  EXPECT_EQ(StepNumberOf(Begin(1, 7)->steps.last), 7u);
  EXPECT_EQ(StepNumberOf(Begin()->steps.last), 8u);
  EXPECT_EQ(steps_.Begin(8, 1, 1).status(),
            InvalidArgument("step 8 comes after step 8; numbers of steps grow"));
  EXPECT_EQ(steps_.Begin(kMaxStepNumber, 2, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(steps_.Begin(kMaxStepNumber + 1, 1, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(steps_.size(), 2) << "a step that is refused takes no slot";
  EXPECT_EQ(StepNumberOf(Begin(2, kMaxStepNumber - 1)->steps.last), kMaxStepNumber);
  EXPECT_EQ(steps_.Begin(0, 1, 1).status().code(), Code::kInvalidArgument);
}

TEST_F(StepsInFlightTest, AStepExpectsEachPartAndFetchOfItsPreparedStep) {
  auto prepared = std::make_shared<PreparedStep>();
  prepared->parts = {{.peer = 0, .handle = 1}, {.peer = 2, .handle = 1}};
  prepared->fetches = 3;
  StepInFlight* const step = Begin();
  step->aborting = true;
  step->Expect(prepared);
  EXPECT_FALSE(step->aborting);
  EXPECT_EQ(step->parts_missing, 2);
  EXPECT_EQ(step->fetches_missing, 3);
  EXPECT_EQ(step->fetched.size(), 3u);
  EXPECT_TRUE(step->HasPart(2));
  EXPECT_FALSE(step->HasPart(1));
  EXPECT_FALSE(step->EndParts(1));
  EXPECT_TRUE(step->EndParts(2));
  EXPECT_FALSE(step->EndParts(2));
  EXPECT_EQ(step->parts_missing, 1);
  steps_.End(*step);
  EXPECT_EQ(prepared.use_count(), 1) << "the table lets go of the signature";
}

}  // namespace
}  // namespace monograph
