#include "client/replication/model_variables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"

namespace monograph::replication {
namespace {

// Hands out one tensor per name; a name that is new gets it from `make`.
class NamedVariables : public ModelVariables {
 public:
  using Make = std::function<Output(const Declaration&)>;
  NamedVariables(const Scope& scope, Make make) : scope_(scope), make_(std::move(make)) {}

  Output Get(const std::string& name, const Shape& shape, const Initial& initial,
             DType dtype) override {
    auto it = known_.find(name);
    if (it == known_.end()) {
      it = known_.emplace(name, std::make_pair(shape, make_({name, shape, initial, dtype}))).first;
    } else if (!(it->second.first == shape)) {
      scope_.Fail(FailedPrecondition("variable '" + name + "' is wanted with shape " +
                                     shape.ToString() + " and with shape " +
                                     it->second.first.ToString()));
      return {};
    }
    return it->second.second;
  }

 private:
  Scope scope_;
  Make make_;
  std::map<std::string, std::pair<Shape, Output>> known_;
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
    case Initial::Kind::kValue: return Const(inner, declaration.initial.value);
  }
  return {};
}

int64_t Bytes(const Declaration& declaration) {
  return declaration.shape.elements() * static_cast<int64_t>(DTypeSize(declaration.dtype));
}

// Into how many parts of at most `limit` bytes; never more than it has rows.
int64_t PartsOf(const Declaration& declaration, int64_t limit) {
  if (limit <= 0 || declaration.shape.rank() == 0 || declaration.shape[0] == 0) return 1;
  return std::min(declaration.shape[0], (Bytes(declaration) + limit - 1) / limit);
}

// Deals variables out to the devices that hold them.
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
  for (int64_t part = 0; part < declaration.parts; ++part) {
    rows.push_back(declaration.shape[0] * (part + 1) / declaration.parts -
                   declaration.shape[0] * part / declaration.parts);
  }
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
  NamedVariables variables(tower, [&](const Declaration& declaration) {
    declarations.push_back(declaration);
    return Placeholder(tower.WithOpName(declaration.name), declaration.dtype, declaration.shape);
  });
  MG_ASSIGN_OR_RETURN(const Outputs results, model(tower, inputs, variables));
  MG_RETURN_IF_ERROR(tower.status());
  if (results.empty()) return InvalidArgument("the model returned no loss");
  for (const Output& result : results) {
    if (!result.valid() || (result.shape().known_rank() && result.shape().rank() != 0)) {
      return InvalidArgument(
          "the model must return scalars (means over its examples), not " +
          (result.valid() ? result.name() + " of shape " + result.shape().ToString()
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
    MG_ASSIGN_OR_RETURN(const Scope place, dealer.PlaceOf(declaration.name, declaration.shape,
                                                          declaration.dtype));
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
    // The initial value itself, not the variable's: then nothing has to be ordered.
    const Output initial = variable.initializer.input(1);
    mirror.push_back(
        MakeVariable(place, variable.name + "/replica_" + std::to_string(number), initial));
    MG_RETURN_IF_ERROR(scope.status());
  }
  return mirror;
}

Result<Outputs> BuildModel(Scope& scope, std::span<const Output> batch, const ModelFn& model,
                           const std::vector<Declaration>& declarations,
                           std::span<const Output> values) {
  NamedVariables variables(scope, [&](const Declaration& wanted) {
    size_t first = 0;
    for (const Declaration& declaration : declarations) {
      const auto parts = static_cast<size_t>(declaration.parts);
      if (declaration.name == wanted.name) {
        if (parts == 1) return values[first];
        const std::span<const Output> own = values.subspan(first, parts);
        return Concat(scope.WithOpName(declaration.name), Outputs(own.begin(), own.end()), 0);
      }
      first += parts;
    }
    scope.Fail(FailedPrecondition("the model asks for variable '" + wanted.name +
                                  "', which training does not have"));
    return Output();
  });
  MG_ASSIGN_OR_RETURN(Outputs results, model(scope, batch, variables));
  MG_RETURN_IF_ERROR(scope.status());
  return results;
}

}  // namespace monograph::replication
