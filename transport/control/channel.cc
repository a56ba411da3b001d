// An Attempt is one Connect: it resolves the address, connects, shakes hands, and tries again after
// growing pauses until the time is up, unless the error is one that waiting cannot mend.
// Channel::Impl is the connection that results: calls wait in a table by id, each with a timer of
// its own, until the reply, the deadline or the end of the connection removes them. All of this
// runs on the one io thread, so that only the status needs a lock; public functions post to that
// thread, and blocking ones wait for it.
#include "transport/control/channel.h"

#include "base/mutex.h"
#include "transport/asio_token.h"
#include "transport/control/connection.h"
// Keep connection.h before other Asio headers.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <future>

#include "base/duration.h"
#include "base/log.h"
#include "base/random.h"
#include "transport/control/asio_status.h"
#include "transport/control/channel_impl.h"
#include "transport/control/client_io.h"
#include "transport/control/host_port.h"
#include "transport/control/tls.h"

namespace monograph::control {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kFirstPause{10}, kLongestPause{250}, kLongestReportPause{10000};
// Limit for one attempt: to a machine that drops packets it would otherwise last minutes.
constexpr Milliseconds kAttemptTime{5000};

// One Connect: tries until it succeeds, fails for good, or its time is up.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::string target, ChannelOptions options,
          std::function<void(Result<std::shared_ptr<Channel::Impl>>)> done)
      : target_(std::move(target)),
        options_(std::move(options)),
        done_(std::move(done)),
        io_(ClientIo::Get()),
        name_(options_.expected_task.empty() ? target_ : options_.expected_task + " at " + target_),
        started_(Clock::now()),
        deadline_(started_ + options_.timeout),
        limit_(io_.context()),
        pause_(io_.context()),
        report_(io_.context()) {}

  ClientIo& io() { return io_; }

  // On the io thread.
  void Start() {
    limit_.expires_at(deadline_);
    limit_.async_wait([self = shared_from_this()](const ErrorCode& error) {
      if (error) return;
      Status why = self->last_error_;
      if (why.ok()) why = Unavailable("no answer");
      self->Finish(Unavailable(self->name_ + " did not come up within " +
                               Seconds(self->options_.timeout) + " (" + why.message() +
                               "); is a daemon running there?"));
    });
    ReportLater(std::max(options_.report_after, Milliseconds(1)));
    asio::co_spawn(io_.context(), Run(shared_from_this()), asio::detached);
  }

 private:
  void Finish(Result<std::shared_ptr<Channel::Impl>> result) {
    if (finished_) return;
    finished_ = true;
    limit_.cancel();
    pause_.cancel();
    report_.cancel();
    if (current_ != nullptr && !result.ok()) current_->Close(result.status());
    if (connecting_ != nullptr) {
      ErrorCode ignored;
      connecting_->close(ignored);
    }
    auto done = std::move(done_);
    done(std::move(result));
  }

  void ReportLater(Milliseconds after) {
    report_.expires_after(after);
    report_.async_wait([self = shared_from_this(), after](const ErrorCode& error) {
      if (error || self->finished_) return;
      std::string why = self->last_error_.ok() ? "no answer yet" : self->last_error_.message();
      const std::string line = "waiting for " + self->name_ + " (" + why + "), " +
                               Seconds(std::chrono::duration_cast<std::chrono::seconds>(
                                   self->deadline_ - Clock::now())) +
                               " left";
      if (self->options_.on_waiting) {
        self->options_.on_waiting(line);
      } else {
        LogInfo(line);
      }
      self->ReportLater(std::min(2 * after, kLongestReportPause));
    });
  }

  static bool MayComeUp(const Status& status) {
    return status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded;
  }

  asio::awaitable<void> Run([[maybe_unused]] std::shared_ptr<Attempt> self) {
    Result<HostPort> address = ParseHostPort(target_);
    if (!address.ok()) co_return Finish(address.status().WithContext(name_));
    if (options_.key) {
      auto tls = TlsContext::Make(*options_.key->Current(), /*server=*/false);
      if (!tls.ok()) co_return Finish(tls.status().WithContext(name_));
      tls_ = std::move(tls).value();
    }
    Milliseconds pause = kFirstPause;
    while (!finished_) {
      const Status status = co_await TryOnce(address.value());
      if (finished_ || status.ok()) co_return;
      if (!MayComeUp(status)) co_return Finish(status.WithContext(name_));
      last_error_ = status;
      pause_.expires_after(pause);
      const auto [error] = co_await pause_.async_wait(kToken);
      (void)error;
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  asio::awaitable<Status> TryOnce(const HostPort& address) {
    ErrorCode error;
    std::vector<tcp::endpoint> endpoints;
    const asio::ip::address numeric = asio::ip::make_address(address.host, error);
    if (!error) {
      endpoints.emplace_back(numeric, address.port);
    } else {
      tcp::resolver resolver(io_.context());
      const std::string port = std::to_string(address.port);
      const auto [resolve_error, found] =
          co_await resolver.async_resolve(address.host, port, kToken);
      if (resolve_error)
        co_return FromAsio(resolve_error, "cannot resolve the host '" + address.host + "'");
      for (const auto& entry : found) endpoints.push_back(entry.endpoint());
    }
    Status status = NotFound("the host '" + address.host + "' has no address");
    for (const tcp::endpoint& endpoint : endpoints) {
      if (finished_) break;
      status = co_await TryEndpoint(endpoint);
      if (status.ok() || !MayComeUp(status)) break;
    }
    co_return status;
  }

  asio::awaitable<Status> TryEndpoint(const tcp::endpoint& endpoint) {
    const Milliseconds left =
        std::chrono::duration_cast<Milliseconds>(deadline_ - Clock::now()) + Milliseconds(1);
    // The timer's handler may come when this attempt is over: both can be due at once.
    const auto socket = std::make_shared<tcp::socket>(io_.context());
    asio::steady_timer timer(io_.context(), std::min(left, kAttemptTime));
    timer.async_wait([socket](const ErrorCode& cancelled) {
      ErrorCode ignored;
      if (!cancelled) socket->close(ignored);
    });
    connecting_ = socket.get();
    const auto [error] = co_await socket->async_connect(endpoint, kToken);
    connecting_ = nullptr;
    const bool in_time = timer.cancel() > 0;
    if (error == asio::error::operation_aborted || !in_time)
      co_return Unavailable("no answer from " + EndpointName(endpoint));
    if (error) {
      const Status why = FromAsio(error, "cannot connect to " + EndpointName(endpoint));
      // Also what a route or a firewall answers here: EACCES, EPERM, EINVAL.
      if (why.code() == Code::kResourceExhausted) co_return why;
      co_return Unavailable(why.message());
    }
    ErrorCode ignored;
    if (socket->local_endpoint(ignored) == socket->remote_endpoint(ignored)) {
      // TCP has connected the socket to itself: the system had given it the very port that it
      // calls, which was free.
      socket->set_option(asio::socket_base::linger(true, 0), ignored);
      co_return Unavailable("cannot connect to " + EndpointName(endpoint) + ": connection refused");
    }
    PrepareSocket(*socket);
    auto connection = std::make_shared<Connection>(std::move(*socket), Connection::Side::kClient,
                                                   tls_, options_.max_body_bytes);
    current_ = connection;
    Hello hello = options_.hello;
    hello.purpose = Hello::Purpose::kCalls;
    hello.token = RandomNonZero();
    options_.hello.token = hello.token;
    Status status =
        co_await connection->Handshake(std::move(hello), nullptr, std::min(left, kAttemptTime));
    if (finished_) {
      connection->Close(Cancelled("connecting was given up"));
      co_return status;
    }
    if (status.code() == Code::kInvalidArgument) {
      status = FailedPrecondition("what listens there is no Monograph daemon: " + status.message());
    }
    const std::string& task = connection->peer_hello().task_name;
    if (status.ok() && !options_.expected_task.empty() && task != options_.expected_task) {
      status = FailedPrecondition("the daemon there is " +
                                  (task.empty() ? "no task of a cluster" : task) +
                                  "; correct the cluster description");
    }
    if (!status.ok()) {
      connection->Close(status);
      co_return status;
    }
    auto impl = std::make_shared<Channel::Impl>(io_, std::move(connection), options_);
    impl->Start();
    Finish(std::move(impl));
    co_return Status();
  }

  const std::string target_;
  ChannelOptions options_;
  std::function<void(Result<std::shared_ptr<Channel::Impl>>)> done_;
  ClientIo& io_;
  const std::string name_;
  const Clock::time_point started_, deadline_;
  asio::steady_timer limit_, pause_, report_;
  std::shared_ptr<TlsContext> tls_;
  std::shared_ptr<Connection> current_;
  tcp::socket* connecting_ = nullptr;
  Status last_error_;
  bool finished_ = false;
};

std::string NameOf(const Connection& connection) {
  const std::string& task = connection.peer_hello().task_name;
  return task.empty() ? connection.peer_address() : task + " at " + connection.peer_address();
}

}  // namespace

