// CPU kernels that change rows or slices of a variable in other ways than by sums: one after the
// other, in the order of their indices.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "ops/check_indices.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/variable/assign.h"
#include "ops/variable/variable_cpu.h"

namespace monograph::ops::variable {
namespace {

struct Set {
  template <typename T>
  static T Of(T, T update) {
    return update;
  }
};
struct Add {
  template <typename T>
  static T Of(T old, T update) {
    return T(old + update);
  }
};
struct Sub {
  template <typename T>
  static T Of(T old, T update) {
    return T(old - update);
  }
};
struct Mul {
  template <typename T>
  static T Of(T old, T update) {
    return T(old * update);
  }
};
struct Div {
  template <typename T>
  static T Of(T old, T update) {
    return T(old / update);
  }
};
struct Min {
  template <typename T>
  static T Of(T old, T update) {
    return update < old ? update : old;
  }
};
struct Max {
  template <typename T>
  static T Of(T old, T update) {
    return old < update ? update : old;
  }
};

// Division by an integer zero is an error, and nothing may be changed then.
template <typename T, typename Op>
Status CheckDivisors(const Tensor& updates) {
  if constexpr (std::is_integral_v<T> && std::is_same_v<Op, Div>) {
    const auto values = updates.values<T>();
    if (std::find(values.begin(), values.end(), T(0)) != values.end())
      return InvalidArgument("Integer division by zero");
  }
  return Status();
}

// The variable's value where it may be written, what was there included.
template <typename T>
Result<T*> Writable(const Tensor& value, UpdateTarget* target) {
  const T* before = target->before<T>();
  T* after = target->after<T>();
  if (after != before && value.bytes() > 0) std::memcpy(after, before, value.bytes());
  return after;
}

template <typename T, typename Op>
void Combine(T* to, const T* from, int64_t count, bool scalar) {
  for (int64_t k = 0; k < count; ++k) to[k] = Op::template Of<T>(to[k], from[scalar ? 0 : k]);
}

template <typename T, typename I, typename Op>
class ScatterRowsKernel : public Kernel {
 public:
  explicit ScatterRowsKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, kDTypeOf<T>));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor &indices = c.input(1), &updates = c.input(2);
    const Shape shape = variable->value.shape();
    MG_RETURN_IF_ERROR(CheckUpdates(*variable, indices.shape(), updates.shape()));
    MG_RETURN_IF_ERROR(CheckIndices(indices.values<I>(), shape[0]));
    MG_RETURN_IF_ERROR((CheckDivisors<T, Op>(updates)));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
    MG_ASSIGN_OR_RETURN(T * table, Writable<T>(variable->value, &target));
    const int64_t columns = shape[0] == 0 ? 0 : shape.elements() / shape[0];
    const bool scalar = updates.shape().rank() == 0;
    const T* from = updates.data<T>();
    for (const I index : indices.values<I>()) {
      Combine<T, Op>(table + static_cast<int64_t>(index) * columns, from, columns, scalar);
      if (!scalar) from += columns;
    }
    target.Commit();
    return Status();
  }
};

