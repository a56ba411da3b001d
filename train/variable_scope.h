// Variable scopes: variables by name, made once and shared where the program says so
// (TensorFlow's variable_scope and get_variable).
//
//   Collections collections;
//   VariableScope root(Scope(&graph), &collections);
//   VariableScope fc = root.Open("fc1", {.regularizer = L2Regularizer(1e-4)});
//   Output w = fc.Get("weights", {784, 10}).value;                 // "fc1/weights"
//   Output again = root.Open("fc1", {.reuse = Reuse::kTrue}).Get("weights", {784, 10}).value;
//
// Large variables may be cut by a partitioner into parts, "fc1/weights/part_0", ..., which are
// variables of their own: a device function (graph/device_setter.h) spreads them over parameter
// servers. They read as one tensor.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/scope.h"
#include "train/clip.h"
#include "train/collections.h"
#include "train/initializer.h"
#include "train/model.h"
#include "train/partitioner.h"

namespace monograph {

// What Get does with a name that exists, or does not.
enum class Reuse {
  kFalse,      // it must not exist. In Open: as in the scope around
  kTrue,       // it must exist
  kAutoReuse,  // it is made if it does not exist
};

struct ScopedVariable {
  std::string name;
  Shape shape;
  DType dtype = DT_FLOAT;
  std::vector<ModelVariable> parts;  // one, unless a partitioner cut it
  bool partitioned = false;          // a partitioner was asked, if only for one part
  int axis = 0;                      // along which the parts follow each other
  Output value;                      // all of it, for who asked: put together on their device
};

// Unset members are as in the scope around; at the root: Glorot uniform (zeros for integers),
// nothing, nothing, float.
struct VariableScopeOptions {
  Reuse reuse = Reuse::kFalse;
  Initializer initializer = {};
  Regularizer regularizer = {};
  Partitioner partitioner = {};
  std::optional<DType> dtype = {};
};

// As above: unset members are the scope's.
struct VariableOptions {
  Initializer initializer = {};
  Regularizer regularizer = {};
  Partitioner partitioner = {};
  std::optional<DType> dtype = {};
  bool trainable = true;
  // Empty: GraphKeys::kGlobalVariables. Trainable ones are added to kTrainableVariables, too.
  std::vector<std::string> collections = {};
};

// A value; copies share their variables. Not thread-safe. Mistakes are kept in the scope
// (Scope::status), with TensorFlow's words.
class VariableScope {
 public:
  // The root. Variables get names below the scope's prefix. `collections` outlives it.
  VariableScope(const Scope& scope, Collections* collections);

  // Variables below "name/", ops in a name scope of that name (made unique, as every name scope:
  // of variables the name is exact). Reuse goes on inside: a scope in a reusing one reuses.
  VariableScope Open(std::string_view name, const VariableScopeOptions& options = {}) const;
  // The same scope with another reuse, whatever the scope around says.
  VariableScope Reusing(Reuse reuse) const;
  // Only ops: names of variables stay. For towers that share variables.
  VariableScope NameScope(std::string_view name) const;
  // Of ops and of variables that are made here.
  VariableScope WithDevice(std::string_view device) const;
  VariableScope WithDeviceFunction(const Scope::DeviceFunction& function) const;

  // The variable of that name, which is made or must exist, see Reuse. AlreadyExists, NotFound, or
  // InvalidArgument where shape, type or parts are others than those of the variable that exists.
  // A new variable is added to its collections part by part, and its penalty, if it has a
  // regularizer, to GraphKeys::kRegularizationLosses; one that returns Output() has no penalty.
  ScopedVariable Get(const std::string& name, const Shape& shape,
                     const VariableOptions& options = {}) const;

  const Scope& scope() const { return ops_; }  // for ops
  const std::string& name() const { return name_; }
  Reuse reuse() const { return options_.reuse; }
  Collections& collections() const { return *collections_; }

 private:
  struct Store;

  ScopedVariable Make(const std::string& full_name, const Shape& shape, DType dtype,
                      const VariableOptions& options, const Partitioner& partitioner) const;
  Status CheckReused(const ScopedVariable& found, const Shape& shape, DType dtype,
                     const Partitioner& partitioner) const;
  ScopedVariable WithValue(ScopedVariable variable) const;

  Scope ops_;   // where ops go
  Scope home_;  // where variables go: no name scope
  std::string name_;
  VariableScopeOptions options_;
  Collections* collections_;
  std::shared_ptr<Store> store_;
};

// A variable scope as a model's variables: a model that is written for Replicate, built by hand.
class ScopedModelVariables final : public ModelVariables {
 public:
  explicit ScopedModelVariables(const VariableScope& scope)
      : scope_(scope.Reusing(Reuse::kAutoReuse)) {}
  Output Get(const std::string& name, const Shape& shape, const Initial& initial,
             DType dtype = DT_FLOAT) override;
  Output Lookup(const std::string& name, const Shape& shape, const Initial& initial,
                const Output& ids, DType dtype = DT_FLOAT) override;

 private:
  const ScopedVariable& Find(const std::string& name, const Shape& shape, const Initial& initial,
                             DType dtype);

  VariableScope scope_;
  std::map<std::string, ScopedVariable> known_;
};

}  // namespace monograph
