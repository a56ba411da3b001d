// The control plane's Channel over the simulated network: what transport/control/channel.cc is over
// sockets, with the same answers. A program that has this one does not link the other. Keys are not
// simulated.
//
// An Attempt is one Connect: it dials again after growing pauses until the time is up, unless the
// error is one that waiting cannot mend. All of it, and of the channel that results, runs on the io
// loop of the caller's machine.
#include "transport/control/channel.h"

#include <algorithm>
#include <optional>

#include "base/duration.h"
#include "base/log.h"
#include "tests/simulation/control/channel_impl.h"
#include "tests/simulation/host.h"
#include "transport/control/host_port.h"

namespace monograph::control {
namespace {

using simulation::Loop;
using simulation::Network;
using simulation::Site;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kFirstPause{10}, kLongestPause{250}, kAttemptTime{5000};
constexpr Milliseconds kLongestReportPause{10000};

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  using Callback = std::function<void(Result<std::shared_ptr<Channel::Impl>>)>;

  Attempt(std::string target, ChannelOptions options, Callback done)
      : target_(std::move(target)),
        options_(std::move(options)),
        done_(std::move(done)),
        site_(Network::Current().SiteOf(simulation::CurrentHost())),
        io_(Network::Current().IoOf(site_)),
        name_(options_.expected_task.empty() ? target_ : options_.expected_task + " at " + target_),
        deadline_(simulation::Clock::now() + options_.timeout) {}

  const std::shared_ptr<Loop>& io() const { return io_; }

  // On the io loop.
  void Start() {
    const Result<HostPort> address = ParseHostPort(target_);
    if (!address.ok()) return Finish(address.status().WithContext(name_));
    address_ = {address->host, std::to_string(address->port)};
    limit_ = io_->PostAt(deadline_, [self = shared_from_this()] {
      Status why = self->last_error_;
      if (why.ok()) why = Unavailable("no answer");
      self->Finish(Unavailable(self->name_ + " did not come up within " +
                               Seconds(self->options_.timeout) + " (" + why.message() +
                               "); is a daemon running there?"));
    });
    ReportLater(std::max(options_.report_after, Milliseconds(1)));
    TryOnce();
  }

 private:
  void Finish(Result<std::shared_ptr<Channel::Impl>> result) {
    if (finished_) return;
    finished_ = true;
    for (const Loop::Key& key : {limit_, pause_, report_, attempt_limit_}) io_->Cancel(key);
    if (current_ != nullptr && !result.ok()) current_->End(result.status(), /*lost=*/false);
    current_ = nullptr;
    const Callback done = std::move(done_);
    done(std::move(result));
  }

  void ReportLater(Milliseconds after) {
    report_ = io_->PostAt(simulation::Clock::now() + after, [self = shared_from_this(), after] {
      if (self->finished_) return;
      const std::string why =
          self->last_error_.ok() ? "no answer yet" : self->last_error_.message();
      const std::string line = "waiting for " + self->name_ + " (" + why + "), " +
                               Seconds(std::chrono::duration_cast<std::chrono::seconds>(
                                   self->deadline_ - simulation::Clock::now())) +
                               " left";
      if (self->options_.on_waiting) {
        self->options_.on_waiting(line);
      } else {
        LogInfo(line);
      }
      self->ReportLater(std::min(2 * after, kLongestReportPause));
    });
  }

  void TryOnce() {
    if (finished_) return;
    attempt_limit_ = io_->PostAt(
        std::min(deadline_, simulation::Clock::now() + kAttemptTime), [self = shared_from_this()] {
          if (self->current_ != nullptr)
            self->current_->End(Unavailable("no answer from " + self->address_.text()),
                                /*lost=*/false);
        });
    options_.hello.purpose = Hello::Purpose::kCalls;
    options_.hello.token = Network::Current().Random(UINT64_MAX) + 1;
    current_ = std::make_shared<Channel::Impl>(
        site_, address_, options_,
        [self = shared_from_this()](const Status& status) { self->Tried(status); });
    current_->Dial();
  }

  void Tried(const Status& status) {
    if (finished_) return;
    io_->Cancel(attempt_limit_);
    std::shared_ptr<Channel::Impl> tried = std::move(current_);
    current_ = nullptr;
    if (status.ok()) return Finish(std::move(tried));
    const bool may_come_up =
        status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded;
    if (!may_come_up) return Finish(status.WithContext(name_));
    last_error_ = status;
    pause_ = io_->PostAt(simulation::Clock::now() + wait_,
                         [self = shared_from_this()] { self->TryOnce(); });
    wait_ = std::min(2 * wait_, kLongestPause);
  }