// Each of the innermost vectors of the indices names an element or a slice.
template <typename T, typename I, typename Op>
class ScatterNdKernel : public Kernel {
 public:
  explicit ScatterNdKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, kDTypeOf<T>));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor &indices = c.input(1), &updates = c.input(2);
    const Shape shape = variable->value.shape();
    MG_RETURN_IF_ERROR(CheckShapes(shape, indices.shape(), updates.shape()));
    const int depth = static_cast<int>(indices.shape()[indices.shape().rank() - 1]);
    MG_RETURN_IF_ERROR(CheckAll(shape, depth, indices.values<I>()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
    MG_ASSIGN_OR_RETURN(T * table, Writable<T>(variable->value, &target));
    int64_t size = 1;
    for (int i = depth; i < shape.rank(); ++i) size *= shape[i];
    const int64_t count = size == 0 ? 0 : updates.elements() / size;
    const I* index = indices.data<I>();
    const T* from = updates.data<T>();
    for (int64_t n = 0; n < count; ++n, index += depth, from += size) {
      int64_t at = 0;
      for (int i = 0; i < depth; ++i) at = at * shape[i] + static_cast<int64_t>(index[i]);
      Combine<T, Op>(table + at * size, from, size, false);
    }
    target.Commit();
    return Status();
  }

 private:
  static Status CheckShapes(const Shape& shape, const Shape& indices, const Shape& updates) {
    if (shape.rank() < 1) return InvalidArgument("a scalar variable has no slices to update");
    const int outer = indices.rank() - 1;
    const int64_t depth = outer < 0 ? 0 : indices[outer];
    bool fits = outer >= 0 && depth <= shape.rank() &&
                updates.rank() == outer + shape.rank() - static_cast<int>(depth);
    for (int i = 0; fits && i < updates.rank(); ++i)
      fits = updates[i] == (i < outer ? indices[i] : shape[static_cast<int>(depth) + i - outer]);
    if (fits) return Status();
    return InvalidArgument("updates of shape " + updates.ToString() +
                           " do not fit indices of shape " + indices.ToString() +
                           " into a variable of shape " + shape.ToString());
  }

  static Status CheckAll(const Shape& shape, int depth, std::span<const I> indices) {
    for (size_t at = 0; depth > 0 && at < indices.size(); at += static_cast<size_t>(depth)) {
      const auto index = indices.subspan(at, static_cast<size_t>(depth));
      bool inside = true;
      std::string text;
      for (int i = 0; i < depth; ++i) {
        const auto value = static_cast<int64_t>(index[static_cast<size_t>(i)]);
        inside = inside && value >= 0 && value < shape[i];
        text += (i > 0 ? ", " : "") + std::to_string(value);
      }
      if (inside) continue;
      return InvalidArgument("indices[" + std::to_string(at / static_cast<size_t>(depth)) +
                             "] = [" + text + "] does not index into param shape " +
                             shape.ToString());
    }
    return Status();
  }
};

template <typename T, typename Op>
void AddRows(KernelRegistry* registry, const char* op) {
  const auto add = [&]<typename I>() {
    registry->Add<ScatterRowsKernel<T, I, Op>>(
        {.op = op,
         .types = {{"dtype", kDTypeOf<T>}, {"Tindices", kDTypeOf<I>}},
         .host_args = {"resource"}});
  };
  add.template operator()<int32_t>();
  add.template operator()<int64_t>();
}

template <typename T, typename Op>
void AddNd(KernelRegistry* registry, const char* op) {
  const auto add = [&]<typename I>() {
    registry->Add<ScatterNdKernel<T, I, Op>>(
        {.op = op, .types = {{"T", kDTypeOf<T>}, {"Tindices", kDTypeOf<I>}}, .host_args = {"ref"}});
  };
  add.template operator()<int32_t>();
  add.template operator()<int64_t>();
}

template <typename T>
void AddAll(KernelRegistry* registry) {
  AddRows<T, Set>(registry, "ResourceScatterUpdate");
  AddRows<T, Mul>(registry, "ResourceScatterMul");
  AddRows<T, Div>(registry, "ResourceScatterDiv");
  AddRows<T, Min>(registry, "ResourceScatterMin");
  AddRows<T, Max>(registry, "ResourceScatterMax");
  AddNd<T, Set>(registry, "ResourceScatterNdUpdate");
  AddNd<T, Add>(registry, "ResourceScatterNdAdd");
  AddNd<T, Sub>(registry, "ResourceScatterNdSub");
  AddNd<T, Min>(registry, "ResourceScatterNdMin");
  AddNd<T, Max>(registry, "ResourceScatterNdMax");
}

}  // namespace

void RegisterScatters(KernelRegistry* registry) {
#define ADD(T) AddAll<T>(registry);
  MG_NUMBER_TYPES(ADD)
#undef ADD
  AddRows<bool, Set>(registry, "ResourceScatterUpdate");
  AddNd<bool, Set>(registry, "ResourceScatterNdUpdate");
}

}  // namespace monograph::ops::variable
