// Kernels of lists of tensors. A list is a value: who changes one gets a new one. Where nobody else
// holds the old one (a loop that writes one element in each iteration) the new one is the old one,
// changed (ListToChange), so that n writes cost n and not n * n.
//
// Elements share the memory of what was put into the list; rows of a tensor share the tensor's.
// What is refused, and in which words, is as in TensorFlow.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/kernel_util.h"
#include "ops/cpu/tensor_util_cpu.h"
#include "ops/tensor_list/list_value_cpu.h"

namespace monograph::ops::tensor_list {
namespace {

std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }

Result<std::shared_ptr<TensorList>> AsList(const Tensor& tensor, int64_t i) {
  const Variant& value = tensor.variants()[i];
  auto list = std::dynamic_pointer_cast<TensorList>(value);
  if (list != nullptr) return list;
  return InvalidArgument("Input handle is not a list. Saw: '" +
                         (value == nullptr ? "" : std::string(value->type_name())) + "'");
}

Result<std::shared_ptr<TensorList>> FindList(const KernelContext& c) {
  const Tensor& handle = c.input(0);
  if (handle.shape().rank() != 0) {
    return InvalidArgument("Input list must be a scalar saw: " + handle.shape().ToString());
  }
  return AsList(handle, 0);
}

Result<std::shared_ptr<TensorList>> FindList(const KernelContext& c, DType dtype) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c));
  if (list->spec().dtype == dtype) return list;
  return InvalidArgument("Invalid data types; op elements " + Name(dtype) + " but list elements " +
                         Name(list->spec().dtype));
}

Tensor HandleOf(Variant list) {
  Tensor handle = Tensor::Allocate(DT_VARIANT, Shape()).value();
  *handle.variants() = std::move(list);
  return handle;
}

// `list`, which is input 0, for a kernel that changes it: itself if the step has no other use for
// it, else a copy. The kernel takes input 0.
Result<std::shared_ptr<TensorList>> ListToChange(KernelContext& c,
                                                 std::shared_ptr<TensorList> list) {
  {
    const Tensor handle = c.TakeInput(0);
    if (handle.unique() && list.use_count() == 2) return list;  // in `handle`, and `list`
  }
  return list->Copy();
}

Result<int32_t> ScalarOf(const Tensor& tensor, const char* what) {
  if (tensor.shape().rank() == 0) return tensor.scalar<int32_t>();
  return InvalidArgument(std::string(what) +
                         " must be a scalar, but got shape: " + tensor.shape().ToString());
}

// The shape of elements that input i says: a vector, or the scalar -1 if nothing is known.
Result<PartialShape> ShapeInput(const KernelContext& c, int i) {
  const Tensor& input = c.input(i);
  MG_ASSIGN_OR_RETURN(const SmallInts dims, IntsOf(input, "element_shape"));
  if (input.shape().rank() == 0) {
    if (dims[0] == -1) return PartialShape();
    return InvalidArgument(
        "The only valid scalar shape tensor is the fully unknown shape specified as -1.");
  }
  if (dims.size() > kMaxRank) {
    return InvalidArgument("element_shape has " + std::to_string(dims.size()) +
                           " dimensions, more than " + std::to_string(kMaxRank));
  }
  for (const int64_t dim : dims.span()) {
    if (dim < -1) return InvalidArgument("element_shape has a dimension of " + std::to_string(dim));
  }
  return PartialShape(dims.span());
}

// The same, and what the list knows.
Result<PartialShape> ElementShape(const KernelContext& c, const TensorList& list, int i) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, i));
  return PartialShape::Merge(shape, list.spec().shape);
}

// `shape`, and what those of the elements have that are set.
Result<PartialShape> MergeElements(PartialShape shape, std::span<const Tensor> elements) {
  for (const Tensor& element : elements) {
    if (!element.valid()) continue;
    MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, element.shape()));
  }
  return shape;
}

