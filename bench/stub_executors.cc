// One process, several stubs: each has a control server of its own, and all share one transport. A
// stub answers a client's calls with what a daemon would say. A run-step that arrives is put into a
// list with the time of its end; the driving thread polls the transport, and reports the steps
// whose time has come.
#include "bench/stub_executors.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bench/daemons.h"
#include "client/registries.h"
#include "executor/worker/step_message.h"
#include "executor/worker/worker.pb.h"
#include "transport/control/server.h"
#include "transport/transports.h"

namespace monograph::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::string TaskOf(int stub) { return "/job:worker/replica:0/task:" + std::to_string(stub); }
uint64_t IncarnationOf(int stub) { return static_cast<uint64_t>(stub) + 1; }

class Stubs : public MessageHandler {
 public:
  explicit Stubs(int count);
  ~Stubs() override;

  std::vector<int> ports() const;
  void Serve(Child::Channel& channel);

  // Both run on the thread that drives.
  PayloadSink OnMessage(std::string_view, size_t) override { return {}; }  // no step feeds anything
  void OnDelivered(std::string_view header, Payload) override;

 private:
  struct Client {
    PeerId peer = 0;
    uint32_t self_index = 0;
    uint64_t incarnation = 0;
  };
  struct Running {
    Clock::time_point due;
    StepMessage message;
    long more = -1;  // of a step that no client began: how many follow it
  };

  control::ServerHandlers Handlers(int stub);
  Result<std::string> ConnectSession(int stub, const std::string& request);
  void Drive();
  void End(Running step);
  void Answer(const StepMessage& message);
  double RunFree(long steps);

  const int count_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<control::Server>> servers_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, Client> clients_;  // by session and stub; guarded by mutex_
  std::deque<Running> running_;  // in order of their ends; of the driving thread
  std::atomic<int64_t> step_ns_{1'000'000};
  std::atomic<bool> ended_{false};
  std::atomic<long> free_steps_{0};  // RunFree asks the driving thread for so many
  std::atomic<int> free_stubs_{0};   // that still run them
  std::condition_variable free_done_;
  std::thread driver_;
};

Stubs::Stubs(int count) : count_(count) {
  // Spins longer than any step: a stub is never asleep when a message comes.
  transport_ = Check(
      Check(ChooseTransport({.spin = std::chrono::milliseconds(20)}, {.loopback = true}))(this));
  for (int stub = 0; stub < count; ++stub) {
    control::ServerOptions server;
    server.hello.task_name = TaskOf(stub);
    server.hello.incarnation = IncarnationOf(stub);
    server.hello.fingerprint = std::to_string(DefaultRegistries().ops.fingerprint());
    servers_.push_back(Check(control::Server::Start(std::move(server), Handlers(stub))));
  }
  driver_ = std::thread([this] { Drive(); });
}

Stubs::~Stubs() {
  ended_ = true;
  transport_->Wake();
  driver_.join();
  for (auto& server : servers_) server->Stop();
  transport_->Close();
  transport_->Join();
}

std::vector<int> Stubs::ports() const {
  std::vector<int> ports;
  for (const auto& server : servers_) ports.push_back(server->port());
  return ports;
}

control::ServerHandlers Stubs::Handlers(int stub) {
  using control::CallContext;
  using control::Reply;
  control::ServerHandlers handlers;
  handlers.methods["Status"] = {[stub](const CallContext&, const std::string&, const Reply& reply) {
    wire::StatusResponse response;
    response.set_task(TaskOf(stub));
    response.set_incarnation(IncarnationOf(stub));
    response.add_devices()->set_name(TaskOf(stub) + "/device:CPU:0");
    reply(response.SerializeAsString());
  }};
  handlers.methods["CreateSession"] = {
      [this](const CallContext&, const std::string&, const Reply& reply) {
        wire::CreateSessionResponse response;
        response.set_transport_address(transport_->address());
        reply(response.SerializeAsString());
      }};
  handlers.methods["ConnectSession"] = {
      [this, stub](const CallContext&, const std::string& request, const Reply& reply) {
        reply(ConnectSession(stub, request));
      }};
  handlers.methods["RegisterGraph"] = {
      [](const CallContext&, const std::string&, const Reply& reply) {
        wire::RegisterGraphResponse response;
        response.set_handle(1);
        reply(response.SerializeAsString());
      }};
  for (const char* method : {"DeregisterGraph", "CloseSession", "DropPeer"})
    handlers.methods[method] = {
        [](const CallContext&, const std::string&, const Reply& reply) { reply(std::string()); }};
  return handlers;
}

