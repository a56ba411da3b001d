// Starts UCX with the lanes that ChooseUcxLanes found, and tells which of them an endpoint uses.
// UCX has no function for that, so DescribeEndpoint reads the text that UCX prints, and skips lines
// that look different. All else that the environment sets (UCX_...) holds.
#include "transport/ucx/ucx_context.h"

#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "transport/ucx/ucx_status.h"

namespace monograph {
namespace {

constexpr std::string_view kSharedMemory[] = {"posix", "sysv", "cma", "knem", "xpmem"};

// Of 8 KiB each, in the shared memory of a transport; there are more where that is too few. UCX's
// own 512 would cost each session 4 MiB and 2 ms.
constexpr char kReceiveBuffers[] = "128";

// Bytes that UCX copies at a time where it sends by TCP. Its own 8 KiB cost half of the speed.
constexpr char kTcpCopies[] = "64k";

bool IsSharedMemory(std::string_view lane) {
  return std::find(std::begin(kSharedMemory), std::end(kSharedMemory), lane) !=
         std::end(kSharedMemory);
}

std::string Printed(const std::function<void(FILE*)>& print) {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  print(stream);
  fclose(stream);
  std::string result(text, size);
  free(text);
  return result;
}

}  // namespace

std::vector<std::string> SplitNames(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string PrintedContext(ucp_context_h context) {
  return Printed([&](FILE* stream) { ucp_context_print_info(context, stream); });
}

Result<ucp_context_h> InitUcx(const std::string& lanes, const std::string& net_devices,
                              bool shared_memory) {
  ReleaseUcxSignals();
  ucp_config_t* config = nullptr;
  MG_RETURN_IF_ERROR(
      FromUcx(ucp_config_read(nullptr, nullptr, &config), "reading UCX's configuration"));
  std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> release(config, ucp_config_release);
  const std::string devices = net_devices.empty() ? "all" : net_devices;
  std::vector<std::pair<std::string, std::string>> settings = {{"TLS", lanes},
                                                               {"NET_DEVICES", devices}};
  const auto unless_set = [&](const std::string& name, const char* value) {
    if (getenv(("UCX_" + name).c_str()) == nullptr) settings.emplace_back(name, value);
  };
  if (shared_memory) unless_set("MM_RX_BUFS_GROW", kReceiveBuffers);
  const std::vector<std::string> names = SplitNames(lanes, ',');
  if (std::find(names.begin(), names.end(), "tcp") != names.end()) {
    // By TCP UCX sends copies. Where it sends from the tensor itself and the connection breaks off
    // meanwhile, UCX 1.13 completes that send twice, which ends the process.
    unless_set("ZCOPY_THRESH", "inf");
    // UCX 1.13 knows this name without its prefix alone, 1.22 with it alone.
    if (getenv("UCX_TCP_TX_SEG_SIZE") == nullptr &&
        ucp_config_modify(config, "TX_SEG_SIZE", kTcpCopies) != UCS_OK)
      unless_set("TCP_TX_SEG_SIZE", kTcpCopies);
  }
  for (const auto& [name, value] : settings) {
    MG_RETURN_IF_ERROR(FromUcx(ucp_config_modify(config, name.c_str(), value.c_str()),
                               "setting UCX's " + name + " to '" + value + "'"));
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // each transport has a worker of its own, on a thread of its own
  ucp_context_h context = nullptr;
  MG_RETURN_IF_ERROR(
      FromUcx(ucp_init(&params, config, &context),
              "starting UCX with lanes '" + lanes + "' on network devices '" + devices + "'"));
  return context;
}

void ReleaseUcxSignals() {
  static std::once_flag once;
  std::call_once(once, [] {
    SilenceUcx(true);  // newer ones set no handlers, and warn of each
    if (getenv("UCX_DEBUG_SIGNO") == nullptr) ucs_debug_disable_signal(SIGHUP);
    if (getenv("UCX_HANDLE_ERRORS") == nullptr) {
      for (const int signal_number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE})
        ucs_debug_disable_signal(signal_number);
    }
    SilenceUcx(false);
  });
}

Result<UcxContext> SharedUcxContext(const TransportOptions& options) {
  static Mutex mutex;
  static auto* const contexts MG_GUARDED_BY(mutex) =
      new std::map<std::vector<std::string>, UcxContext>;
  std::vector<std::string> key = {options.lanes, options.net_devices};
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    const char* const value = getenv(name);
    key.push_back(value == nullptr ? "" : value);
  }
  const bool staged = options.gpu_transfers == GpuTransfers::kStaged;
  key.push_back(staged ? "staged" : "");
  key.insert(key.end(), options.trusted_network.begin(), options.trusted_network.end());
  MutexLock lock(mutex);
  if (const auto known = contexts->find(key); known != contexts->end()) return known->second;
  UcxContext context;
  MG_ASSIGN_OR_RETURN(context.lanes, ChooseUcxLanes(options));
  // UCX warns of network devices that none of its lanes uses.
  const bool network = context.lanes.tcp || context.lanes.rdma;
  MG_ASSIGN_OR_RETURN(context.handle,
                      InitUcx(context.lanes.names, network ? context.lanes.net_devices : "",
                              context.lanes.shared_memory));
  ucp_context_attr_t attr{};
  attr.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  MG_RETURN_IF_ERROR(
      FromUcx(ucp_context_query(context.handle, &attr), "asking UCX which memory it knows"));
  context.lanes.gpu_memory = !staged && (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  return contexts->emplace(std::move(key), std::move(context)).first->second;
}

void SilenceUcx(bool silent) {
  static Mutex mutex;
  static int silencers MG_GUARDED_BY(mutex) = 0;
  if (getenv("UCX_LOG_LEVEL") != nullptr) return;
  MutexLock lock(mutex);
  silencers += silent ? 1 : -1;
  (void)ucs_global_opts_set_value("LOG_LEVEL", silencers > 0 ? "fatal" : "warn");
}

std::string DescribeEndpoint(ucp_ep_h endpoint) {
  const std::string text = Printed([&](FILE* stream) { ucp_ep_print_info(endpoint, stream); });
  // Lines such as
  // "#   lane[1]:  4:cma/memory.0 md[4]   -> md[4]/cma/sysdev[255] rma_bw#0"
  std::vector<std::string> shared, others;
  bool loopback_tcp = false;
  for (const std::string& line : SplitNames(text, '\n')) {
    const size_t lane = line.find("lane[");
    const size_t colon =
        lane == std::string::npos ? lane : line.find(':', line.find("]:", lane) + 2);
    const size_t slash = colon == std::string::npos ? colon : line.find('/', colon);
    if (slash == std::string::npos) continue;
    const std::string name = line.substr(colon + 1, slash - colon - 1);
    std::string device = line.substr(slash + 1, line.find(' ', slash) - slash - 1);
    device.erase(std::min(device.rfind('.'), device.size()));
    loopback_tcp |= name == "tcp" && device == "lo";
    auto& group = IsSharedMemory(name) ? shared : others;
    const std::string entry = IsSharedMemory(name) ? name : name + "(" + device + ")";
    if (std::find(group.begin(), group.end(), entry) == group.end()) group.push_back(entry);
  }
  std::string result;
  for (const std::string& name : shared) result += (result.empty() ? "shm(" : ",") + name;
  if (!shared.empty()) result += ")";
  for (const std::string& name : others) result += (result.empty() ? "" : " + ") + name;
  if (result.empty()) return "no lane yet";
  ucp_ep_evaluate_perf_param_t param{};
  param.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
  param.message_size = 64 << 20;
  ucp_ep_evaluate_perf_attr_t attr{};
  attr.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
  // UCX knows no speed for the loopback device, and guesses 100 Mbit/s.
  double speed = loopback_tcp && shared.empty() ? 1.2 : 0;
  if (speed == 0 && ucp_ep_evaluate_perf(endpoint, &param, &attr) == UCS_OK &&
      attr.estimated_time > 0) {
    speed = static_cast<double>(param.message_size) / attr.estimated_time / 1e9;
  }
  if (speed > 0) {
    char number[32];
    snprintf(number, sizeof number, speed < 10 ? " ~%.1f GB/s" : " ~%.0f GB/s", speed);
    result += number;
  }
  return result;
}

}  // namespace monograph
