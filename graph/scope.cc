// A Scope is an immutable value: WithDevice and the like copy its State and change one thing. The
// graph and the first error are common to all scopes of a root (Shared). Add brings everything
// together for a new node: its name, the control inputs that no data input implies, attributes,
// colocation, and the requested device, from the innermost device or device function to the
// outermost; the device of a node to be colocated with goes before them all.
#include "graph/scope.h"

#include <algorithm>
#include <variant>

#include "graph/names.h"

namespace monograph {

struct Scope::Shared {
  Graph* graph;
  Status status;
};

struct Scope::State {
  std::shared_ptr<Shared> shared;
  std::string prefix;
  std::string op_name;                                            // for the next op
  std::shared_ptr<bool> op_name_used;                             // shared by copies of the scope
  std::vector<std::variant<DeviceName, DeviceFunction>> devices;  // outermost first
  std::vector<NodeId> control;
  NodeId colocation = -1;
  Attrs attrs;
  int64_t seed = 0;

  bool has_op_name() const { return !op_name.empty() && !*op_name_used; }
  std::string Join(std::string_view name) const {
    return prefix.empty() ? std::string(name) : prefix + "/" + std::string(name);
  }
};

Scope::Scope(Graph* graph) {
  auto state = std::make_shared<State>();
  state->shared = std::make_shared<Shared>(Shared{graph, Status()});
  state_ = std::move(state);
}

Scope::Scope(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Scope Scope::SubScope(std::string_view name) const {
  const std::string full = state_->Join(name);
  if (!IsScopeName(full) || name.empty()) {
    Fail(InvalidArgument("scope name '" + full +
                         "' is not valid; names are letters, digits and any of _ . - / >"));
    return *this;
  }
  auto state = std::make_shared<State>(*state_);
  state->prefix = graph()->ReserveName(full);
  state->op_name.clear();
  return Scope(std::move(state));
}

Scope Scope::ReuseScope(std::string_view name) const {
  auto state = std::make_shared<State>(*state_);
  state->prefix = state_->Join(name);
  state->op_name.clear();
  if (!IsScopeName(state->prefix)) {
    Fail(InvalidArgument("scope name '" + state->prefix +
                         "' is not valid; names are letters, digits and any of _ . - / >"));
    return *this;
  }
  return Scope(std::move(state));
}

Scope Scope::WithOpName(std::string_view name) const {
  auto state = std::make_shared<State>(*state_);
  state->op_name = name;
  state->op_name_used = std::make_shared<bool>(false);
  return Scope(std::move(state));
}

Scope Scope::HelperScope(std::string_view fallback) const {
  auto state = std::make_shared<State>(*state_);
  state->prefix = MakeName(fallback);
  state->op_name.clear();
  return Scope(std::move(state));
}

Scope Scope::WithDevice(std::string_view device) const {
  auto name = DeviceName::Parse(device);
  if (!name.ok()) {
    Fail(name.status().WithContext("scope '" + state_->prefix + "'"));
    return *this;
  }
  auto state = std::make_shared<State>(*state_);
  state->devices.emplace_back(std::move(*name));
  return Scope(std::move(state));
}

Scope Scope::WithDeviceFunction(DeviceFunction function) const {
  auto state = std::make_shared<State>(*state_);
  state->devices.emplace_back(std::move(function));
  return Scope(std::move(state));
}

Scope Scope::WithControlDependencies(std::span<const Operation> operations) const {
  auto state = std::make_shared<State>(*state_);
  for (const Operation& operation : operations) {
    if (operation.valid() && operation.graph == graph()) {
      if (std::find(state->control.begin(), state->control.end(), operation.id) ==
          state->control.end()) {
        state->control.push_back(operation.id);
      }
    } else {
      Fail(InvalidArgument("scope '" + state_->prefix +
                           "': a control dependency is no operation of this graph"));
    }
  }
  return Scope(std::move(state));
}

Scope Scope::ColocateWith(Operation operation) const {
  if (!operation.valid() || operation.graph != graph()) {
    Fail(InvalidArgument("scope '" + state_->prefix +
                         "': ColocateWith was given no operation of this graph"));
    return *this;
  }
  auto state = std::make_shared<State>(*state_);
  state->colocation = operation.id;
  state->devices.clear();  // the device that the other operation requests is the one
  return Scope(std::move(state));
}

Scope Scope::ClearColocation() const {
  auto state = std::make_shared<State>(*state_);
  state->colocation = -1;
  return Scope(std::move(state));
}

Scope Scope::WithAttr(std::string_view name, AttrValue value) const {
  auto state = std::make_shared<State>(*state_);
  state->attrs.Set(name, std::move(value));
  return Scope(std::move(state));
}

Scope Scope::WithSeed(int64_t seed) const {
  auto state = std::make_shared<State>(*state_);
  state->seed = seed;
  return Scope(std::move(state));
}

int64_t Scope::seed() const { return state_->seed; }
Graph* Scope::graph() const { return state_->shared->graph; }
const std::string& Scope::prefix() const { return state_->prefix; }
bool Scope::ok() const { return state_->shared->status.ok(); }
const Status& Scope::status() const { return state_->shared->status; }

void Scope::Fail(const Status& status) const {
  if (state_->shared->status.ok()) state_->shared->status = status;
}

std::string Scope::MakeName(std::string_view fallback) const {
  return graph()->UniqueName(state_->Join(state_->has_op_name() ? state_->op_name : fallback));
}

Operation Scope::Add(std::string_view op, std::span<const Output> inputs, Attrs attrs) const {
  if (!ok()) return Operation();
  const std::string name = MakeName(op);
  if (state_->has_op_name()) *state_->op_name_used = true;
  std::vector<Endpoint> endpoints;
  endpoints.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid() || inputs[i].graph != graph()) {
      Fail(InvalidArgument("node '" + name + "' (" + std::string(op) + "): input " +
                           std::to_string(i) +
                           (inputs[i].valid() ? " is of another graph" : " was never set")));
      return Operation();
    }
    endpoints.push_back(inputs[i].endpoint);
  }
  std::vector<NodeId> control;
  for (NodeId source : state_->control) {  // a data edge orders already
    const bool implied = std::any_of(endpoints.begin(), endpoints.end(),
                                     [source](Endpoint input) { return input.node == source; });
    if (!implied) control.push_back(source);
  }
  for (const auto& [key, value] : state_->attrs.values()) {
    if (attrs.Find(key) == nullptr) attrs.Set(key, value);
  }
  if (state_->colocation >= 0) {
    const Attrs& other = graph()->attrs(state_->colocation);
    auto groups = other.GetOr<std::vector<std::string>>("_class", {});
    std::erase_if(groups, [](const std::string& group) { return !group.starts_with("loc:@"); });
    if (groups.empty()) groups.push_back("loc:@" + std::string(graph()->name(state_->colocation)));
    if (attrs.Find("_class") == nullptr) attrs.Set("_class", std::move(groups));
  }
  std::string device;
  NodeSpec spec{name, op, endpoints, control, nullptr, {}};
  if (!attrs.empty()) spec.attrs = std::make_shared<const Attrs>(std::move(attrs));
  DeviceName requested;
  for (auto entry = state_->devices.rbegin(); entry != state_->devices.rend(); ++entry) {
    if (const auto* outer = std::get_if<DeviceName>(&*entry)) {
      requested = MergeScope(requested, *outer);
      continue;
    }
    auto chosen = DeviceName::Parse(std::get<DeviceFunction>(*entry)(spec, requested));
    if (!chosen.ok()) {
      Fail(chosen.status().WithContext("node '" + name + "' (" + std::string(op) +
                                       "): device function"));
      return Operation();
    }
    requested = std::move(*chosen);
  }
  if (state_->colocation >= 0 && !graph()->device(state_->colocation).empty()) {
    requested = graph()->device(state_->colocation);
  }
  device = requested.ToString();
  spec.device = device;
  auto added = graph()->AddNode(spec);
  if (!added.ok()) {
    Fail(added.status());
    return Operation();
  }
  return Operation(graph(), *added);
}

OpBuilder& OpBuilder::Input(const Output& input) {
  inputs_.push_back(input);
  return *this;
}

OpBuilder& OpBuilder::Inputs(std::span<const Output> inputs) {
  inputs_.insert(inputs_.end(), inputs.begin(), inputs.end());
  return *this;
}

OpBuilder& OpBuilder::Attr(std::string_view name, AttrValue value) {
  attrs_.Set(name, std::move(value));
  return *this;
}

Operation OpBuilder::Build() { return scope_.Add(op_, inputs_, std::move(attrs_)); }

}  // namespace monograph