Result<std::string> Stubs::ConnectSession(int stub, const std::string& bytes) {
  wire::ConnectSessionRequest request;
  if (!request.ParseFromString(bytes)) return InvalidArgument("malformed ConnectSession");
  const wire::Peer& peer = request.peers(request.client_peer());
  MG_ASSIGN_OR_RETURN(const PeerId id, transport_->Connect(peer.transport_address(), peer.task()));
  std::lock_guard lock(mutex_);
  clients_[{request.session(), stub}] = {id, static_cast<uint32_t>(request.self_index()),
                                         peer.incarnation()};
  return wire::ConnectSessionResponse().SerializeAsString();
}

void Stubs::OnDelivered(std::string_view header, Payload) {
  StepMessage message;
  if (!DecodeStepMessage(header, &message).ok() || message.kind != StepMessageKind::kRunStep)
    return;
  running_.push_back({.due = Clock::now() + std::chrono::nanoseconds(step_ns_.load()),
                      .message = std::move(message)});
}

void Stubs::Drive() {
  const auto due = [this] {
    return ended_ || free_steps_ > 0 || (!running_.empty() && Clock::now() >= running_.front().due);
  };
  while (!ended_) {
    transport_->DriveUntil(due, Clock::now() + std::chrono::seconds(1));
    const auto end = Clock::now() + std::chrono::nanoseconds(step_ns_.load());
    if (const long steps = free_steps_.exchange(0); steps > 0) {
      for (int stub = 0; stub < count_; ++stub)
        running_.push_back({.due = end, .message = {}, .more = steps - 1});
    }
    while (!running_.empty() && Clock::now() >= running_.front().due) {
      Running step = std::move(running_.front());
      running_.pop_front();
      End(std::move(step));
    }
  }
}

void Stubs::End(Running step) {
  if (step.more < 0) return Answer(step.message);
  if (step.more > 0) {
    running_.push_back({.due = Clock::now() + std::chrono::nanoseconds(step_ns_.load()),
                        .message = {},
                        .more = step.more - 1});
  } else if (--free_stubs_ == 0) {
    std::lock_guard lock(mutex_);
    free_done_.notify_all();
  }
}

void Stubs::Answer(const StepMessage& message) {
  Client client;
  {
    std::lock_guard lock(mutex_);
    client = clients_[{message.session, static_cast<int>(message.incarnation) - 1}];
  }
  StepMessage done;
  done.kind = StepMessageKind::kStepDone;
  done.id = client.self_index;
  done.session = message.session;
  done.incarnation = client.incarnation;
  done.step = message.step;
  char header[kMaxHeaderBytes];
  transport_->Send(client.peer, std::string_view(header, EncodeStepMessage(done, header)), {}, {});
}

double Stubs::RunFree(long steps) {
  const auto begin = Clock::now();
  free_stubs_ = count_;
  free_steps_ = steps;
  transport_->Wake();
  std::unique_lock lock(mutex_);
  free_done_.wait(lock, [this] { return free_stubs_ == 0; });
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(steps);
}

void Stubs::Serve(Child::Channel& channel) {
  std::string text;
  for (const int port : ports()) text += std::to_string(port) + " ";
  channel.WriteLine(text);
  for (;;) {
    const std::string line = channel.ReadLine();
    if (line.starts_with("time ")) {
      step_ns_ = std::stoll(line.substr(5));
      channel.WriteLine("ok");
    } else {
      channel.WriteLine(std::to_string(RunFree(std::stol(line.substr(5))) * 1e9));
    }
  }
}

}  // namespace

StubExecutors::StubExecutors(int count) {
  child_ = Child::Fork([count](Child::Channel& channel) { Stubs(count).Serve(channel); });
  const std::optional<std::string> ports = child_->Hear();
  if (!ports) Die("the stub executors did not start");
  size_t begin = 0;
  for (int stub = 0; stub < count; ++stub) {
    const size_t end = ports->find(' ', begin);
    Check(cluster_.AddTask("worker", stub, "127.0.0.1:" + ports->substr(begin, end - begin)));
    begin = end + 1;
  }
}

void StubExecutors::SetStepTime(double seconds) {
  (void)child_->Ask("time " + std::to_string(static_cast<long long>(seconds * 1e9)));
}
double StubExecutors::RunFree(long steps) {
  return std::stod(child_->Ask("free " + std::to_string(steps))) / 1e9;
}

}  // namespace monograph::bench
