// What all optimizers have in common, the application of a rule: gradients are grouped by the
// device of their variable, slots are made or found, the rule adds its update beside each variable,
// and the global step is counted after all of them. Optimizer::Slots remembers the slots, so that
// applying gradients twice updates the same ones.
#include "train/optimizer.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/mutex.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"

namespace monograph {

// What one optimizer has made so far: slots of variables, and scalars that the variables of a
// device share. Thread-safe, because several clients of a process, each with a graph of its own,
// may share an optimizer.
class Optimizer::Slots {
 public:
  // nullptr if there is none. An entry may be of a destroyed graph that had the same address, so
  // the slot's node must be in this graph, too.
  const ModelVariable* Find(const Graph* graph, const std::string& owner,
                            std::string_view slot) const {
    MutexLock lock(mutex_);
    const auto it = made_.find({graph, owner, std::string(slot)});
    if (it == made_.end()) return nullptr;
    const NodeId node = it->second.handle.node();
    return node < graph->num_nodes() && graph->name(node) == it->second.name ? &it->second
                                                                             : nullptr;
  }
  const ModelVariable& Keep(const Graph* graph, const std::string& owner, std::string_view slot,
                            ModelVariable made) {
    MutexLock lock(mutex_);
    return made_.insert_or_assign({graph, owner, std::string(slot)}, std::move(made)).first->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::tuple<const Graph*, std::string, std::string>, ModelVariable> made_
      MG_GUARDED_BY(mutex_);
};

// Its scalars are made when the first variable reads them.
class UpdateInputs::Device {
 public:
  Device(const Scope& scope, const LearningRate& rate, const Output& built_rate)
      : scope_(scope), number_(rate.number() ? *rate.number() : 0), rate_(built_rate) {}

  Output Number(double value, DType dtype) {
    Output& made = numbers_[{value, dtype}];
    if (!made.valid()) made = ScalarConst(scope_, value, dtype);
    return made;
  }
  Output Rate(DType dtype) { return rate_.valid() ? As(rate_, dtype) : Number(number_, dtype); }
  Output Power(size_t i, DType dtype) { return As(powers[i].value, dtype); }
  const Scope& scope() const { return scope_; }

  std::vector<ModelVariable> powers;  // in the order of the rule

 private:
  Output As(const Output& scalar, DType dtype) {
    if (!scalar.valid() || scalar.dtype() == dtype) return scalar;
    Output& made = casts_[{scalar.endpoint, dtype}];
    if (!made.valid()) made = Cast(scope_, scalar, dtype);
    return made;
  }

  Scope scope_;
  double number_;
  Output rate_;  // invalid: number_
  std::map<std::pair<double, DType>, Output> numbers_;
  std::map<std::pair<Endpoint, DType>, Output> casts_;
};

UpdateInputs::UpdateInputs(Device* device, const ModelVariable& of,
                           std::vector<Output> slot_handles)
    : variable(of.handle), slots(std::move(slot_handles)), device_(device), dtype_(of.dtype) {}
Output UpdateInputs::rate() const { return device_->Rate(dtype_); }
Output UpdateInputs::number(double value) const { return device_->Number(value, dtype_); }
Output UpdateInputs::power(size_t i) const { return device_->Power(i, dtype_); }

namespace {

std::string NodeName(const ModelVariable& variable) {
  return std::string(variable.handle.graph->name(variable.handle.node()));
}

}  // namespace

// One call of ApplyGradients.
class Optimizer::Application {
 public:
  Application(const OptimizerRule& rule, Slots* slots, const Scope& scope,
              std::vector<Operation>* initializers)
      : rule_(rule),
        slots_(slots),
        scope_(scope),
        inner_(scope.SubScope(rule.name)),
        initializers_(initializers) {}

