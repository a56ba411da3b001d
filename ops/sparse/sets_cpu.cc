// Sets along the last dimension: a group is all elements with the same other indices, and has a
// number, its place in a dense tensor of the other dimensions. SetSize counts what differs in each
// group; the three SetOperations go through the groups of two tensors side by side, make the
// elements of each a sorted list, and merge the two lists into one.
#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/gpu/moves.h"
#include "ops/sparse/sparse_cpu.h"

namespace monograph::ops::sparse {
namespace {

constexpr int64_t kNoGroup = std::numeric_limits<int64_t>::max();

// The groups of one tensor that have elements, in their order.
class Groups {
 public:
  static Result<Groups> OfDense(const Tensor& values) {
    const auto dims = values.shape().dims();
    return Groups(nullptr, values, {dims.begin(), dims.end()});
  }
  // Of inputs `first` (indices) and what follows. `ordered`: whether elements must be in order.
  static Result<Groups> OfSparse(const KernelContext& c, int first, bool ordered) {
    const Tensor &indices = c.input(first), &values = c.input(first + 1);
    MG_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(c.input(first + 2), "a set's shape"));
    MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims));
    const auto rank = static_cast<int64_t>(dims.size());
    Looks looks(c);
    for (int64_t i = 1; ordered && i < values.elements(); ++i) {
      if (!looks.GoOn(5 + rank)) return StepAborted();
      const int64_t* row = indices.data<int64_t>() + i * rank;
      if (const int order = CompareRows(row - rank, row, rank); order >= 0) {
        return InvalidArgument("indices[" + std::to_string(i) + "] is " +
                               (order == 0 ? "repeated" : "out of order") +
                               ". Many sparse ops require sorted indices. Use SparseReorder to "
                               "sort them");
      }
    }
    return Groups(&indices, values, std::move(dims));
  }

  const Tensor& values() const { return *values_; }
  // All dimensions but the last. REQUIRES: CheckRank().
  std::span<const int64_t> outer() const { return std::span(dims_).first(dims_.size() - 1); }
  Status CheckRank() const {
    if (dims_.size() >= 2) return Status();
    return InvalidArgument("sets need a rank of at least 2, not " + std::to_string(dims_.size()));
  }

  // The number of the next group; kNoGroup behind the last.
  int64_t next() const {
    if (at_ == values_->elements()) return kNoGroup;
    if (indices_ == nullptr) return at_ / dims_.back();
    int64_t number = 0;
    for (size_t d = 0; d + 1 < dims_.size(); ++d) number = number * dims_[d] + Row(at_)[d];
    return number;
  }
  // Goes past it; fn(i) for its elements. False: the step is aborted.
  template <typename Fn>
  bool Take(Looks* looks, const Fn& fn) {
    const int64_t begin = at_, n = values_->elements();
    const auto outer = static_cast<int64_t>(dims_.size()) - 1;
    while (at_ < n && (indices_ == nullptr ? at_ - begin < dims_.back()
                                           : CompareRows(Row(begin), Row(at_), outer) == 0)) {
      if (!looks->GoOn(5 + outer)) return false;
      fn(at_++);
    }
    return true;
  }

 private:
  Groups(const Tensor* indices, const Tensor& values, std::vector<int64_t> dims)
      : indices_(indices), values_(&values), dims_(std::move(dims)) {}
  const int64_t* Row(int64_t i) const {
    return indices_->data<int64_t>() + i * static_cast<int64_t>(dims_.size());
  }

  const Tensor* indices_;  // nullptr: dense
  const Tensor* values_;
  std::vector<int64_t> dims_;
  int64_t at_ = 0;
};

// The next group's elements, sorted, each once; texts are not copied.
template <typename T>
using Element = std::conditional_t<std::is_same_v<T, std::string>, std::string_view, T>;
template <typename T>
bool TakeSet(const KernelContext& c, Looks* looks, Groups* groups,
             std::vector<Element<T>>* elements) {
  const T* values = groups->values().data<T>();
  if (!groups->Take(looks, [&](int64_t i) { elements->push_back(values[i]); })) return false;
  if (!StableSort(c, elements, std::less<Element<T>>())) return false;
  size_t kept = 0;
  for (size_t i = 0; i < elements->size(); ++i) {
    if (!looks->GoOn(3)) return false;
    if (kept == 0 || (*elements)[kept - 1] != (*elements)[i]) (*elements)[kept++] = (*elements)[i];
  }
  elements->resize(kept);
  return true;
}

// Which elements of two sets go into the result: those of the first only, of the second only, of
// both.
struct Operation {
  bool first, second, both;
};

Result<Operation> OperationOf(const Attrs& attrs) {
  std::string name = attrs.Get<std::string>("set_operation");
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "a-b") return Operation{true, false, false};
  if (name == "b-a") return Operation{false, true, false};
  if (name == "intersection") return Operation{false, false, true};
  if (name == "union") return Operation{true, true, true};
  return InvalidArgument("Invalid set_operation " + name + ".");
}

