// Variables by name. Get finds the variable in the store that all scopes of one root share, or
// makes it, part by part if there is a partitioner. Messages are TensorFlow's. The store keeps
// variables without their joined value: parts are concatenated anew for each Get, so that the
// concatenation is in the scope and on the device of the reader.
#include "train/variable_scope.h"

#include <algorithm>
#include <utility>

#include "ops/concat/concat.h"
#include "train/embedding.h"

namespace monograph {
namespace {

using Parts = std::vector<int64_t>;

std::string Text(const Parts& parts) {
  std::string text = "[";
  for (const int64_t count : parts) text += (text.size() > 1 ? ", " : "") + std::to_string(count);
  return text + "]";
}

// The partitioner's answer, or InvalidArgument if it does not fit the shape.
Result<Parts> CallPartitioner(const Partitioner& partitioner, const Shape& shape, DType dtype) {
  MG_ASSIGN_OR_RETURN(Parts parts, partitioner(shape, dtype));
  if (static_cast<int>(parts.size()) != shape.rank()) {
    return InvalidArgument(
        "Partitioner returned a partition list that does not match the Variable's rank: " +
        Text(parts) + " vs. " + shape.ToString());
  }
  int cut = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] < 1)
      return InvalidArgument("Partitioner returned zero partitions for some axes: " + Text(parts));
    if (parts[i] == 1) continue;
    ++cut;
    if (parts[i] > shape[static_cast<int>(i)]) {
      return InvalidArgument("Partitioner returned more partitions than the dimension allows: " +
                             Text(parts) + " of shape " + shape.ToString());
    }
  }
  if (cut > 1) {
    return InvalidArgument("Can only slice a variable along one dimension: shape: " +
                           shape.ToString() + ", partitioning: " + Text(parts));
  }
  return parts;
}

// The dimension that is cut; the first if none is.
int AxisOf(const Parts& parts) {
  const auto cut = std::find_if(parts.begin(), parts.end(), [](int64_t n) { return n > 1; });
  return cut == parts.end() ? 0 : static_cast<int>(cut - parts.begin());
}

Parts PartsOf(const ScopedVariable& variable) {
  Parts parts(static_cast<size_t>(variable.shape.rank()), 1);
  if (!parts.empty())
    parts[static_cast<size_t>(variable.axis)] = static_cast<int64_t>(variable.parts.size());
  return parts;
}

Initializer DefaultInitializer(DType dtype) {
  return IsFloating(dtype) ? GlorotUniformInitializer() : ZerosInitializer();
}

template <typename T>
const T& FirstSet(const T& first, const T& second) {
  return first ? first : second;
}

std::string Join(const std::string& prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : prefix + "/" + std::string(name);
}

}  // namespace

struct VariableScope::Store {
  std::map<std::string, ScopedVariable> variables;  // without `value`
};

VariableScope::VariableScope(const Scope& scope, Collections* collections)
    : ops_(scope), home_(scope), collections_(collections), store_(std::make_shared<Store>()) {}

VariableScope VariableScope::Open(std::string_view name,
                                  const VariableScopeOptions& options) const {
  VariableScope inner = NameScope(name);
  inner.name_ = Join(name_, name);
  if (options.reuse != Reuse::kFalse) inner.options_.reuse = options.reuse;
  if (options.initializer) inner.options_.initializer = options.initializer;
  if (options.regularizer) inner.options_.regularizer = options.regularizer;
  if (options.partitioner) inner.options_.partitioner = options.partitioner;
  if (options.dtype) inner.options_.dtype = options.dtype;
  return inner;
}

VariableScope VariableScope::Reusing(Reuse reuse) const {
  VariableScope same = *this;
  same.options_.reuse = reuse;
  return same;
}

VariableScope VariableScope::NameScope(std::string_view name) const {
  VariableScope inner = *this;
  inner.ops_ = ops_.SubScope(name);
  return inner;
}

