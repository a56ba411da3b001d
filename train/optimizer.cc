// Variables, the five optimizers and their application. An OptimizerRule knows one formula: its
// slots, the scalars that a device shares, and the update of a dense or sparse gradient.
// Application does what all rules have in common: it groups the gradients by the device of their
// variable, makes or finds slots, adds the updates beside the variables, and counts the global step
// after all of them. OptimizerSlots remembers the slots, so that applying gradients twice updates
// the same ones.
#include "train/optimizer.h"

#include <map>
#include <mutex>
#include <utility>

#include "graph/gradients.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"

namespace monograph {

// What one optimizer has made so far: slots of variables, and scalars that the variables of a
// device share. Thread-safe, because several clients of a process, each with a graph of its own,
// may share an optimizer.
class OptimizerSlots {
 public:
  // nullptr if there is none. An entry may be of a destroyed graph that had the same address, so
  // the slot's node must be in this graph, too.
  const ModelVariable* Find(const Graph* graph, const std::string& owner,
                            std::string_view slot) const {
    std::lock_guard lock(mutex_);
    const auto it = made_.find({graph, owner, std::string(slot)});
    if (it == made_.end()) return nullptr;
    const NodeId node = it->second.handle.node();
    return node < graph->num_nodes() && graph->name(node) == it->second.name ? &it->second
                                                                             : nullptr;
  }
  const ModelVariable& Keep(const Graph* graph, const std::string& owner, std::string_view slot,
                            ModelVariable made) {
    std::lock_guard lock(mutex_);
    return made_.insert_or_assign({graph, owner, std::string(slot)}, std::move(made)).first->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<const Graph*, std::string, std::string>, ModelVariable> made_;
};

namespace {

// What the updates of one device have in common.
class Site {
 public:
  Site(const Scope& scope, LearningRate rate, Output built_rate)
      : scope_(scope), number_(rate.number() ? *rate.number() : 0), rate_(built_rate) {}

  // A scalar, one node per value and type.
  Output Number(double value, DType dtype) {
    Output& made = numbers_[{value, dtype}];
    if (!made.valid()) made = ScalarConst(scope_, value, dtype);
    return made;
  }
  Output Rate(DType dtype) { return rate_.valid() ? As(rate_, dtype) : Number(number_, dtype); }
  Output SharedValue(size_t i, DType dtype) { return As(shared[i].value, dtype); }
  const Scope& scope() const { return scope_; }

  std::vector<ModelVariable> shared;

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

struct Slot {
  const char* name;
  double initial;
};

// A gradient, its variable, and the variable's slots in the order of OptimizerRule::slots.
struct Update {
  const GradientAndVariable& pair;
  const std::vector<ModelVariable>& slots;

  const Output& var() const { return pair.variable.handle; }
  const Output& grad() const { return pair.gradient; }
  Gradient rows() const { return {pair.gradient, pair.indices}; }
  const Output& slot(size_t i) const { return slots[i].handle; }
  DType dtype() const { return pair.variable.dtype; }
};

}  // namespace

// One optimizer's formula.
class OptimizerRule {
 public:
  explicit OptimizerRule(LearningRate rate) : rate_(std::move(rate)) {}
  virtual ~OptimizerRule() = default;
  virtual std::string name() const = 0;
  const LearningRate& rate() const { return rate_; }
  // InvalidArgument if an argument makes no sense.
  virtual Status Check() const { return Status(); }

  virtual std::vector<Slot> slots() const { return {}; }
  // Scalars that the variables of a device share.
  virtual std::vector<Slot> shared() const { return {}; }

  virtual Operation Dense(const Scope& scope, Site& site, const Update& update) const = 0;
  virtual Operation Sparse(const Scope& scope, Site& site, const Update& update) const = 0;
  // Updates the shared scalars. The scope has control dependencies on all updates of the device.
  virtual std::vector<Operation> Finish(const Scope&, Site&) const { return {}; }

