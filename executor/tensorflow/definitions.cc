// What TensorFlow's library knows of its ops: definitions and which of them have a kernel for CPUs,
// asked for once by the helper process, shapes node by node, and (TraitOf) what the library demands
// of some ops beyond their definitions. Where there is no TensorFlow there is no such op.
#include "executor/tensorflow/definitions.h"

#include <set>
#include <utility>

#include "base/log.h"
#include "executor/tensorflow/helper.h"
#include "graph/lone_node.h"
#include "graph/op_list.h"
#include "graph/op_source.h"
#include "graph/shape_inference.h"
#include "graph/wire.h"

namespace monograph::tensorflow {
namespace {

// What TensorFlow infers. Where it cannot be asked nothing is known of the shapes.
Status BorrowedShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input_dtype(i) == DT_INVALID) return UnknownShape(c);
  }
  const Result<std::vector<PartialShape>> shapes =
      Helper::Get().InferShapes(AloneInGraph(c, "node"));
  if (shapes.status().code() == Code::kInvalidArgument) return shapes.status();
  if (!shapes.ok()) {
    LogDebug("TensorFlow infers no shape for op " + OpOf(c).name() + ": " +
             shapes.status().message());
    return UnknownShape(c);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const bool known = static_cast<size_t>(i) < shapes->size();
    c.set_output(i, known ? (*shapes)[static_cast<size_t>(i)] : PartialShape());
  }
  return Status();
}

using TypesOfAttrs = Definitions::TypesOfAttrs;

// Calls `on_field(tag, bytes)` for each field of a message that is a message, string or packed
// list.
template <typename OnField>
void ForEachField(std::string_view message, OnField on_field) {
  std::string_view bytes;
  for (wire_format::Reader in(message); !in.done();) {
    const uint64_t tag = in.Tag();
    if ((tag & 7) != 2) {
      in.Skip(tag);
    } else if (in.Bytes(&bytes)) {
      on_field(static_cast<int>(tag >> 3), bytes);
    }
  }
}

// An AttrValue's "list" = 1, with "type" = 6.
std::set<DType> TypesIn(std::string_view attr_value) {
  std::set<DType> types;
  const auto add = [&types](uint64_t type) { types.insert(static_cast<DType>(type)); };
  ForEachField(attr_value, [&](int field, std::string_view list) {
    if (field != 1) return;
    for (wire_format::Reader in(list); !in.done();) {
      const uint64_t tag = in.Tag();
      std::string_view packed;
      if (tag == (6 << 3 | 0)) {
        add(in.Varint());
      } else if (tag == (6 << 3 | 2) && in.Bytes(&packed)) {
        for (wire_format::Reader one(packed); !one.done();) add(one.Varint());
      } else if (tag != (6 << 3 | 2)) {
        in.Skip(tag);
      }
    }
  });
  return types;
}

// From a KernelList: fields "kernel" = 1, of a kernel "op" = 1, "device_type" = 2 and "constraint"
// = 3, of that "name" = 1 and "allowed_values" = 2.
std::map<std::string, TypesOfAttrs, std::less<>> CpuKernels(std::string_view bytes) {
  std::map<std::string, TypesOfAttrs, std::less<>> ops;
  ForEachField(bytes, [&ops](int list_field, std::string_view kernel) {
    if (list_field != 1) return;
    std::string op;
    std::string_view device;
    TypesOfAttrs types;
    ForEachField(kernel, [&](int field, std::string_view value) {
      if (field == 1) op = value;
      if (field == 2) device = value;
      if (field != 3) return;
      std::string attr;
      ForEachField(value, [&](int part, std::string_view inner) {
        if (part == 1) attr = inner;
        if (part == 2) types[attr].merge(TypesIn(inner));
      });
    });
    if (device != "CPU" && device != "DEFAULT") return;
    TypesOfAttrs& all = ops[op];
    for (auto& [attr, set] : types) all[attr].merge(set);
  });
  return ops;
}

struct NamedTrait {
  std::string_view name;
  bool all;  // `name` is the whole name of an op; else a part of it
  Trait trait;
};
constexpr NamedTrait kTraits[] = {
    // The next element comes when a pipeline has read and computed it.
    {"Iterator", false, {.waits = true}},
    // They read a data set to its end.
    {"DatasetTo", false, {.waits = true}},
    {"ReduceDataset", true, {.waits = true}},
    // It gathers the calls of others into a batch.
    {"BatchFunction", true, {.waits = true}},
    // The other members of the group have to come.
    {"Collective", false, {.waits = true}},
    // Another step may hold the lock.
    {"MutexLock", true, {.waits = true}},
    // Its kernel fails where shared_name is set.
    {"OneShotIterator", true, {.takes_no_name = true}},
    // With a name they get a function library that cannot call functions on devices, as iterators
    // over several devices do; the process would end.
    {"Iterator", true, {.wants_no_name = true}},
    {"IteratorV2", true, {.wants_no_name = true}},
};