VariableScope VariableScope::WithDevice(std::string_view device) const {
  VariableScope inner = *this;
  inner.ops_ = ops_.WithDevice(device);
  inner.home_ = home_.WithDevice(device);
  return inner;
}

VariableScope VariableScope::WithDeviceFunction(const Scope::DeviceFunction& function) const {
  VariableScope inner = *this;
  inner.ops_ = ops_.WithDeviceFunction(function);
  inner.home_ = home_.WithDeviceFunction(function);
  return inner;
}

ScopedVariable VariableScope::Get(const std::string& name, const Shape& shape,
                                  const VariableOptions& options) const {
  if (!ops_.ok()) return {};
  const std::string full_name = Join(name_, name);
  const DType dtype = options.dtype.value_or(options_.dtype.value_or(DT_FLOAT));
  const Partitioner& partitioner = FirstSet(options.partitioner, options_.partitioner);
  const auto found = store_->variables.find(full_name);
  if (found != store_->variables.end()) {
    if (Status status = CheckReused(found->second, shape, dtype, partitioner); !status.ok()) {
      ops_.Fail(status);
      return {};
    }
    return WithValue(found->second);
  }
  if (options_.reuse == Reuse::kTrue) {
    ops_.Fail(NotFound((partitioner ? "PartitionedVariable " : "Variable ") + full_name +
                       " does not exist, or was not created with VariableScope::Get. Did you mean "
                       "to set reuse=False or reuse=AUTO_REUSE in VarScope?"));
    return {};
  }
  ScopedVariable made = Make(full_name, shape, dtype, options, partitioner);
  if (!ops_.ok()) return {};
  return WithValue(store_->variables.emplace(full_name, std::move(made)).first->second);
}

Status VariableScope::CheckReused(const ScopedVariable& found, const Shape& shape, DType dtype,
                                  const Partitioner& partitioner) const {
  const std::string kind = found.partitioned ? "partitioned variable " : "variable ";
  if (found.partitioned != static_cast<bool>(partitioner)) {
    return InvalidArgument(
        found.partitioned
            ? "No partitioner was provided, but a partitioned version of the variable was found: " +
                  found.name +
                  "/part_0. Perhaps a variable of the same name was already created with "
                  "partitioning?"
            : "A partitioner was provided, but an unpartitioned version of the variable was "
              "found: " +
                  found.name +
                  ". Perhaps a variable of the same name was already created without "
                  "partitioning?");
  }
  if (options_.reuse == Reuse::kFalse) {
    return AlreadyExists(found.partitioned
                             ? "Partitioned variable with name " + found.name +
                                   " already exists. Did you mean to set reuse=True or "
                                   "reuse=AUTO_REUSE in VarScope?"
                             : "Variable " + found.name +
                                   " already exists, disallowed. Did you mean to set reuse=True or "
                                   "reuse=AUTO_REUSE in VarScope?");
  }
  if (!(shape == found.shape)) {
    return InvalidArgument((found.partitioned ? "Trying to reuse " : "Trying to share ") + kind +
                           found.name + ", but specified shape " + shape.ToString() +
                           " and found shape " + found.shape.ToString() + ".");
  }
  if (dtype != found.dtype) {
    return InvalidArgument((found.partitioned ? "Trying to reuse " : "Trying to share ") + kind +
                           found.name + ", but specified dtype " + std::string(DTypeName(dtype)) +
                           " and found dtype " + std::string(DTypeName(found.dtype)) + ".");
  }
  if (!partitioner) return Status();
  MG_ASSIGN_OR_RETURN(const Parts parts, CallPartitioner(partitioner, shape, dtype));
  if (parts == PartsOf(found)) return Status();
  return InvalidArgument("Trying to reuse partitioned variable " + found.name +
                         ", but specified partitions " + Text(parts) + " and found partitions " +
                         Text(PartsOf(found)) + ".");
}