 private:
  const LearningRate rate_;
};

namespace {

class GradientDescentRule : public OptimizerRule {
 public:
  using OptimizerRule::OptimizerRule;
  std::string name() const override { return "GradientDescent"; }
  Operation Dense(const Scope& scope, Site& site, const Update& u) const override {
    return ResourceApplyGradientDescent(scope, u.var(), site.Rate(u.dtype()), u.grad());
  }
  Operation Sparse(const Scope& scope, Site& site, const Update& u) const override {
    return ResourceScatterSub(scope, u.var(), u.pair.indices,
                              Mul(scope, u.grad(), site.Rate(u.dtype())));
  }
};

class MomentumRule : public OptimizerRule {
 public:
  MomentumRule(LearningRate rate, double momentum, bool use_nesterov)
      : OptimizerRule(std::move(rate)), momentum_(momentum), use_nesterov_(use_nesterov) {}
  std::string name() const override { return "Momentum"; }
  std::vector<Slot> slots() const override { return {{"momentum", 0}}; }
  Operation Dense(const Scope& scope, Site& site, const Update& u) const override {
    const DType t = u.dtype();
    return ResourceApplyMomentum(scope, u.var(), u.slot(0), site.Rate(t), u.grad(),
                                 site.Number(momentum_, t), use_nesterov_);
  }
  Operation Sparse(const Scope& scope, Site& site, const Update& u) const override {
    const DType t = u.dtype();
    return ResourceSparseApplyMomentum(scope, u.var(), u.slot(0), site.Rate(t),
                                       SumRepeatedRows(scope, u.rows()), site.Number(momentum_, t),
                                       use_nesterov_);
  }

 private:
  const double momentum_;
  const bool use_nesterov_;
};

class AdagradRule : public OptimizerRule {
 public:
  AdagradRule(LearningRate rate, double initial)
      : OptimizerRule(std::move(rate)), initial_(initial) {}
  std::string name() const override { return "Adagrad"; }
  // If it were 0, an element without a gradient would become 0 / 0.
  Status Check() const override {
    if (initial_ > 0) return Status();
    return InvalidArgument("Adagrad: initial_accumulator_value must be positive: " +
                           std::to_string(initial_));
  }
  std::vector<Slot> slots() const override { return {{"accumulator", initial_}}; }
  Operation Dense(const Scope& scope, Site& site, const Update& u) const override {
    return ResourceApplyAdagrad(scope, u.var(), u.slot(0), site.Rate(u.dtype()), u.grad());
  }
  Operation Sparse(const Scope& scope, Site& site, const Update& u) const override {
    return ResourceSparseApplyAdagrad(scope, u.var(), u.slot(0), site.Rate(u.dtype()),
                                      SumRepeatedRows(scope, u.rows()));
  }

 private:
  const double initial_;
};

class RMSPropRule : public OptimizerRule {
 public:
  RMSPropRule(LearningRate rate, double decay, double momentum, double epsilon, bool centered)
      : OptimizerRule(std::move(rate)),
        decay_(decay),
        momentum_(momentum),
        epsilon_(epsilon),
        centered_(centered) {}
  std::string name() const override { return "RMSProp"; }
  std::vector<Slot> slots() const override {
    if (centered_) return {{"rms", 1}, {"mg", 0}, {"momentum", 0}};
    return {{"rms", 1}, {"momentum", 0}};
  }
  Operation Dense(const Scope& scope, Site& site, const Update& u) const override {
    const DType t = u.dtype();
    const Output decay = site.Number(decay_, t), momentum = site.Number(momentum_, t),
                 epsilon = site.Number(epsilon_, t);
    if (centered_) {
      return ResourceApplyCenteredRMSProp(scope, u.var(), u.slot(1), u.slot(0), u.slot(2),
                                          site.Rate(t), decay, momentum, epsilon, u.grad());
    }
    return ResourceApplyRMSProp(scope, u.var(), u.slot(0), u.slot(1), site.Rate(t), decay, momentum,
                                epsilon, u.grad());
  }
  Operation Sparse(const Scope& scope, Site& site, const Update& u) const override {
    const DType t = u.dtype();
    const Output decay = site.Number(decay_, t), momentum = site.Number(momentum_, t),
                 epsilon = site.Number(epsilon_, t);
    const Gradient rows = SumRepeatedRows(scope, u.rows());
    if (centered_) {
      return ResourceSparseApplyCenteredRMSProp(scope, u.var(), u.slot(1), u.slot(0), u.slot(2),
                                                site.Rate(t), decay, momentum, epsilon, rows);
    }
    return ResourceSparseApplyRMSProp(scope, u.var(), u.slot(0), u.slot(1), site.Rate(t), decay,
                                      momentum, epsilon, rows);
  }

 private:
  const double decay_, momentum_, epsilon_;
  const bool centered_;
};

class AdamRule : public OptimizerRule {
 public:
  AdamRule(LearningRate rate, double beta1, double beta2, double epsilon)
      : OptimizerRule(std::move(rate)), beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::string name() const override { return "Adam"; }
  std::vector<Slot> slots() const override { return {{"m", 0}, {"v", 0}}; }
  // One pair of powers per device, so that an update never waits for another task.
  std::vector<Slot> shared() const override {
    return {{"beta1_power", beta1_}, {"beta2_power", beta2_}};
  }
  Operation Dense(const Scope& scope, Site& site, const Update& u) const override {
    return Apply(scope, site, u, u.grad());
  }
  // Adam changes every row, also those without a gradient, so the rows become a dense gradient: one
  // pass to add them up and one to apply, where row by row would need five.
  Operation Sparse(const Scope& scope, Site& site, const Update& u) const override {
    return Apply(scope, site, u, Densify(scope, u.rows(), u.var()));
  }
  std::vector<Operation> Finish(const Scope& after, Site& site) const override {
    std::vector<Operation> updates;
    for (size_t i = 0; i < 2; ++i) {
      const ModelVariable& power = site.shared[i];
      const Output next =
          Mul(after, power.value, site.Number(i == 0 ? beta1_ : beta2_, power.dtype));
      updates.push_back(AssignVariable(after, power.handle, next));
    }
    return updates;
  }

