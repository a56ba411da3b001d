#include "base/status.h"

#include <gtest/gtest.h>

namespace monograph {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return value / 2;
}
Result<int> Quarter(int value) {
  MG_ASSIGN_OR_RETURN(int half, Half(value));
  return Half(half);
}

TEST(Status, SaysCodeAndMessage) {
  EXPECT_EQ(Status().ToString(), "OK");
  EXPECT_EQ(NotFound("x").ToString(), "NOT_FOUND: x");
  EXPECT_EQ(NotFound("x").WithContext("y").message(), "y: x");
}

TEST(Status, KeepsTheRootCause) {
  Status status;
  status.Update(Aborted("step aborted").AsDerived());
  EXPECT_TRUE(status.derived());
  status.Update(Internal("root"));
  EXPECT_EQ(status.message(), "root");
  status.Update(Internal("later"));
  EXPECT_EQ(status.message(), "root");
}

TEST(Status, NamesTheLostTaskWhateverItIsMadeInto) {
  EXPECT_EQ(Status().lost_task(), "");
  EXPECT_EQ(Unavailable("/job:worker/replica:0/task:1 is busy").lost_task(), "");
  const Status lost = TaskLost("/job:worker/replica:0/task:1", "no answer");
  EXPECT_EQ(lost, Unavailable("no answer"));
  Status kept;
  kept.Update(lost);
  for (const Status& status : {lost, kept, lost.AsDerived(), lost.WithContext("step 3"),
                               lost.WithMessage("gone"), Status(lost.AsDerived().WithContext("x"))})
    EXPECT_EQ(status.lost_task(), "/job:worker/replica:0/task:1") << status;
  EXPECT_EQ(lost.WithMessage("gone").ToString(), "UNAVAILABLE: gone");
  EXPECT_TRUE(lost.AsDerived().WithMessage("gone").derived());
  EXPECT_TRUE(Status().WithMessage("gone").ok());
}

TEST(Result, CarriesAValueOrAFailure) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace monograph