Channel::Impl::Impl(ClientIo& io, std::shared_ptr<Connection> connection, ChannelOptions options)
    : io_(io),
      connection_(std::move(connection)),
      options_(std::move(options)),
      peer_name_(NameOf(*connection_)) {}

void Channel::Impl::Start() {
  asio::co_spawn(io_.context(), ReadLoop(shared_from_this()), asio::detached);
}

asio::awaitable<void> Channel::Impl::ReadLoop([[maybe_unused]] std::shared_ptr<Impl> self) {
  Status why;
  while (why.ok()) {
    Frame frame;
    why = co_await connection_->Read(&frame);
    if (!why.ok()) break;
    if (frame.type == FrameType::kReply) {
      const Status status = frame.status();
      if (status.ok()) {
        Finish(frame.id, std::move(frame.body));
      } else {
        Finish(frame.id, status);
      }
    } else if (frame.type == FrameType::kGoodbye) {
      why = Unavailable("it closed the connection: " + frame.text);
    } else {
      why = InvalidArgument("it sent an unexpected frame");
    }
  }
  connection_->Close(why);
  if (!ended_) EndNow(LostStatus(why.message()), /*lost=*/true);
}

void Channel::Impl::CallAsync(const std::string& method, std::string request, Milliseconds timeout,
                              Callback callback) {
  asio::post(io_.context(), [self = shared_from_this(), method, request = std::move(request),
                             timeout, callback = std::move(callback)]() mutable {
    self->SendCall(self->next_id_++, method, std::move(request), timeout, std::move(callback));
  });
}