std::vector<int64_t> Prepended(int64_t first, std::span<const int64_t> rest) {
  std::vector<int64_t> dims{first};
  dims.insert(dims.end(), rest.begin(), rest.end());
  return dims;
}

// Output 0: these elements as rows; those that are not set are zeros.
Status StackRows(KernelContext& c, DType dtype, const Shape& shape, std::vector<Tensor> rows) {
  Tensor zeros;
  for (Tensor& row : rows) {
    if (row.valid()) continue;
    if (!zeros.valid()) {
      MG_ASSIGN_OR_RETURN(zeros, ZeroTensor(c, dtype, shape));
    }
    row = zeros;
  }
  return JoinRows(c, 0, rows, Prepended(static_cast<int64_t>(rows.size()), shape.dims()));
}

// A kernel that has an attribute element_dtype.
class TypedKernel : public Kernel {
 public:
  explicit TypedKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("element_dtype")) {}

 protected:
  const DType dtype_;
};

class EmptyKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    if (c.input(1).shape().rank() != 0) {
      return InvalidArgument("max_num_elements expected to be a scalar but got shape: " +
                             c.input(1).shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, 0));
    c.set_output(0, HandleOf(std::make_shared<TensorList>(
                        TensorList::Spec{dtype_, shape, c.input(1).scalar<int32_t>()})));
    return Status();
  }
};

class ReserveKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, 0));
    if (c.input(1).shape().rank() != 0) {
      return InvalidArgument("The num_elements to reserve must be a tensor size 1, but got " +
                             c.input(1).shape().ToString());
    }
    const auto size = c.input(1).scalar<int32_t>();
    if (size < 0) {
      return InvalidArgument("The num_elements to reserve must be a non negative number, but got " +
                             std::to_string(size));
    }
    const auto list = std::make_shared<TensorList>(TensorList::Spec{dtype_, shape});
    MG_RETURN_IF_ERROR(list->Resize(size));
    c.set_output(0, HandleOf(list));
    return Status();
  }
};

class LengthKernel : public Kernel {
 public:
  explicit LengthKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c));
    c.set_output(0, Tensor::Scalar(static_cast<int32_t>(list->elements().size())));
    return Status();
  }
};

class ElementShapeKernel : public Kernel {
 public:
  explicit ElementShapeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c));
    const PartialShape& known = list->spec().shape;
    const Shape shape = known.known_rank() ? Shape{known.rank()} : Shape();
    MG_ASSIGN_OR_RETURN(Tensor * dims, c.AllocateOutput(0, shape));
    const int64_t unknown = -1;
    const auto from = known.known_rank() ? known.dims() : std::span(&unknown, 1);
    for (size_t i = 0; i < from.size(); ++i) {
      if (dims->dtype() == DT_INT32) {
        dims->data<int32_t>()[i] = static_cast<int32_t>(from[i]);
      } else {
        dims->data<int64_t>()[i] = from[i];
      }
    }
    return Status();
  }
};

class PushBackKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    const Tensor element = c.input(1);
    MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c));
    const TensorList::Spec& spec = list->spec();
    if (!spec.shape.Accepts(element.shape())) {
      return InvalidArgument(
          "Tried to append a tensor with incompatible shape to a list. Op element shape: " +
          element.shape().ToString() + " list shape: " + spec.shape.ToString());
    }
    MG_RETURN_IF_ERROR(FindList(c, dtype_).status());
    const size_t size = list->elements().size();
    if (spec.max_elements != -1 && static_cast<int64_t>(size) >= spec.max_elements) {
      return InvalidArgument(
          "Tried to push item into a full list list size: " + std::to_string(size) +
          " max_num_elements: " + std::to_string(spec.max_elements));
    }
    MG_ASSIGN_OR_RETURN(list, ListToChange(c, std::move(list)));
    MG_RETURN_IF_ERROR(list->Push(element));
    c.set_output(0, HandleOf(std::move(list)));
    return Status();
  }
};

class PopBackKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c, dtype_));
    if (list->elements().empty()) return InvalidArgument("Trying to pop from an empty list.");
    Tensor element = list->elements().back();
    if (!element.valid()) {
      MG_ASSIGN_OR_RETURN(const PartialShape shape, ElementShape(c, *list, 1));
      if (!shape.fully_known()) {
        return InvalidArgument(
            "Trying to read an uninitialized tensor but element_shape is not fully defined." +
            shape.ToString());
      }
      MG_ASSIGN_OR_RETURN(element, ZeroTensor(c, dtype_, shape.AsShape()));
    }
    MG_ASSIGN_OR_RETURN(list, ListToChange(c, std::move(list)));
    list->Pop();
    c.set_output(0, HandleOf(std::move(list)));
    c.set_output(1, std::move(element));
    return Status();
  }
};

class GetItemKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c, dtype_));
    MG_ASSIGN_OR_RETURN(const int32_t index, ScalarOf(c.input(1), "index"));
    const std::span<const Tensor> elements = list->elements();
    if (index < 0 || static_cast<size_t>(index) >= elements.size()) {
      return InvalidArgument("Trying to access element " + std::to_string(index) +
                             " in a list with " + std::to_string(elements.size()) + " elements.");
    }
    Tensor element = elements[static_cast<size_t>(index)];
    if (!element.valid()) {
      MG_ASSIGN_OR_RETURN(PartialShape shape, ElementShape(c, *list, 2));
      if (!shape.fully_known()) {
        MG_ASSIGN_OR_RETURN(shape, MergeElements(shape, elements));
      }
      if (!shape.fully_known()) {
        return InvalidArgument(
            "Trying to read an uninitialized tensor but element_shape is not fully defined: " +
            shape.ToString() + " and no list element is set.");
      }
      MG_ASSIGN_OR_RETURN(element, ZeroTensor(c, dtype_, shape.AsShape()));
    }
    c.set_output(0, std::move(element));
    return Status();
  }
};

class SetItemKernel : public TypedKernel {
 public:
  explicit SetItemKernel(const KernelConstruction& k)
      : TypedKernel(k), resize_(k.attrs().GetOr<bool>("resize_if_index_out_of_bounds", false)) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c, dtype_));
    MG_ASSIGN_OR_RETURN(const int32_t index, ScalarOf(c.input(1), "index"));
    const auto at = static_cast<size_t>(index);
    if (index < 0 || (at >= list->elements().size() && !resize_)) {
      return InvalidArgument("Trying to modify element " + std::to_string(index) +
                             " in a list with " + std::to_string(list->elements().size()) +
                             " elements.");
    }
    const Tensor element = c.input(2);
    if (!list->spec().shape.Accepts(element.shape())) {
      return InvalidArgument(
          "Tried to set a tensor with incompatible shape at a list index. Item element shape: " +
          element.shape().ToString() + " list shape: " + list->spec().shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(list, ListToChange(c, std::move(list)));
    if (at >= list->elements().size())
      MG_RETURN_IF_ERROR(list->Resize(static_cast<int64_t>(index) + 1));
    MG_RETURN_IF_ERROR(list->Set(at, element));
    c.set_output(0, HandleOf(std::move(list)));
    return Status();
  }

 private:
  const bool resize_;
};

class ResizeKernel : public Kernel {
 public:
  explicit ResizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c));
    MG_ASSIGN_OR_RETURN(const int32_t size, ScalarOf(c.input(1), "size"));
    if (size < 0) {
      return InvalidArgument("TensorListSlice expects size to be non-negative. Got: " +
                             std::to_string(size));
    }
    MG_ASSIGN_OR_RETURN(list, ListToChange(c, std::move(list)));
    MG_RETURN_IF_ERROR(list->Resize(size));
    c.set_output(0, HandleOf(std::move(list)));
    return Status();
  }
};

