// Functions, shape functions and definitions of tables by handle. A table is made empty
// (HashTableV2, MutableHashTableV2), filled by an initializer or by inserts, and read by keys; its
// shapes tell nothing of what is in it. No op has a gradient. Types are attributes of each op, and
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

Status FindShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  c.set_output(0, c.input(1));
  return Status();
}

Status ExportShape(ShapeContext& c) {
  c.set_output(0, PartialShape{-1});
  c.set_output(1, PartialShape{-1});
  return Status();
}

Status FileShape(ShapeContext& c) { return c.WithRank(1, 0).status(); }

}  // namespace

void Define(OpRegistry* registry) {
  for (const char* name : {"HashTableV2", "MutableHashTableV2"}) {
    registry->Add(OpDef(name)
                      .Output("table_handle: resource")
                      .Attr("container: string = ''")
                      .Attr("shared_name: string = ''")
                      .Attr("use_node_name_sharing: bool = false")
                      .Attr("key_dtype: type")
                      .Attr("value_dtype: type")
                      .Stateful()
                      .Shape(ScalarShape)
                      .NoGradient());
  }
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
       {"HashTable", "MutableHashTable", "InitializeTable", "InitializeTableFromTextFile",
        "LookupTableFind", "LookupTableInsert", "LookupTableImport", "LookupTableExport",
        "LookupTableSize"})
    registry->AddStringReferenceForm(name, name + "V2");
}

}  // namespace ops::lookup
}  // namespace monograph
