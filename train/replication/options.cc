#include "train/replication/options.h"

#include <span>
#include <utility>

namespace monograph {
namespace {

constexpr std::pair<Replication, std::string_view> kReplications[] = {
    {Replication::kInGraph, "in_graph"},
    {Replication::kBetweenGraph, "between_graph"},
    {Replication::kHybrid, "hybrid"}};
constexpr std::pair<VariableUpdate, std::string_view> kUpdates[] = {
    {VariableUpdate::kParameterServer, "parameter_server"},
    {VariableUpdate::kReplicated, "replicated"},
    {VariableUpdate::kCentral, "central"}};

template <typename T>
Result<T> ParseWord(std::span<const std::pair<T, std::string_view>> words, std::string_view word,
                    const std::string& what) {
  std::string known;
  for (const auto& [value, name] : words) {
    if (name == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return InvalidArgument("unknown " + what + " '" + std::string(word) + "'; known are " + known);
}

template <typename T>
std::string_view NameOf(std::span<const std::pair<T, std::string_view>> words, T value) {
  for (const auto& [known, name] : words) {
    if (known == value) return name;
  }
  return "?";
}

}  // namespace

Result<Replication> ParseReplication(std::string_view word) {
  return ParseWord<Replication>(kReplications, word, "replication");
}
Result<VariableUpdate> ParseVariableUpdate(std::string_view word) {
  return ParseWord<VariableUpdate>(kUpdates, word, "variable_update");
}
std::string_view ReplicationName(Replication replication) {
  return NameOf<Replication>(kReplications, replication);
}
std::string_view VariableUpdateName(VariableUpdate update) {
  return NameOf<VariableUpdate>(kUpdates, update);
}

namespace replication {
namespace {

Status CheckInGraph(const ReplicateOptions& options, const std::vector<std::string>& devices) {
  if (options.num_workers != 1 || options.rank != 0) {
    return InvalidArgument("in_graph replication has one client: rank 0 of 1");
  }
  if (options.async && Mirrored(options)) {
    return InvalidArgument(
        "async needs variables that the replicas share: variable_update parameter_server or "
        "central, not replicated");
  }
  if (!options.shares.empty() && options.shares.size() != devices.size()) {
    return InvalidArgument(std::to_string(options.shares.size()) + " shares for " +
                           std::to_string(devices.size()) + " replicas");
  }
  if (!options.shares.empty() && options.async) {
    return InvalidArgument(
        "shares cut the batch of replicas that keep in step; with async each "
        "replica has a batch of its own");
  }
  return Status();
}

Status CheckBetween(const ReplicateOptions& options, const std::vector<std::string>& devices) {
  const std::string mode(ReplicationName(options.replication));
  if (options.num_workers < 1 || options.rank < 0 || options.rank >= options.num_workers) {
    return InvalidArgument("there is no worker " + std::to_string(options.rank) + " of " +
                           std::to_string(options.num_workers));
  }
  if (options.variable_update == VariableUpdate::kCentral) {
    return InvalidArgument(mode +
                           " replication shares variables by parameter_server, or has them "
                           "replicated; central is a way of in_graph");
  }
  if (!options.shares.empty()) {
    return InvalidArgument("shares are for in_graph replication, where one client cuts the batch");
  }
  if (options.replication == Replication::kHybrid) {
    if (!options.async || Mirrored(options)) {
      return InvalidArgument(
          "hybrid replication keeps in step inside a worker and is async between workers, with "
          "variables on parameter servers");
    }
  } else if (devices.size() != 1) {
    return InvalidArgument("between_graph replication has one replica per client, not " +
                           std::to_string(devices.size()) + "; hybrid has several");
  }
  if (!Mirrored(options) && options.variable_devices.empty()) {
    return InvalidArgument(mode +
                           " replication with parameter servers needs variable_devices that "
                           "all clients share: without them each worker would have its own "
                           "variables");
  }
  if (options.async && Mirrored(options)) {
    return InvalidArgument("replicated variables keep in step; async needs parameter_server");
  }
  return Status();
}

}  // namespace

Status CheckOptions(const ReplicateOptions& options, const std::vector<std::string>& devices) {
  if (devices.empty()) return InvalidArgument("no devices to replicate over");
  MG_RETURN_IF_ERROR(InGraph(options) ? CheckInGraph(options, devices)
                                      : CheckBetween(options, devices));
  if (options.gradient_dtype != DT_INVALID && options.gradient_dtype != DT_BFLOAT16) {
    return InvalidArgument("gradient_dtype is " + std::string(DTypeName(options.gradient_dtype)) +
                           "; gradients travel as bfloat16 or, by default, as they are");
  }
  const bool aggregates =
      options.replication == Replication::kBetweenGraph && !options.async && !Mirrored(options);
  if (options.replicas_to_aggregate != 0 && !aggregates) {
    return InvalidArgument(
        "replicas_to_aggregate is for between_graph replication with parameter servers, in step");
  }
  if (options.replicas_to_aggregate < 0 || options.replicas_to_aggregate > options.num_workers) {
    return InvalidArgument("replicas_to_aggregate is " +
                           std::to_string(options.replicas_to_aggregate) + ", but there are " +
                           std::to_string(options.num_workers) + " workers");
  }
  return Status();
}

}  // namespace replication
}  // namespace monograph
