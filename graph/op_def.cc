// OpDef reads its definition strings by recursive descent (SpecReader); since they are part of the
// program, a mistake in one ends the process. Whether the type of an argument is one attribute or a
// list of types is known only when the attribute is declared, so arguments are resolved after every
// declaration (ResolveTypeLists). The second half computes the types of inputs and outputs from a
// node's attributes, and holds the registry.
#include "graph/op_def.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/hash.h"
#include "graph/names.h"
#include "graph/op_source.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

constexpr size_t kMostOutputs = 65536;  // of a node; a plan has 16 bits for the number of one

// Reads the small grammar of op_def.h. Every mistake is our own bug.
class SpecReader {
 public:
  SpecReader(std::string_view op, std::string_view spec) : op_(op), spec_(spec), rest_(spec) {}

  void Skip() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])))
      rest_.remove_prefix(1);
  }
  bool Take(std::string_view token) {
    Skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void Require(std::string_view token) {
    if (!Take(token)) Fail("expected '" + std::string(token) + "'");
  }
  std::string Identifier() {
    Skip();
    size_t size = 0;
    while (size < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[size])) || rest_[size] == '_'))
      ++size;
    if (size == 0) Fail("expected a name");
    std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }
  bool Peek(char c) {
    Skip();
    return !rest_.empty() && rest_[0] == c;
  }
  int64_t Int() {
    Skip();
    int64_t value = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) Fail("expected an integer");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  float Float() {
    Skip();
    const std::string text(rest_);
    char* end = nullptr;
    const float value = std::strtof(text.c_str(), &end);
    if (end == text.c_str()) Fail("expected a number");
    rest_.remove_prefix(static_cast<size_t>(end - text.c_str()));
    return value;
  }
  std::string Quoted() {
    Skip();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const size_t end =
        quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) Fail("expected a quoted string");
    std::string value(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return value;
  }
  DType Type() {
    auto dtype = ParseDType(Identifier());
    if (!dtype.ok()) Fail(dtype.status().message());
    return *dtype;
  }
  PartialShape ShapeValue() {
    if (Take("{")) {  // "{ unknown_rank: true }"
      Require("unknown_rank");
      Require(":");
      Require("true");
      Require("}");
      return PartialShape();
    }
    if (Take("?")) return PartialShape();
    Require("[");
    PartialShape shape = PartialShape::Scalar();
    while (!Take("]")) {
      shape.AddDim(Take("?") ? -1 : Int());
      Take(",");
    }
    return shape;
  }
  template <typename F>
  auto List(F element) {
    std::vector<decltype(element())> values;
    Require("[");
    while (!Take("]")) {
      values.push_back(element());
      Take(",");
    }
    return values;
  }
  AttrValue Value(std::string_view kind) {
    if (kind == "int") return Int();
    if (kind == "float") return Float();
    if (kind == "bool") return Bool();
    if (kind == "string") return Quoted();
    if (kind == "type") return Type();
    if (kind == "shape") return ShapeValue();
    if (kind == "func") return FunctionName{Identifier()};
    if (kind == "list(int)") return List([this] { return Int(); });
    if (kind == "list(float)") return List([this] { return Float(); });
    if (kind == "list(bool)") return List([this] { return Bool(); });
    if (kind == "list(string)") return List([this] { return Quoted(); });
    if (kind == "list(type)") return List([this] { return Type(); });
    if (kind == "list(shape)") return List([this] { return ShapeValue(); });
    if (kind == "list(func)") return List([this] { return FunctionName{Identifier()}; });
    Fail("there are no defaults of kind " + std::string(kind));
  }
  bool Bool() {
    if (Take("true")) return true;
    Require("false");
    return false;
  }
  void End() {
    Skip();
    if (!rest_.empty()) Fail("unexpected text at the end");
  }
  [[noreturn]] void Fail(const std::string& what) const {
    FatalBug("OpDef", 0,
             "op " + std::string(op_) + ", \"" + std::string(spec_) + "\": " + what + " at \"" +
                 std::string(rest_) + "\"");
  }

 private:
  std::string_view op_, spec_, rest_;
};