  const std::string target_;
  ChannelOptions options_;
  Callback done_;
  const Site site_;
  const std::shared_ptr<Loop> io_;
  const std::string name_;
  const simulation::Clock::time_point deadline_;
  SimAddress address_;
  Loop::Key limit_, pause_, report_, attempt_limit_;
  Milliseconds wait_ = kFirstPause;
  std::shared_ptr<Channel::Impl> current_;
  Status last_error_;
  bool finished_ = false;
};

// A value that another thread gives.
template <typename T>
class Answer {
 public:
  void Give(T value) {
    MutexLock lock(mutex_);
    value_.emplace(std::move(value));
    given_.NotifyAll();
  }
  T Take() {
    MutexLock lock(mutex_);
    given_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return value_.has_value(); });
    return std::move(*value_);
  }

 private:
  Mutex mutex_;
  CondVar given_;
  std::optional<T> value_ MG_GUARDED_BY(mutex_);
};

}  // namespace

size_t WireBytes(const Frame& frame) {
  return 40 + frame.text.size() + frame.lost_task.size() + frame.body.size();
}

Channel::Impl::Impl(const Site& site, SimAddress address, ChannelOptions options,
                    std::function<void(const Status&)> opened)
    : site_(site),
      address_(std::move(address)),
      options_(std::move(options)),
      io_(Network::Current().IoOf(site)),
      peer_name_(address_.text()),
      opened_(std::move(opened)) {}

void Channel::Impl::Dial() {
  Frame hello;
  hello.type = FrameType::kHello;
  hello.body = EncodeHello(options_.hello);
  end_ =
      Network::Current().Dial(site_, address_.host, address_.port, hello, io_, shared_from_this());
}

void Channel::Impl::OnHello(const Frame& frame) {
  Status status = frame.status();
  Result<Hello> hello = DecodeHello(frame.body);
  if (status.ok()) status = hello.status();
  if (hello.ok()) peer_ = std::move(hello).value();
  if (status.ok()) status = CheckHello(options_.hello, peer_, address_.text());
  if (status.ok() && !options_.expected_task.empty() && peer_.task_name != options_.expected_task) {
    status =
        FailedPrecondition("the daemon there is " +
                           (peer_.task_name.empty() ? "no task of a cluster" : peer_.task_name) +
                           "; correct the cluster description");
  }
  const auto opened = std::move(opened_);
  opened_ = nullptr;
  if (!status.ok()) {
    end_.Close(status.message());
    ended_ = true;
  } else if (!peer_.task_name.empty()) {
    peer_name_ = peer_.task_name + " at " + address_.text();
  }
  opened(status);
}

void Channel::Impl::OnMessage(const std::any& message) {
  const auto& frame = std::any_cast<const Frame&>(message);
  if (ended_) return;
  if (opened_ && frame.type == FrameType::kHello) return OnHello(frame);
  if (frame.type == FrameType::kReply) {
    const Status status = frame.status();
    if (!status.ok()) return Finish(frame.id, status);
    return Finish(frame.id, frame.body);
  }
  EndNow(LostStatus(frame.type == FrameType::kGoodbye ? "it closed the connection: " + frame.text
                                                      : "it sent an unexpected frame"),
         /*lost=*/true);
}

void Channel::Impl::OnEnd(const Status& why) {
  if (ended_) return;
  if (!opened_) return EndNow(LostStatus(why.message()), /*lost=*/true);
  ended_ = true;
  const auto opened = std::move(opened_);
  opened_ = nullptr;
  opened(why.WithContext("cannot connect to " + address_.text()));
}

void Channel::Impl::CallAsync(const std::string& method, std::string request, Milliseconds timeout,
                              Callback callback) {
  io_->Post([self = shared_from_this(), method, request = std::move(request), timeout,
             callback = std::move(callback)]() mutable {
    self->SendCall(method, std::move(request), timeout, std::move(callback));
  });
}

void Channel::Impl::SendCall(const std::string& method, std::string request, Milliseconds timeout,
                             Callback callback) {
  if (ended_) return callback(status());
  if (request.size() > options_.max_body_bytes || method.size() > 1024) {
    return callback(ResourceExhausted("the request of '" + method.substr(0, 64) + "' to " +
                                      peer_name_ + " has " + std::to_string(request.size()) +
                                      " bytes, at most " + std::to_string(options_.max_body_bytes) +
                                      " are allowed"));
  }
  timeout = std::clamp(timeout, Milliseconds(0), Milliseconds(UINT32_MAX));
  const uint64_t id = ++last_id_;
  Pending pending{method, timeout, std::move(callback), {}};
  pending.timer = io_->PostAt(simulation::Clock::now() + timeout, [weak = weak_from_this(), id] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const auto call = self->pending_.find(id);
    if (call == self->pending_.end()) return;
    self->Finish(
        id, DeadlineExceeded("the call of '" + call->second.method + "' to " + self->peer_name_ +
                             " got no answer within " + Seconds(call->second.timeout)));
  });
  pending_.emplace(id, std::move(pending));
  Frame frame;
  frame.type = FrameType::kCall;
  frame.id = id;
  frame.timeout_ms = static_cast<uint32_t>(timeout.count());
  frame.text = method;
  frame.body = std::move(request);
  const size_t bytes = WireBytes(frame);
  end_.Send(std::move(frame), bytes);
}

