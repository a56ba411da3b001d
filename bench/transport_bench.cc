// The UCX transport against bare UCX, in one interleaved run: the same processes, buffers and idle
// policy; only ratios count.
//
//   transport_bench [rounds=15] [lanes, default what UCX chooses]
//
// Round trip: a 64 B message to each of K processes and a 64 B answer from each; all must answer
// before the next step. Transfer: a payload from huge-page memory into huge-page memory of another
// process, `window` of them at a time.

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "transport/transport.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLargest = 64 << 20;
constexpr auto kSpin = std::chrono::microseconds(50);

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

void Check(bool ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "transport_bench: %s failed\n", what);
  _exit(1);
}

void WriteAll(int fd, const void* data, size_t bytes) {
  Check(write(fd, data, bytes) == static_cast<ssize_t>(bytes), "write to a pipe");
}
void ReadAll(int fd, void* data, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = read(fd, static_cast<char*>(data) + got, bytes - got);
    if (n <= 0) _exit(0);
    got += static_cast<size_t>(n);
  }
}
void WriteString(int fd, const std::string& text) {
  const size_t size = text.size();
  WriteAll(fd, &size, sizeof size);
  WriteAll(fd, text.data(), size);
}
std::string ReadString(int fd) {
  size_t size;
  ReadAll(fd, &size, sizeof size);
  std::string text(size, 0);
  ReadAll(fd, text.data(), size);
  return text;
}

// Bare UCX: a worker, active messages, spin and sleep.
class Raw {
 public:
  Raw(const std::string& lanes, char* sink) : sink_(sink) {
    ucp_config_t* config;
    Check(ucp_config_read(nullptr, nullptr, &config) == UCS_OK, "ucp_config_read");
    ucp_config_modify(config, "TLS", lanes.empty() ? "^self" : lanes.c_str());
    ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    ucp_context_h context;
    Check(ucp_init(&params, config, &context) == UCS_OK, "ucp_init");
    ucp_config_release(config);
    ucp_worker_params_t worker_params{};
    Check(ucp_worker_create(context, &worker_params, &worker_) == UCS_OK, "ucp_worker_create");
    Check(ucp_worker_get_efd(worker_, &event_fd_) == UCS_OK, "ucp_worker_get_efd");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.arg = this;
    handler.id = 1;
    handler.cb = [](void* self, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
      ++static_cast<Raw*>(self)->small;
      return UCS_OK;
    };
    Check(ucp_worker_set_am_recv_handler(worker_, &handler) == UCS_OK, "setting a handler");
    handler.id = 2;
    handler.cb = OnLarge;
    Check(ucp_worker_set_am_recv_handler(worker_, &handler) == UCS_OK, "setting a handler");
  }
  std::string address() const {
    ucp_address_t* bytes;
    size_t size;
    Check(ucp_worker_get_address(worker_, &bytes, &size) == UCS_OK, "ucp_worker_get_address");
    return std::string(reinterpret_cast<char*>(bytes), size);
  }
  void Connect(const std::string& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h endpoint;
    Check(ucp_ep_create(worker_, &params, &endpoint) == UCS_OK, "ucp_ep_create");
    endpoints_.push_back(endpoint);
  }
  size_t peers() const { return endpoints_.size(); }