class StackKernel : public TypedKernel {
 public:
  explicit StackKernel(const KernelConstruction& k)
      : TypedKernel(k), num_elements_(k.attr<int64_t>("num_elements")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c, dtype_));
    const std::span<const Tensor> elements = list->elements();
    if (num_elements_ != -1 && static_cast<int64_t>(elements.size()) != num_elements_) {
      return InvalidArgument("Operation expected a list with " + std::to_string(num_elements_) +
                             " elements but got a list with " + std::to_string(elements.size()) +
                             " elements.");
    }
    MG_ASSIGN_OR_RETURN(PartialShape shape, ElementShape(c, *list, 1));
    if (!shape.fully_known() && elements.empty()) {
      return InvalidArgument(
          "Tried to stack elements of an empty list with non-fully-defined element_shape: " +
          shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(shape, MergeElements(shape, elements));
    if (!shape.fully_known()) {
      return InvalidArgument(
          "Tried to stack list which only contains uninitialized tensors and has a "
          "non-fully-defined element_shape: " +
          shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(elements.size()));
    return StackRows(c, dtype_, shape.AsShape(), {elements.begin(), elements.end()});
  }

 private:
  const int64_t num_elements_;
};

class GatherKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c, dtype_));
    const auto indices = c.input(1).values<int32_t>();
    MG_ASSIGN_OR_RETURN(PartialShape shape, ElementShape(c, *list, 2));
    if (!shape.fully_known() && indices.empty()) {
      return InvalidArgument(
          "Tried to gather 0-elements from a list with non-fully-defined shape: " +
          shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(indices.size()));
    std::vector<Tensor> rows;
    rows.reserve(indices.size());
    for (const int32_t index : indices) {
      if (c.cancelled()) return Status();
      if (index < 0 || static_cast<size_t>(index) >= list->elements().size()) {
        return InvalidArgument("Index " + std::to_string(index) + " out o range; list only has " +
                               std::to_string(list->elements().size()) + " elements.");
      }
      rows.push_back(list->elements()[static_cast<size_t>(index)]);
    }
    MG_ASSIGN_OR_RETURN(shape, MergeElements(shape, rows));
    if (!shape.fully_known()) {
      return InvalidArgument(
          "Tried to gather uninitialized tensors from a list with non-fully-defined "
          "element_shape: " +
          shape.ToString());
    }
    return StackRows(c, dtype_, shape.AsShape(), std::move(rows));
  }
};

// The first dimension of elements and the others.
struct SplitShape {
  int64_t first = -1;
  PartialShape rest;
};
SplitShape SplitFirst(const PartialShape& shape) {
  if (!shape.known_rank() || shape.rank() == 0) return {};
  return {shape.dim(0), PartialShape(shape.dims().subspan(1))};
}

