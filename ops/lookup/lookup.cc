// Functions, shape functions and definitions of tables by handle. A table is made empty, filled by
// an initializer or by inserts, and read by keys; shapes of keys and values are seen where the node
// that made the handle is. No op has a gradient. Types are attributes of each op, and
// lookup_cpu.cc compares them with the table's.
#include "ops/lookup/lookup.h"

#include <string>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {
namespace {

Output Table(const Scope& scope, const char* op, DType key_dtype, DType value_dtype,
             const std::string& shared_name) {
  return OpBuilder(scope, op)
      .Attr("key_dtype", AttrValue(key_dtype))
      .Attr("value_dtype", AttrValue(value_dtype))
      .Attr("shared_name", AttrValue(shared_name))
      .BuildOutput();
}

}  // namespace

Output HashTable(const Scope& scope, DType key_dtype, DType value_dtype,
                 const std::string& shared_name) {
  return Table(scope, "HashTableV2", key_dtype, value_dtype, shared_name);
}
Output MutableHashTable(const Scope& scope, DType key_dtype, DType value_dtype,
                        const std::string& shared_name) {
  return Table(scope, "MutableHashTableV2", key_dtype, value_dtype, shared_name);
}

Operation InitializeTable(const Scope& scope, const Output& table, const Output& keys,
                          const Output& values) {
  return OpBuilder(scope, "InitializeTableV2").Input(table).Input(keys).Input(values).Build();
}

Operation InitializeTableFromTextFile(const Scope& scope, const Output& table,
                                      const Output& filename, int64_t key_index,
                                      int64_t value_index, int64_t vocab_size,
                                      const std::string& delimiter) {
  return OpBuilder(scope, "InitializeTableFromTextFileV2")
      .Input(table)
      .Input(filename)
      .Attr("key_index", AttrValue(key_index))
      .Attr("value_index", AttrValue(value_index))
      .Attr("vocab_size", AttrValue(vocab_size))
      .Attr("delimiter", AttrValue(delimiter))
      .Build();
}

Output LookupTableFind(const Scope& scope, const Output& table, const Output& keys,
                       const Output& default_value) {
  return OpBuilder(scope, "LookupTableFindV2")
      .Input(table)
      .Input(keys)
      .Input(default_value)
      .BuildOutput();
}
Operation LookupTableInsert(const Scope& scope, const Output& table, const Output& keys,
                            const Output& values) {
  return OpBuilder(scope, "LookupTableInsertV2").Input(table).Input(keys).Input(values).Build();
}
Output LookupTableSize(const Scope& scope, const Output& table) {
  return OpBuilder(scope, "LookupTableSizeV2").Input(table).BuildOutput();
}

namespace ops::lookup {
namespace {

// What the node behind the handle tells.
struct Seen {
  explicit Seen(const ShapeContext& c) {
    const std::string_view op = c.handle_op(0);
    const bool table = op.find("HashTable") != op.npos;
    dense = table && op.find("Dense") != op.npos;
    const bool of_values = dense || (table && op.find("OfTensors") != op.npos);
    if (table) value = of_values ? c.handle_shape(0) : PartialShape::Scalar();
  }
  bool dense = false;
  PartialShape value;  // of one; unknown also where no table is seen
};

Status FindShape(ShapeContext& c) {
  const Seen seen(c);
  PartialShape found = c.input(1);
  if (!seen.value.known_rank() || !found.known_rank()) return Status();
  // One key is a scalar or a vector; a row of one number may be either.
  if (seen.dense && found.rank() > 1) {
    if (found.rank() > 2 || found.dim(1) < 0 || found.dim(1) == 1) return Status();
    found = PartialShape{found.dim(0)};
  }
  if (found.rank() + seen.value.rank() > kMaxRank) return Status();  // the kernel refuses it
  for (const int64_t dim : seen.value.dims()) found.AddDim(dim);
  c.set_output(0, found);
  return Status();
}

Status ExportShape(ShapeContext& c) {
  const Seen seen(c);
  if (seen.dense) {
    c.set_output(0, PartialShape{-1, -1});
    c.set_output(1, PartialShape{-1, -1});
  } else if (seen.value.known_rank() && seen.value.rank() <= 1) {
    c.set_output(0, PartialShape{-1});
    PartialShape values{-1};
    for (const int64_t dim : seen.value.dims()) values.AddDim(dim);
    c.set_output(1, values);
  }
  return Status();
}

// Empty and deleted keys.
Status DenseShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).known_rank() && c.input(i).rank() > 1) {
      return InvalidArgument("a key must be a scalar or a vector, got shape " +
                             c.input(i).ToString());
    }
  }
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

