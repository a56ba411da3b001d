// What each node of a task's graph is on its way to GPUs: on which GPU it is, whether it directs
// control flow, its kernel, which of its tensors that wants on the host, and for a collective
// whether it goes from GPU to GPU (FindDirectWay). All members of a collective find the same way,
// since they know the same links.
#include "executor/gpu/classify.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "executor/collective/collective_kernel.h"
#include "executor/gpu/gpu_device.h"
#include "executor/plan/task_graph.h"
#include "executor/plan/task_kernels.h"
#include "graph/joint_collectives.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

// One flag for each tensor of the arguments, in order: whether KernelDef::host_args names its
// argument.
std::vector<bool> HostArgs(const std::vector<ArgDef>& args, const Attrs& attrs,
                           const KernelDef& def) {
  std::vector<bool> host;
  for (const ArgDef& arg : args) {
    size_t count = 1;
    if (!arg.number_attr.empty()) {
      count = static_cast<size_t>(attrs.Get<int64_t>(arg.number_attr));
    } else if (!arg.type_list_attr.empty()) {
      count = attrs.Get<std::vector<DType>>(arg.type_list_attr).size();
    }
    const bool named =
        std::find(def.host_args.begin(), def.host_args.end(), arg.name) != def.host_args.end();
    host.insert(host.end(), count, named);
  }
  return host;
}

class Classifier {
 public:
  Classifier(const Graph& graph, const PlanOptions& options,
             const std::vector<NodeId>& linked_sends, const ControlFlow& flow)
      : graph_(graph),
        options_(options),
        linked_sends_(linked_sends),
        flow_(flow),
        cpu_(FirstCpu(options)) {}

  Result<std::vector<ClassifiedNode>> Run() {
    nodes_.resize(static_cast<size_t>(graph_.num_nodes()));
    for (const NodeId send : linked_sends_) {
      if (send >= 0) at(send).linked = true;
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      ClassifiedNode& node = at(id);
      const DeviceName& device = graph_.device(id);
      for (size_t i = 0; i < options_.devices.size(); ++i) {
        if (options_.devices[i]->info().name == device && options_.devices[i]->gpu() != nullptr)
          node.gpu = static_cast<int32_t>(i);
      }
      node.host_inputs.assign(graph_.inputs(id).size(), true);
      node.host_outputs.assign(static_cast<size_t>(graph_.num_outputs(id)), true);
      if (node.gpu != kHost) MG_RETURN_IF_ERROR(MakeKernel(id));
    }
    return std::move(nodes_);
  }

