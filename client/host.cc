#include "client/host.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "executor/gpu/plugin.h"
#include "ops/rewrites/rewrites.h"
#include "transport/control/host_port.h"

namespace monograph {
namespace {

// A daemon has descriptors for its sessions, and those of peers that have not shown a key yet.
// Programs that close every number up to the limit take long where that is very high.
constexpr rlim_t kMostDescriptors = rlim_t{1} << 20;

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMostDescriptors);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // best effort: it goes on with fewer
}

}  // namespace

Result<std::unique_ptr<Server>> HostTask(const ClusterSpec& cluster, const std::string& job,
                                         int task, const HostOptions& options) {
  MG_ASSIGN_OR_RETURN(const std::string own, cluster.Address(job, task));
  MG_ASSIGN_OR_RETURN(const control::HostPort address, control::ParseHostPort(own));
  RaiseDescriptorLimit();
  ServerOptions server;
  server.host = options.bind.empty() ? address.host : options.bind;
  server.port = address.port;
  server.key = options.key;
  server.cluster = cluster.ToJson();
  Registries& registries = DefaultRegistries();
  server.worker.task = {.job = job, .replica = 0, .task = task};
  server.worker.ops = &registries.ops;
  server.worker.kernels = &registries.kernels;
  server.worker.cpu_devices = options.cpu_devices;
  server.worker.gpu = options.gpu;
  server.worker.inter_op_parallelism_threads = options.inter_op_parallelism_threads;
  server.worker.intra_op_parallelism_threads = options.intra_op_parallelism_threads;
  server.worker.rewrite = RewriteForExecution;
  bool gpus = false;
  if (options.gpu.device_count != 0) {  // or nothing of CUDA is opened
    MG_ASSIGN_OR_RETURN(const std::vector<GpuInfo> found, ListGpus());
    gpus = !found.empty();
  }
  MG_ASSIGN_OR_RETURN(
      server.worker.make_transport,
      ChooseTransport(options.transport, {.loopback = control::IsLoopback(server.host),
                                          .gpus = gpus,
                                          .key = options.key,
                                          .bind_address = server.host,
                                          .advertised_host = address.host}));
  return Server::Start(std::move(server));
}

EndSignals::EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  // nohup has SIGHUP ignored; a blocked signal would come all the same.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC));
}

std::string EndSignals::Wait(bool or_stdin_end) {
  pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {or_stdin_end ? STDIN_FILENO : -1, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) <= 0) continue;
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      if (read(fds[0].fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        return info.ssi_signo == SIGTERM  ? "SIGTERM"
               : info.ssi_signo == SIGINT ? "Ctrl-C"
                                          : "the terminal was closed (SIGHUP)";
      }
    }
    char ignored[256];
    if (fds[1].revents != 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0)
      return "end of standard input";
  }
}

}  // namespace monograph