OpDef TableDef(const std::string& name, bool anonymous = false) {
  OpDef def(name);
  def.Output("table_handle: resource");
  if (!anonymous) {
    def.Attr("container: string = ''")
        .Attr("shared_name: string = ''")
        .Attr("use_node_name_sharing: bool = false");
  }
  def.Attr("key_dtype: type").Attr("value_dtype: type").Stateful().Shape(ScalarShape).NoGradient();
  return def;
}
// Tables whose values may be vectors.
OpDef TensorsDef(const std::string& name, bool anonymous = false) {
  return TableDef(name, anonymous).Attr("value_shape: shape = []");
}
OpDef DenseDef(const std::string& name, bool anonymous = false) {
  return TensorsDef(name, anonymous)
      .Input("empty_key: key_dtype")
      .Attr("initial_num_buckets: int = 131072")
      .Attr("max_load_factor: float = 0.8")
      .Shape(DenseShape);
}

Status FileShape(ShapeContext& c) { return c.WithRank(1, 0).status(); }

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(TableDef("HashTableV2"));
  registry->Add(TableDef("MutableHashTableV2"));
  registry->Add(TensorsDef("MutableHashTableOfTensorsV2"));
  registry->Add(DenseDef("MutableDenseHashTableV2").Input("deleted_key: key_dtype"));
  registry->Add(DenseDef("_MutableDenseHashTable"));  // from which nothing can be removed
  registry->AddStringReferenceForm("MutableDenseHashTable", "_MutableDenseHashTable");
  for (const std::string name : {"HashTable", "MutableHashTable"})
    registry->Add(TableDef("Anonymous" + name, /*anonymous=*/true));
  registry->Add(TensorsDef("AnonymousMutableHashTableOfTensors", /*anonymous=*/true));
  registry->Add(DenseDef("AnonymousMutableDenseHashTable", /*anonymous=*/true)
                    .Input("deleted_key: key_dtype"));
  registry->Add(OpDef("InitializeTableV2")
                    .Input("table_handle: resource")
                    .Input("keys: Tkey")
                    .Input("values: Tval")
                    .Attr("Tkey: type")
                    .Attr("Tval: type")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  registry->Add(OpDef("InitializeTableFromTextFileV2")
                    .Input("table_handle: resource")
                    .Input("filename: string")
                    .Attr("key_index: int >= -2")
                    .Attr("value_index: int >= -2")
                    .Attr("vocab_size: int >= -1 = -1")
                    .Attr("delimiter: string = '\t'")
                    .Attr("offset: int = 0")
                    .Stateful()
                    .Shape(FileShape)
                    .NoGradient());
  registry->Add(OpDef("LookupTableFindV2")
                    .Input("table_handle: resource")
                    .Input("keys: Tin")
                    .Input("default_value: Tout")
                    .Output("values: Tout")
                    .Attr("Tin: type")
                    .Attr("Tout: type")
                    .Stateful()
                    .Shape(FindShape)
                    .NoGradient());
  for (const char* name : {"LookupTableInsertV2", "LookupTableImportV2"}) {
    registry->Add(OpDef(name)
                      .Input("table_handle: resource")
                      .Input("keys: Tin")
                      .Input("values: Tout")
                      .Attr("Tin: type")
                      .Attr("Tout: type")
                      .Stateful()
                      .Shape(NoOutputs)
                      .NoGradient());
  }
  registry->Add(OpDef("LookupTableRemoveV2")
                    .Input("table_handle: resource")
                    .Input("keys: Tin")
                    .Attr("Tin: type")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  registry->Add(OpDef("LookupTableExportV2")
                    .Input("table_handle: resource")
                    .Output("keys: Tkeys")
                    .Output("values: Tvalues")
                    .Attr("Tkeys: type")
                    .Attr("Tvalues: type")
                    .Stateful()
                    .Shape(ExportShape)
                    .NoGradient());
  registry->Add(OpDef("LookupTableSizeV2")
                    .Input("table_handle: resource")
                    .Output("size: int64")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  for (const std::string name :
       {"HashTable", "MutableHashTable", "MutableHashTableOfTensors", "InitializeTable",
        "InitializeTableFromTextFile", "LookupTableFind", "LookupTableInsert", "LookupTableImport",
        "LookupTableExport", "LookupTableSize"})
    registry->AddStringReferenceForm(name, name + "V2");
}

}  // namespace ops::lookup
}  // namespace monograph
