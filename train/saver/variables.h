// Maps the variables of a graph to the tensors of a checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/scope.h"
#include "ops/checkpoint_files/checkpoint_reader.h"

namespace monograph {

// A variable as it stands in the graph: the whole of a tensor, or a part.
struct GraphVariable {
  std::string name;
  Output handle;
  DType dtype = DT_INVALID;
  PartialShape shape;
  std::string same_value;  // as of kSameValueAttr; mostly empty
};

// By name in the checkpoint. Several variables: they are the rows of one tensor, in order.
using SavedTensors = std::map<std::string, std::vector<GraphVariable>>;

// Parts ("emb/part_0", "emb/part_0/Adam") become one tensor ("emb", "emb/Adam") if they are all
// there and fit.
SavedTensors JoinParts(const std::map<std::string, GraphVariable>& variables);

// REQUIRES: rows of one tensor, or one variable.
PartialShape WholeShape(const std::vector<GraphVariable>& parts);
// Rows of the tensor that part i is. REQUIRES: several parts.
RowRange RowsOfPart(const std::vector<GraphVariable>& parts, size_t i);

// Where the checkpoint has the value of tensor `name`.
std::string SourceOf(const CheckpointReader& reader, const std::string& name,
                     const std::vector<GraphVariable>& parts);

// Whether the checkpoint has what a restore wants: NotFound lists what it lacks, InvalidArgument
// names a tensor of another type or shape.
Status CheckHasAll(CheckpointReader* reader, const std::string& prefix,
                   const SavedTensors& tensors);

}  // namespace monograph
