// A model is a function that asks for variables by name while it builds its nodes. So it is called
// twice: Declare calls it in a scratch graph, where variables are placeholders, to learn which
// variables it needs; then the variables are made on their devices, and BuildModel calls it again
// with their values. A variable larger than a limit is made as parts, which are concatenated for a
// reader and looked up part by part.
#include "train/replication/model_variables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/random/random.h"
#include "train/embedding.h"
#include "train/partitioner.h"

namespace monograph::replication {
namespace {

// Gives the model one tensor per variable name, made by `read` when it is first requested, and rows
// made by `look_up`.
class NamedVariables : public ModelVariables {
 public:
  using Read = std::function<Output(const Declaration&)>;
  using LookUp = std::function<Output(const Declaration&, const Output& ids)>;
  NamedVariables(const Scope& scope, Read read, LookUp look_up)
      : scope_(scope), read_(std::move(read)), look_up_(std::move(look_up)) {}

  Output Get(const std::string& name, const Shape& shape, const Initial& initial,
             DType dtype) override {
    Known* known = Find({name, shape, initial, dtype});
    if (known == nullptr) return {};
    if (!known->value.valid()) known->value = read_(known->declaration);
    return known->value;
  }

  Output Lookup(const std::string& name, const Shape& shape, const Initial& initial,
                const Output& ids, DType dtype) override {
    const Known* known = Find({name, shape, initial, dtype});
    return known == nullptr ? Output() : look_up_(known->declaration, ids);
  }

 private:
  struct Known {
    Declaration declaration;
    Output value;
  };

  // nullptr, and the scope fails, if the name was requested with another shape before.
  Known* Find(const Declaration& wanted) {
    const auto it = known_.try_emplace(wanted.name, Known{wanted, {}}).first;
    const Shape& before = it->second.declaration.shape;
    if (before == wanted.shape) return &it->second;
    scope_.Fail(FailedPrecondition("variable '" + wanted.name + "' is wanted with shape " +
                                   wanted.shape.ToString() + " and with shape " +
                                   before.ToString()));
    return nullptr;
  }

  Scope scope_;
  Read read_;
  LookUp look_up_;
  std::map<std::string, Known> known_;
};

Output InitialValue(const Scope& scope, const Declaration& declaration) {
  const Scope inner = scope.ReuseScope(declaration.name + "/Initializer");
  switch (declaration.initial.kind) {
    case Initial::Kind::kConstant: {
      const Output value = ScalarConst(inner, declaration.initial.parameter, declaration.dtype);
      return Fill(inner, IntsConst(inner, declaration.shape.dims()), value);
    }
    case Initial::Kind::kTruncatedNormal: {
      const Output normal =
          TruncatedNormal(inner.WithOpName("truncated_normal"),
                          IntsConst(inner, declaration.shape.dims()), declaration.dtype);
      return Mul(inner, normal,
                 ScalarConst(inner, declaration.initial.parameter, declaration.dtype));
    }
    case Initial::Kind::kValue:
      return Const(inner, declaration.initial.value);
  }
  return {};
}

int64_t Bytes(const Declaration& declaration) {
  return declaration.shape.elements() * static_cast<int64_t>(DTypeSize(declaration.dtype));
}

// The number of parts of at most `limit` bytes each, but never more than there are rows.
int64_t PartsOf(const Declaration& declaration, int64_t limit) {
  if (limit <= 0 || declaration.shape.rank() == 0 || declaration.shape[0] == 0) return 1;
  return std::min(declaration.shape[0], (Bytes(declaration) + limit - 1) / limit);
}

// Chooses the devices of variables by the strategy.
class Dealer {
 public:
  Dealer(const Scope& scope, std::vector<std::string> homes, PsStrategy strategy)
      : scope_(scope), homes_(std::move(homes)), strategy_(std::move(strategy)) {
    if (!strategy_)
      strategy_ = GreedyLoadBalancingStrategy(static_cast<int>(homes_.size()), ByteSizeLoad);
  }

  Result<Scope> PlaceOf(const std::string& name, const Shape& shape, DType dtype) {
    auto attrs = std::make_shared<Attrs>();
    attrs->Set("dtype", AttrValue(dtype));
    attrs->Set("shape", AttrValue(PartialShape(shape)));
    const int home = strategy_({.name = name, .op = "VarHandleOp", .attrs = attrs});
    if (home < 0 || static_cast<size_t>(home) >= homes_.size()) {
      return InvalidArgument("the strategy puts variable '" + name + "' on device " +
                             std::to_string(home) + " of " + std::to_string(homes_.size()));
    }
    return scope_.WithDevice(homes_[static_cast<size_t>(home)]);
  }

