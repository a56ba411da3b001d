// Hooks count global steps, which other clients make, too: what is due "every 100 steps" is due at
// the first own step that is 100 or more past the last time, not at multiples of 100.
#include "train/hooks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "client/session.h"
#include "train/summary_writer.h"
#include "train/trainer.h"

namespace monograph {
namespace {

std::string Decimals(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// The values of the tensor's text, without type and shape.
std::string ValueText(const Tensor& tensor) {
  const std::string text = tensor.ToString();
  const size_t at = text.find(" = ");
  return at == std::string::npos ? text : text.substr(at + 3);
}

// InvalidArgument if the model gives fewer results than a hook has names for.
Status CheckNames(const char* hook, size_t names, const TrainedStep& step) {
  if (names <= step.results.size()) return Status();
  return InvalidArgument(std::string(hook) + " has " + std::to_string(names) +
                         " names; the model gives " + std::to_string(step.results.size()) +
                         " results");
}

bool HasNan(const Tensor& tensor) {
  const auto any = [&](const auto* data) {
    return std::any_of(data, data + tensor.elements(), [](auto x) { return std::isnan(x); });
  };
  if (tensor.dtype() == DT_FLOAT) return any(tensor.data<float>());
  if (tensor.dtype() == DT_DOUBLE) return any(tensor.data<double>());
  return false;
}

}  // namespace

Status TrainHook::Begin(Session*, int64_t) { return Status(); }
Status TrainHook::End(Session*, int64_t) { return Status(); }

void HookTimer::Start(int64_t global_step) {
  step_ = global_step;
  at_ = Clock::now();
}

bool HookTimer::Due(int64_t global_step, Passed* passed) {
  const Clock::time_point now = Clock::now();
  const bool due = (every_.steps > 0 && global_step - step_ >= every_.steps) ||
                   (every_.time.count() > 0 && now - at_ >= every_.time);
  if (!due) return false;
  if (passed != nullptr)
    *passed = {global_step - step_, std::chrono::duration<double>(now - at_).count()};
  step_ = global_step;
  at_ = now;
  return true;
}

Status TimedHook::Begin(Session*, int64_t global_step) {
  timer_.Start(global_step);
  return Status();
}

// ---- CheckpointSaverHook

CheckpointSaverHook::CheckpointSaverHook(std::shared_ptr<Saver> saver, std::string path,
                                         const HookEvery& every, std::function<Status()> may_save)
    : TimedHook(every),
      saver_(std::move(saver)),
      path_(std::move(path)),
      may_save_(std::move(may_save)) {}

Status CheckpointSaverHook::Save(Session* session, int64_t global_step) {
  if (saved_ == global_step) return Status();
  if (may_save_) MG_RETURN_IF_ERROR(may_save_());
  const Status status = saver_->Save(session, path_, global_step).status();
  if (!status.ok() && status.code() != Code::kResourceExhausted) return status;
  left_out_ = status;
  if (status.ok()) {
    saved_ = global_step;
  } else {
    LogWarning(status.message() + "; training goes on without the checkpoint of step " +
               std::to_string(global_step) + ", and the next one is tried");
  }
  return Status();
}

Status CheckpointSaverHook::Begin(Session* session, int64_t global_step) {
  MG_RETURN_IF_ERROR(TimedHook::Begin(session, global_step));
  return Save(session, global_step);
}

Status CheckpointSaverHook::AfterStep(HookContext* context) {
  const int64_t step = context->step.global_step;
  return timer_.Due(step) ? Save(context->session, step) : Status();
}

Status CheckpointSaverHook::End(Session* session, int64_t global_step) {
  return Save(session, global_step);
}

// ---- LoggingTensorHook

LoggingTensorHook::LoggingTensorHook(std::vector<std::string> names, int64_t every_n_steps)
    : TimedHook({.steps = every_n_steps}), names_(std::move(names)) {}

Status LoggingTensorHook::AfterStep(HookContext* context) {
  const TrainedStep& step = context->step;
  MG_RETURN_IF_ERROR(CheckNames("LoggingTensorHook", names_.size(), step));
  HookTimer::Passed passed;
  if (!timer_.Due(step.global_step, &passed)) return Status();
  std::string text;
  for (size_t i = 0; i < names_.size(); ++i)
    text += names_[i] + " = " + ValueText(step.results[i]) + ", ";
  LogInfo(text + "step = " + std::to_string(step.global_step) + " (" +
          Decimals("%.3f", passed.seconds) + " sec)");
  return Status();
}

// ---- SummarySaverHook

SummarySaverHook::SummarySaverHook(std::shared_ptr<SummaryWriter> writer,
                                   std::vector<std::string> names, const HookEvery& every)
    : TimedHook(every), writer_(std::move(writer)), names_(std::move(names)) {}

Status SummarySaverHook::Begin(Session* session, int64_t global_step) {
  MG_RETURN_IF_ERROR(TimedHook::Begin(session, global_step));
  writer_->AddStart(global_step + 1);
  first_ = first_ || global_step < last_step_;
  last_step_ = global_step;
  return Status();
}

Status SummarySaverHook::AfterStep(HookContext* context) {
  const TrainedStep& step = context->step;
  MG_RETURN_IF_ERROR(CheckNames("SummarySaverHook", names_.size(), step));
  last_step_ = std::max(last_step_, step.global_step);
  const bool due = timer_.Due(step.global_step);
  if (!std::exchange(first_, false) && !due) return Status();
  for (size_t i = 0; i < names_.size(); ++i) {
    const Tensor& result = step.results[i];
    if (result.dtype() == DT_FLOAT && result.shape().rank() == 0) {
      writer_->AddScalar(names_[i], result.scalar<float>(), step.global_step);
    } else {
      MG_RETURN_IF_ERROR(writer_->AddHistogram(names_[i], result, step.global_step));
    }
  }
  return Status();
}

Status SummarySaverHook::End(Session*, int64_t) {
  const Status status = writer_->Flush();
  if (!status.ok()) LogWarning(status.message() + ": summaries are not all there");
  return Status();
}

// ---- StepCounterHook

StepCounterHook::StepCounterHook(int64_t every_n_steps, std::shared_ptr<SummaryWriter> writer)
    : TimedHook({.steps = every_n_steps}), writer_(std::move(writer)) {}

Status StepCounterHook::AfterStep(HookContext* context) {
  HookTimer::Passed passed;
  if (!timer_.Due(context->step.global_step, &passed)) return Status();
  const double rate = static_cast<double>(passed.steps) / passed.seconds;
  LogInfo("global_step/sec: " + Decimals("%g", rate));
  if (writer_ != nullptr) writer_->AddScalar("global_step/sec", rate, context->step.global_step);
  return Status();
}

// ---- NanTensorHook

NanTensorHook::NanTensorHook(size_t result, bool fail_on_nan)
    : result_(result), fail_(fail_on_nan) {}

Status NanTensorHook::AfterStep(HookContext* context) {
  const TrainedStep& step = context->step;
  MG_RETURN_IF_ERROR(CheckNames("NanTensorHook", result_ + 1, step));
  if (!HasNan(step.results[result_])) return Status();
  const std::string what = "NaN in result " + std::to_string(result_) + " of the model at step " +
                           std::to_string(step.global_step);
  if (fail_) return FailedPrecondition(what);
  LogWarning(what + ": training ends");
  context->stop = true;
  return Status();
}

}  // namespace monograph
