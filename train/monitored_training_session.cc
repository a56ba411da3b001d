// Run calls its work until it succeeds: Begin opens a session and a trainer where there is none,
// and the chief restores; a failure goes to Recover, which returns it, or closes the session,
// waits, and lets Run begin again. Attempts are counted since the last new step.
#include "train/monitored_training_session.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/duration.h"
#include "base/log.h"
#include "client/session.h"
#include "train/saver/folder_lock.h"

namespace monograph {
namespace {

// Before the first attempt; twice as long before each further one. Within the first pause the other
// clients hear of the loss, and a daemon that is about to end ends.
constexpr std::chrono::milliseconds kFirstPause(1000), kLongestPause(30000);
// Instead of recovery_timeout, once training is done.
constexpr std::chrono::milliseconds kPartingTimeout(30000);

Status WithEnd(const Status& status, const std::string& why) {
  return status.WithMessage(status.message() + "; the run does not go on: " + why);
}

}  // namespace

bool IsLoss(const Status& failure) {
  return failure.code() == Code::kUnavailable || failure.code() == Code::kAborted ||
         !failure.lost_task().empty();
}

MonitoredTrainingSession::MonitoredTrainingSession(OpenFn open, const ReplicatedStep& step,
                                                   std::vector<Outputs> feeds, Trainer::FeedFn feed,
                                                   MonitoredTrainingOptions options)
    : open_(std::move(open)),
      step_(step),
      feeds_(std::move(feeds)),
      feed_(std::move(feed)),
      options_(std::move(options)) {
  if (options_.checkpoint_dir.empty() || options_.saver == nullptr) return;
  saves_ = std::make_shared<CheckpointSaverHook>(
      options_.saver, options_.checkpoint_dir + "/model.ckpt", options_.save_checkpoint,
      [this] { return lock_ ? lock_->Check() : Status(); });
  auto& hooks = options_.trainer.chief_only_hooks;
  hooks.insert(hooks.begin(), saves_);
}

MonitoredTrainingSession::~MonitoredTrainingSession() { (void)Close(); }

Status MonitoredTrainingSession::Close() {
  if (std::exchange(trained_, false)) {
    if (const Status parted = Part(); !parted.ok())
      Say("This client leaves before the others, which may not have ended: " + parted.message());
  }
  const Status status = CloseSession();
  lock_ = nullptr;
  if (!status.ok() || saves_ == nullptr) return status;
  return saves_->left_out().WithContext("the last checkpoint is missing");
}

Status MonitoredTrainingSession::Part() {
  if (!step_.parting.meet.valid() || options_.checkpoint_dir.empty() ||
      options_.max_recoveries == 0)
    return Status();
  parting_ = true;
  return Run([this]() -> Status {
    if (parted_) return Status();
    // After a loss the chief may have restored an older checkpoint than the last.
    if (trainer_->global_step() < reached_) MG_RETURN_IF_ERROR(trainer_->Train(reached_));
    marked_ = true;  // also if the answer is lost: some worker may have heard it
    MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.parting.mark}).status());
    return session_->Run({}, {}, {step_.parting.meet}).status();
  });
}

Result<bool> MonitoredTrainingSession::HaveAllParted() {
  if (!marked_) return false;
  // Those who look later must see it, whatever was lost.
  MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.parting.mark}).status());
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> marked, session_->Run({}, step_.parting.marked));
  return std::all_of(marked.begin(), marked.end(),
                     [](const Tensor& mark) { return mark.scalar<bool>(); });
}

Status MonitoredTrainingSession::CloseSession() {
  trainer_ = nullptr;
  const Status status = session_ == nullptr ? Status() : session_->Close();
  session_ = nullptr;
  return status;
}

void MonitoredTrainingSession::Say(const std::string& text) const {
  if (options_.trainer.say) {
    options_.trainer.say(text);
  } else {
    LogInfo(text);
  }
}

Status MonitoredTrainingSession::Check() const {
  if (!options_.checkpoint_dir.empty() && chief() && options_.saver == nullptr)
    return InvalidArgument("checkpoints in '" + options_.checkpoint_dir + "' need a saver");
  if (options_.max_recoveries < 0)
    return InvalidArgument("max_recoveries is " + std::to_string(options_.max_recoveries) +
                           "; it must be 0 or more");
  return Status();
}