  void SendSmall(size_t peer) {
    static char message[64];
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    Wait(ucp_am_send_nbx(endpoints_[peer], 1, nullptr, 0, message, sizeof message, &param));
  }
  void* SendLarge(const void* data, size_t bytes) {
    ucp_request_param_t param{};
    void* request = ucp_am_send_nbx(endpoints_[0], 2, nullptr, 0, data, bytes, &param);
    Check(!UCS_PTR_IS_ERR(request), "ucp_am_send_nbx");
    return request;
  }
  void Wait(void* request) {
    if (request == nullptr) return;
    Check(!UCS_PTR_IS_ERR(request), "ucp_am_send_nbx");
    WaitUntil([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
    ucp_request_free(request);
  }
  template <typename Ready>
  void WaitUntil(Ready ready) {
    int polls = 0;
    bool idle = false;
    Clock::time_point since;
    while (!ready()) {
      if (ucp_worker_progress(worker_) != 0) {
        idle = false;
        polls = 0;
        continue;
      }
      if (++polls <= 50) continue;
      polls = 0;
      sched_yield();
      const auto now = Clock::now();
      if (!idle) {
        idle = true;
        since = now;
      } else if (now - since > kSpin) {
        if (ucp_worker_arm(worker_) == UCS_OK) {
          pollfd fd{event_fd_, POLLIN, 0};
          poll(&fd, 1, 1);
        }
        idle = false;
      }
    }
  }

  long small = 0, large = 0;

 private:
  static ucs_status_t OnLarge(void* arg, const void*, size_t, void* data, size_t bytes,
                              const ucp_am_recv_param_t* param) {
    Raw* self = static_cast<Raw*>(arg);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      memcpy(self->sink_, data, bytes);
      ++self->large;
      return UCS_OK;
    }
    ucp_request_param_t options{};
    options.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    options.user_data = self;
    options.cb.recv_am = [](void* request, ucs_status_t, size_t, void* raw) {
      ++static_cast<Raw*>(raw)->large;
      ucp_request_free(request);
    };
    void* request = ucp_am_recv_data_nbx(self->worker_, data, self->sink_, bytes, &options);
    if (request != nullptr) return UCS_INPROGRESS;
    ++self->large;
    return UCS_OK;
  }

  char* const sink_;
  ucp_worker_h worker_;
  int event_fd_;
  std::vector<ucp_ep_h> endpoints_;
};

class Ours : public MessageHandler {
 public:
  Ours(const std::string& lanes, char* sink) : sink_(sink) {
    UcxOptions options;
    options.lanes = lanes;
    options.spin = kSpin;
    auto made = MakeUcxTransport(options, this);
    if (!made.ok()) fprintf(stderr, "%s\n", made.status().ToString().c_str());
    Check(made.ok(), "MakeUcxTransport");
    transport = std::move(made).value();
  }
  PayloadSink OnMessage(std::string_view, size_t) override {
    return {sink_,
            [this](const Status& status) {
              Check(status.ok(), "a transfer");
              if (++large == answer_at) transport->Send(0, message, {}, nullptr);
            },
            {}};
  }
  void OnDelivered(std::string_view, Payload) override {
    ++small;
    if (echo) transport->Send(0, message, {}, nullptr);
  }

  const std::string message = std::string(64, 'm');
  bool echo = false;
  std::atomic<long> answer_at{0};
  std::atomic<long> small{0}, large{0};
  std::unique_ptr<Transport> transport;

 private:
  char* const sink_;
};

struct Command {
  enum Kind { kRawEcho, kRawSink, kOurEcho, kOurSink, kQuit } kind;
  long count;
};

char* HugePages() {
  char* data = static_cast<char*>(HostAllocator()->Allocate(kLargest));
  memset(data, 3, kLargest);
  return data;
}

// A server process: does what the commands on `in` say, and tells on `out` when it is ready.
[[noreturn]] void Serve(const std::string& lanes, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  char* sink = HugePages();
  Raw raw(lanes, sink);
  Ours ours(lanes, sink);
  WriteString(out, raw.address());
  WriteString(out, ours.transport->address());
  raw.Connect(ReadString(in));
  Check(ours.transport->Connect(ReadString(in), "client").ok(), "Connect");
  const auto connected = [&](char c) { WriteAll(out, &c, 1); };
  connected('c');
  while (true) {
    Command command;
    ReadAll(in, &command, sizeof command);
    switch (command.kind) {
      case Command::kRawEcho: {
        connected('r');
        for (long i = 0; i < command.count; ++i) {
          const long want = raw.small + 1;
          raw.WaitUntil([&] { return raw.small >= want; });
          raw.SendSmall(0);
        }
        break;
      }
      case Command::kRawSink: {
        const long want = raw.large + command.count;
        connected('r');
        raw.WaitUntil([&] { return raw.large >= want; });
        raw.SendSmall(0);
        break;
      }
      case Command::kOurEcho:
        ours.echo = true;
        connected('r');
        break;
      case Command::kOurSink:
        ours.answer_at = ours.large + command.count;
        connected('r');
        break;
      case Command::kQuit:
        _exit(0);
    }
  }
}

struct Server {
  pid_t pid;
  int in, out;  // the client's ends
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Two transports of one process; the other one answers on its progress thread.
class Counting : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view, size_t) override { return {}; }
  void OnDelivered(std::string_view header, Payload) override {
    count.store(count.load(std::memory_order_relaxed) + 1);
    if (answer_through != nullptr) answer_through->Send(0, header, {}, nullptr);
  }
  std::atomic<long> count{0};
  Transport* answer_through = nullptr;
};

