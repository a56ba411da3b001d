// A row is made of an op's definition and of the kernels that are registered for it: those for CPUs
// are linked here, those for GPUs listed in gpu_types.cc, those of TensorFlow's told by the
// interpreter that has it. Types are shown in groups (floats, ints), so that a row stays short.
#include "tools/op_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "executor/borrowed.h"
#include "graph/op_source.h"
#include "ops/register.h"

namespace monograph {
namespace {

constexpr char kIntroduction[] = R"(# Ops

Every op that a graph may have: what `monograph ops` prints. Families are the folders of `ops/`, whose headers document them. Names, inputs and
attributes are TensorFlow's; ops whose names begin with `Monograph` are our own. Not listed are ops with an underscore in front, which rewrites and
C++ functions make, such as `_FusedAttention` of `Attention` (`ops/attention/attention.h`).
Where a TensorFlow is named ([borrowed_ops.md](borrowed_ops.md)) the command lists what that lends, too, and what neither has, with the reason.
`monograph ops MatMul` prints one op's definition;
`monograph graph check graph.pb` says which ops of a GraphDef are missing.

- types: what each attribute that is a type may be. floats: half, bfloat16, float, double. ints: int8 to int64. uints: uint8 to uint64. complex:
  complex64, complex128. quantized: qint8 to qint32, quint8, quint16. any: no kernel asks. fixed: the op has no such attribute.
- devices: where it has kernels; GPU (...): for these types only. A call runs where what it calls does.
- gradient: none flows: it ends there, as in TensorFlow.

)";
constexpr char kHead[] =
    "| family | op | types | devices | gradient | whose |\n| --- | --- | --- | --- | --- | --- |\n";

struct Group {
  const char* name;
  std::vector<DType> types;
};
const std::vector<Group>& Groups() {
  static const std::vector<Group> groups = {
      {"floats", {DT_HALF, DT_BFLOAT16, DT_FLOAT, DT_DOUBLE}},
      {"ints", {DT_INT8, DT_INT16, DT_INT32, DT_INT64}},
      {"uints", {DT_UINT8, DT_UINT16, DT_UINT32, DT_UINT64}},
      {"complex", {DT_COMPLEX64, DT_COMPLEX128}},
      {"quantized", {DT_QINT8, DT_QUINT8, DT_QINT16, DT_QUINT16, DT_QINT32}},
      {"", {DT_BOOL, DT_STRING, DT_RESOURCE, DT_VARIANT}},
  };
  return groups;
}

// A group is named if all of it is there, else its members; "any" for no type.
std::string TypeNames(std::set<DType> types) {
  if (types.empty()) return "any";
  std::string text;
  const auto add = [&text](std::string_view name) {
    text += (text.empty() ? "" : " ") + std::string(name);
  };
  for (const Group& group : Groups()) {
    const bool whole =
        *group.name != '\0' && std::all_of(group.types.begin(), group.types.end(),
                                           [&](DType type) { return types.contains(type); });
    if (whole) add(group.name);
    for (const DType type : group.types) {
      if (types.erase(type) > 0 && !whole) add(DTypeName(type));
    }
  }
  for (const DType type : types) add(DTypeName(type));  // that tensors cannot have here
  return text;
}

using TypesOfAttrs = std::map<std::string, std::set<DType>>;

// `found`: what kernels ask for; other attributes are as free as the definition says.
std::string JoinTypes(const OpDef& op, const TypesOfAttrs& found, std::string_view separator) {
  std::string text;
  for (const AttrDef& attr : op.attrs()) {
    if (attr.kind != "type" && attr.kind != "list(type)") continue;
    const auto asked = found.find(attr.name);
    const std::set<DType> allowed(attr.allowed_types.begin(), attr.allowed_types.end());
    text += (text.empty() ? "" : std::string(separator)) + attr.name + ": " +
            TypeNames(asked != found.end() ? asked->second : allowed);
  }
  return text.empty() ? "fixed" : text;
}

std::string GradientText(const OpDef& op) {
  if (op.gradient() != nullptr) return "yes";
  return op.no_gradient() ? "none flows" : "no";
}

const std::string& WithoutOtherName(const OpDef& op) {
  return op.added_as().empty() ? op.name() : op.added_as();
}

// What computes in place of an op by references, or the op itself.
const std::string& ComputedBy(const OpDef& op) {
  return op.handle_form() != nullptr ? op.handle_form()->op : WithoutOtherName(op);
}

// One row.
class Row {
 public:
  Row(std::string_view family, const std::string& op) : text_("| " + std::string(family)) {
    Add(op);
  }
  Row& Add(const std::string& cell) {
    text_ += " | " + cell;
    return *this;
  }
  std::string text() const { return text_ + " |\n"; }