class ConcatKernel : public TypedKernel {
 public:
  explicit ConcatKernel(const KernelConstruction& k)
      : TypedKernel(k), shape_(k.attrs().GetOr<PartialShape>("element_shape", PartialShape())) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> list, FindList(c, dtype_));
    SplitShape shape = {-1, SplitFirst(shape_).rest};
    const bool has_lengths = c.num_inputs() > 2;  // the second version
    if (has_lengths) {
      MG_ASSIGN_OR_RETURN(const PartialShape whole, ElementShape(c, *list, 1));
      if (whole.known_rank() && whole.rank() < 1) {
        return InvalidArgument(
            "Concat requires elements to be at least vectors, found scalars instead.");
      }
      shape = SplitFirst(whole);
    }
    const std::span<const Tensor> elements = list->elements();
    if (elements.empty() && !shape.rest.fully_known()) {
      return InvalidArgument(
          "All except the first dimension must be fully defined when concating an empty tensor "
          "list. element_shape: " +
          shape.rest.ToString());
    }
    MG_RETURN_IF_ERROR(Merge(elements, &shape));
    if (!shape.rest.fully_known()) {
      return InvalidArgument(
          "Trying to concat list with only uninitialized tensors but "
          "element_shape_except_first_dim is not fully defined: " +
          shape.rest.ToString());
    }
    const std::span<const int64_t> dims = shape.rest.dims();
    MG_ASSIGN_OR_RETURN(Tensor * lengths,
                        c.AllocateOutput(1, Shape{static_cast<int64_t>(elements.size())}));
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(elements.size()));
    std::vector<Tensor> parts(elements.begin(), elements.end());
    int64_t rows = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (c.cancelled()) return Status();
      if (!parts[i].valid()) {
        MG_ASSIGN_OR_RETURN(const int64_t length, MissingLength(c, i, shape.first));
        MG_ASSIGN_OR_RETURN(const Shape missing, Shape::Make(Prepended(length, dims)));
        MG_ASSIGN_OR_RETURN(parts[i], ZeroTensor(c, dtype_, missing));
      }
      lengths->data<int64_t>()[i] = parts[i].shape().dim(0);
      if (__builtin_add_overflow(rows, parts[i].shape().dim(0), &rows))
        return InvalidArgument("the elements together have more rows than 63 bits can count");
    }
    return JoinRows(c, 0, parts, Prepended(rows, dims));
  }

 private:
  // What the elements that are set tell. A first dimension that they all have becomes the one of
  // those that are not set.
  static Status Merge(std::span<const Tensor> elements, SplitShape* shape) {
    int64_t common = shape->first;
    bool differ = false;
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!elements[i].valid()) continue;
      const Shape& its = elements[i].shape();
      if (its.rank() == 0) {
        return InvalidArgument("Concat saw a scalar shape at index " + std::to_string(i) +
                               " but requires at least vectors.");
      }
      MG_ASSIGN_OR_RETURN(shape->rest,
                          PartialShape::Merge(shape->rest, PartialShape(its.dims().subspan(1))));
      if (shape->first != -1 && shape->first != its.dim(0)) {
        return InvalidArgument(
            "First entry of element_shape input does not match the first dim of list element at "
            "index: " +
            std::to_string(i) + " Expected: " + std::to_string(shape->first) +
            " Actual: " + std::to_string(its.dim(0)));
      }
      differ = differ || (common != -1 && common != its.dim(0));
      common = its.dim(0);
    }
    if (!differ) shape->first = common;
    return Status();
  }

  // Of an element that is not set.
  static Result<int64_t> MissingLength(const KernelContext& c, size_t i, int64_t first) {
    const bool given = c.num_inputs() > 2 && i < static_cast<size_t>(c.input(2).elements());
    if (!given && first != -1) return first;
    if (c.num_inputs() <= 2) {
      return InvalidArgument(
          "Concating lists with uninitialized tensors is not supported in this version of "
          "TensorListConcat. Consider updating your GraphDef to run the newer version.");
    }
    if (given) return c.input(2).data<int64_t>()[i];
    return InvalidArgument("List contains uninitialized tensor at index " + std::to_string(i) +
                           " but leading_dims has only " + std::to_string(c.input(2).elements()) +
                           " elements.");
  }

  const PartialShape shape_;  // of the first version
};

// The shape of a row of `tensor`, which a list of elements of `shape` takes.
Result<Shape> RowShape(const Tensor& tensor, const PartialShape& shape) {
  if (tensor.shape().rank() == 0) {
    return InvalidArgument("Tensor must be at least a vector, but saw shape: " +
                           tensor.shape().ToString());
  }
  const Shape row(tensor.shape().dims().subspan(1));
  if (shape.Accepts(row)) return row;
  return InvalidArgument("Specified a list with shape " + shape.ToString() +
                         " from a tensor with shape " + row.ToString());
}

