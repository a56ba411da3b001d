#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace monograph {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "CODE_OUT_OF_RANGE";
}

namespace {

const std::string kNoText;

}  // namespace

Status::Status(Code code, std::string message, std::string lost_task) {
  if (code != Code::kOk) {
    state_ =
        std::make_shared<const State>(State{code, false, std::move(message), std::move(lost_task)});
  }
}

const std::string& Status::message() const { return state_ ? state_->message : kNoText; }
const std::string& Status::lost_task() const { return state_ ? state_->lost_task : kNoText; }

Status Status::AsDerived() const {
  Status derived;
  if (state_) {
    derived.state_ = std::make_shared<const State>(
        State{state_->code, true, state_->message, state_->lost_task});
  }
  return derived;
}

Status Status::WithContext(std::string_view context) const {
  return ok() ? Status() : WithMessage(std::string(context) + ": " + message());
}

Status Status::WithMessage(std::string message) const {
  Status with;
  if (state_) {
    with.state_ = std::make_shared<const State>(
        State{state_->code, state_->derived, std::move(message), state_->lost_task});
  }
  return with;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(CodeName(code())) + ": " + message();
}

void Status::Update(const Status& other) {
  if (other.ok()) return;
  if (ok() || (derived() && !other.derived())) state_ = other.state_;
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

Status Cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Status DeadlineExceeded(std::string message) {
  return {Code::kDeadlineExceeded, std::move(message)};
}
Status NotFound(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status AlreadyExists(std::string message) { return {Code::kAlreadyExists, std::move(message)}; }
Status PermissionDenied(std::string message) {
  return {Code::kPermissionDenied, std::move(message)};
}
Status ResourceExhausted(std::string message) {
  return {Code::kResourceExhausted, std::move(message)};
}
Status FailedPrecondition(std::string message) {
  return {Code::kFailedPrecondition, std::move(message)};
}
Status Aborted(std::string message) { return {Code::kAborted, std::move(message)}; }
Status OutOfRange(std::string message) { return {Code::kOutOfRange, std::move(message)}; }
Status Unimplemented(std::string message) { return {Code::kUnimplemented, std::move(message)}; }
Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }
Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status DataLoss(std::string message) { return {Code::kDataLoss, std::move(message)}; }
Status Unauthenticated(std::string message) { return {Code::kUnauthenticated, std::move(message)}; }

Status TaskLost(std::string task, std::string message) {
  return {Code::kUnavailable, std::move(message), std::move(task)};
}

void FatalBug(const char* file, int line, std::string_view what) {
  std::fprintf(stderr, "monograph: bug at %s:%d: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::abort();
}

}  // namespace monograph
