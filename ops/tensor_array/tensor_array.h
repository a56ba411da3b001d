// Arrays of tensors, which live within one step: what TensorFlow's loops write their results to,
// element by element, and read their inputs from (map_fn, scan, dynamic_rnn).
//
// The order of what is done to an array is that of its `flow`, a float without meaning: who writes
// takes one and gives out another, who reads takes the one behind all writes that it needs. An
// element is written once; it is read once, too, unless the array says otherwise. A gradient's
// array adds up what is written to an element.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

struct TensorArrayOptions {
  PartialShape element_shape;             // that every element must have
  bool dynamic_size = false;              // writes may make it longer
  bool clear_after_read = true;           // reading an element takes it out
  bool identical_element_shapes = false;  // all elements have the shape of the first
  std::string name;                       // in messages; the node's name if empty
};

struct TensorArrayOutputs {
  Output handle, flow;
};

// An array of its own in every step (and iteration), `size` (int32 scalar) elements long; it goes
// with the last copy of the handle.
TensorArrayOutputs TensorArray(const Scope& scope, const Output& size, DType dtype,
                               const TensorArrayOptions& options = {});
// The array of the gradients of `handle`'s elements: one for each `source` in a step. The array
// itself has its length from now on.
TensorArrayOutputs TensorArrayGrad(const Scope& scope, const Output& handle, const Output& flow,
                                   const std::string& source);
// The same, whose elements have the dimensions `shape_to_prepend` (int32) before those of the
// array's.
TensorArrayOutputs TensorArrayGradWithShape(const Scope& scope, const Output& handle,
                                            const Output& flow, const Output& shape_to_prepend,
                                            const std::string& source);

// These return the flow behind them. InvalidArgument for an element that has been written or read,
// is beyond the end, or has another type or shape than the array allows.
Output TensorArrayWrite(const Scope& scope, const Output& handle, const Output& index,
                        const Output& value, const Output& flow);
// Row i of `value` becomes element indices[i].
Output TensorArrayScatter(const Scope& scope, const Output& handle, const Output& indices,
                          const Output& value, const Output& flow);
// The first lengths[0] rows (int64) of `value` become element 0, the next lengths[1] element 1.
Output TensorArraySplit(const Scope& scope, const Output& handle, const Output& value,
                        const Output& lengths, const Output& flow);

// An element that was never written is zero where the shape of elements is known.
Output TensorArrayRead(const Scope& scope, const Output& handle, const Output& index,
                       const Output& flow, DType dtype);
// The elements at `indices` as the rows of one tensor.
Output TensorArrayGather(const Scope& scope, const Output& handle, const Output& indices,
                         const Output& flow, DType dtype, const PartialShape& element_shape = {});

struct TensorArrayConcatOutputs {
  Output value, lengths;
};
// All elements behind each other along their first dimension, and how long each is there (int64).
TensorArrayConcatOutputs TensorArrayConcat(const Scope& scope, const Output& handle,
                                           const Output& flow, DType dtype,
                                           const PartialShape& element_shape_except0 = {});

Output TensorArraySize(const Scope& scope, const Output& handle, const Output& flow);
// Drops what is in the array; nothing more can be done with it.
Operation TensorArrayClose(const Scope& scope, const Output& handle);

}  // namespace monograph