class FromTensorKernel : public Kernel {
 public:
  explicit FromTensorKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor& tensor = c.input(0);
    MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, 1));
    MG_ASSIGN_OR_RETURN(const Shape row, RowShape(tensor, shape));
    const auto list = std::make_shared<TensorList>(TensorList::Spec{tensor.dtype(), shape});
    MG_RETURN_IF_ERROR(list->Resize(tensor.shape().dim(0)));
    for (int64_t i = 0; i < tensor.shape().dim(0); ++i) {
      if (c.cancelled()) return Status();
      MG_ASSIGN_OR_RETURN(Tensor element, RowsAs(tensor, i, i + 1, row));
      MG_RETURN_IF_ERROR(list->Set(static_cast<size_t>(i), std::move(element)));
    }
    c.set_output(0, HandleOf(list));
    return Status();
  }
};

class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &tensor = c.input(0), &lengths = c.input(2);
    MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, 1));
    if (shape.known_rank() && shape.rank() < 1) {
      return InvalidArgument(
          "TensorListSplit requires element_shape to be at least of rank 1, but saw: " +
          shape.ToString());
    }
    if (tensor.shape().rank() == 0) {
      return InvalidArgument("Tensor must be at least a vector, but saw shape: " +
                             tensor.shape().ToString());
    }
    const std::span<const int64_t> rest = tensor.shape().dims().subspan(1);
    if (!SplitFirst(shape).rest.Accepts(Shape(rest))) {
      return InvalidArgument("tensor shape " + tensor.shape().ToString() +
                             " is not compatible with element_shape " + shape.ToString());
    }
    if (lengths.shape().rank() != 1) {
      return InvalidArgument("Expected lengths to be a vector, received shape: " +
                             lengths.shape().ToString());
    }
    const auto list = std::make_shared<TensorList>(TensorList::Spec{tensor.dtype(), shape});
    MG_RETURN_IF_ERROR(list->Resize(lengths.elements()));
    const int64_t rows = tensor.shape().dim(0);
    int64_t start = 0;
    for (int64_t i = 0; i < lengths.elements(); ++i) {
      if (c.cancelled()) return Status();
      const int64_t length = lengths.data<int64_t>()[i];
      if (length < 0) return InvalidArgument("Invalid value in lengths: " + std::to_string(length));
      if (length > rows - start) {
        return InvalidArgument(
            "Attempting to slice [" + std::to_string(start) + ", " +
            std::to_string(static_cast<uint64_t>(start) + static_cast<uint64_t>(length)) +
            "] from tensor with length " + std::to_string(rows));
      }
      const Shape part(Prepended(length, rest));
      MG_ASSIGN_OR_RETURN(Tensor element, RowsAs(tensor, start, start + length, part));
      MG_RETURN_IF_ERROR(list->Set(static_cast<size_t>(i), std::move(element)));
      start += length;
    }
    if (start != rows) {
      return InvalidArgument("Unused values in tensor. Length of tensor: " + std::to_string(rows) +
                             " Values used: " + std::to_string(start));
    }
    c.set_output(0, HandleOf(list));
    return Status();
  }
};

// Row i of `tensor` becomes element indices[i]; the list gets longer where it must.
Status Scatter(const KernelContext& c, const Tensor& tensor, std::span<const int32_t> indices,
               const Shape& row, int64_t size, TensorList* list) {
  for (const int32_t index : indices) {
    if (index < 0) {
      return InvalidArgument("Indices in TensorListScatter must all be non-negative.");
    }
    size = std::max(size, int64_t{index} + 1);
  }
  MG_RETURN_IF_ERROR(list->Resize(size));
  for (size_t i = 0; i < indices.size(); ++i) {
    if (c.cancelled()) return Status();
    const auto at = static_cast<int64_t>(i);
    MG_ASSIGN_OR_RETURN(Tensor element, RowsAs(tensor, at, at + 1, row));
    MG_RETURN_IF_ERROR(list->Set(static_cast<size_t>(indices[i]), std::move(element)));
  }
  return Status();
}

