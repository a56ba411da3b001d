// What placement says when it cannot place a node: that no device has a kernel for it, that two
// requested devices contradict each other, or that the devices it may be on do not exist. Each text
// names the node, what it requested, what there is, and the nodes it is colocated with. These texts
// stand apart from the algorithm (graph/place.cc), which only hands over what it knows.
#include "graph/place/errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "graph/names.h"

namespace monograph::place {
namespace {

constexpr size_t kMaxListedDevices = 8;
constexpr size_t kMaxListedNumbers = 16;
constexpr size_t kMaxListedMembers = 100;

std::string CannotAssign(const Graph& graph, NodeId node) {
  return "Cannot assign a device for operation " + std::string(graph.name(node)) + ": ";
}

// " with T=float, Tidx=int32".
std::string AttrText(const Graph& graph, NodeId node) {
  std::string text;
  for (const auto& [name, value] : graph.attrs(node).values()) {
    if (!std::holds_alternative<DType>(value)) continue;
    text += (text.empty() ? " with " : ", ") + name + "=" +
            std::string(DTypeName(std::get<DType>(value)));
  }
  return text;
}

std::string DevicesText(const DeviceSet& devices) {
  std::vector<std::string> names;
  for (const DeviceSet::Device& device : devices.devices()) names.push_back(device.text);
  std::sort(names.begin(), names.end());
  std::string text = "[ ";
  for (size_t i = 0; i < names.size() && i < kMaxListedDevices; ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMaxListedDevices)
    text += ", ... " + std::to_string(names.size() - kMaxListedDevices) + " more";
  return text + " ]";
}

}  // namespace

std::string TypesText(const DeviceSet& devices, TypeMask types) {
  std::string text;
  for (size_t i = 0; i < devices.types().size(); ++i) {
    if ((types >> i & 1u) != 0) text += (text.empty() ? "" : ", ") + devices.types()[i].ToString();
  }
  return text.empty() ? "none" : text;
}

std::string MissingText(const DeviceSet& devices, const DeviceName& constraint) {
  DeviceName prefix;  // the parts of the constraint up to the one that is looked at
  const auto missing = [&] {
    return std::ranges::none_of(devices.devices(), [&](const DeviceSet::Device& device) {
      return prefix.Matches(device.name);
    });
  };
  // What the devices that `with` matches have at the part that `get` reads.
  const auto values = [&](const DeviceName& with, const auto& get) {
    std::set<decltype(get(with))> all;
    for (const DeviceSet::Device& device : devices.devices()) {
      if (with.Matches(device.name)) all.insert(get(device.name));
    }
    std::string text;
    size_t count = 0;
    for (const auto& value : all) {
      if constexpr (std::is_same_v<decltype(get(with)), int>) {
        if (++count > kMaxListedNumbers)
          return text + ", ... up to " + std::to_string(*all.rbegin());
        text += (text.empty() ? "" : ", ") + std::to_string(value);
      } else {
        text += (text.empty() ? "" : ", ") + value;
      }
    }
    return text;
  };
  // Says that what `before` names has no `what`. `before` has the parts of the constraint that do
  // exist, `owner` is what kind of thing they name, and `get` reads what exists instead.
  DeviceName before;
  const auto lacks = [&](const std::string& owner, const std::string& what, const auto& get) {
    const std::string there = values(before, get);
    const DeviceName where = TaskPart(before);
    if (where.empty()) return "no " + owner + " has a " + what + "; there are: " + there;
    const bool job = where.replica < 0 && where.task < 0;
    return (job ? "job '" + where.job : "'" + where.ToString()) + "' has no " + what +
           "; it has: " + there;
  };
  prefix.job = constraint.job;
  if (missing()) {
    return "there is no job '" + constraint.job +
           "'; there are: " + values(before, [](const DeviceName& d) { return d.job; });
  }
  before = prefix;
  prefix.replica = constraint.replica;
  if (missing()) {
    return lacks("job", "replica " + std::to_string(constraint.replica),
                 [](const DeviceName& d) { return d.replica; });
  }
  before = prefix;
  prefix.task = constraint.task;
  if (missing()) {
    return lacks("job", "task " + std::to_string(constraint.task),
                 [](const DeviceName& d) { return d.task; });
  }
  before = prefix;
  prefix.type = constraint.type;
  if (missing()) {
    return lacks("task", "device of type " + constraint.type.ToString(),
                 [](const DeviceName& d) { return d.type.ToString(); });
  }
  before = prefix;
  prefix.id = constraint.id;
  if (missing()) {
    const std::string type = constraint.type.empty() ? "" : constraint.type.ToString() + ":";
    return lacks("task", "device " + type + std::to_string(constraint.id), [](const DeviceName& d) {
      return d.type.ToString() + ":" + std::to_string(d.id);
    });
  }
  return "no device has all of it";
}

Status NoKernelError(const Graph& graph, NodeId node, const DeviceSet& devices) {
  return InvalidArgument(
      fmt::format("{}No OpKernel was registered to support Op '{}' used by node '{}'{} on the "
                  "device types of this cluster ({})",
                  CannotAssign(graph, node), graph.op(node).name(), graph.name(node),
                  AttrText(graph, node), TypesText(devices, devices.all_types())));
}

// The members of the group and what binds each to it; "" for a node by itself.
std::string Refusal::GroupText() const {
  if (members.size() == 1) return std::string();
  std::string text =
      "\nThe colocation group has " + std::to_string(members.size()) + " operations:";
  for (size_t i = 0; i < members.size(); ++i) {
    if (i == kMaxListedMembers) {
      return text + "\n  ... and " + std::to_string(members.size() - kMaxListedMembers) + " more";
    }
    const NodeId node = members[i].node;
    const DeviceName& requested = graph.device(node);
    text +=
        "\n  " + graph.NodeText(node) +
        (requested.empty() ? " asks for no device" : " asks for " + Quoted(requested.ToString()));
    for (const std::string& name : graph.attrs(node).GetOr<std::vector<std::string>>("_class", {}))
      text += ", colocated by " + Quoted(name);
    for (const Endpoint& input : graph.inputs(node)) {
      if (graph.dtype(input) == DT_RESOURCE)
        text += ", uses the resource of " + Quoted(graph.name(input.node));
    }
    if (members[i].types != devices.all_types())
      text += ", has kernels for " + TypesText(devices, members[i].types);
  }
  return text;
}

Status Refusal::Conflict(NodeId a, NodeId b, const std::array<DeviceName, 2>& constraints,
                         const std::array<TypeMask, 2>& types) const {
  std::string text = CannotAssign(graph, b) + "Cannot colocate nodes " + graph.NodeText(a) +
                     " and " + graph.NodeText(b) + ": ";
  const Result<DeviceName> merged = MergeConstraints(constraints[0], constraints[1], false);
  if (!merged.ok()) {
    text += merged.status().message() +
            ". Give all of the group one device, or remove the colocation between these two";
  } else {
    text += "the first has kernels for " + TypesText(devices, types[0]) + " only, the second for " +
            TypesText(devices, types[1]) + ". Remove the colocation between these two";
  }
  if (!allow_soft_placement) text += ", or set allow_soft_placement if only the type or id differs";
  return InvalidArgument(text + "." + GroupText());
}

Status Refusal::Unplaceable(const DeviceName& constraint, TypeMask types) const {
  // Name a member whose own request cannot be fulfilled, if there is one.
  const auto alone = std::ranges::find_if(members, [&](const Member& member) {
    return !member.requested.empty() &&
           devices.BestMatch(member.requested, devices.all_types()) < 0;
  });
  if (alone != members.end() || devices.BestMatch(constraint, devices.all_types()) < 0) {
    const NodeId culprit = alone != members.end() ? alone->node : members[0].node;
    const DeviceName& asked = alone != members.end() ? alone->requested : constraint;
    std::string text = CannotAssign(graph, culprit) + std::string(graph.name(culprit)) +
                       (alone != members.end() ? " was explicitly assigned to "
                                               : " must, with its group, go to ") +
                       asked.ToString() + " but available devices are " + DevicesText(devices) +
                       ". Make sure the device specification refers to a valid device: " +
                       MissingText(devices, asked) + ".";
    const int32_t other = devices.BestMatch(TaskPart(asked), types);
    if (!allow_soft_placement && other >= 0)
      text += " With allow_soft_placement it would run on " + Quoted(devices.at(other).text) + ".";
    // The request of one node is wrong by itself: its group, which may be large, says no more.
    return InvalidArgument(alone != members.end() ? text : text + GroupText());
  }
  TypeMask asked = 0;
  for (const DeviceSet::Device& device : devices.devices()) {
    if (constraint.Matches(device.name)) asked |= TypeMask{1} << device.type;
  }
  const auto lacks = std::ranges::find_if(
      members, [&](const Member& member) { return (member.types & asked) == 0; });
  const Member& culprit = lacks != members.end() ? *lacks : members[0];
  const std::string remark = kernel_remark ? kernel_remark(graph, culprit.node) : std::string();
  return InvalidArgument(fmt::format(
      "{}Could not satisfy explicit device specification '{}' because no supported kernel for {} "
      "devices is available. Op '{}'{} has kernels for {}{}. Ask for such a device{}{}",
      CannotAssign(graph, culprit.node), constraint.ToString(), TypesText(devices, asked),
      graph.op(culprit.node).name(), AttrText(graph, culprit.node),
      TypesText(devices, culprit.types), remark.empty() ? remark : ": " + remark,
      allow_soft_placement ? "." : ", or set allow_soft_placement.", GroupText()));
}

}  // namespace monograph::place
