// cuDNN's backend API in C++. Descriptor and Builder own and finalise descriptors. Configs lists
// engines as cuDNN ranks them, first those of its heuristics and then its fallbacks, without those
// whose numerical notes are ruled out. Choice is an engine and its knobs as text, so that the
// result of a search can be kept on disk and found again (ConfigOf).
#include <algorithm>
#include <charconv>

#include "executor/gpu/cuda/error.h"
#include "ops/conv/cudnn_graph.h"

namespace monograph::ops::cudnn {
namespace {

// Whether an engine has one of the properties that `allowed` rules out.
Result<bool> RuledOut(const Descriptor& config, const Allowed& allowed) {
  MG_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> engines,
      config.Children(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.empty()) return true;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  MG_CUDNN_RETURN_IF_ERROR(cudnnBackendGetAttribute(
      engines[0].handle(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  for (int64_t i = 0; i < std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT); ++i) {
    switch (notes[i]) {
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:  // half and bfloat16 add up in float
        return true;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (allowed.deterministic) return true;
        break;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (!allowed.tensor_cores) return true;
        break;
      default:
        break;
    }
  }
  return false;
}

}  // namespace

Result<Descriptor> Descriptor::Create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  MG_CUDNN_RETURN_IF_ERROR(cudnnBackendCreateDescriptor(type, &handle));
  return Descriptor(handle);
}

Result<int64_t> Descriptor::Int(cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  MG_CUDNN_RETURN_IF_ERROR(
      cudnnBackendGetAttribute(handle_, name, CUDNN_TYPE_INT64, 1, &count, &value));
  return value;
}

Result<std::vector<Descriptor>> Descriptor::Children(cudnnBackendAttributeName_t name,
                                                     cudnnBackendDescriptorType_t type,
                                                     int64_t most) const {
  std::vector<Descriptor> children;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < most; ++i) {
    MG_ASSIGN_OR_RETURN(Descriptor child, Create(type));
    handles.push_back(child.handle());
    children.push_back(std::move(child));
  }
  int64_t count = 0;
  MG_CUDNN_RETURN_IF_ERROR(cudnnBackendGetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                    most, &count, handles.data()));
  children.resize(std::min(children.size(), static_cast<size_t>(std::max<int64_t>(count, 0))));
  return children;
}

Builder::Builder(cudnnBackendDescriptorType_t type) {
  auto descriptor = Descriptor::Create(type);
  status_ = descriptor.status();
  if (descriptor.ok()) descriptor_ = std::move(descriptor).value();
}

Builder& Builder::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t count, const void* values) {
  if (status_.ok()) {
    const std::string call = "cudnnBackendSetAttribute of " + std::to_string(name);
    status_ = cuda::CudnnStatus(
        cudnnBackendSetAttribute(descriptor_.handle(), name, type, count, values), call.c_str());
  }
  return *this;
}

Builder& Builder::Of(cudnnBackendAttributeName_t name, const Descriptor& value) {
  const cudnnBackendDescriptor_t handle = value.handle();
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}

Builder& Builder::Of(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& value : values) handles.push_back(value.handle());
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(handles.size()),
             handles.data());
}

Result<Descriptor> Builder::Finish() {
  MG_RETURN_IF_ERROR(status_);
  MG_CUDNN_RETURN_IF_ERROR(cudnnBackendFinalize(descriptor_.handle()));
  return std::move(descriptor_);
}

std::string Choice::ToString() const {
  std::string text = std::to_string(engine) + ";";
  for (size_t i = 0; i < knobs.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(knobs[i].first) + "=" +
            std::to_string(knobs[i].second);
  }
  return text;
}

Result<Choice> Choice::Parse(const std::string& text) {
  const char *at = text.data(), *const end = at + text.size();
  bool good = true;
  const auto number = [&](char after) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    good = good && error == std::errc() && (next == end || *next == after || *next == ',');
    at = next == end ? end : next + 1;
    return value;
  };
  Choice choice;
  choice.engine = number(';');
  while (good && at != end) {
    const int64_t knob = number('=');
    good = good && at != end;
    choice.knobs.emplace_back(static_cast<int32_t>(knob), number(','));
  }
  if (!good) return InvalidArgument("'" + text + "' names no engine of cuDNN");
  return choice;
}