class ScatterKernel : public Kernel {
 public:
  explicit ScatterKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor& tensor = c.input(0);
    const auto indices = c.input(1).values<int32_t>();
    MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeInput(c, 2));
    int32_t size = -1;
    if (c.num_inputs() > 3) {  // the second version
      MG_ASSIGN_OR_RETURN(size, ScalarOf(c.input(3), "num_elements"));
    }
    if (size < -1) {
      return InvalidArgument("TensorListScatter expects num_elements >= -1, found: " +
                             std::to_string(size));
    }
    MG_ASSIGN_OR_RETURN(const Shape row, RowShape(tensor, shape));
    if (static_cast<int64_t>(indices.size()) != tensor.shape().dim(0)) {
      return InvalidArgument(
          "Invalid number of rows in input tensor. Expected: " + std::to_string(indices.size()) +
          " Actual: " + std::to_string(tensor.shape().dim(0)));
    }
    for (const int32_t index : indices) {
      if (c.cancelled()) return Status();
      if (size != -1 && index >= size) {
        return InvalidArgument("TensorListScatter: Trying to scatter at index " +
                               std::to_string(index) + " in list with size " +
                               std::to_string(size));
      }
    }
    const auto list = std::make_shared<TensorList>(TensorList::Spec{tensor.dtype(), shape});
    MG_RETURN_IF_ERROR(Scatter(c, tensor, indices, row, std::max(size, 0), list.get()));
    c.set_output(0, HandleOf(list));
    return Status();
  }
};

class ScatterIntoKernel : public Kernel {
 public:
  explicit ScatterIntoKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor &tensor = c.input(1), &indices = c.input(2);
    MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, FindList(c));
    if (tensor.dtype() != list->spec().dtype) {
      return InvalidArgument("Invalid data types; input tensor type: " + Name(tensor.dtype()) +
                             " list element_type: " + Name(list->spec().dtype));
    }
    MG_ASSIGN_OR_RETURN(const Shape row, RowShape(tensor, PartialShape()));
    if (indices.shape().rank() != 1) {
      return InvalidArgument("Expected indices to be a vector, but received shape: " +
                             indices.shape().ToString());
    }
    if (indices.elements() != tensor.shape().dim(0)) {
      return InvalidArgument("Expected len(indices) == tensor.shape[0], but saw: " +
                             std::to_string(indices.elements()) + " vs. " +
                             std::to_string(tensor.shape().dim(0)));
    }
    MG_ASSIGN_OR_RETURN(list, ListToChange(c, std::move(list)));
    MG_RETURN_IF_ERROR(Scatter(c, tensor, indices.values<int32_t>(), row,
                               static_cast<int64_t>(list->elements().size()), list.get()));
    c.set_output(0, HandleOf(std::move(list)));
    return Status();
  }
};

// Row i of the tensor becomes the last element of the i-th list.
class PushBackBatchKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    const Tensor &handles = c.input(0), &tensor = c.input(1);
    if (tensor.shape().rank() == 0) {
      return InvalidArgument("Expected tensor to be at least a vector, but saw shape: " +
                             tensor.shape().ToString());
    }
    if (handles.shape().rank() != 1) {
      return InvalidArgument("Expected input_handles to be a vector, but saw shape: " +
                             handles.shape().ToString());
    }
    const int64_t count = handles.elements();
    if (tensor.shape().dim(0) != count) {
      return InvalidArgument("Expected tensor.shape[0] == input_handles.size, but saw " +
                             std::to_string(tensor.shape().dim(0)) + " vs. " +
                             std::to_string(count));
    }
    const Shape row(tensor.shape().dims().subspan(1));
    MG_ASSIGN_OR_RETURN(Tensor * lists, c.AllocateOutput(0, handles.shape()));
    for (int64_t i = 0; i < count; ++i) {
      if (c.cancelled()) return Status();
      MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> list, AsList(handles, i));
      const TensorList::Spec& spec = list->spec();
      if (!spec.shape.Accepts(row)) {
        return InvalidArgument(
            "Tried to append a tensor with incompatible shape to a list at index " +
            std::to_string(i) + ". Op element shape: " + row.ToString() +
            " list shape: " + spec.shape.ToString());
      }
      if (spec.dtype != dtype_) {
        return InvalidArgument("Invalid data type at index " + std::to_string(i) +
                               "; op elements " + Name(dtype_) + " but list elements " +
                               Name(spec.dtype));
      }
      MG_ASSIGN_OR_RETURN(list, list->Copy());
      MG_ASSIGN_OR_RETURN(Tensor element, RowsAs(tensor, i, i + 1, row));
      MG_RETURN_IF_ERROR(list->Push(std::move(element)));
      lists->variants()[i] = std::move(list);
    }
    return Status();
  }
};

