// Tables from keys to values: HashTableV2, which is filled once, and MutableHashTableV2; and what
// fills and reads them. A table lives in the task of its node, by container and name, as a queue
// does. Graphs of TensorFlow's may also have MutableHashTableOfTensorsV2, whose values are vectors,
// MutableDenseHashTableV2, whose keys may be, too, and anonymous tables, which end with their step.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// A table that InitializeTable or InitializeTableFromTextFile fills, once.
Output HashTable(const Scope& scope, DType key_dtype, DType value_dtype,
                 const std::string& shared_name = "");
Output MutableHashTable(const Scope& scope, DType key_dtype, DType value_dtype,
                        const std::string& shared_name = "");
Operation InitializeTable(const Scope& scope, const Output& table, const Output& keys,
                          const Output& values);
// Of each line of a file: the columns of these numbers (-1: the number of the line, -2: all of it).
Operation InitializeTableFromTextFile(const Scope& scope, const Output& table,
                                      const Output& filename, int64_t key_index,
                                      int64_t value_index, int64_t vocab_size = -1,
                                      const std::string& delimiter = "\t");
// The values of the keys, `default_value` for those that the table lacks.
Output LookupTableFind(const Scope& scope, const Output& table, const Output& keys,
                       const Output& default_value);
Operation LookupTableInsert(const Scope& scope, const Output& table, const Output& keys,
                            const Output& values);
Output LookupTableSize(const Scope& scope, const Output& table);

}  // namespace monograph