Result<Choice> ChoiceOf(const Descriptor& config) {
  MG_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> engines,
      config.Children(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.empty()) return Internal("cuDNN gave a configuration without an engine");
  Choice choice;
  MG_ASSIGN_OR_RETURN(choice.engine, engines[0].Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  MG_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> knobs,
      config.Children(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                      CUDNN_KNOB_TYPE_COUNTS));
  for (const Descriptor& knob : knobs) {
    cudnnBackendKnobType_t type{};
    int64_t count = 0;
    MG_CUDNN_RETURN_IF_ERROR(cudnnBackendGetAttribute(
        knob.handle(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count, &type));
    MG_ASSIGN_OR_RETURN(const int64_t value, knob.Int(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    choice.knobs.emplace_back(static_cast<int32_t>(type), value);
  }
  return choice;
}

Result<Descriptor> ConfigOf(const Descriptor& graph, const Choice& choice, const Descriptor* gpu) {
  Builder named(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  named.Of(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
      .Ints(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {choice.engine});
  if (gpu != nullptr) named.Of(CUDNN_ATTR_ENGINE_DEVICEPROP, *gpu);
  MG_ASSIGN_OR_RETURN(const Descriptor engine, named.Finish());
  std::vector<Descriptor> knobs;
  for (const auto& [knob, value] : choice.knobs) {
    const auto type = static_cast<cudnnBackendKnobType_t>(knob);
    MG_ASSIGN_OR_RETURN(Descriptor made,
                        Builder(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
                            .Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type)
                            .Ints(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value})
                            .Finish());
    knobs.push_back(std::move(made));
  }
  Builder config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.Of(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) config.Of(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  return config.Finish();
}

namespace {

Result<std::vector<Descriptor>> Ranked(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                       const Descriptor* gpu) {
  Builder asked(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  asked.Of(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (gpu != nullptr) asked.Of(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *gpu);
  MG_ASSIGN_OR_RETURN(const Descriptor heuristic, asked.Finish());
  int64_t count = 0;
  MG_CUDNN_RETURN_IF_ERROR(
      cudnnBackendGetAttribute(heuristic.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  if (count == 0) return std::vector<Descriptor>();
  return heuristic.Children(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                            count);
}

}  // namespace

Result<std::vector<Descriptor>> Configs(const Descriptor& graph, const Allowed& allowed,
                                        const Descriptor* gpu) {
  std::vector<Descriptor> configs;
  Status refusal;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    auto ranked = Ranked(graph, mode, gpu);
    if (!ranked.ok()) {  // this heuristic does not handle such a graph
      refusal = ranked.status();
      continue;
    }
    for (Descriptor& config : *ranked) {
      const Result<bool> out = RuledOut(config, allowed);
      if (out.ok() && !*out) configs.push_back(std::move(config));
    }
  }
  if (configs.empty() && !refusal.ok()) return refusal;
  return configs;
}

Result<Plan> MakePlan(cudnnHandle_t handle, const Descriptor& config, const Descriptor* gpu) {
  Builder made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (gpu != nullptr) {
    made.Of(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *gpu);
  } else {
    made.Handle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  }
  Plan plan;
  MG_ASSIGN_OR_RETURN(plan.plan, made.Of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).Finish());
  MG_ASSIGN_OR_RETURN(plan.workspace_bytes,
                      plan.plan.Int(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  return plan;
}

Status Execute(cudnnHandle_t handle, const Plan& plan, const std::vector<int64_t>& ids,
               const std::vector<void*>& pointers, void* workspace) {
  const auto count = static_cast<int64_t>(ids.size());
  MG_ASSIGN_OR_RETURN(
      const Descriptor pack,
      Builder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
          .Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data())
          .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data())
          .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
          .Finish());
  MG_CUDNN_RETURN_IF_ERROR(cudnnBackendExecute(handle, plan.plan.handle(), pack.handle()));
  return Status();
}

}  // namespace monograph::ops::cudnn
