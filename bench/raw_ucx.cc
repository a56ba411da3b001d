// Two sides. RawUcx is one worker that counts what arrives; who waits polls it, and sleeps after a
// while without messages. RawServers forks one process per server, which reads commands from its
// parent ("echo", "sink", "add", and how many messages), and the parent times the messages that it
// sends to them.
#include "bench/raw_ucx.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/buffer.h"
#include "bench/add_pass.h"

namespace monograph::bench {
namespace {

void Check(bool ok, const char* what) {
  if (!ok) Die(std::string("raw UCX: ") + what + " failed");
}

}  // namespace

char* HugePages(size_t bytes) {
  char* data = static_cast<char*>(HostAllocator()->Allocate(bytes));
  std::memset(data, 3, bytes);
  return data;
}

std::string ToHex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += digits[static_cast<unsigned char>(c) >> 4];
    hex += digits[c & 15];
  }
  return hex;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

RawUcx::RawUcx(const std::string& lanes, char* sink) : sink_(sink) {
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
    ++static_cast<RawUcx*>(self)->small;
    return UCS_OK;
  };
  Check(ucp_worker_set_am_recv_handler(worker_, &handler) == UCS_OK, "setting a handler");
  handler.id = 2;
  handler.cb = OnLarge;
  Check(ucp_worker_set_am_recv_handler(worker_, &handler) == UCS_OK, "setting a handler");
}

std::string RawUcx::address() const {
  ucp_address_t* bytes;
  size_t size;
  Check(ucp_worker_get_address(worker_, &bytes, &size) == UCS_OK, "ucp_worker_get_address");
  std::string address(reinterpret_cast<char*>(bytes), size);
  ucp_worker_release_address(worker_, bytes);
  return address;
}

void RawUcx::Connect(const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  ucp_ep_h endpoint;
  Check(ucp_ep_create(worker_, &params, &endpoint) == UCS_OK, "ucp_ep_create");
  endpoints_.push_back(endpoint);
}

void RawUcx::SendSmall(size_t peer) {
  static char message[64];
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  Wait(ucp_am_send_nbx(endpoints_[peer], 1, nullptr, 0, message, sizeof message, &param));
}

void* RawUcx::SendLarge(size_t peer, const void* data, size_t bytes) {
  ucp_request_param_t param{};
  void* request = ucp_am_send_nbx(endpoints_[peer], 2, nullptr, 0, data, bytes, &param);
  Check(!UCS_PTR_IS_ERR(request), "ucp_am_send_nbx");
  return request;
}