void Channel::Impl::Finish(uint64_t id, Result<std::string> result) {
  const auto call = pending_.find(id);
  if (call == pending_.end()) return;  // its deadline has passed
  const Callback callback = std::move(call->second.callback);
  io_->Cancel(call->second.timer);
  pending_.erase(call);
  callback(std::move(result));
}

void Channel::Impl::EndNow(const Status& why, bool lost) {
  if (ended_) return;
  ended_ = true;
  lost_ = lost;
  {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = why;
  }
  if (!lost) {
    Frame goodbye;
    goodbye.type = FrameType::kGoodbye;
    goodbye.SetStatus(why);
    end_.Send(goodbye, WireBytes(goodbye));
  }
  end_.Close("the peer closed the connection");
  const auto pending = std::move(pending_);
  pending_.clear();
  for (const auto& [id, call] : pending) {
    io_->Cancel(call.timer);
    call.callback(
        why.WithContext("the call of '" + call.method + "' to " + peer_name_ + " failed"));
  }
  // Given up before it was open.
  if (const auto opened = std::move(opened_); opened) {
    opened_ = nullptr;
    return opened(why);
  }
  if (lost && options_.on_lost) options_.on_lost(why);
  const auto watchers = std::move(watchers_);
  watchers_.clear();
  for (const Watcher& watcher : watchers) watcher(why, lost);
}

void Channel::Impl::End(const Status& why, bool lost) {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = why;
  }
  io_->Post([self = shared_from_this(), why, lost] { self->EndNow(why, lost); });
}

void Channel::Impl::EndAndWait(const Status& why) {
  if (io_->OnThread()) return EndNow(why, /*lost=*/false);
  Answer<bool> ended;
  io_->Post([this, why, &ended] {
    EndNow(why, /*lost=*/false);
    ended.Give(true);
  });
  ended.Take();
}

void Channel::Impl::OnEnd(Watcher watcher) {
  io_->Post([self = shared_from_this(), watcher = std::move(watcher)]() mutable {
    if (self->ended_) return watcher(self->status(), self->lost_);
    self->watchers_.push_back(std::move(watcher));
  });
}

Status Channel::Impl::status() const {
  MutexLock lock(mutex_);
  return status_;
}

Channel::Channel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Channel::~Channel() {
  impl_->EndAndWait(Cancelled("the channel to " + peer_name() + " was closed"));
}

void Channel::ConnectAsync(const std::string& target, ChannelOptions options,
                           ConnectCallback callback) {
  auto done = [callback = std::move(callback)](Result<std::shared_ptr<Impl>> result) {
    if (!result.ok()) return callback(result.status());
    callback(std::unique_ptr<Channel>(new Channel(std::move(result).value())));
  };
  const auto attempt = std::make_shared<Attempt>(target, std::move(options), std::move(done));
  attempt->io()->Post([attempt] { attempt->Start(); });
}

Result<std::unique_ptr<Channel>> Channel::Connect(const std::string& target,
                                                  ChannelOptions options) {
  const auto answer = std::make_shared<Answer<Result<std::unique_ptr<Channel>>>>();
  ConnectAsync(target, std::move(options), [answer](Result<std::unique_ptr<Channel>> result) {
    answer->Give(std::move(result));
  });
  return answer->Take();
}

Result<std::string> Channel::Call(const std::string& method, std::string request,
                                  Milliseconds timeout) {
  MG_CHECK(!impl_->io()->OnThread());
  const auto answer = std::make_shared<Answer<Result<std::string>>>();
  impl_->CallAsync(method, std::move(request), timeout,
                   [answer](Result<std::string> result) { answer->Give(std::move(result)); });
  return answer->Take();
}

void Channel::CallAsync(const std::string& method, std::string request, Milliseconds timeout,
                        Callback callback) {
  impl_->CallAsync(method, std::move(request), timeout, std::move(callback));
}

const Hello& Channel::peer() const { return impl_->peer(); }
const std::string& Channel::peer_name() const { return impl_->peer_name(); }
Status Channel::status() const { return impl_->status(); }
void Channel::Fail(const Status& why) { impl_->End(why, /*lost=*/true); }
void Channel::Close() {
  impl_->End(Cancelled("the channel to " + peer_name() + " was closed"), /*lost=*/false);
}

}  // namespace monograph::control
