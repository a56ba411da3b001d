// CheckNode, in its order: the given attributes are declared and of the right kind (CheckGiven);
// each argument gets its number of inputs (CountInputs); attributes that were not given follow from
// the inputs (InferFromInputs) or are defaults, and given ones must have allowed values; the inputs
// have the right types (CheckInputTypes); output types follow. Counting comes before inferring,
// because an attribute may be the very number of inputs.
#include "graph/node_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace monograph {
namespace {

std::string Plural(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string AttrNames(const OpDef& op) {
  if (op.attrs().empty()) return "it has none";
  std::string text = "it has ";
  for (size_t i = 0; i < op.attrs().size(); ++i)
    text += (i > 0 ? ", '" : "'") + op.attrs()[i].name + "'";
  return text;
}

AttrValue EmptyValue(std::string_view kind) {
  if (kind == "list(string)") return std::vector<std::string>();
  if (kind == "list(int)") return std::vector<int64_t>();
  if (kind == "list(float)") return std::vector<float>();
  if (kind == "list(bool)") return std::vector<bool>();
  if (kind == "list(type)") return std::vector<DType>();
  if (kind == "list(shape)") return std::vector<PartialShape>();
  if (kind == "list(func)") return std::vector<FunctionName>();
  return EmptyList();
}

size_t ListSize(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> size_t {
        if constexpr (requires { v.begin(), v.size(); }) return v.size();
        return 0;
      },
      value);
}

Status CheckAllowed(const AttrDef& def, const AttrValue& value) {
  const auto wrong = [&](const std::string& what, const AttrValue& allowed) {
    return InvalidArgument(fmt::format("attribute '{}' is {}; it must be one of {}", def.name, what,
                                       AttrToString(allowed)));
  };
  const auto type = [&](DType dtype) {
    const auto& allowed = def.allowed_types;
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), dtype) != allowed.end())
      return Status();
    return wrong(std::string(DTypeName(dtype)), allowed);
  };
  const auto string = [&](const std::string& text) {
    const auto& allowed = def.allowed_strings;
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), text) != allowed.end())
      return Status();
    return wrong("'" + text + "'", allowed);
  };
  if (const auto* dtype = std::get_if<DType>(&value)) MG_RETURN_IF_ERROR(type(*dtype));
  if (const auto* dtypes = std::get_if<std::vector<DType>>(&value)) {
    for (DType dtype : *dtypes) MG_RETURN_IF_ERROR(type(dtype));
  }
  if (const auto* text = std::get_if<std::string>(&value)) MG_RETURN_IF_ERROR(string(*text));
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *texts) MG_RETURN_IF_ERROR(string(text));
  }
  if (def.minimum) {
    if (const auto* number = std::get_if<int64_t>(&value);
        number != nullptr && *number < *def.minimum) {
      return InvalidArgument(fmt::format("attribute '{}' is {}; it must be at least {}", def.name,
                                         *number, *def.minimum));
    }
    if (def.kind.starts_with("list(") && static_cast<int64_t>(ListSize(value)) < *def.minimum) {
      return InvalidArgument(fmt::format("attribute '{}' has {}; it must have at least {}",
                                         def.name, Plural(ListSize(value), "element"),
                                         *def.minimum));
    }
  }
  return Status();
}

bool IsEmptyListOf(const AttrDef& def, const AttrValue& value) {
  return std::holds_alternative<EmptyList>(value) && def.kind.starts_with("list(");
}

Status CheckKind(const AttrDef& def, const AttrValue& value) {
  if (IsEmptyListOf(def, value) || AttrTypeName(value) == def.kind) return Status();
  return InvalidArgument(fmt::format("attribute '{}' must be of type {}, but {} is of type {}",
                                     def.name, def.kind, AttrToString(value), AttrTypeName(value)));
}

// The attributes while they are completed. They are copied only if something has to be added.
class Completion {
 public:
  explicit Completion(const std::shared_ptr<const Attrs>& given) : given_(given) {}

  const AttrValue* Find(std::string_view name) const {
    if (own_) return own_->Find(name);
    return given_ ? given_->Find(name) : nullptr;
  }
  void Set(const std::string& name, AttrValue value) {
    if (!own_) own_ = given_ ? std::make_shared<Attrs>(*given_) : std::make_shared<Attrs>();
    own_->Set(name, std::move(value));
  }
  std::shared_ptr<const Attrs> Take() {
    if (own_) return std::move(own_);
    static const auto* const kNone = new std::shared_ptr<const Attrs>(std::make_shared<Attrs>());
    return given_ ? given_ : *kNone;
  }

 private:
  const std::shared_ptr<const Attrs>& given_;
  std::shared_ptr<Attrs> own_;
};

Status CheckGiven(const OpDef& op, const Attrs& given, Completion* attrs) {
  for (const auto& [name, value] : given.values()) {
    const AttrDef* def = op.FindAttr(name);
    if (def == nullptr) {
      if (name.starts_with('_')) continue;
      return InvalidArgument(
          fmt::format("op {} has no attribute '{}'; {}", op.name(), name, AttrNames(op)));
    }
    MG_RETURN_IF_ERROR(CheckKind(*def, value));
    if (IsEmptyListOf(*def, value)) attrs->Set(name, EmptyValue(def->kind));
  }
  return Status();
}

