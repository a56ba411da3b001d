// Status and Result<T>: how every function of Monograph reports failure. No exception crosses our
// own signatures. The codes are the canonical ones, with TensorFlow's numbers, so that they travel
// as integers in messages.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace monograph {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT", "OK", ... ; a number outside the enumeration is "CODE_<n>".
std::string_view CodeName(Code code);

// The outcome of an operation. OK costs one pointer and no allocation; copies share the message.
// A value type: a const Status may be read from any thread.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string lost_task = {});

  bool ok() const { return state_ == nullptr; }
  Code code() const { return state_ ? state_->code : Code::kOk; }
  const std::string& message() const;

  // True if this failure only follows from another one of the same step (an abort, a cancelled
  // receive). Session::Run never reports a derived failure while it knows the root cause.
  bool derived() const { return state_ && state_->derived; }
  Status AsDerived() const;

  // The task whose loss this failure is, or follows from: "/job:worker/replica:0/task:1". Empty if
  // no task is known to be lost. It travels with the failure between processes.
  const std::string& lost_task() const;

  // The same failure with "context: " put before its message. OK stays OK.
  Status WithContext(std::string_view context) const;
  // The same failure with another message. OK stays OK.
  Status WithMessage(std::string message) const;

  // "OK" or "NOT_FOUND: message".
  std::string ToString() const;

  // Keeps the first root cause: takes `other` if this is OK, or if this is derived and `other` is
  // not.
  void Update(const Status& other);

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct State {
    Code code;
    bool derived;
    std::string message;
    std::string lost_task;
  };
  std::shared_ptr<const State> state_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

Status Cancelled(std::string message);
Status InvalidArgument(std::string message);
Status DeadlineExceeded(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status PermissionDenied(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status Aborted(std::string message);
Status OutOfRange(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);
Status Unavailable(std::string message);
Status DataLoss(std::string message);
Status Unauthenticated(std::string message);
// Unavailable, because `task` is lost or about to end.
Status TaskLost(std::string task, std::string message);

// Ends the process: for a bug of our own, never for a user's mistake.
[[noreturn]] void FatalBug(const char* file, int line, std::string_view what);

#define MG_CHECK(condition)                                                  \
  do {                                                                       \
    if (!(condition)) ::monograph::FatalBug(__FILE__, __LINE__, #condition); \
  } while (false)

// A T or the Status that says why there is none. value() on a failure ends the process with the
// failure's text; ask ok() first, or use MG_ASSIGN_OR_RETURN.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(runtime/explicit)
  Result(Status status)
      : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(runtime/explicit)
    MG_CHECK(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  T& value() & {
    RequireOk();
    return std::get<0>(state_);
  }
  const T& value() const& {
    RequireOk();
    return std::get<0>(state_);
  }
  T value() && {
    RequireOk();
    return std::move(std::get<0>(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void RequireOk() const {
    if (!ok()) FatalBug("Result", 0, std::get<1>(state_).ToString());
  }
  std::variant<T, Status> state_;
};

#define MG_CONCAT_INNER(a, b) a##b
#define MG_CONCAT(a, b) MG_CONCAT_INNER(a, b)

#define MG_RETURN_IF_ERROR(expression)                                   \
  do {                                                                   \
    if (::monograph::Status mg_status = (expression); !mg_status.ok()) { \
      return mg_status;                                                  \
    }                                                                    \
  } while (false)

// MG_ASSIGN_OR_RETURN(auto value, Function());
#define MG_ASSIGN_OR_RETURN(target, expression) \
  MG_ASSIGN_OR_RETURN_INNER(MG_CONCAT(mg_result_, __LINE__), target, expression)
#define MG_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.status();                   \
  target = std::move(result).value()

}  // namespace monograph
