#include "client/target.h"

#include <memory>
#include <utility>

#include "client/registries.h"
#include "executor/worker/worker.pb.h"
#include "transport/control/channel.h"

namespace monograph {
namespace {

constexpr char kScheme[] = "grpc://";
constexpr std::chrono::seconds kStatusTimeout(10);

}  // namespace

std::string TargetOf(const std::string& address) { return kScheme + address; }

Result<std::optional<ClusterSpec>> ClusterOfTarget(const std::string& target,
                                                   const std::optional<control::KeyRing>& key,
                                                   std::chrono::milliseconds timeout) {
  if (target.empty()) return std::optional<ClusterSpec>();
  if (!target.starts_with(kScheme)) {
    return InvalidArgument("the target '" + target +
                           "' is neither \"\", this process, nor \"grpc://host:port\"");
  }
  control::ChannelOptions options;
  options.key = key;
  options.hello.task_name = "/job:client/replica:0/task:0";
  options.hello.fingerprint = std::to_string(DefaultRegistries().ops.fingerprint());
  options.timeout = timeout;
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<control::Channel> channel,
      control::Channel::Connect(target.substr(sizeof kScheme - 1), std::move(options)));
  MG_ASSIGN_OR_RETURN(const std::string answer, channel->Call("Status", "", kStatusTimeout));
  wire::StatusResponse response;
  if (!response.ParseFromString(answer))
    return Internal(channel->peer_name() + ": malformed answer to Status");
  if (response.cluster().empty()) {
    return FailedPrecondition(channel->peer_name() +
                              " does not know its cluster; give the cluster instead of a target");
  }
  MG_ASSIGN_OR_RETURN(
      ClusterSpec cluster,
      ClusterSpec::FromJson(response.cluster(), "the cluster of " + channel->peer_name()));
  return std::optional<ClusterSpec>(std::move(cluster));
}

}  // namespace monograph
