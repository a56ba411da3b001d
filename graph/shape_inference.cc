#include "graph/shape_inference.h"

#include <fmt/core.h>

#include <string>

#include "graph/partial_eval.h"

namespace monograph {

std::optional<std::vector<int64_t>> ShapeContext::PartialInts(int i) const {
  const Tensor* value = input_value(i);
  if (value == nullptr) return std::nullopt;
  auto ints = IntsOfTensor(*value);
  if (!ints) return std::nullopt;
  return std::move(ints->values);
}

const Function* ShapeContext::FindFunction(std::string_view) const { return nullptr; }

Result<PartialShape> ShapeContext::InputAsShape(int i) const {
  const PartialShape& own = input(i);
  // A scalar -1 stands for an unknown shape in TensorFlow; any other scalar is a mistake.
  const auto values = PartialInts(i);
  if (own.known_rank() && own.rank() != 1) {
    if (own.rank() == 0 && values && values->size() == 1 && (*values)[0] == -1)
      return PartialShape();
    return InvalidArgument(fmt::format("input {} is a shape and must be a vector, but has shape {}",
                                       i, own.ToString()));
  }
  if (!values) {
    if (!own.known_rank() || own.dim(0) < 0) return PartialShape();
    if (own.dim(0) > kMaxRank) {
      return InvalidArgument(
          fmt::format("input {} is a shape of {} dimensions; at most {} are supported", i,
                      own.dim(0), kMaxRank));
    }
    return PartialShape::UnknownOfRank(static_cast<int>(own.dim(0)));
  }
  if (values->size() > static_cast<size_t>(kMaxRank)) {
    return InvalidArgument(
        fmt::format("input {} is a shape of {} dimensions; at most {} are supported", i,
                    values->size(), kMaxRank));
  }
  PartialShape shape = PartialShape::Scalar();
  for (int64_t value : *values) {
    if (value < -1 && value != kUnknownInt) {
      return InvalidArgument(fmt::format(
          "input {} is a shape with dimension {}; only -1 (unknown) may be negative", i, value));
    }
    shape.AddDim(value < 0 ? -1 : value);
  }
  return shape;
}

std::optional<std::vector<int64_t>> ShapeContext::InputAsInts(int i) const {
  auto values = PartialInts(i);
  if (!values) return std::nullopt;
  for (int64_t value : *values) {
    if (value == kUnknownInt) return std::nullopt;
  }
  return values;
}

Result<PartialShape> ShapeContext::WithRank(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.known_rank()) return PartialShape::UnknownOfRank(rank);
  if (shape.rank() == rank) return shape;
  return InvalidArgument(
      fmt::format("input {} must have rank {}, but has shape {}", i, rank, shape.ToString()));
}

Result<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis >= -static_cast<int64_t>(rank) && axis < rank)
    return static_cast<int>(axis < 0 ? axis + rank : axis);
  return InvalidArgument(fmt::format("axis {} is not in [{}, {}), as a tensor of rank {} needs",
                                     axis, -rank, rank, rank));
}

Status ScalarShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::Scalar());
  return Status();
}

Status UnchangedShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return Status();
}

Status BroadcastShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), c.input(1)));
  c.set_output(0, shape);
  return Status();
}

Status MergeAllShape(ShapeContext& c) {
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, c.input(i)));
  }
  c.set_output(0, shape);
  return Status();
}

Status UnknownShape(ShapeContext&) { return Status(); }

Status NoOutputs(ShapeContext&) { return Status(); }

}  // namespace monograph