template <typename T>
Status Operate(KernelContext& c, const Operation& operation, Groups* a, Groups* b) {
  struct Begin {
    int64_t group;
    size_t first;
  };
  std::vector<Begin> begins;
  std::vector<Element<T>> result, left, right;
  int64_t most = 0;
  Looks looks(c);
  for (int64_t group; (group = std::min(a->next(), b->next())) != kNoGroup;) {
    left.clear(), right.clear();
    if (!looks.GoOn(20)) return StepAborted();
    const bool in_b = b->next() == group;
    if (a->next() == group && !TakeSet<T>(c, &looks, a, &left)) return StepAborted();
    if (in_b && !TakeSet<T>(c, &looks, b, &right)) return StepAborted();
    begins.push_back({group, result.size()});
    for (size_t i = 0, k = 0; i < left.size() || k < right.size();) {
      if (!looks.GoOn(5)) return StepAborted();
      const bool first = k == right.size() || (i < left.size() && !(right[k] < left[i])),
                 second = i == left.size() || (k < right.size() && !(left[i] < right[k]));
      if (first && second ? operation.both : first ? operation.first : operation.second)
        result.push_back(first ? left[i] : right[k]);
      i += first ? 1 : 0;
      k += second ? 1 : 0;
    }
    most = std::max(most, static_cast<int64_t>(result.size() - begins.back().first));
  }
  begins.push_back({kNoGroup, result.size()});
  const std::span<const int64_t> outer = a->outer();
  const auto rank = static_cast<int64_t>(outer.size()) + 1;
  const auto n = static_cast<int64_t>(result.size());
  MG_ASSIGN_OR_RETURN(const Shape rows, Shape::Make(std::vector<int64_t>{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, rows));
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, Shape{n}));
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape{rank}));
  std::ranges::copy(outer, shape->data<int64_t>());
  shape->data<int64_t>()[rank - 1] = most;
  for (size_t g = 0; g + 1 < begins.size(); ++g) {
    for (size_t i = begins[g].first; i < begins[g + 1].first; ++i) {
      if (!looks.GoOn(5 + 5 * rank)) return StepAborted();
      int64_t* row = indices->data<int64_t>() + static_cast<int64_t>(i) * rank;
      row[rank - 1] = static_cast<int64_t>(i - begins[g].first);
      int64_t number = begins[g].group;
      for (int64_t d = rank - 1; d-- > 0; number /= outer[static_cast<size_t>(d)])
        row[d] = number % outer[static_cast<size_t>(d)];
      if constexpr (std::is_same_v<T, std::string>) {
        if (!AppendText(&looks, result[i], values->strings() + i)) return StepAborted();
      } else {
        values->data<T>()[i] = result[i];
      }
    }
  }
  return Status();
}

// fn(T{}) with the type of a set's elements.
template <typename Fn>
Status WithSetType(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DT_INT8:
      return fn(int8_t{});
    case DT_INT16:
      return fn(int16_t{});
    case DT_INT32:
      return fn(int32_t{});
    case DT_INT64:
      return fn(int64_t{});
    case DT_UINT8:
      return fn(uint8_t{});
    case DT_UINT16:
      return fn(uint16_t{});
    default:
      return fn(std::string());
  }
}
constexpr DType kSetTypes[] = {DT_INT8,  DT_INT16,  DT_INT32, DT_INT64,
                               DT_UINT8, DT_UINT16, DT_STRING};

template <bool kSparseA, bool kSparseB>
Status OperationOn(KernelContext& c, const Attrs& attrs) {
  MG_ASSIGN_OR_RETURN(const Operation operation, OperationOf(attrs));
  const bool ordered = attrs.Get<bool>("validate_indices");
  MG_ASSIGN_OR_RETURN(Groups a,
                      kSparseA ? Groups::OfSparse(c, 0, ordered) : Groups::OfDense(c.input(0)));
  constexpr int kSecond = kSparseA ? 3 : 1;
  MG_ASSIGN_OR_RETURN(Groups b, kSparseB ? Groups::OfSparse(c, kSecond, ordered)
                                         : Groups::OfDense(c.input(kSecond)));
  MG_RETURN_IF_ERROR(a.CheckRank());
  MG_RETURN_IF_ERROR(b.CheckRank());
  if (!std::ranges::equal(a.outer(), b.outer()))
    return InvalidArgument("the sets have other dimensions before their last one");
  return WithSetType(c.output_dtype(1),
                     [&](auto t) { return Operate<decltype(t)>(c, operation, &a, &b); });
}

Status SizeOf(KernelContext& c, const Attrs& attrs) {
  MG_ASSIGN_OR_RETURN(Groups groups, Groups::OfSparse(c, 0, attrs.Get<bool>("validate_indices")));
  MG_RETURN_IF_ERROR(groups.CheckRank());
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(groups.outer()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  return WithSetType(groups.values().dtype(), [&](auto t) {
    using T = decltype(t);
    std::vector<Element<T>> elements;
    Looks looks(c);
    for (int64_t group; (group = groups.next()) != kNoGroup; elements.clear()) {
      if (!looks.GoOn(20) || !TakeSet<T>(c, &looks, &groups, &elements)) return StepAborted();
      out->data<int32_t>()[group] = static_cast<int32_t>(elements.size());
    }
    return Status();
  });
}

}  // namespace

void RegisterSets(KernelRegistry* registry) {
  const auto add = [registry]<typename K>(const char* op) {
    AddForTypes<K>(registry, {.op = op}, "T", kSetTypes);
  };
  add.operator()<FunctionKernel<OperationOn<false, false>>>("DenseToDenseSetOperation");
  add.operator()<FunctionKernel<OperationOn<false, true>>>("DenseToSparseSetOperation");
  add.operator()<FunctionKernel<OperationOn<true, true>>>("SparseToSparseSetOperation");
  add.operator()<FunctionKernel<SizeOf>>("SetSize");
}

}  // namespace monograph::ops::sparse