int64_t Count(const ArgDef& arg, const Completion& attrs) {
  if (!arg.number_attr.empty()) {
    const AttrValue* value = attrs.Find(arg.number_attr);
    return value == nullptr ? -1 : std::get<int64_t>(*value);
  }
  if (!arg.type_list_attr.empty()) {
    const AttrValue* value = attrs.Find(arg.type_list_attr);
    return value == nullptr ? -1 : static_cast<int64_t>(ListSize(*value));
  }
  return 1;
}

// How many inputs each argument takes. Attributes give the numbers; at most one attribute may be
// open, and its arguments share the inputs that are left.
Status CountInputs(const OpDef& op, const Completion& attrs, size_t total,
                   std::vector<int64_t>* counts) {
  int64_t rest = static_cast<int64_t>(total);
  std::string open_attr;
  int64_t open = 0;
  bool ambiguous = false;
  counts->clear();
  for (const ArgDef& arg : op.inputs()) {
    const int64_t count = Count(arg, attrs);
    counts->push_back(count);
    if (count >= 0) {
      rest = count <= rest ? rest - count : -1;  // -1: too few inputs, as sums of counts may wrap
      continue;
    }
    const std::string& attr = arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
    ambiguous |= open > 0 && (attr != open_attr || arg.number_attr.empty());
    open_attr = attr;
    ++open;
  }
  if (ambiguous)
    return InvalidArgument("attribute '" + open_attr +
                           "' does not follow from the inputs; it must be given");
  const bool fits = open == 0 ? rest == 0 : rest >= 0 && rest % open == 0;
  if (!fits) {
    size_t needed = 0;
    for (int64_t count : *counts) needed += static_cast<size_t>(std::max<int64_t>(count, 0));
    return InvalidArgument(fmt::format("op takes {}{}, not {}: {}", open > 0 ? "at least " : "",
                                       Plural(needed, "input"), total, op.ToString()));
  }
  for (int64_t& count : *counts) {
    if (count < 0) count = rest / open;
  }
  return Status();
}

void InferFromInputs(const OpDef& op, std::span<const DType> inputs,
                     const std::vector<int64_t>& counts, Completion* attrs) {
  size_t next = 0;
  for (size_t i = 0; i < op.inputs().size(); ++i) {
    const ArgDef& arg = op.inputs()[i];
    const auto count = static_cast<size_t>(counts[i]);
    const auto own = inputs.subspan(next, count);
    next += count;
    if (!arg.number_attr.empty() && attrs->Find(arg.number_attr) == nullptr) {
      attrs->Set(arg.number_attr, static_cast<int64_t>(count));
    }
    if (!arg.type_list_attr.empty() && attrs->Find(arg.type_list_attr) == nullptr) {
      attrs->Set(arg.type_list_attr, std::vector<DType>(own.begin(), own.end()));
    }
    if (!arg.type_attr.empty() && attrs->Find(arg.type_attr) == nullptr) {
      const auto known =
          std::find_if(own.begin(), own.end(), [](DType dtype) { return dtype != DT_INVALID; });
      if (known != own.end()) attrs->Set(arg.type_attr, *known);
    }
  }
}

Status CheckInputTypes(const OpDef& op, std::span<const DType> inputs,
                       const std::vector<int64_t>& counts, const Completion& attrs) {
  size_t next = 0;
  for (size_t i = 0; i < op.inputs().size(); ++i) {
    const ArgDef& arg = op.inputs()[i];
    for (int64_t k = 0; k < counts[i]; ++k, ++next) {
      DType expected = arg.dtype;
      std::string reason;
      if (!arg.type_attr.empty()) {
        expected = std::get<DType>(*attrs.Find(arg.type_attr));
        reason = " as attribute " + arg.type_attr + " says";
      } else if (!arg.type_list_attr.empty()) {
        expected =
            std::get<std::vector<DType>>(*attrs.Find(arg.type_list_attr))[static_cast<size_t>(k)];
        reason = " as attribute " + arg.type_list_attr + " says";
      }
      if (inputs[next] == expected || inputs[next] == DT_INVALID) continue;
      return InvalidArgument(fmt::format("input {} ('{}') must be {}{}, but is {}", next, arg.name,
                                         DTypeName(expected), reason, DTypeName(inputs[next])));
    }
  }
  return Status();
}

}  // namespace

Status CheckAttr(const AttrDef& def, const AttrValue& value) {
  MG_RETURN_IF_ERROR(CheckKind(def, value));
  return CheckAllowed(def, value);
}

Status CheckNode(const OpDef& op, const std::shared_ptr<const Attrs>& given,
                 std::span<const DType> inputs, CheckedNode* checked) {
  Completion attrs(given);
  if (given != nullptr) MG_RETURN_IF_ERROR(CheckGiven(op, *given, &attrs));
  std::vector<int64_t> counts;
  MG_RETURN_IF_ERROR(CountInputs(op, attrs, inputs.size(), &counts));
  InferFromInputs(op, inputs, counts, &attrs);
  for (const AttrDef& def : op.attrs()) {
    const AttrValue* value = attrs.Find(def.name);
    if (value == nullptr) {
      if (!def.default_value) {
        return InvalidArgument(fmt::format("attribute '{}' of type {} is missing: {}", def.name,
                                           def.kind, op.ToString()));
      }
      attrs.Set(def.name, *def.default_value);
    } else {
      MG_RETURN_IF_ERROR(CheckAllowed(def, *value));
    }
  }
  MG_RETURN_IF_ERROR(CheckInputTypes(op, inputs, counts, attrs));
  checked->attrs = attrs.Take();
  return op.OutputTypes(*checked->attrs, &checked->outputs);
}

}  // namespace monograph