// The i-th output list: the elements of the i-th list of both inputs.
class ConcatListsKernel : public TypedKernel {
 public:
  using TypedKernel::TypedKernel;
  Status Compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    if (!(a.shape() == b.shape())) {
      return InvalidArgument("Incompatible input TensorList tensor shapes: " +
                             a.shape().ToString() + " vs. " + b.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * lists, c.AllocateOutput(0, a.shape()));
    for (int64_t i = 0; i < a.elements(); ++i) {
      if (c.cancelled()) return Status();
      const std::string at = std::to_string(i);
      MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> first, AsList(a, i));
      MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> second, AsList(b, i));
      for (const TensorList* list : {first.get(), second.get()}) {
        if (list->spec().dtype == dtype_) continue;
        return InvalidArgument(std::string(list == first.get() ? "input_a[" : "input_b[") + at +
                               "].dtype != element_dtype.  Saw: " + Name(list->spec().dtype) +
                               " vs. " + Name(dtype_));
      }
      if (!(first->spec().shape == second->spec().shape)) {
        return InvalidArgument(
            "input_a and input_b TensorList element shapes are not identical at index " + at +
            ".  Saw " + first->spec().shape.ToString() + " vs. " + second->spec().shape.ToString());
      }
      MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorList> both, first->Copy());
      for (const Tensor& element : second->elements()) {
        if (c.cancelled()) return Status();
        MG_RETURN_IF_ERROR(both->Push(element));
      }
      lists->variants()[i] = both;
    }
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const auto cheap = [registry]<typename K>(const char* op) {
    registry->Add<K>({.op = op, .cost = KernelCost::kCheap});
  };
  cheap.operator()<EmptyKernel>("EmptyTensorList");
  cheap.operator()<ReserveKernel>("TensorListReserve");
  cheap.operator()<LengthKernel>("TensorListLength");
  cheap.operator()<ElementShapeKernel>("TensorListElementShape");
  cheap.operator()<PushBackKernel>("TensorListPushBack");
  cheap.operator()<PopBackKernel>("TensorListPopBack");
  cheap.operator()<GetItemKernel>("TensorListGetItem");
  cheap.operator()<SetItemKernel>("TensorListSetItem");
  cheap.operator()<ResizeKernel>("TensorListResize");
  registry->Add<StackKernel>({.op = "TensorListStack"});
  registry->Add<GatherKernel>({.op = "TensorListGather"});
  registry->Add<ConcatKernel>({.op = "TensorListConcat"});
  registry->Add<ConcatKernel>({.op = "TensorListConcatV2"});
  registry->Add<FromTensorKernel>({.op = "TensorListFromTensor"});
  registry->Add<SplitKernel>({.op = "TensorListSplit"});
  registry->Add<ScatterKernel>({.op = "TensorListScatter"});
  registry->Add<ScatterKernel>({.op = "TensorListScatterV2"});
  registry->Add<ScatterIntoKernel>({.op = "TensorListScatterIntoExistingList"});
  registry->Add<PushBackBatchKernel>({.op = "TensorListPushBackBatch"});
  registry->Add<ConcatListsKernel>({.op = "TensorListConcatLists"});
}

}  // namespace monograph::ops::tensor_list
