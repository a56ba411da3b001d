// Starts UCX with the lanes that were asked for, and tells which it uses. UCX has no function that
// names lanes, so both CheckLanes and DescribeEndpoint read the text that UCX prints, and skip
// lines that look different. An unknown lane is refused here, with the list of those that exist.
// What the environment sets (UCX_...) goes before our settings.
#include "transport/ucx/ucx_context.h"

#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "transport/ucx/ucx_status.h"

namespace monograph {
namespace {

// Names that stand for several lanes: for each one whose name begins so.
constexpr std::string_view kFamilies[] = {"rc", "ud", "dc", "cuda", "rocm", "ugni", "ze"};
constexpr std::string_view kSharedMemory[] = {"posix", "sysv", "cma", "knem", "xpmem"};

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

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Status Set(ucp_config_t* config, const char* name, const std::string& value) {
  if (getenv((std::string("UCX_") + name).c_str()) != nullptr) return Status();
  return FromUcx(ucp_config_modify(config, name, value.c_str()),
                 "setting UCX's " + std::string(name) + " to '" + value + "'");
}

std::string OnDevices(const std::string& net_devices) {
  return net_devices.empty() ? "" : " on network devices '" + net_devices + "'";
}

Result<ucp_context_h> Init(const std::string& lanes, const std::string& net_devices) {
  ucp_config_t* config = nullptr;
  MG_RETURN_IF_ERROR(
      FromUcx(ucp_config_read(nullptr, nullptr, &config), "reading UCX's configuration"));
  std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> release(config, ucp_config_release);
  MG_RETURN_IF_ERROR(Set(config, "TLS", lanes));
  if (!net_devices.empty()) MG_RETURN_IF_ERROR(Set(config, "NET_DEVICES", net_devices));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  MG_RETURN_IF_ERROR(
      FromUcx(status, "starting UCX with lanes '" + lanes + "'" + OnDevices(net_devices)));
  return context;
}

// The lanes of this machine, from lines such as
//   resource 3  :  md 3  dev 2  flags -- posix/memory
Result<std::set<std::string>> LanesHere(const std::string& net_devices) {
  MG_ASSIGN_OR_RETURN(ucp_context_h context, Init("all", net_devices));
  const std::string text = Printed([&](FILE* stream) { ucp_context_print_info(context, stream); });
  ucp_cleanup(context);
  std::set<std::string> lanes;
  for (const std::string& line : Split(text, '\n')) {
    const size_t flags = line.find(" flags ");
    const size_t slash = line.rfind('/');
    if (line.find("resource") == std::string::npos || flags == std::string::npos ||
        slash == std::string::npos)
      continue;
    const size_t space = line.rfind(' ', slash);
    lanes.insert(line.substr(space + 1, slash - space - 1));
  }
  return lanes;
}

Status CheckLanes(const std::string& wanted, const std::string& net_devices) {
  MG_ASSIGN_OR_RETURN(const std::set<std::string> here, LanesHere(net_devices));
  std::string known;
  for (const std::string& lane : here) known += (known.empty() ? "" : ", ") + lane;
  std::string list = wanted;
  if (list.starts_with('^')) list.erase(0, 1);
  for (const std::string& lane : Split(list, ',')) {
    if (lane == "all" || here.contains(lane)) continue;
    const auto begins = [&](const std::string& name) { return name.starts_with(lane); };
    const auto shared = [](const std::string& name) { return IsSharedMemory(name); };
    const bool family =
        std::find(std::begin(kFamilies), std::end(kFamilies), lane) != std::end(kFamilies);
    if (family && std::any_of(here.begin(), here.end(), begins)) continue;
    if ((lane == "shm" || lane == "sm") && std::any_of(here.begin(), here.end(), shared)) continue;
    return InvalidArgument("the data plane's lanes are '" + wanted +
                           "', but this machine has no lane '" + lane + "'" +
                           OnDevices(net_devices) + "; it has " + known);
  }
  return Status();
}

}  // namespace

void ReleaseUcxSignals() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (getenv("UCX_DEBUG_SIGNO") == nullptr) ucs_debug_disable_signal(SIGHUP);
    if (getenv("UCX_HANDLE_ERRORS") != nullptr) return;
    for (const int signal_number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE})
      ucs_debug_disable_signal(signal_number);
  });
}

Result<UcxContext> MakeUcxContext(const TransportOptions& options) {
  ReleaseUcxSignals();
  std::string lanes = options.lanes;
  if (const char* environment = getenv("UCX_TLS"); environment != nullptr) {
    if (!lanes.empty() && lanes != environment) {
      LogWarning("UCX_TLS=" + std::string(environment) +
                 " in the environment overrides the lanes '" + lanes + "'");
    }
    lanes = environment;
  } else if (!lanes.empty()) {
    MG_RETURN_IF_ERROR(CheckLanes(lanes, options.net_devices));
  }
  // A connection to this very transport does not pass through UCX: see UcxTransport::Connect.
  UcxContext context;
  MG_ASSIGN_OR_RETURN(context.handle, Init(lanes.empty() ? "^self" : lanes, options.net_devices));
  context.shared_memory = lanes != "tcp";
  return context;
}

void SilenceUcx(bool silent) {
  static Mutex mutex;
  static int silencers MG_GUARDED_BY(mutex) = 0;
  if (getenv("UCX_LOG_LEVEL") != nullptr) return;
  MutexLock lock(mutex);
  silencers += silent ? 1 : -1;
  (void)ucs_global_opts_set_value_modifiable("LOG_LEVEL", silencers > 0 ? "fatal" : "warn");
}

std::string DescribeEndpoint(ucp_ep_h endpoint) {
  const std::string text = Printed([&](FILE* stream) { ucp_ep_print_info(endpoint, stream); });
  // Lines such as
  // "#   lane[1]:  4:cma/memory.0 md[4]   -> md[4]/cma/sysdev[255] rma_bw#0"
  std::vector<std::string> shared, others;
  bool loopback_tcp = false;
  for (const std::string& line : Split(text, '\n')) {
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