  Operation Run(std::span<const GradientAndVariable> pairs, const ApplyOptions& options) {
    scope_.Fail(CheckRule());
    if (!scope_.ok()) return {};
    Output rate;
    if (rule_.rate.number() == nullptr) {
      const bool counted = options.global_step != nullptr && options.global_step->handle.valid();
      const Scope place = counted ? inner_.ColocateWith(options.global_step->handle) : inner_;
      rate = rule_.rate.Build(place, counted ? options.global_step->value : Output());
    }
    std::vector<Operation> updates;
    std::vector<ModelVariable> powers;  // of the first device
    for (const auto& [device, members] : ByDevice(pairs)) {
      if (!scope_.ok()) return {};
      UpdateInputs::Device shared(inner_.ColocateWith(members[0]->variable.handle), rule_.rate,
                                  rate);
      for (size_t i = 0; i < rule_.powers.size(); ++i) {
        shared.powers.push_back(
            Power(members[0]->variable, rule_.powers[i], powers.size() > i ? &powers[i] : nullptr));
      }
      if (powers.empty()) powers = shared.powers;
      std::vector<Operation> applied;
      for (const GradientAndVariable* pair : members) {
        if (!scope_.ok()) return {};
        applied.push_back(Apply(&shared, *pair));
      }
      if (!scope_.ok()) return {};
      const std::vector<Operation> last = RaisePowers(&shared, applied);
      // Powers change after all updates of the device, so it is enough to wait for them.
      const std::vector<Operation>& ends = last.empty() ? applied : last;
      updates.insert(updates.end(), ends.begin(), ends.end());
    }
    if (!scope_.ok()) return {};
    const Scope name =
        options.name.empty() ? inner_.WithOpName("update") : scope_.WithOpName(options.name);
    if (options.global_step == nullptr || !options.count) return Group(name, updates);
    const ModelVariable& step = *options.global_step;
    const Output one = ScalarConst(inner_.ColocateWith(step.handle), 1, step.dtype);
    return AssignAddVariable(name.ColocateWith(step.handle).WithControlDependencies(updates),
                             step.handle, one);
  }

 private:
  using Members = std::vector<std::pair<std::string, std::vector<const GradientAndVariable*>>>;

  // InvalidArgument says what the rule lacks.
  Status CheckRule() const {
    MG_RETURN_IF_ERROR(rule_.status);
    const std::string what = "optimizer '" + rule_.name + "'";
    if (!rule_.dense) return InvalidArgument(what + " has no function for dense gradients");
    std::set<std::string> names;
    for (const OptimizerRule::Slot& slot : rule_.slots) names.insert(slot.name);
    for (const OptimizerRule::Power& power : rule_.powers) names.insert(power.name);
    if (names.size() == rule_.slots.size() + rule_.powers.size()) return Status();
    return InvalidArgument(what + " has slots or powers of the same name");
  }

  // The pairs that have a gradient, by the device of their variable.
  Members ByDevice(std::span<const GradientAndVariable> pairs) const {
    Members by_device;
    std::string names;
    for (const GradientAndVariable& pair : pairs) {
      names += (names.empty() ? "'" : ", '") + pair.variable.name + "'";
      if (!pair.gradient.valid()) continue;
      if (!Check(pair)) return {};
      const std::string device = scope_.graph()->device(pair.variable.handle.node()).ToString();
      auto it = by_device.begin();
      while (it != by_device.end() && it->first != device) ++it;
      if (it == by_device.end())
        it = by_device.emplace(by_device.end(), device, std::vector<const GradientAndVariable*>());
      it->second.push_back(&pair);
    }
    if (by_device.empty() && scope_.ok()) {
      scope_.Fail(InvalidArgument("No gradients provided for any variable: " +
                                  (names.empty() ? "no variables were given" : names)));
    }
    return by_device;
  }

  bool Check(const GradientAndVariable& pair) const {
    const ModelVariable& variable = pair.variable;
    if (!scope_.ok()) return false;
    if (!variable.handle.valid() || variable.handle.graph != scope_.graph()) {
      scope_.Fail(InvalidArgument("ApplyGradients: variable '" + variable.name +
                                  "' is none of this graph"));
    } else if (pair.gradient.dtype() != variable.dtype) {
      scope_.Fail(InvalidArgument("ApplyGradients: the gradient '" + pair.gradient.name() +
                                  "' of variable '" + variable.name + "' is " +
                                  std::string(DTypeName(pair.gradient.dtype())) + ", not " +
                                  std::string(DTypeName(variable.dtype))));
    }
    return scope_.ok();
  }

  // A power on the device of `first`, made at the first call and kept under that variable's name:
  // copies of the model on one device have powers of their own, while several updates of one copy
  // share theirs. `same`: that of another device, which always has the same value.
  ModelVariable Power(const ModelVariable& first, const OptimizerRule::Power& power,
                      const ModelVariable* same) {
    const std::string owner = NodeName(first);
    if (const ModelVariable* known = slots_->Find(scope_.graph(), owner, power.name)) return *known;
    const std::string name =
        scope_.prefix().empty() ? power.name : scope_.prefix() + "/" + power.name;
    const ModelVariable made =
        MakeSlot(scope_, first.handle, name, first.dtype, Shape(), power.base);
    if (same != nullptr && made.handle.valid()) {
      const auto attrs = std::make_shared<Attrs>(scope_.graph()->attrs(made.handle.node()));
      attrs->Set(kSameValueAttr, same->name);
      scope_.graph()->SetAttrs(made.handle.node(), attrs);
    }
    return Keep(owner, power.name, made);
  }

