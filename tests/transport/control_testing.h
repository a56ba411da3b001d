// What the tests of the control plane share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/channel.h"
#include "transport/control/server.h"

namespace monograph::control {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A value that one thread waits for and others change.
template <typename T>
class Watched {
 public:
  void Set(T value) {
    Change([&](T& held) { held = std::move(value); });
  }
  template <typename F>
  void Change(F change) {
    // Notifies under the lock: whoever waits may destroy this as soon as it has the lock.
    std::lock_guard lock(mutex_);
    change(value_);
    changed_.notify_all();
  }
  template <typename P>
  bool WaitFor(P wanted, std::chrono::milliseconds limit = 10s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return wanted(value_); });
  }
  T Get() {
    std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

// A key of its own for each number; not of equal bytes, which are refused.
inline Key KeyOf(uint8_t number) {
  Key key;
  for (size_t i = 0; i < Key::kBytes; ++i) key.bytes[i] = static_cast<uint8_t>(number + 7 * i * i);
  return key;
}

inline bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// A server with a few methods, whose callbacks are recorded.
struct TestServer {
  explicit TestServer(ServerOptions options = {},
                      std::function<Status(const Hello&)> accept = nullptr) {
    if (options.hello.task_name.empty()) options.hello.task_name = "/job:worker/replica:0/task:1";
    ServerHandlers handlers;
    handlers.accept = std::move(accept);
    handlers.methods["Echo"] = {
        [](const CallContext&, std::string request, Reply reply) { reply(std::move(request)); }};
    handlers.methods["EchoInline"] = {
        [](const CallContext&, std::string request, Reply reply) { reply(std::move(request)); },
        Method::Run::kInline};
    handlers.methods["Fail"] = {[](const CallContext& context, std::string, Reply reply) {
      reply(NotFound("no such thing, " + context.connection->hello.task_name).AsDerived());
    }};
    handlers.methods["FailForALostTask"] = {[](const CallContext&, std::string, Reply reply) {
      reply(TaskLost("/job:ps/replica:0/task:0", "it is gone"));
    }};
    handlers.methods["Forget"] = {[](const CallContext&, std::string, Reply) {}};
    handlers.methods["Later"] = {[this](const CallContext&, std::string, Reply reply) {
      later.Change([&](std::vector<Reply>& replies) { replies.push_back(std::move(reply)); });
    }};
    handlers.methods["Block"] = {[this](const CallContext&, std::string, Reply reply) {
      unblock.WaitFor([](bool open) { return open; });
      reply(std::string());
    }};
    handlers.on_connect = [this](const ConnectionInfo& info) {
      connected.Change([&](auto& names) { names.push_back(info.name()); });
    };
    handlers.on_disconnect = [this](const ConnectionInfo&, const Status& why) {
      disconnected.Change([&](auto& statuses) { statuses.push_back(why); });
    };
    handlers.on_refused = [this](const std::string&, const Status& why) {
      refused.Change([&](auto& statuses) { statuses.push_back(why); });
    };
    auto started = Server::Start(std::move(options), std::move(handlers));
    EXPECT_TRUE(started.ok()) << started.status();
    server = std::move(started).value();
  }
  ~TestServer() {
    unblock.Set(true);
    server.reset();
  }
  Status WaitForRefusal() {
    EXPECT_TRUE(refused.WaitFor([](const auto& statuses) { return !statuses.empty(); }));
    const auto statuses = refused.Get();
    return statuses.empty() ? Status() : statuses.front();
  }
  Status WaitForDisconnect(std::chrono::milliseconds limit = 10s) {
    EXPECT_TRUE(
        disconnected.WaitFor([](const auto& statuses) { return !statuses.empty(); }, limit));
    const auto statuses = disconnected.Get();
    return statuses.empty() ? Status() : statuses.front();
  }

  // Waits for the `count`-th of `ends` (`disconnected`, `refused`): a peer that broke the protocol.
  static void ExpectBrokenProtocol(Watched<std::vector<Status>>& ends, size_t count) {
    ASSERT_TRUE(ends.WaitFor([&](const auto& statuses) { return statuses.size() == count; }))
        << count;
    const Status last = ends.Get().back();
    EXPECT_TRUE(Contains(last, "broke the protocol")) << last;
  }

  Watched<std::vector<Reply>> later;
  Watched<bool> unblock;
  Watched<std::vector<std::string>> connected;
  Watched<std::vector<Status>> disconnected, refused;
  std::unique_ptr<Server> server;
};

inline ChannelOptions ClientOptions(std::optional<Key> key = std::nullopt) {
  ChannelOptions options;
  options.key = key;
  options.hello.task_name = "/job:client/replica:0/task:0";
  options.timeout = 5s;
  return options;
}

// Suites that run both with plain connections and with TLS.
class WithAndWithoutKey : public ::testing::TestWithParam<bool> {
 protected:
  std::optional<Key> key() const {
    return GetParam() ? std::optional<Key>(KeyOf(7)) : std::nullopt;
  }
  ServerOptions server_options() const {
    ServerOptions options;
    options.key = key();
    return options;
  }
  ChannelOptions client_options() const { return ClientOptions(key()); }
};

inline std::unique_ptr<Channel> MustConnect(const TestServer& server,
                                            ChannelOptions options = ClientOptions()) {
  auto channel = Channel::Connect(server.server->address(), std::move(options));
  EXPECT_TRUE(channel.ok()) << channel.status();
  return channel.ok() ? std::move(channel).value() : nullptr;
}

}  // namespace monograph::control
