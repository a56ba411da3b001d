#include "tools/cluster_flags.h"

#include <cstdlib>

namespace monograph {
namespace {

constexpr char kNone[] = "none";

// The environment's MONOGRAPH_CLUSTER; "" if it is not set.
std::string InEnvironment() {
  const char* text = std::getenv("MONOGRAPH_CLUSTER");
  return text == nullptr ? "" : text;
}

Result<ClusterSpec> FromEnvironment() {
  const std::string text = InEnvironment();
  const size_t first = text.find_first_not_of(" \t\n");
  if (first != std::string::npos && text[first] == '{')
    return ClusterSpec::FromJson(text, "MONOGRAPH_CLUSTER");
  Result<ClusterSpec> cluster = ClusterSpec::FromFile(text);
  if (!cluster.ok()) return cluster.status().WithContext("MONOGRAPH_CLUSTER");
  return cluster;
}

}  // namespace

void ClusterFlags::AddNamesTo(Flags* flags) {
  flags->Add("cluster", &cluster,
             "JSON file, or the JSON itself: {\"ps\": [\"host:port\"], \"worker\": [...]}; "
             "default: the environment's MONOGRAPH_CLUSTER, the same. none: no cluster");
  flags->Add("ps_hosts", &ps_hosts, "instead of --cluster: host:port,... of job ps");
  flags->Add("worker_hosts", &worker_hosts, "instead of --cluster: host:port,... of job worker");
  flags->Together({"cluster", "ps_hosts", "worker_hosts"});
}

bool ClusterFlags::given() const {
  return !cluster.empty() || !ps_hosts.empty() || !worker_hosts.empty() || !InEnvironment().empty();
}

Result<std::optional<ClusterSpec>> ClusterFlags::ReadCluster() const {
  const bool hosts = !ps_hosts.empty() || !worker_hosts.empty();
  if (!cluster.empty() && hosts)
    return InvalidArgument("give either --cluster or --ps_hosts and --worker_hosts, not both");
  const bool from_environment = cluster.empty() && !hosts;
  if (!given() || (from_environment ? InEnvironment() : cluster) == kNone)
    return std::optional<ClusterSpec>();
  ClusterSpec spec;
  if (!cluster.empty()) {
    MG_ASSIGN_OR_RETURN(spec, ClusterSpec::FromFlag(cluster));
  } else if (hosts) {
    MG_ASSIGN_OR_RETURN(spec, ClusterSpec::FromHosts({{"ps", ps_hosts}, {"worker", worker_hosts}}));
  } else {
    MG_ASSIGN_OR_RETURN(spec, FromEnvironment());
  }
  return std::optional<ClusterSpec>(std::move(spec));
}

}  // namespace monograph
