// A daemon: a Worker, the methods by which clients reach it, and the control plane that brings
// their calls. Stop goes from outside to inside: no new sessions or steps, running steps end, the
// control plane stops, then the worker goes.
#include "executor/worker/server.h"

#include <thread>
#include <utility>

#include "base/duration.h"
#include "base/log.h"
#include "executor/worker/methods.h"
#include "transport/control/server.h"

namespace monograph {

class Server::Impl {
 public:
  ~Impl() { Stop(std::chrono::seconds(0)); }

  Status Start(ServerOptions options);
  void Stop(std::chrono::milliseconds drain);

  std::unique_ptr<Worker> worker_;
  std::unique_ptr<ControlMethods> methods_;
  std::unique_ptr<control::Server> control_;
  std::string address_;
};

Status Server::Impl::Start(ServerOptions options) {
  const OpRegistry* const ops = options.worker.ops;
  MG_ASSIGN_OR_RETURN(worker_, Worker::Create(std::move(options.worker)));
  methods_ = std::make_unique<ControlMethods>(worker_.get(), ops, std::move(options.cluster));
  control::ServerHandlers handlers;
  handlers.methods = methods_->Map();
  handlers.on_disconnect = [this](const control::ConnectionInfo& connection, const Status& why) {
    methods_->ClientGone(connection, why);
  };

  control::ServerOptions control_options;
  control_options.bind_address = options.host;
  control_options.port = static_cast<uint16_t>(options.port);
  control_options.key = options.key;
  control_options.hello.task_name = worker_->task();
  control_options.hello.incarnation = worker_->incarnation();
  control_options.hello.fingerprint = std::to_string(ops->fingerprint());
  control_options.progress = [this] { return worker_->stats().steps_done; };
  MG_ASSIGN_OR_RETURN(control_,
                      control::Server::Start(std::move(control_options), std::move(handlers)));
  address_ = control_->address();
  return Status();
}

void Server::Impl::Stop(std::chrono::milliseconds drain) {
  if (methods_ == nullptr || (!methods_->Drain() && control_ == nullptr)) return;
  const auto deadline = std::chrono::steady_clock::now() + drain;
  if (worker_ != nullptr) worker_->Drain();
  const auto busy = [this] {
    const WorkerStats stats = worker_->stats();
    return stats.running_steps > 0 || stats.messages_leaving > 0;
  };
  while (worker_ != nullptr && busy() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // shutdown only; bounded by `drain`
  }
  if (worker_ != nullptr) {
    for (const std::string& steps : worker_->RunningSteps()) {
      LogWarning(worker_->task() + " ends steps that did not end within " + Seconds(drain) +
                 " of draining: " + steps);
    }
  }
  if (control_ != nullptr) control_->Stop();
  control_ = nullptr;
  methods_->Join();
  worker_ = nullptr;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto impl = std::make_unique<Impl>();
  MG_RETURN_IF_ERROR(impl->Start(std::move(options)));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->address_; }
int Server::port() const { return impl_->control_ ? impl_->control_->port() : 0; }
Worker& Server::worker() { return *impl_->worker_; }
void Server::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }

}  // namespace monograph