ArgDef ReadArg(std::string_view op, std::string_view spec) {
  SpecReader reader(op, spec);
  ArgDef arg;
  arg.name = reader.Identifier();
  reader.Require(":");
  arg.is_ref = reader.Take("Ref(");
  std::string type = reader.Identifier();
  if (reader.Take("*")) {
    arg.number_attr = std::move(type);
    type = reader.Identifier();
  }
  if (arg.is_ref) reader.Require(")");
  reader.End();
  if (auto dtype = ParseDType(type); dtype.ok()) {
    arg.dtype = *dtype;
  } else {
    arg.type_attr = std::move(type);
  }
  return arg;
}

// An attribute's kind is known only once it is declared.
void ResolveTypeLists(const std::vector<AttrDef>& attrs, std::vector<ArgDef>* args) {
  for (ArgDef& arg : *args) {
    if (arg.type_attr.empty()) continue;
    for (const AttrDef& attr : attrs) {
      if (attr.name == arg.type_attr && attr.kind == "list(type)")
        arg.type_list_attr = std::exchange(arg.type_attr, "");
    }
  }
}

Status AddTypes(const std::string& op, const ArgDef& arg, const Attrs& attrs,
                std::vector<DType>* types) {
  const auto missing = [&](const std::string& name, const char* kind) {
    const AttrValue* value = attrs.Find(name);
    return InvalidArgument(
        fmt::format("op {}: attribute '{}' {}; a value of type {} is needed for '{}'", op, name,
                    value == nullptr ? "is missing" : "is a " + std::string(AttrTypeName(*value)),
                    kind, arg.name));
  };
  if (!arg.type_list_attr.empty()) {
    const AttrValue* value = attrs.Find(arg.type_list_attr);
    if (value != nullptr && std::holds_alternative<EmptyList>(*value)) return Status();
    if (value == nullptr || !std::holds_alternative<std::vector<DType>>(*value)) {
      return missing(arg.type_list_attr, "list(type)");
    }
    const auto& list = std::get<std::vector<DType>>(*value);
    types->insert(types->end(), list.begin(), list.end());
    return Status();
  }
  DType dtype = arg.dtype;
  if (!arg.type_attr.empty()) {
    const AttrValue* value = attrs.Find(arg.type_attr);
    if (value == nullptr || !std::holds_alternative<DType>(*value))
      return missing(arg.type_attr, "type");
    dtype = std::get<DType>(*value);
  }
  int64_t count = 1;
  if (!arg.number_attr.empty()) {
    const AttrValue* value = attrs.Find(arg.number_attr);
    if (value == nullptr || !std::holds_alternative<int64_t>(*value))
      return missing(arg.number_attr, "int");
    count = std::get<int64_t>(*value);
    if (count < 0 || count > 1'000'000) {
      return InvalidArgument(
          fmt::format("op {}: attribute '{}' is {}, which is no number of tensors", op,
                      arg.number_attr, count));
    }
  }
  types->insert(types->end(), static_cast<size_t>(count), dtype);
  return Status();
}

std::string ArgsToString(const std::vector<ArgDef>& args) {
  std::string text = "(";
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgDef& arg = args[i];
    if (i > 0) text += ", ";
    text += arg.name + (arg.is_ref ? ": Ref(" : ": ");
    if (!arg.number_attr.empty()) text += arg.number_attr + " * ";
    text += !arg.type_attr.empty()        ? arg.type_attr
            : !arg.type_list_attr.empty() ? arg.type_list_attr
                                          : std::string(DTypeName(arg.dtype));
    if (arg.is_ref) text += ")";
  }
  return text + ")";
}

std::string AttrDefToString(const AttrDef& attr) {
  std::string text = attr.name + ": " + attr.kind;
  if (!attr.allowed_types.empty()) text += " in " + AttrToString(attr.allowed_types);
  if (!attr.allowed_strings.empty()) text += " in " + AttrToString(attr.allowed_strings);
  if (attr.minimum) text += " >= " + std::to_string(*attr.minimum);
  if (attr.default_value) text += " = " + AttrToString(*attr.default_value);
  return text;
}

}  // namespace