 private:
  std::string text_;
};

std::string OurRow(std::string_view family, const OpDef& op, bool call) {
  const std::string types = KernelTypes(op, DefaultRegistries().kernels, kCpu);
  const char* const gpu = GpuTypes(WithoutOtherName(op));
  std::string devices = "CPU";
  if (gpu != nullptr) devices += types == gpu ? ", GPU" : ", GPU (" + std::string(gpu) + ")";
  return Row(family, op.name())
      .Add(types)
      .Add(call ? "CPU, GPU" : devices)
      .Add(call ? "yes" : GradientText(op))
      .Add("ours")
      .text();
}

std::string BorrowedRows() {
  const Result<std::string> tensorflow = TensorFlowVersion();
  if (!tensorflow.ok()) return "";
  std::string text;
  for (const OpDef* op : BorrowedOps()) {
    if (!IsBorrowed(*DefaultRegistries().ops.Find(op->name()))) continue;
    text += Row(*tensorflow, op->name())
                .Add(JoinTypes(*op, BorrowedTypes(op->name()), "; "))
                .Add("CPU")
                .Add("no")
                .Add("borrowed")
                .text();
  }
  for (const auto& [op, why] : RefusedOps()) {
    if (DefaultRegistries().ops.Find(op) == nullptr)
      text += Row(*tensorflow, op).Add("").Add("none").Add("").Add("neither: " + why).text();
  }
  return text;
}

}  // namespace

std::string KernelTypes(const OpDef& op, const KernelRegistry& kernels, DeviceType device,
                        std::string_view separator) {
  const std::string& computed_by = ComputedBy(op);
  TypesOfAttrs found;
  for (const KernelRegistry::Entry* entry : kernels.All()) {
    if (entry->def.op != computed_by || entry->def.device != device) continue;
    for (const auto& [name, dtype] : entry->def.types) found[name].insert(dtype);
  }
  if (const HandleForm* form = op.handle_form()) {
    for (const auto& [name, there] : form->renamed) {
      if (const auto asked = found.find(there); asked != found.end()) found[name] = asked->second;
    }
  }
  return JoinTypes(op, found, separator);
}

std::string OpTable() {
  std::string text = std::string(kIntroduction) + kHead;
  std::set<std::string> structural;
  const OpRegistry empty;  // but for these
  for (const OpDef* op : empty.All()) structural.insert(op->name());
  for (const OpFamily& family : OpFamilies()) {
    OpRegistry registry;
    family.define(&registry);
    for (const OpDef* op : registry.All()) {
      if (!op->name().starts_with('_') && !structural.contains(op->name()))
        text += OurRow(family.name, *op, /*call=*/false);
    }
  }
  for (const OpDef* op : empty.All()) {
    if (!op->name().starts_with('_')) text += OurRow("(calls)", *op, /*call=*/true);
  }
  return text + BorrowedRows();
}

Result<std::string> DescribeOp(const std::string& name) {
  MG_ASSIGN_OR_RETURN(const OpDef* op, DefaultRegistries().ops.Require(name));
  if (IsBorrowed(*op)) return op->ToString() + "\nborrowed from TensorFlow, on CPUs\n";
  return op->ToString() + "\ntypes on a CPU:\n  " +
         KernelTypes(*op, DefaultRegistries().kernels, kCpu, "\n  ") +
         "\ngradient: " + GradientText(*op) + "\n";
}

}  // namespace monograph