void Channel::Impl::SendCall(uint64_t id, const std::string& method, std::string request,
                             Milliseconds timeout, Callback callback) {
  if (ended_) return callback(status());
  if (request.size() > options_.max_body_bytes || method.size() > 1024) {
    return callback(ResourceExhausted("the request of '" + method.substr(0, 64) + "' to " +
                                      peer_name_ + " has " + std::to_string(request.size()) +
                                      " bytes, at most " + std::to_string(options_.max_body_bytes) +
                                      " are allowed"));
  }
  timeout = std::clamp(timeout, Milliseconds(0), Milliseconds(UINT32_MAX));
  Pending pending;
  pending.method = method;
  pending.timeout = timeout;
  pending.callback = std::move(callback);
  pending.timer = std::make_unique<asio::steady_timer>(io_.context(), timeout);
  pending.timer->async_wait([weak = weak_from_this(), id](const ErrorCode& error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;
    const auto it = self->pending_.find(id);
    if (it == self->pending_.end()) return;
    self->Finish(id,
                 DeadlineExceeded("the call of '" + it->second.method + "' to " + self->peer_name_ +
                                  " got no answer within " + Seconds(it->second.timeout)));
  });
  pending_.emplace(id, std::move(pending));
  Frame frame;
  frame.type = FrameType::kCall;
  frame.id = id;
  frame.timeout_ms = static_cast<uint32_t>(timeout.count());
  frame.text = method;
  frame.body = std::move(request);
  connection_->Send(std::move(frame));
}

void Channel::Impl::Finish(uint64_t id, Result<std::string> result) {
  const auto it = pending_.find(id);
  if (it == pending_.end()) return;  // its deadline has passed
  Callback callback = std::move(it->second.callback);
  pending_.erase(it);
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
  if (lost) {
    connection_->Close(why);
  } else {
    connection_->CloseGracefully(why);
  }
  auto pending = std::move(pending_);
  pending_.clear();
  for (auto& [id, call] : pending) {
    call.callback(
        why.WithContext("the call of '" + call.method + "' to " + peer_name_ + " failed"));
  }
  if (lost && options_.on_lost) options_.on_lost(why);
  auto watchers = std::move(watchers_);
  watchers_.clear();
  for (Watcher& watcher : watchers) watcher(why, lost);
}

void Channel::Impl::End(const Status& why, bool lost) {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return;
    status_ = why;
  }
  asio::post(io_.context(), [self = shared_from_this(), why, lost] { self->EndNow(why, lost); });
}

void Channel::Impl::EndAndWait(const Status& why) {
  if (OnIoThread()) return EndNow(why, /*lost=*/false);
  std::promise<void> done;
  asio::post(io_.context(), [this, why, &done] {
    EndNow(why, /*lost=*/false);
    done.set_value();
  });
  done.get_future().wait();
}

void Channel::Impl::OnEnd(Watcher watcher) {
  asio::post(io_.context(), [self = shared_from_this(), watcher = std::move(watcher)]() mutable {
    if (self->ended_) return watcher(self->status(), self->lost_);
    self->watchers_.push_back(std::move(watcher));
  });
}

bool Channel::Impl::OnIoThread() const { return io_.OnThread(); }

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
  auto attempt = std::make_shared<Attempt>(target, std::move(options), std::move(done));
  asio::post(attempt->io().context(), [attempt] { attempt->Start(); });
}

Result<std::unique_ptr<Channel>> Channel::Connect(const std::string& target,
                                                  ChannelOptions options) {
  MG_CHECK(!ClientIo::Get().OnThread());
  auto promise = std::make_shared<std::promise<Result<std::unique_ptr<Channel>>>>();
  auto future = promise->get_future();
  ConnectAsync(target, std::move(options), [promise](Result<std::unique_ptr<Channel>> result) {
    promise->set_value(std::move(result));
  });
  return future.get();
}

Result<std::string> Channel::Call(const std::string& method, std::string request,
                                  Milliseconds timeout) {
  MG_CHECK(!impl_->OnIoThread());
  auto promise = std::make_shared<std::promise<Result<std::string>>>();
  auto future = promise->get_future();
  impl_->CallAsync(method, std::move(request), timeout, [promise](Result<std::string> result) {
    promise->set_value(std::move(result));
  });
  return future.get();
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