// Ops that have a kernel for CPUs which cannot compute here.
constexpr const char* kOurHandle = "it works on a variable, which is not TensorFlow's";
constexpr const char* kXla = "it is a part of what XLA compiles";
struct NamedRefusal {
  std::string_view name;
  const char* why;
};
constexpr NamedRefusal kRefusals[] = {
    {"DisableCopyOnRead", kOurHandle},
    // A generator's state is a variable.
    {"RngReadAndSkip", kOurHandle},
    {"RngSkip", kOurHandle},
    {"StatefulRandomBinomial", kOurHandle},
    {"StatefulStandardNormalV2", kOurHandle},
    {"StatefulTruncatedNormal", kOurHandle},
    {"StatefulUniform", kOurHandle},
    {"StatefulUniformFullInt", kOurHandle},
    {"StatefulUniformInt", kOurHandle},
    {"XlaLaunch", kXla},
    {"XlaRecv", kXla},
    {"XlaReplicaId", kXla},
    {"XlaSend", kXla},
};

}  // namespace

Trait TraitOf(const OpDef& op) {
  const std::string_view name = op.name();
  // Whoever puts something into a room with a limit waits until it fits.
  Trait all{.waits = op.FindAttr("memory_limit") != nullptr};
  for (const NamedTrait& row : kTraits) {
    if (row.all ? name != row.name : name.find(row.name) == std::string_view::npos) continue;
    all.waits |= row.trait.waits;
    all.takes_no_name |= row.trait.takes_no_name;
    all.wants_no_name |= row.trait.wants_no_name;
  }
  return all;
}

Definitions& Definitions::Get() {
  static auto* const definitions = new Definitions;
  return *definitions;
}

Status Definitions::Load() {
  if (std::exchange(loaded_, true)) return why_not_;
  const auto package = Helper::Get().package();
  why_not_ = package.status();
  if (!why_not_.ok()) return why_not_;
  Result<OpList> list = ParseOpList((*package)->ops);
  why_not_ = list.status();
  if (!why_not_.ok()) return why_not_;
  kernels_ = CpuKernels((*package)->kernels);
  for (const std::string& name : list->by_reference)
    refused_.emplace(name, "TensorFlow computes it only where what it works on is by reference");
  std::map<std::string_view, std::string_view> fails;
  for (const NamedRefusal& row : kRefusals) fails.emplace(row.name, row.why);
  for (const std::string& name : list->deprecated)
    fails.emplace(name, "TensorFlow's kernel refuses it in GraphDefs of today");
  for (OpDef& op : list->ops) {
    const std::string name = op.name();
    if (!kernels_.contains(name)) {
      refused_.emplace(name, "TensorFlow has no kernel of it for CPUs");
    } else if (const auto why = fails.find(name); why != fails.end()) {
      refused_.emplace(name, why->second);
    } else {
      op.Shape(BorrowedShape);
      ops_.emplace(name, std::move(op));
    }
  }
  return Status();
}

Status Definitions::Require(std::string_view name) {
  // Of our own making, whatever TensorFlow has.
  if (name.starts_with('_') || name.starts_with("Monograph")) return NotFound("");
  MutexLock lock(mutex_);
  MG_RETURN_IF_ERROR(Load());
  if (ops_.contains(name)) return Status();
  const auto refused = refused_.find(name);
  return NotFound(refused != refused_.end() ? refused->second
                                            : "TensorFlow does not know it either");
}

const OpDef* Definitions::Find(std::string_view name) {
  if (!Require(name).ok()) return nullptr;
  MutexLock lock(mutex_);
  return &ops_.find(name)->second;
}

ShapeFn Definitions::shape() const { return BorrowedShape; }

std::string Definitions::Remedy(std::string_view name) { return Require(name).message(); }

std::map<std::string, std::string, std::less<>> Definitions::Refused() {
  MutexLock lock(mutex_);
  if (!Load().ok()) return {};
  return refused_;
}

Definitions::TypesOfAttrs Definitions::KernelTypes(const std::string& op) {
  MutexLock lock(mutex_);
  if (!Load().ok()) return {};
  const auto found = kernels_.find(op);
  return found != kernels_.end() ? found->second : TypesOfAttrs();
}

std::vector<const OpDef*> Definitions::All() {
  std::vector<const OpDef*> all;
  MutexLock lock(mutex_);
  if (!Load().ok()) return all;
  for (const auto& [name, op] : ops_) all.push_back(&op);
  return all;
}

}  // namespace monograph::tensorflow
