// Each definition is written in the small language of graph/op_def.h, as ours are, and read from
// it. Whatever a definition has that this language lacks, as a type that we do not know, leaves its
// op out: a mistake in such a text would end the process.
#include "graph/op_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "graph/graph.pb.h"
#include "graph/wire.h"

namespace monograph {
namespace {

using Text = std::optional<std::string>;

bool IsIdentifier(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

Text TypeText(int type) {
  const std::string name(DTypeName(static_cast<DType>(type)));
  return ParseDType(name).ok() ? Text(name) : std::nullopt;
}

Text QuotedText(const std::string& text) {
  for (const char quote : {'\'', '"'}) {
    if (text.find(quote) == std::string::npos) return quote + text + quote;
  }
  return std::nullopt;
}

Text ShapeText(const pb::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return "?";
  if (shape.dim_size() > kMaxRank) return std::nullopt;
  std::string text = "[";
  for (const auto& dim : shape.dim())
    text += (dim.size() < 0 ? "?" : std::to_string(dim.size())) + ",";
  return text + "]";
}

template <typename Values, typename ToText>
Text ListText(const Values& values, ToText to_text) {
  std::string text = "[";
  for (const auto& value : values) {
    const Text one = to_text(value);
    if (!one) return std::nullopt;
    text += *one + ",";
  }
  return text + "]";
}

Text IntText(int64_t value) { return std::to_string(value); }
Text FloatText(float value) { return fmt::format("{:.9g}", value); }
Text BoolText(bool value) { return value ? "true" : "false"; }
Text FunctionText(const pb::NameAttrList& function) {
  return IsIdentifier(function.name()) ? Text(function.name()) : std::nullopt;
}

Text DefaultText(const std::string& kind, const pb::AttrValue& value) {
  const auto& list = value.list();
  if (kind == "int") return IntText(value.i());
  if (kind == "float") return FloatText(value.f());
  if (kind == "bool") return BoolText(value.b());
  if (kind == "string") return QuotedText(value.s());
  if (kind == "type") return TypeText(value.type());
  if (kind == "shape") return ShapeText(value.shape());
  if (kind == "func") return FunctionText(value.func());
  if (kind == "list(int)") return ListText(list.i(), IntText);
  if (kind == "list(float)") return ListText(list.f(), FloatText);
  if (kind == "list(bool)") return ListText(list.b(), BoolText);
  if (kind == "list(string)") return ListText(list.s(), QuotedText);
  if (kind == "list(type)") return ListText(list.type(), TypeText);
  if (kind == "list(shape)") return ListText(list.shape(), ShapeText);
  if (kind == "list(func)") return ListText(list.func(), FunctionText);
  return std::nullopt;
}

// "x: N * T", "x: float", ...
Text ArgText(const pb::OpDef::ArgDef& arg) {
  Text type = TypeText(arg.type());
  if (!arg.type_attr().empty()) type = arg.type_attr();
  if (!arg.type_list_attr().empty()) type = arg.type_list_attr();
  const std::string& number = arg.number_attr();
  if (!type || !IsIdentifier(arg.name()) || !IsIdentifier(*type)) return std::nullopt;
  if (!number.empty() && !IsIdentifier(number)) return std::nullopt;
  return arg.name() + ": " + (number.empty() ? "" : number + " * ") + *type;
}

// "T: {float, int32} = float", "N: int >= 1", ...
Text AttrText(const pb::OpDef::AttrDef& attr) {
  static constexpr std::string_view kKinds[] = {"int",  "float", "bool",   "string",
                                                "type", "shape", "tensor", "func"};
  std::string kind = attr.type();
  const bool is_list = kind.starts_with("list(") && kind.ends_with(")");
  const std::string element = is_list ? kind.substr(5, kind.size() - 6) : kind;
  if (!IsIdentifier(attr.name()) || std::ranges::find(kKinds, element) == std::end(kKinds))
    return std::nullopt;
  const auto& allowed = attr.allowed_values().list();
  std::string choices;
  for (const int type : allowed.type()) {
    if (const Text one = TypeText(type)) choices += *one + ", ";
  }
  for (const std::string& text : allowed.s()) {
    const Text one = QuotedText(text);
    if (!one) return std::nullopt;
    choices += *one + ", ";
  }
  if (!choices.empty()) kind = is_list ? "list({" + choices + "})" : "{" + choices + "}";
  std::string text = attr.name() + ": " + kind;
  if (attr.has_minimum()) text += " >= " + std::to_string(attr.minimum());
  // Our language has no tensors: such an attribute must be given.
  if (attr.has_default_value() && attr.type() != "tensor") {
    const Text value = DefaultText(attr.type(), attr.default_value());
    if (!value) return std::nullopt;
    text += " = " + *value;
  }
  return text;
}

bool ByReference(const pb::OpDef& proto) {
  const auto by_reference = [](const pb::OpDef::ArgDef& arg) { return arg.is_ref(); };
  return std::ranges::any_of(proto.input_arg(), by_reference) ||
         std::ranges::any_of(proto.output_arg(), by_reference);
}

// Whether a serialised OpDef has the field "OpDeprecation deprecation = 8".
bool IsDeprecated(std::string_view op) {
  constexpr uint64_t kDeprecation = 8 << 3 | 2;
  for (wire_format::Reader in(op); !in.done();) {
    const uint64_t tag = in.Tag();
    if (tag == kDeprecation) return true;
    in.Skip(tag);
  }
  return false;
}

std::optional<OpDef> OpFromProto(const pb::OpDef& proto) {
  OpDef op(proto.name());
  for (const auto& arg : proto.input_arg()) {
    const Text text = ArgText(arg);
    if (!text) return std::nullopt;
    op.Input(*text);
  }
  for (const auto& arg : proto.output_arg()) {
    const Text text = ArgText(arg);
    if (!text) return std::nullopt;
    op.Output(*text);
  }
  for (const auto& attr : proto.attr()) {
    const Text text = AttrText(attr);
    if (!text || op.FindAttr(attr.name()) != nullptr) return std::nullopt;
    op.Attr(*text);
  }
  if (proto.is_stateful()) op.Stateful();
  return op;
}

}  // namespace

Result<OpList> ParseOpList(std::string_view bytes) {
  constexpr uint64_t kOp = 1 << 3 | 2;  // OpList has one field, "repeated OpDef op = 1"
  OpList read;
  pb::OpDef proto;
  for (wire_format::Reader list(bytes); !list.done();) {
    std::string_view op_bytes;
    if (list.Tag() != kOp || !list.Bytes(&op_bytes) || op_bytes.size() > INT32_MAX ||
        !proto.ParseFromArray(op_bytes.data(), static_cast<int>(op_bytes.size()))) {
      return InvalidArgument("these " + std::to_string(bytes.size()) + " bytes are no list of ops");
    }
    if (proto.name().empty() || proto.name().starts_with('_')) continue;
    if (IsDeprecated(op_bytes)) read.deprecated.push_back(proto.name());
    if (ByReference(proto)) {
      read.by_reference.push_back(proto.name());
    } else if (std::optional<OpDef> op = OpFromProto(proto)) {
      read.ops.push_back(*std::move(op));
    }
  }
  return read;
}

}  // namespace monograph