OpDef& OpDef::Input(std::string_view spec) {
  inputs_.push_back(ReadArg(name_, spec));
  ResolveTypeLists(attrs_, &inputs_);
  return *this;
}

OpDef& OpDef::Output(std::string_view spec) {
  outputs_.push_back(ReadArg(name_, spec));
  ResolveTypeLists(attrs_, &outputs_);
  return *this;
}

OpDef& OpDef::Attr(std::string_view spec) {
  SpecReader reader(name_, spec);
  AttrDef attr;
  attr.name = reader.Identifier();
  if (FindAttr(attr.name) != nullptr) reader.Fail("the attribute is declared twice");
  reader.Require(":");
  const bool list = reader.Take("list(");
  if (reader.Take("{")) {
    while (!reader.Take("}")) {
      if (reader.Peek('\'') || reader.Peek('"')) {
        attr.allowed_strings.push_back(reader.Quoted());
      } else {
        attr.allowed_types.push_back(reader.Type());
      }
      reader.Take(",");
    }
    attr.kind = attr.allowed_strings.empty() ? "type" : "string";
  } else {
    attr.kind = reader.Identifier();
    static constexpr std::string_view kKinds[] = {"int",  "float", "bool",   "string",
                                                  "type", "shape", "tensor", "func"};
    if (std::find(std::begin(kKinds), std::end(kKinds), attr.kind) == std::end(kKinds))
      reader.Fail("unknown kind");
  }
  if (list) {
    reader.Require(")");
    attr.kind = "list(" + attr.kind + ")";
  }
  if (reader.Take(">=")) attr.minimum = reader.Int();
  if (reader.Take("=")) attr.default_value = reader.Value(attr.kind);
  reader.End();
  attrs_.push_back(std::move(attr));
  ResolveTypeLists(attrs_, &inputs_);
  ResolveTypeLists(attrs_, &outputs_);
  return *this;
}

OpDef& OpDef::Stateful() {
  stateful_ = true;
  return *this;
}
OpDef& OpDef::ReadsOnly() {
  reads_only_ = true;
  return *this;
}
OpDef& OpDef::MayWait() {
  may_wait_ = true;
  return *this;
}
OpDef& OpDef::Commutative() {
  commutative_ = true;
  return *this;
}
OpDef& OpDef::InClient() {
  in_client_ = true;
  return *this;
}
OpDef& OpDef::Flow(FlowOp flow) {
  flow_ = flow;
  return *this;
}
OpDef& OpDef::ByHandle(HandleForm form) {
  handle_form_ = std::move(form);
  return *this;
}
OpDef& OpDef::AddedAs(std::string op) {
  added_as_ = std::move(op);
  return *this;
}
OpDef& OpDef::Shape(ShapeFn fn) {
  shape_ = fn;
  return *this;
}
OpDef& OpDef::Gradient(GradientFn fn) {
  gradient_ = fn;
  return *this;
}
OpDef& OpDef::NoGradient() {
  no_gradient_ = true;
  return *this;
}

OpDef OpDef::ReferenceForm(std::string name, std::string type_attr, ShapeFn fn) const {
  OpDef op = *this;
  op.name_ = std::move(name);
  op.handle_form_ = HandleForm{name_, {}};
  op.shape_ = fn;
  for (ArgDef& arg : op.inputs_) {
    if (arg.dtype != DT_RESOURCE) continue;
    arg.dtype = DT_INVALID;
    arg.type_attr = type_attr;
    arg.is_ref = true;
  }
  op.Output("out: Ref(" + type_attr + ")");
  return op;
}

OpDef OpDef::StringReferenceForm(std::string name) const {
  OpDef op = *this;
  op.name_ = std::move(name);
  op.handle_form_ = HandleForm{name_, {}};
  for (std::vector<ArgDef>* args : {&op.inputs_, &op.outputs_}) {
    for (ArgDef& arg : *args) {
      if (arg.dtype != DT_RESOURCE) continue;
      arg.dtype = DT_STRING;
      arg.is_ref = true;
    }
  }
  return op;
}