 private:
  Scope scope_;
  std::vector<std::string> homes_;
  PsStrategy strategy_;
};

Status MakeParts(const Scope& scope, const Declaration& declaration, Dealer& dealer,
                 std::vector<ModelVariable>* variables) {
  std::vector<int64_t> rows;
  for (const PartRange& range : CutDimension(declaration.shape[0], declaration.parts))
    rows.push_back(range.size);
  const Outputs initial = SplitV(scope.ReuseScope(declaration.name + "/Initializer"),
                                 InitialValue(scope, declaration), rows, 0);
  MG_RETURN_IF_ERROR(scope.status());
  for (size_t part = 0; part < rows.size(); ++part) {
    Shape shape = declaration.shape;
    shape.set_dim(0, rows[part]);
    const std::string name = declaration.name + "/part_" + std::to_string(part);
    MG_ASSIGN_OR_RETURN(const Scope place, dealer.PlaceOf(name, shape, declaration.dtype));
    variables->push_back(MakeVariable(place, name, initial[part]));
    MG_RETURN_IF_ERROR(scope.status());
  }
  return Status();
}

}  // namespace

Result<std::vector<Declaration>> Declare(const Scope& scope, const Outputs& batch,
                                         const ModelFn& model) {
  Graph scratch(&scope.graph()->registry());
  Scope tower(&scratch);
  Outputs inputs;
  for (const Output& input : batch) {
    PartialShape shape = input.shape();
    if (shape.known_rank() && shape.rank() > 0) shape.set_dim(0, -1);
    inputs.push_back(Placeholder(tower, input.dtype(), shape));
  }
  std::vector<Declaration> declarations;
  const auto declared = [&](const Declaration& wanted) -> Declaration& {
    for (Declaration& declaration : declarations)
      if (declaration.name == wanted.name) return declaration;
    return declarations.emplace_back(wanted);
  };
  const auto placeholder = [&](const Declaration& wanted) {
    return Placeholder(tower.WithOpName(wanted.name), wanted.dtype, wanted.shape);
  };
  NamedVariables variables(
      tower,
      [&](const Declaration& wanted) {
        declared(wanted).read = true;
        return placeholder(wanted);
      },
      [&](const Declaration& wanted, const Output& ids) {
        declared(wanted).looked_up = true;
        return Gather(tower, placeholder(wanted), ids);
      });
  MG_ASSIGN_OR_RETURN(const Outputs results, model(tower, inputs, variables));
  MG_RETURN_IF_ERROR(tower.status());
  if (results.empty()) return InvalidArgument("the model returned no loss");
  for (const Output& result : results) {
    if (!result.valid() || (result.shape().known_rank() && result.shape().rank() != 0)) {
      return InvalidArgument("the model must return scalars (means over its examples), not " +
                             (result.valid()
                                  ? result.name() + " of shape " + result.shape().ToString()
                                  : std::string("nothing")));
    }
  }
  return declarations;
}

std::vector<std::string> VariableHomes(const ReplicateOptions& options,
                                       const std::string& fallback) {
  return options.variable_devices.empty() ? std::vector<std::string>{fallback}
                                          : options.variable_devices;
}

Result<std::vector<ModelVariable>> MakeVariables(const Scope& scope,
                                                 std::vector<Declaration>* declarations,
                                                 const ReplicateOptions& options,
                                                 const std::string& fallback) {
  const std::vector<std::string> homes = VariableHomes(options, fallback);
  const Scope at_first = scope.WithDevice(homes[0]);
  Dealer dealer(scope, homes, options.strategy);
  std::vector<ModelVariable> variables;
  for (Declaration& declaration : *declarations) {
    declaration.parts = PartsOf(declaration, options.max_variable_bytes);
    if (declaration.parts > 1) {
      MG_RETURN_IF_ERROR(MakeParts(at_first, declaration, dealer, &variables));
      continue;
    }
    MG_ASSIGN_OR_RETURN(const Scope place,
                        dealer.PlaceOf(declaration.name, declaration.shape, declaration.dtype));
    variables.push_back(MakeVariable(place, declaration.name, InitialValue(place, declaration)));
    MG_RETURN_IF_ERROR(scope.status());
  }
  return variables;
}

Result<std::vector<ModelVariable>> MirrorVariables(const Scope& scope,
                                                   const std::vector<ModelVariable>& variables,
                                                   const std::string& device, int number) {
  std::vector<ModelVariable> mirror;
  const Scope place = scope.WithDevice(device);
  for (const ModelVariable& variable : variables) {
    // A copy is assigned the initial value itself and not the first copy's value, so that the
    // initializers need no order.
    const Output initial = variable.initializer.input(1);
    mirror.push_back(
        MakeVariable(place, variable.name + "/replica_" + std::to_string(number), initial));
    MG_RETURN_IF_ERROR(scope.status());
  }
  return mirror;
}

Result<Outputs> BuildModel(Scope& scope, std::span<const Output> batch, const ModelFn& model,
                           const std::vector<Declaration>& declarations,
                           std::span<const VariableView> views) {
  // The parts of a variable. Empty, and the scope fails, if there is no such variable.
  const auto parts_of = [&](const Declaration& wanted) -> std::span<const VariableView> {
    size_t first = 0;
    for (const Declaration& declaration : declarations) {
      const auto parts = static_cast<size_t>(declaration.parts);
      if (declaration.name == wanted.name) return views.subspan(first, parts);
      first += parts;
    }
    scope.Fail(FailedPrecondition("the model asks for variable '" + wanted.name +
                                  "', which training does not have"));
    return {};
  };
  NamedVariables variables(
      scope,
      [&](const Declaration& wanted) {
        Outputs values;
        for (const VariableView& part : parts_of(wanted)) values.push_back(part.value);
        if (values.empty()) return Output();
        return values.size() == 1 ? values[0] : Concat(scope.WithOpName(wanted.name), values, 0);
      },
      [&](const Declaration& wanted, const Output& ids) {
        std::vector<TablePart> parts;
        for (const VariableView& part : parts_of(wanted)) {
          const Scope place = part.device.empty() ? scope : scope.WithDevice(part.device);
          parts.push_back({wanted.name, part.handle, part.shape, wanted.dtype, place});
        }
        return EmbeddingLookup(scope, parts, ids, PartitionStrategy::kDiv);
      });
  MG_ASSIGN_OR_RETURN(Outputs results, model(scope, batch, variables));
  MG_RETURN_IF_ERROR(scope.status());
  return results;
}

}  // namespace monograph::replication
