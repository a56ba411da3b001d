// Lists of tensors: values of type variant, on which TensorFlow's loops of the new kind (While) and
// their gradients keep what each iteration gives. An op that changes a list gives a new one.
//
// `element_shape` (int32 or int64) is what is known of the shape of every element: a vector, in
// which -1 is an unknown dimension, or the scalar -1. An element that nobody has set is zero where
// its shape is known. InvalidArgument for an element of another type or shape, or one that is not
// there.
#pragma once

#include <cstdint>

#include "graph/scope.h"

namespace monograph {

// Without elements; at most `max_num_elements` (int32 scalar) of them, or any number for -1.
Output EmptyTensorList(const Scope& scope, const Output& element_shape,
                       const Output& max_num_elements, DType element_dtype);
// `num_elements` (int32 scalar) elements, none of which is set.
Output TensorListReserve(const Scope& scope, const Output& element_shape,
                         const Output& num_elements, DType element_dtype);
// The rows of `tensor`; of TensorListScatter row i becomes element indices[i] of `num_elements`
// (-1: as many as needed); of TensorListSplit the first lengths[0] rows (int64) become element 0,
// the next lengths[1] element 1.
Output TensorListFromTensor(const Scope& scope, const Output& tensor, const Output& element_shape);
Output TensorListScatter(const Scope& scope, const Output& tensor, const Output& indices,
                         const Output& element_shape, const Output& num_elements);
Output TensorListSplit(const Scope& scope, const Output& tensor, const Output& element_shape,
                       const Output& lengths);

// These return the changed list.
Output TensorListPushBack(const Scope& scope, const Output& list, const Output& tensor);
Output TensorListSetItem(const Scope& scope, const Output& list, const Output& index,
                         const Output& item);
Output TensorListResize(const Scope& scope, const Output& list, const Output& size);
Output TensorListScatterIntoExistingList(const Scope& scope, const Output& list,
                                         const Output& tensor, const Output& indices);

struct TensorListPopBackOutputs {
  Output list, tensor;
};
TensorListPopBackOutputs TensorListPopBack(const Scope& scope, const Output& list,
                                           const Output& element_shape, DType element_dtype);
Output TensorListGetItem(const Scope& scope, const Output& list, const Output& index,
                         const Output& element_shape, DType element_dtype);
// All elements, or those at `indices`, as the rows of one tensor. `num_elements`: that there must
// be.
Output TensorListStack(const Scope& scope, const Output& list, const Output& element_shape,
                       DType element_dtype, int64_t num_elements = -1);
Output TensorListGather(const Scope& scope, const Output& list, const Output& indices,
                        const Output& element_shape, DType element_dtype);
struct TensorListConcatOutputs {
  Output tensor, lengths;
};
// All elements behind each other along their first dimension, and how long each is there (int64).
// `leading_dims` (int64): how long those are that are not set.
TensorListConcatOutputs TensorListConcat(const Scope& scope, const Output& list,
                                         const Output& element_shape, const Output& leading_dims,
                                         DType element_dtype);

Output TensorListLength(const Scope& scope, const Output& list);  // int32 scalar
Output TensorListElementShape(const Scope& scope, const Output& list, DType shape_type = DT_INT32);

}  // namespace monograph