OpDef OpDef::OtherName(std::string name) const {
  OpDef op = *this;
  op.name_ = std::move(name);
  op.handle_form_.reset();
  op.added_as_ = name_;
  for (std::vector<ArgDef>* args : {&op.inputs_, &op.outputs_}) {
    for (ArgDef& arg : *args) {
      if (arg.dtype == DT_RESOURCE) arg.dtype = DT_STRING;
    }
  }
  if (!outputs_.empty() && outputs_[0].dtype == DT_RESOURCE) op.outputs_.resize(1, ArgDef());
  return op;
}

const AttrDef* OpDef::FindAttr(std::string_view name) const {
  for (const AttrDef& attr : attrs_) {
    if (attr.name == name) return &attr;
  }
  return nullptr;
}

OpDef OpDef::Unknown(std::string name) {
  OpDef op(std::move(name));
  op.known_ = false;
  op.stateful_ = true;
  return op;
}

Status OpDef::OutputTypes(const Attrs& attrs, std::vector<DType>* types) const {
  types->clear();
  for (const ArgDef& arg : outputs_) MG_RETURN_IF_ERROR(AddTypes(name_, arg, attrs, types));
  if (types->size() <= kMostOutputs) return Status();
  return InvalidArgument(
      fmt::format("op {}: a node would have {} outputs; at most {} are supported", name_,
                  types->size(), kMostOutputs));
}

std::string OpDef::ToString() const {
  std::string text = name_ + ArgsToString(inputs_) + " -> " + ArgsToString(outputs_);
  for (size_t i = 0; i < attrs_.size(); ++i)
    text += (i == 0 ? "; " : ", ") + AttrDefToString(attrs_[i]);
  return text;
}

OpRegistry::OpRegistry() { AddStructuralOps(this); }

void OpRegistry::Add(OpDef def) {
  std::string name = def.name();
  for (const std::vector<ArgDef>* args : {&def.inputs(), &def.outputs()}) {
    for (const ArgDef& arg : *args) {
      for (const std::string& attr : {arg.type_attr, arg.number_attr}) {
        if (!attr.empty() && def.FindAttr(attr) == nullptr) {
          FatalBug("OpRegistry", 0,
                   "op " + name + ": '" + arg.name + "' uses undeclared attribute or type '" +
                       attr + "'");
        }
      }
    }
  }
  const bool added = ops_.emplace(name, std::make_unique<OpDef>(std::move(def))).second;
  if (!added) FatalBug("OpRegistry", 0, "op " + name + " is defined twice");
  fingerprint_.store(0, std::memory_order_relaxed);  // relaxed: whoever adds has it alone
}

void OpRegistry::AddStringReferenceForm(std::string name, std::string_view of) {
  Add(Find(of)->StringReferenceForm(std::move(name)));
}

void OpRegistry::AddOtherName(std::string name, std::string_view of) {
  Add(Find(of)->OtherName(std::move(name)));
}

const OpDef* OpRegistry::Find(std::string_view name) const {
  const auto found = ops_.find(name);
  return found == ops_.end() ? FindBorrowed(name) : found->second.get();
}

Result<const OpDef*> OpRegistry::Require(std::string_view name) const {
  if (const OpDef* op = Find(name)) return op;
  NearNames near(name, 1);
  for (const auto& [known, op] : ops_) near.Offer(known);
  return Unimplemented(
      fmt::format("op '{}' is not registered{}{}", name, near.Hint(), BorrowingRemedy(name)));
}

std::vector<const OpDef*> OpRegistry::All() const {
  std::vector<const OpDef*> all;
  for (const auto& [name, op] : ops_) all.push_back(op.get());
  return all;
}

uint64_t OpRegistry::fingerprint() const {
  // relaxed: the number is all that is told, and whoever computes it gets the same.
  uint64_t hash = fingerprint_.load(std::memory_order_relaxed);
  if (hash != 0) return hash;
  hash = Fnv1a("");
  for (const auto& [name, op] : ops_)
    hash = Fnv1a(op->ToString() + (op->stateful() ? "!" : "."), hash);
  fingerprint_.store(hash, std::memory_order_relaxed);
  return hash;
}

}  // namespace monograph