void InprocRoundTrip(int rounds) {
  Counting asker, answerer;
  auto a = MakeInprocTransport(&asker);
  auto b = MakeInprocTransport(&answerer);
  Check(a->Connect(b->address(), "b").ok() && b->Connect(a->address(), "a").ok(), "Connect");
  answerer.answer_through = b.get();
  const std::string message(64, 'm');
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    constexpr long kSteps = 4000;
    const auto start = Clock::now();
    for (long i = 0; i < kSteps; ++i) {
      const long want = asker.count + 1;
      a->Send(0, message, {}, nullptr);
      Check(a->DriveUntil([&] { return asker.count >= want; }, start + std::chrono::seconds(60)),
            "waiting for an answer");
    }
    times.push_back(Seconds(Clock::now() - start) / kSteps * 1e6);
  }
  printf("round trip within one process: median %.2f us, best %.2f us\n", Median(times),
         *std::min_element(times.begin(), times.end()));
  for (const auto& transport : {a.get(), b.get()}) {
    transport->Close();
    transport->Join();
  }
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, atoi(argv[1])) : 15;
  const std::string lanes = argc > 2 ? argv[2] : "";
  constexpr int kServers = 2;
  std::vector<Server> servers;
  for (int k = 0; k < kServers; ++k) {
    int to[2], from[2];
    Check(pipe(to) == 0 && pipe(from) == 0, "pipe");
    const pid_t pid = fork();  // before anything of UCX has started
    if (pid == 0) Serve(lanes, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    servers.push_back({pid, from[0], to[1]});
  }
  char* source = HugePages();
  Raw raw(lanes, source);
  Ours ours(lanes, source);
  std::vector<PeerId> peers;
  for (const Server& server : servers) {
    raw.Connect(ReadString(server.in));
    auto peer = ours.transport->Connect(ReadString(server.in), "server");
    Check(peer.ok(), "Connect");
    peers.push_back(*peer);
    WriteString(server.out, raw.address());
    WriteString(server.out, ours.transport->address());
    char c;
    ReadAll(server.in, &c, 1);
  }
  const auto tell = [&](int k, Command command) {
    WriteAll(servers[k].out, &command, sizeof command);
    char c;
    ReadAll(servers[k].in, &c, 1);
  };
  const auto far = [] { return Clock::now() + std::chrono::seconds(60); };
  const auto raw_steps = [&](int fan_out, long steps) {
    for (int k = 0; k < fan_out; ++k) tell(k, {Command::kRawEcho, steps});
    const auto start = Clock::now();
    for (long i = 0; i < steps; ++i) {
      const long want = raw.small + fan_out;
      for (int k = 0; k < fan_out; ++k) raw.SendSmall(k);
      raw.WaitUntil([&] { return raw.small >= want; });
    }
    return Seconds(Clock::now() - start) / static_cast<double>(steps);
  };
  const auto our_steps = [&](int fan_out, long steps) {
    for (int k = 0; k < fan_out; ++k) tell(k, {Command::kOurEcho, steps});
    const auto deadline = far();
    const auto start = Clock::now();
    for (long i = 0; i < steps; ++i) {
      const long want = ours.small.load(std::memory_order_relaxed) + fan_out;
      for (int k = 0; k < fan_out; ++k) ours.transport->Send(peers[k], ours.message, {}, nullptr);
      Check(ours.transport->DriveUntil(
                [&] { return ours.small.load(std::memory_order_relaxed) >= want; }, deadline),
            "waiting for answers");
    }
    return Seconds(Clock::now() - start) / static_cast<double>(steps);
  };
  const auto raw_transfer = [&](size_t bytes, int window, long count) {
    tell(0, {Command::kRawSink, count});
    const long want = raw.small + 1;
    std::vector<void*> requests;
    const auto start = Clock::now();
    for (long i = 0; i < count; ++i) {
      requests.push_back(raw.SendLarge(source, bytes));
      if (i + 1 >= window) raw.Wait(requests[i + 1 - window]);
    }
    for (long i = std::max(0L, count - window + 1); i < count; ++i) raw.Wait(requests[i]);
    raw.WaitUntil([&] { return raw.small >= want; });
    return static_cast<double>(bytes) * static_cast<double>(count) / Seconds(Clock::now() - start) /
           1e9;
  };
  Buffer buffer = Buffer::Wrap(source, kLargest, nullptr);
  const auto our_transfer = [&](size_t bytes, int window, long count) {
    tell(0, {Command::kOurSink, count});
    const long want = ours.small + 1;
    std::atomic<long> sent{0};
    const auto deadline = far();
    const auto start = Clock::now();
    for (long i = 0; i < count; ++i) {
      ours.transport->Send(peers[0], ours.message, {buffer, 0, bytes},
                           [&](const Status&) { ++sent; });
      ours.transport->DriveUntil([&] { return sent >= i + 2 - window; }, deadline);
    }
    Check(ours.transport->DriveUntil([&] { return sent >= count && ours.small >= want; }, deadline),
          "waiting for answers");
    return static_cast<double>(bytes) * static_cast<double>(count) / Seconds(Clock::now() - start) /
           1e9;
  };

  printf("lanes: %s\n", ours.transport->Describe(peers[0]).c_str());
  for (const int fan_out : {1, 2}) {
    raw_steps(fan_out, 500);
    our_steps(fan_out, 500);
    std::vector<double> bare, own, ratios;
    for (int round = 0; round < rounds; ++round) {
      bare.push_back(raw_steps(fan_out, 4000) * 1e6);
      own.push_back(our_steps(fan_out, 4000) * 1e6);
      ratios.push_back(own.back() / bare.back());
    }
    printf(
        "round trip K=%d: raw %.2f us, transport %.2f us; ratio of medians %.2f, of minima %.2f, "
        "median ratio %.2f\n",
        fan_out, Median(bare), Median(own), Median(own) / Median(bare),
        *std::min_element(own.begin(), own.end()) / *std::min_element(bare.begin(), bare.end()),
        Median(ratios));
    fflush(stdout);
  }
  for (const size_t bytes : {size_t{64} << 10, size_t{4} << 20, kLargest}) {
    for (const int window : {1, 2}) {
      const long count = std::clamp<long>(static_cast<long>((256 << 20) / bytes), 4, 500);
      raw_transfer(bytes, window, 2);
      our_transfer(bytes, window, 2);
      std::vector<double> bare, own, ratios;
      for (int round = 0; round < rounds; ++round) {
        bare.push_back(raw_transfer(bytes, window, count));
        own.push_back(our_transfer(bytes, window, count));
        ratios.push_back(own.back() / bare.back());
      }
      printf(
          "transfer %5zu KiB, window %d: raw %.1f GB/s, transport %.1f GB/s; ratio of medians "
          "%.2f, of maxima %.2f, median "
          "ratio %.2f\n",
          bytes >> 10, window, Median(bare), Median(own), Median(own) / Median(bare),
          *std::max_element(own.begin(), own.end()) / *std::max_element(bare.begin(), bare.end()),
          Median(ratios));
      fflush(stdout);
    }
  }
  ours.transport->Close();
  ours.transport->Join();
  InprocRoundTrip(rounds);
  for (const Server& server : servers) {
    const Command quit{Command::kQuit, 0};
    WriteAll(server.out, &quit, sizeof quit);
    waitpid(server.pid, nullptr, 0);
  }
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
