// ShapeContext: what a shape function sees of the node being added, and the shape functions that
// many ops share.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/attr.h"

namespace monograph {

struct Function;  // graph/function.h
class OpDef;      // graph/op_def.h

// An element of PartialInts that is not known yet.
inline constexpr int64_t kUnknownInt = std::numeric_limits<int64_t>::min();

class ShapeContext {
 public:
  virtual ~ShapeContext() = default;

  virtual int num_inputs() const = 0;
  virtual const PartialShape& input(int i) const = 0;
  virtual DType input_dtype(int i) const = 0;
  // The input's value if it is a constant (also through Identity), else nullptr.
  virtual const Tensor* input_value(int i) const = 0;
  // What is known of the elements of input i, an integer scalar or vector: unknown ones are
  // kUnknownInt. No value if nothing is, not even how many there are. Looks through Shape, Pack,
  // ConcatV2, StridedSlice and simple arithmetic.
  virtual std::optional<std::vector<int64_t>> PartialInts(int i) const;
  // A function of the graph's library; nullptr if there is none of that name.
  virtual const Function* FindFunction(std::string_view name) const;
  virtual const Attrs& attrs() const = 0;
  virtual int num_outputs() const = 0;
  virtual void set_output(int i, const PartialShape& shape) = 0;
  // The shape of the variable that resource input i names, as far as its VarHandleOp (or an
  // argument's `_handle_shapes`) tells.
  virtual PartialShape handle_shape([[maybe_unused]] int i) const { return PartialShape(); }

  // The op of the node that made the handle; "" if that is not known.
  virtual std::string_view handle_op([[maybe_unused]] int i) const { return ""; }

  template <typename T>
  const T& attr(std::string_view name) const {
    return attrs().Get<T>(name);
  }
  // Input i read as a shape (int32 or int64 vector): its elements where they are known; -1 and what
  // is not known are unknown dimensions, the rank follows from its length. InvalidArgument for an
  // element below -1.
  Result<PartialShape> InputAsShape(int i) const;
  // Input i as integers if it is constant.
  std::optional<std::vector<int64_t>> InputAsInts(int i) const;
  // InvalidArgument unless input i has (or may have) this rank. Returns the shape with that rank.
  Result<PartialShape> WithRank(int i, int rank) const;
};

// The op of the node that is being added to a graph.
const OpDef& OpOf(const ShapeContext& context);

// "axis" in [-rank, rank) to [0, rank); InvalidArgument names axis and rank.
Result<int> NormalizeAxis(int64_t axis, int rank);

Status ScalarShape(ShapeContext& c);     // every output a scalar
Status UnchangedShape(ShapeContext& c);  // output 0 (and every other) as input 0
Status BroadcastShape(ShapeContext& c);  // output 0: inputs 0 and 1 broadcast
Status MergeAllShape(ShapeContext& c);   // all inputs agree; output 0 the same
Status UnknownShape(ShapeContext& c);    // nothing is known
Status NoOutputs(ShapeContext& c);

}  // namespace monograph