Status MonitoredTrainingSession::Start() {
  MG_RETURN_IF_ERROR(Check());
  if (chief() && !options_.checkpoint_dir.empty() && lock_ == nullptr) {
    MG_ASSIGN_OR_RETURN(lock_, FolderLock::Take(options_.checkpoint_dir));
  }
  began_ = Clock::now();
  return Run([] { return Status(); });
}

Status MonitoredTrainingSession::Train(int64_t until, const Trainer::StepFn& on_step) {
  trained_ = false;
  const Status status = Run([&] {
    return trainer_->Train(until, [&](const TrainedStep& made) {
      if (made.global_step > furthest_) {
        furthest_ = made.global_step;
        attempts_ = 0;
      }
      if (on_step) on_step(made);
    });
  });
  trained_ = status.ok();
  if (trained_) reached_ = trainer_->global_step();
  return status;
}

Status MonitoredTrainingSession::Run(const std::function<Status()>& work) {
  while (true) {
    Status status = trainer_ == nullptr && !parted_ ? Begin() : Status();
    if (status.ok()) status = work();
    if (status.ok()) {
      attempts_ = 0;
      return status;
    }
    status = Recover(status);
    if (status.ok()) continue;
    trained_ = false;
    return status;
  }
}

Status MonitoredTrainingSession::Begin() {
  TrainerOptions how = options_.trainer;
  if (attempts_ > 0) {
    how.start_timeout =
        std::max(std::chrono::milliseconds(1),
                 std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()));
    // Who keeps in step begins at a checkpoint: the loss may have left a part of an update. The
    // chief makes all others wait until it is restored, so that they do not join what was there.
    if (started_) how.join = step_.options.async;
  }
  if (chief()) how.init_fn = [this](Session* session) { return Restore(session); };
  if (session_ == nullptr) {
    MG_ASSIGN_OR_RETURN(session_, open_(how.start_timeout));
    opened_ = true;
  }
  if (parting_) {
    MG_ASSIGN_OR_RETURN(parted_, HaveAllParted());
    if (parted_) return Status();
  }
  marked_ = false;
  auto trainer = std::make_unique<Trainer>(session_.get(), step_, feeds_, feed_, std::move(how));
  MG_RETURN_IF_ERROR(trainer->Start());
  trainer_ = std::move(trainer);
  started_ = true;
  return Status();
}

Status MonitoredTrainingSession::Restore(Session* session) const {
  std::optional<std::string> latest;
  if (!options_.checkpoint_dir.empty()) {
    MG_ASSIGN_OR_RETURN(latest, options_.saver->RestoreLatest(
                                    session, options_.checkpoint_dir,
                                    {.refuse_damaged = options_.refuse_damaged_checkpoint,
                                     .say = [this](const std::string& text) { Say(text); }}));
  }
  if (latest || !options_.trainer.init_fn) return Status();
  return options_.trainer.init_fn(session);
}

Status MonitoredTrainingSession::Recover(const Status& failure) {
  if (!IsLoss(failure) || options_.checkpoint_dir.empty() || options_.max_recoveries == 0)
    return failure;
  const auto now = Clock::now();
  // Nobody was lost: a task has not come up in the time that it was given.
  const bool never_came = !opened_ && failure.lost_task().empty();
  if (never_came && now - began_ >= options_.trainer.start_timeout) return failure;
  if (attempts_ == 0)
    deadline_ = now + (parting_ ? std::min(options_.recovery_timeout, kPartingTimeout)
                                : options_.recovery_timeout);
  if (attempts_ == options_.max_recoveries) {
    return WithEnd(failure, "no new step after " + std::to_string(attempts_) +
                                (attempts_ == 1 ? " recovery" : " recoveries"));
  }
  const auto pause = std::min(kFirstPause * (1 << std::min(attempts_, 10)), kLongestPause);
  if (now + pause >= deadline_) {
    return WithEnd(failure, "no new step within " + Seconds(options_.recovery_timeout));
  }
  ++attempts_;
  Say(failure.message() + "; the session is made anew, attempt " + std::to_string(attempts_) +
      " of " + std::to_string(options_.max_recoveries));
  (void)CloseSession();  // as far as tasks are there
  std::this_thread::sleep_for(pause);
  return Status();
}

}  // namespace monograph