 private:
  ClassifiedNode& at(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const std::string& DeviceOf(int32_t gpu) const {
    return options_.devices[static_cast<size_t>(gpu)]->name();
  }
  GpuDevice* Gpu(int32_t gpu) const { return options_.devices[static_cast<size_t>(gpu)]->gpu(); }
  std::string Who(NodeId id) const { return NodeAndDevice(graph_, id); }
  bool has_flow() const { return !flow_.frames.empty(); }

  Status MakeKernel(NodeId id) {
    ClassifiedNode& node = at(id);
    if (IsSend(graph_, id) || IsRecv(graph_, id) || !graph_.op(id).known()) return Status();
    if (graph_.op(id).flow() != FlowOp::kNone) {
      // A node that is fed has lost its inputs, and is a feed's _Recv by now.
      node.flow = graph_.op(id).flow();
      return Status();
    }
    const auto& device = *options_.devices[static_cast<size_t>(node.gpu)];
    auto entry = FindTaskKernel(graph_, id, device.info().name.type, options_);
    if (!entry.ok()) return entry.status().WithContext(Who(id));
    node.entry = *entry;
    MG_RETURN_IF_ERROR(Gpu(node.gpu)->driver().Enter());  // a kernel may prepare things there
    auto kernel = MakeTaskKernel(graph_, id, device.name(), options_, *node.entry);
    if (!kernel.ok()) return kernel.status().WithContext(Who(id));
    node.kernel = std::move(kernel).value();
    node.launched = node.kernel->AsAsync() == nullptr;
    MG_RETURN_IF_ERROR(FindDirectWay(id));
    KernelDef def = node.entry->def;
    if (node.direct) {
      // The tensors to be exchanged stay on the GPU; sizes and keys are read on the host.
      const auto exchanged = dynamic_cast<const CollectiveKernel&>(*node.kernel).exchanged_args();
      std::erase_if(def.host_args, [&](const std::string& arg) {
        return std::find(exchanged.begin(), exchanged.end(), arg) != exchanged.end();
      });
    }
    node.host_inputs = HostArgs(graph_.op(id).inputs(), graph_.attrs(id), def);
    node.host_outputs = HostArgs(graph_.op(id).outputs(), graph_.attrs(id), def);
    for (size_t i = 0; i < node.host_inputs.size(); ++i) {
      if (!IsPlainData(graph_.dtype(graph_.inputs(id)[i]))) node.host_inputs[i] = true;
    }
    for (size_t i = 0; i < node.host_outputs.size(); ++i) {
      if (!IsPlainData(graph_.dtype({id, static_cast<int32_t>(i)}))) node.host_outputs[i] = true;
    }
    node.on_host = has_flow() && MayRunOnHost(id);
    return Status();
  }

  // Whether a CPU's kernel computes the same, for as little. PlaceOutputs then decides.
  bool MayRunOnHost(NodeId id) const {
    const ClassifiedNode& node = nodes_[static_cast<size_t>(id)];
    if (!node.launched || cpu_.type.empty() || graph_.op(id).stateful() ||
        !FindTaskKernel(graph_, id, kCpu, options_).ok())
      return false;
    bool variants = false;  // which may hold tensors in the GPU's memory
    for (const Endpoint& e : graph_.inputs(id))
      variants = variants || graph_.dtype(e) == DT_VARIANT;
    for (int32_t i = 0; i < graph_.num_outputs(id); ++i)
      variants = variants || graph_.dtype({id, i}) == DT_VARIANT;
    if (variants) return false;
    if (node.host_only()) return true;
    const auto is_small = [&](Endpoint e) {
      const PartialShape& shape = graph_.shape(e);
      return IsPlainData(graph_.dtype(e)) && !IsFloating(graph_.dtype(e)) && shape.fully_known() &&
             shape.elements() == 1;
    };
    for (int32_t i = 0; i < graph_.num_outputs(id); ++i) {
      if (!is_small({id, i})) return false;
    }
    return !graph_.inputs(id).empty() && std::ranges::all_of(graph_.inputs(id), is_small);
  }

  // Whether a collective can go from GPU to GPU (executor/gpu/members.h). All members decide alike:
  // they know the same links. Where the members are found at run time, it is the kernel that then
  // decides.
  Status FindDirectWay(NodeId id) {
    ClassifiedNode& node = at(id);
    const auto* collective = dynamic_cast<const CollectiveKernel*>(node.kernel.get());
    if (collective == nullptr || collective->manager() == nullptr || options_.links == nullptr)
      return Status();
    const DType dtype = graph_.dtype({id, 0});
    // Tensors of int32 lie in host memory.
    const bool floats = IsFloating(dtype);
    if (!(floats || dtype == DT_INT64)) return Status();
    if (collective->members() == nullptr) return FindDirectWayAtRunTime(id, *collective);
    const CollectiveMembers& members = *collective->members();
    const bool gpus = std::all_of(
        members.devices.begin(), members.devices.end(),
        [](const std::string& device) { return device.find("/device:GPU:") != std::string::npos; });
    if (!gpus || members.size() < 2) return Status();
    std::string why = WhyNoLink(members, *options_.links);
    const std::string merge = collective->merge_op();
    if (why.empty() && !merge.empty()) {
      if (!floats) return Status();
      if (collective->divides()) {
        why = "final_op is Div";
      } else {
        Result<DeviceMerge> made = MakeMerge(id, merge);
        if (made.ok()) {
          node.merge = std::move(made).value();
        } else {
          why = made.status().message();
        }
      }
    }
    node.direct = why.empty();
    const auto joint = graph_.attrs(id).GetOr<std::vector<int64_t>>(kJointPlace, {});
    if (node.direct && node.merge.adds && joint.size() == 2) {
      node.place = joint[0];
      node.launched = true;
    }
    const std::string text = DescribeWay(members, *options_.links, why);
    if (told_.insert(text).second) LogInfo(text);
    return Status();
  }

  // A reduction that the GPU cannot merge stays on the host, on all members: they are of one build.
  Status FindDirectWayAtRunTime(NodeId id, const CollectiveKernel& collective) {
    ClassifiedNode& node = at(id);
    if (!ReachesAny(DeviceOf(node.gpu), *options_.links)) return Status();
    const std::string merge = collective.merge_op();
    if (!merge.empty()) {
      if (!IsFloating(graph_.dtype({id, 0})) || collective.divides()) return Status();
      if (graph_.attrs(id).GetOr<int64_t>("group_size", 0) == 1) return Status();
      Result<DeviceMerge> made = MakeMerge(id, merge);
      if (!made.ok()) return Status();
      node.merge = std::move(made).value();
    }
    node.direct = true;
    return Status();
  }

  // Makes a kernel of the node's GPU that merges two inputs by `op`, or as many as it is given if
  // the op takes any number.
  Result<DeviceMerge> MakeMerge(NodeId id, const std::string& op) {
    DeviceMerge merge;
    MG_ASSIGN_OR_RETURN(const OpDef* def, graph_.registry().Require(op));
    const std::string& number_attr = def->inputs().front().number_attr;
    merge.adds = !number_attr.empty();  // sums alone take any number of inputs
    const DType dtype = graph_.dtype({id, 0});
    Graph alone(&graph_.registry());
    const Attrs argument{{"T", dtype}, {"index", int64_t{0}}};
    MG_ASSIGN_OR_RETURN(
        const NodeId from,
        alone.AddNode(
            {.name = "from", .op = kArgOp, .attrs = std::make_shared<const Attrs>(argument)}));
    const std::vector<Endpoint> inputs(2, Endpoint{from, 0});
    Attrs attrs{{"T", dtype}};
    if (merge.adds) attrs.Set(number_attr, int64_t{2});
    MG_ASSIGN_OR_RETURN(const NodeId node,
                        alone.AddNode({.name = "merge",
                                       .op = op,
                                       .inputs = inputs,
                                       .attrs = std::make_shared<const Attrs>(std::move(attrs))}));
    MG_ASSIGN_OR_RETURN(const KernelRegistry::Entry* entry,
                        FindTaskKernel(alone, node, kGpu, options_));
    MG_ASSIGN_OR_RETURN(merge.kernel,
                        MakeTaskKernel(alone, node, DeviceOf(at(id).gpu), options_, *entry));
    return merge;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  const std::vector<NodeId>& linked_sends_;
  const ControlFlow& flow_;
  const DeviceName cpu_;
  std::vector<ClassifiedNode> nodes_;
  std::set<std::string> told_;  // logged already, about collectives
};

}  // namespace

DeviceName FirstCpu(const PlanOptions& options) {
  for (const Device* device : options.devices) {
    if (device->info().name.type == kCpu) return device->info().name;
  }
  return {};
}

Result<std::vector<ClassifiedNode>> Classify(const Graph& graph, const PlanOptions& options,
                                             const std::vector<NodeId>& linked_sends,
                                             const ControlFlow& flow) {
  return Classifier(graph, options, linked_sends, flow).Run();
}

}  // namespace monograph