  std::vector<Operation> RaisePowers(UpdateInputs::Device* shared,
                                     const std::vector<Operation>& applied) {
    std::vector<Operation> raised;
    const Scope after = shared->scope().WithControlDependencies(applied);
    for (size_t i = 0; i < shared->powers.size(); ++i) {
      const ModelVariable& power = shared->powers[i];
      const Output base = shared->Number(rule_.powers[i].base, power.dtype);
      raised.push_back(AssignVariable(after, power.handle, Mul(after, power.value, base)));
    }
    return raised;
  }

  const ModelVariable& Keep(const std::string& owner, const std::string& slot, ModelVariable made) {
    initializers_->push_back(made.initializer);
    return slots_->Keep(scope_.graph(), owner, slot, std::move(made));
  }

  Operation Apply(UpdateInputs::Device* shared, const GradientAndVariable& pair) {
    const ModelVariable& variable = pair.variable;
    const std::string owner = NodeName(variable);
    std::vector<Output> slots;
    for (const OptimizerRule::Slot& slot : rule_.slots) {
      const ModelVariable* known = slots_->Find(scope_.graph(), owner, slot.name);
      if (known == nullptr) {
        known = &Keep(owner, slot.name,
                      MakeSlot(scope_, variable.handle, owner + "/" + rule_.name, variable.dtype,
                               variable.shape, slot.initial));
      }
      slots.push_back(known->handle);
    }
    if (!scope_.ok()) return {};
    const Scope scope = inner_.ReuseScope("update_" + owner).ColocateWith(variable.handle);
    const UpdateInputs in(shared, variable, std::move(slots));
    const Gradient gradient{pair.gradient, pair.indices};
    const Operation update =
        gradient.sparse() && rule_.sparse
            ? rule_.sparse(scope, in, gradient)
            : rule_.dense(scope, in, Densify(scope, gradient, variable.handle));
    if (scope_.ok() && !update.valid()) {
      scope_.Fail(InvalidArgument("optimizer '" + rule_.name +
                                  "' made no operation for variable '" + variable.name + "'"));
    }
    return update;
  }

  const OptimizerRule& rule_;
  Slots* slots_;
  const Scope scope_, inner_;
  std::vector<Operation>* initializers_;
};

Optimizer::Optimizer(OptimizerRule rule)
    : rule_(std::make_shared<const OptimizerRule>(std::move(rule))),
      slots_(std::make_shared<Slots>()) {}

Operation Optimizer::ApplyGradients(const Scope& scope, std::span<const GradientAndVariable> pairs,
                                    std::vector<Operation>* initializers,
                                    const ApplyOptions& options) const {
  if (!scope.ok()) return {};
  return Application(*rule_, slots_.get(), scope, initializers).Run(pairs, options);
}

Result<Operation> Optimizer::Minimize(const Scope& scope, Output loss,
                                      std::span<const ModelVariable> variables,
                                      std::vector<Operation>* initializers,
                                      const ApplyOptions& options) const {
  MG_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> pairs,
                      ComputeGradients(scope, loss, variables));
  const Operation train = ApplyGradients(scope, pairs, initializers, options);
  MG_RETURN_IF_ERROR(scope.status());
  return train;
}

const ModelVariable* Optimizer::slot(const ModelVariable& variable,
                                     std::string_view slot_name) const {
  return variable.handle.valid()
             ? slots_->Find(variable.handle.graph, NodeName(variable), slot_name)
             : nullptr;
}

std::vector<std::string> Optimizer::slot_names() const {
  std::vector<std::string> names;
  for (const OptimizerRule::Slot& slot : rule_->slots) names.push_back(slot.name);
  return names;
}

std::string Optimizer::name() const { return rule_->name; }

Result<std::vector<GradientAndVariable>> ComputeGradients(
    const Scope& scope, Output loss, std::span<const ModelVariable> variables) {
  std::vector<Output> handles;
  for (const ModelVariable& variable : variables) handles.push_back(variable.handle);
  MG_RETURN_IF_ERROR(scope.status());
  MG_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients,
                      AddSparseGradients(scope, std::span<const Output>(&loss, 1), handles));
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < gradients.size(); ++i)
    pairs.push_back({gradients[i].values, gradients[i].indices, variables[i]});
  return pairs;
}

}  // namespace monograph
