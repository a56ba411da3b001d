// Looking up rows of tables that live on other tasks, perhaps in parts on several of them.
#pragma once

#include <span>
#include <string>

#include "graph/scope.h"
#include "train/optimizer.h"
#include "train/variable_scope.h"

namespace monograph {

// In which part, and where in it, the row of an id is, with P parts:
//   kMod  part id % P, row id / P
//   kDiv  parts hold consecutive ids; if they do not divide evenly the first ones hold one more
// kMod is TensorFlow's default. The parts of a partitioned variable put one after the other, which
// is what its value is, are in the order of kDiv.
enum class PartitionStrategy { kMod, kDiv };

// A table, or a part of one.
struct TablePart {
  std::string name;
  Output handle;
  Shape shape;
  DType dtype;
  Scope place;  // where its rows are read: beside it
};

// The rows of `ids` (int32 or int64, of any shape, which takes the place of the first dimension),
// from tables of one row shape. Each table is asked on its own task for the rows that it has: ids
// go there, rows come back. Gradients with regard to a table's handle are rows, too. An id that no
// table has fails the step with InvalidArgument.
Output EmbeddingLookup(const Scope& scope, std::span<const TablePart> params, const Output& ids,
                       PartitionStrategy strategy);
Output EmbeddingLookup(const Scope& scope, std::span<const ModelVariable> params, const Output& ids,
                       PartitionStrategy strategy = PartitionStrategy::kMod);
// The same for a variable that is cut along its first dimension, or not at all.
Output EmbeddingLookup(const Scope& scope, const ScopedVariable& params, const Output& ids,
                       PartitionStrategy strategy = PartitionStrategy::kMod);

}  // namespace monograph