 private:
  Operation Apply(const Scope& scope, Site& site, const Update& u, const Output& gradient) const {
    const DType t = u.dtype();
    return ResourceApplyAdam(scope, u.var(), u.slot(0), u.slot(1), site.SharedValue(0, t),
                             site.SharedValue(1, t), site.Rate(t), site.Number(beta1_, t),
                             site.Number(beta2_, t), site.Number(epsilon_, t), gradient);
  }

  const double beta1_, beta2_, epsilon_;
};

std::string NodeName(const ModelVariable& variable) {
  return std::string(variable.handle.graph->name(variable.handle.node()));
}

// One call of ApplyGradients.
class Application {
 public:
  Application(const OptimizerRule& rule, OptimizerSlots* slots, const Scope& scope,
              std::vector<Operation>* initializers)
      : rule_(rule),
        slots_(slots),
        scope_(scope),
        inner_(scope.SubScope(rule.name())),
        initializers_(initializers) {}

  Operation Run(std::span<const GradientAndVariable> pairs, const ApplyOptions& options) {
    scope_.Fail(rule_.Check());
    if (!scope_.ok()) return {};
    Output rate;
    if (rule_.rate().number() == nullptr) {
      const bool counted = options.global_step != nullptr && options.global_step->handle.valid();
      const Scope place = counted ? inner_.ColocateWith(options.global_step->handle) : inner_;
      rate = rule_.rate().Build(place, counted ? options.global_step->value : Output());
    }
    std::vector<Operation> updates;
    std::vector<ModelVariable> shared_by_first;
    for (const auto& [device, members] : ByDevice(pairs)) {
      if (!scope_.ok()) return {};
      Site site(inner_.ColocateWith(members[0]->variable.handle), rule_.rate(), rate);
      for (const Slot& shared : rule_.shared()) {
        const size_t i = site.shared.size();
        const bool first = i >= shared_by_first.size();
        site.shared.push_back(
            Shared(members[0]->variable, shared, first ? nullptr : &shared_by_first[i]));
      }
      if (shared_by_first.empty()) shared_by_first = site.shared;
      std::vector<Operation> applied;
      for (const GradientAndVariable* pair : members) {
        if (!scope_.ok()) return {};
        applied.push_back(Apply(site, *pair));
      }
      if (!scope_.ok()) return {};
      const std::vector<Operation> last =
          rule_.Finish(site.scope().WithControlDependencies(applied), site);
      // The shared scalars change after all updates of the device, so it is enough to wait for
      // them.
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

  // A shared scalar of the device of `first`, made at the first call and kept under that variable's
  // name: copies of the model on one device have scalars of their own, while several updates of one
  // copy share theirs. `same`: the scalar of another device, which always has the same value.
  ModelVariable Shared(const ModelVariable& first, const Slot& shared, const ModelVariable* same) {
    const std::string owner = NodeName(first);
    if (const ModelVariable* known = slots_->Find(scope_.graph(), owner, shared.name))
      return *known;
    const std::string name =
        scope_.prefix().empty() ? shared.name : scope_.prefix() + "/" + shared.name;
    const ModelVariable made =
        MakeSlot(scope_, first.handle, name, first.dtype, Shape(), shared.initial);
    if (same != nullptr && made.handle.valid()) {
      const auto attrs = std::make_shared<Attrs>(scope_.graph()->attrs(made.handle.node()));
      attrs->Set(kSameValueAttr, same->name);
      scope_.graph()->SetAttrs(made.handle.node(), attrs);
    }
    return Keep(owner, shared.name, made);
  }

  const ModelVariable& Keep(const std::string& owner, const char* slot, ModelVariable made) {
    initializers_->push_back(made.initializer);
    return slots_->Keep(scope_.graph(), owner, slot, std::move(made));
  }

  Operation Apply(Site& site, const GradientAndVariable& pair) {
    const ModelVariable& variable = pair.variable;
    const std::string owner = NodeName(variable);
    std::vector<ModelVariable> slots;
    for (const Slot& slot : rule_.slots()) {
      const ModelVariable* known = slots_->Find(scope_.graph(), owner, slot.name);
      slots.push_back(known != nullptr
                          ? *known
                          : Keep(owner, slot.name,
                                 MakeSlot(scope_, variable.handle, owner + "/" + rule_.name(),
                                          variable.dtype, variable.shape, slot.initial)));
    }
    if (!scope_.ok()) return {};
    const Scope scope = inner_.ReuseScope("update_" + owner).ColocateWith(variable.handle);
    const Update update{pair, slots};
    return pair.sparse() ? rule_.Sparse(scope, site, update) : rule_.Dense(scope, site, update);
  }

  const OptimizerRule& rule_;
  OptimizerSlots* slots_;
  const Scope scope_, inner_;
  std::vector<Operation>* initializers_;
};

}  // namespace

ModelVariable MakeVariable(const Scope& scope, const std::string& name, Output initial) {
  if (!scope.ok() || !initial.valid()) return {.name = name};
  if (!initial.shape().fully_known()) {
    scope.Fail(InvalidArgument("variable '" + name +
                               "' needs an initial value of known shape, not " +
                               initial.shape().ToString()));
    return {.name = name};
  }
  return MakeVariable(scope, name, initial.shape().AsShape(), initial.dtype(),
                      [&](const Scope&) { return initial; });
}

ModelVariable MakeVariable(const Scope& scope, const std::string& name, const Shape& shape,
                           DType dtype, const std::function<Output(const Scope& beside)>& initial) {
  ModelVariable variable{.name = name, .dtype = dtype, .shape = shape};
  if (!scope.ok()) return variable;
  variable.handle = VarHandle(scope.WithOpName(name), variable.dtype, variable.shape);
  if (!scope.ok()) return variable;
  const Scope beside = scope.ColocateWith(variable.handle);
  const Output value = initial(beside.ReuseScope(name + "/Initializer"));
  if (!scope.ok()) return variable;
  variable.initializer =
      AssignVariable(beside.WithOpName(name + "/Assign"), variable.handle, value);
  variable.value = ReadVariable(beside.WithOpName(name + "/Read"), variable.handle, variable.dtype);
  return variable;
}

ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       const Output& initial) {
  if (!scope.ok()) return {};
  const Scope place = Scope(scope.graph()).ColocateWith(beside);
  // The name is made unique here, so that the nodes that read and assign the slot are named after
  // it.
  ModelVariable made = MakeVariable(place, scope.graph()->UniqueName(name), initial);
  scope.Fail(place.status());
  if (made.handle.valid()) made.name = NodeName(made);
  return made;
}

ModelVariable MakeSlot(const Scope& scope, const Output& beside, const std::string& name,
                       DType dtype, const Shape& shape, double initial) {
  if (!scope.ok()) return {};
  const std::string unique = scope.graph()->UniqueName(name);
  const Scope place = Scope(scope.graph()).ColocateWith(beside).ReuseScope(unique + "/Initializer");
  const Output value =
      Fill(place, IntsConst(place, shape.dims()), ScalarConst(place, initial, dtype));
  scope.Fail(place.status());
  return MakeSlot(scope, beside, unique, value);
}

ModelVariable MakeGlobalStep(const Scope& scope) {
  return MakeVariable(scope, "global_step", Const(scope, int64_t{0}));
}

Optimizer::Optimizer(std::shared_ptr<const OptimizerRule> rule)
    : rule_(std::move(rule)), slots_(std::make_shared<OptimizerSlots>()) {}

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
  for (const Slot& slot : rule_->slots()) names.push_back(slot.name);
  return names;
}

std::string Optimizer::name() const { return rule_->name(); }

Optimizer GradientDescent(LearningRate learning_rate) {
  return Optimizer(std::make_shared<GradientDescentRule>(std::move(learning_rate)));
}
Optimizer Momentum(LearningRate learning_rate, double momentum, bool use_nesterov) {
  return Optimizer(
      std::make_shared<MomentumRule>(std::move(learning_rate), momentum, use_nesterov));
}
Optimizer Adagrad(LearningRate learning_rate, double initial_accumulator_value) {
  return Optimizer(
      std::make_shared<AdagradRule>(std::move(learning_rate), initial_accumulator_value));
}
Optimizer RMSProp(LearningRate learning_rate, double decay, double momentum, double epsilon,
                  bool centered) {
  return Optimizer(
      std::make_shared<RMSPropRule>(std::move(learning_rate), decay, momentum, epsilon, centered));
}
Optimizer Adam(LearningRate learning_rate, double beta1, double beta2, double epsilon) {
  return Optimizer(std::make_shared<AdamRule>(std::move(learning_rate), beta1, beta2, epsilon));
}

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