void RawUcx::Wait(void* request) {
  if (request == nullptr) return;
  Check(!UCS_PTR_IS_ERR(request), "ucp_am_send_nbx");
  WaitUntil([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
  ucp_request_free(request);
}

void RawUcx::Pause(bool* idle, std::chrono::steady_clock::time_point* since) {
  sched_yield();
  const auto now = std::chrono::steady_clock::now();
  if (!*idle) {
    *idle = true;
    *since = now;
  } else if (now - *since > kSpin) {
    if (ucp_worker_arm(worker_) == UCS_OK) {
      pollfd fd{event_fd_, POLLIN, 0};
      poll(&fd, 1, 1);
    }
    *idle = false;
  }
}

ucs_status_t RawUcx::OnLarge(void* arg, const void*, size_t, void* data, size_t bytes,
                             const ucp_am_recv_param_t* param) {
  RawUcx* self = static_cast<RawUcx*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    std::memcpy(self->sink_, data, bytes);
    ++self->large;
    return UCS_OK;
  }
  ucp_request_param_t options{};
  options.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  options.user_data = self;
  options.cb.recv_am = [](void* request, ucs_status_t, size_t, void* raw) {
    ++static_cast<RawUcx*>(raw)->large;
    ucp_request_free(request);
  };
  void* request = ucp_am_recv_data_nbx(self->worker_, data, self->sink_, bytes, &options);
  if (request != nullptr) return UCS_INPROGRESS;
  ++self->large;
  return UCS_OK;
}

RawServers::RawServers(int count, size_t largest, const std::string& lanes)
    : largest_(largest), lanes_(lanes) {
  for (int k = 0; k < count; ++k) {
    children_.push_back(Child::Fork([&](Child::Channel& parent) {
      char* const sink = largest > 0 ? HugePages(largest) : nullptr;
      char *own = nullptr, *sum = nullptr;
      RawUcx raw(lanes, sink);
      parent.WriteLine(ToHex(raw.address()));
      raw.Connect(FromHex(parent.ReadLine()));
      parent.WriteLine("connected");
      while (true) {
        std::istringstream command(parent.ReadLine());
        std::string what;
        long count_of_it = 0;
        command >> what >> count_of_it;
        const long arrived = raw.large + count_of_it;
        if (what == "add" && own == nullptr) own = HugePages(largest), sum = HugePages(largest);
        parent.WriteLine("ready");
        if (what == "add") {
          size_t bytes = 0;
          command >> bytes;
          for (long at = arrived - count_of_it + 1; at <= arrived; ++at) {
            raw.WaitUntil([&] { return raw.large >= at; });
            AddPass(reinterpret_cast<const float*>(own), reinterpret_cast<const float*>(sink),
                    reinterpret_cast<float*>(sum), bytes / sizeof(float));
            raw.SendSmall(0);
          }
        } else if (what == "echo") {
          for (long i = 0; i < count_of_it; ++i) {
            const long want = raw.small + 1;
            raw.WaitUntil([&] { return raw.small >= want; });
            raw.SendSmall(0);
          }
        } else {
          raw.WaitUntil([&] { return raw.large >= arrived; });
          raw.SendSmall(0);
        }
      }
    }));
  }
}

void RawServers::Connect() {
  // Only now: a fork splits the huge pages of the parent.
  if (largest_ > 0) source_ = HugePages(largest_);
  raw_ = std::make_unique<RawUcx>(lanes_, source_);
  for (const auto& child : children_) {
    const std::optional<std::string> address = child->Hear();
    Check(address.has_value(), "starting a process");
    raw_->Connect(FromHex(*address));
    child->Ask(ToHex(raw_->address()));
  }
}

double RawServers::NullStep(int fan_out, long steps) {
  for (int k = 0; k < fan_out; ++k)
    children_[static_cast<size_t>(k)]->Ask("echo " + std::to_string(steps));
  const double start = Now();
  for (long i = 0; i < steps; ++i) {
    const long want = raw_->small + fan_out;
    for (int k = 0; k < fan_out; ++k) raw_->SendSmall(static_cast<size_t>(k));
    raw_->WaitUntil([&] { return raw_->small >= want; });
  }
  return (Now() - start) / static_cast<double>(steps);
}

double RawServers::Transfer(size_t bytes, int window, long count) {
  children_[0]->Ask("sink " + std::to_string(count));
  const long want = raw_->small + 1;
  std::vector<void*> requests;
  const double start = Now();
  for (long i = 0; i < count; ++i) {
    requests.push_back(raw_->SendLarge(0, source_, bytes));
    if (i + 1 >= window) raw_->Wait(requests[static_cast<size_t>(i + 1 - window)]);
  }
  for (long i = std::max(0L, count - window + 1); i < count; ++i)
    raw_->Wait(requests[static_cast<size_t>(i)]);
  raw_->WaitUntil([&] { return raw_->small >= want; });
  return static_cast<double>(bytes) * static_cast<double>(count) / (Now() - start);
}

double RawServers::TransferAndAdd(size_t bytes, long count) {
  children_[0]->Ask("add " + std::to_string(count) + " " + std::to_string(bytes));
  const double start = Now();
  for (long i = 0; i < count; ++i) {
    const long want = raw_->small + 1;
    raw_->Wait(raw_->SendLarge(0, source_, bytes));
    raw_->WaitUntil([&] { return raw_->small >= want; });
  }
  return (Now() - start) / static_cast<double>(count);
}

}  // namespace monograph::bench