ScopedVariable VariableScope::Make(const std::string& full_name, const Shape& shape, DType dtype,
                                   const VariableOptions& options,
                                   const Partitioner& partitioner) const {
  ScopedVariable made{.name = full_name, .shape = shape, .dtype = dtype};
  Parts parts(static_cast<size_t>(shape.rank()), 1);
  if (partitioner) {
    Result<Parts> asked = CallPartitioner(partitioner, shape, dtype);
    if (!asked.ok()) {
      ops_.Fail(asked.status().WithContext("variable '" + full_name + "'"));
      return made;
    }
    parts = std::move(asked).value();
    made.partitioned = true;
    made.axis = AxisOf(parts);
  }
  Initializer initializer = FirstSet(options.initializer, options_.initializer);
  if (!initializer) initializer = DefaultInitializer(dtype);
  const Regularizer& regularizer = FirstSet(options.regularizer, options_.regularizer);
  std::vector<PartRange> ranges = {{0, 0}};
  if (shape.rank() > 0)
    ranges = CutDimension(shape[made.axis], parts[static_cast<size_t>(made.axis)]);
  for (size_t i = 0; i < ranges.size(); ++i) {
    VariablePart part{.shape = shape,
                      .full_shape = shape,
                      .offset = std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0),
                      .dtype = dtype};
    if (shape.rank() > 0) {
      part.shape.set_dim(made.axis, ranges[i].size);
      part.offset[static_cast<size_t>(made.axis)] = ranges[i].begin;
    }
    const std::string name =
        made.partitioned ? full_name + "/part_" + std::to_string(i) : full_name;
    const ModelVariable variable =
        MakeVariable(home_, name, part.shape, dtype,
                     [&](const Scope& beside) { return initializer(beside, part); });
    if (!ops_.ok()) return made;
    made.parts.push_back(variable);
    for (const std::string& collection : options.collections)
      collections_->Add(collection, variable);
    if (options.collections.empty()) collections_->Add(GraphKeys::kGlobalVariables, variable);
    if (options.trainable) collections_->Add(GraphKeys::kTrainableVariables, variable);
    if (!regularizer) continue;
    const Scope beside = home_.ReuseScope(name + "/Regularizer").ColocateWith(variable.handle);
    const Output penalty = regularizer(beside, variable.value);
    if (penalty.valid()) collections_->Add(GraphKeys::kRegularizationLosses, penalty);
  }
  return made;
}

ScopedVariable VariableScope::WithValue(ScopedVariable variable) const {
  Outputs values;
  for (const ModelVariable& part : variable.parts) values.push_back(part.value);
  variable.value = values.size() == 1
                       ? values[0]
                       : Concat(ops_.WithOpName("concat_partitions"), values, variable.axis);
  return variable;
}

Output ScopedModelVariables::Get(const std::string& name, const Shape& shape,
                                 const Initial& initial, DType dtype) {
  return Find(name, shape, initial, dtype).value;
}

Output ScopedModelVariables::Lookup(const std::string& name, const Shape& shape,
                                    const Initial& initial, const Output& ids, DType dtype) {
  return EmbeddingLookup(scope_.scope(), Find(name, shape, initial, dtype), ids,
                         PartitionStrategy::kDiv);
}

const ScopedVariable& ScopedModelVariables::Find(const std::string& name, const Shape& shape,
                                                 const Initial& initial, DType dtype) {
  const auto known = known_.find(name);
  if (known != known_.end() && known->second.shape == shape && known->second.dtype == dtype)
    return known->second;
  VariableOptions options{.dtype = dtype};
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      options.initializer = ConstantInitializer(initial.parameter);
      break;
    case Initial::Kind::kTruncatedNormal:
      options.initializer = TruncatedNormalInitializer(0, initial.parameter);
      break;
    case Initial::Kind::kValue:
      options.initializer = ValueInitializer(initial.value);
      break;
  }
  return known_[name] = scope_.Get(name, shape, options);
}

}  // namespace monograph
