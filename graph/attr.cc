// Text, equality and hash of attribute values, by one overload for each type. Floats and tensors
// are compared bit by bit: 0.0 and -0.0 differ, and a NaN equals itself, so that nodes are merged
// only if they really compute the same. Attrs keeps its values in a sorted vector, since a node has
// few of them.
#include "graph/attr.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <functional>

namespace monograph {
namespace {

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};
template <typename... F>
Overload(F...) -> Overload<F...>;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 12) + (hash >> 4);
  return hash * 0xff51afd7ed558ccdull;
}

uint64_t HashText(std::string_view text) { return std::hash<std::string_view>()(text); }

std::string ToText(std::monostate) { return "none"; }
std::string ToText(EmptyList) { return "[]"; }
std::string ToText(const std::string& value) { return "'" + value + "'"; }
std::string ToText(int64_t value) { return std::to_string(value); }
std::string ToText(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}
std::string ToText(bool value) { return value ? "true" : "false"; }
std::string ToText(DType value) { return std::string(DTypeName(value)); }
std::string ToText(const PartialShape& value) { return value.ToString(); }
std::string ToText(const Tensor& value) {
  return value.valid() ? value.ToString() : "invalid tensor";
}
std::string ToText(const FunctionName& value) { return value.name; }
template <typename T>
std::string ToText(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += ToText(static_cast<T>(values[i]));
  }
  return text + "]";
}

uint64_t HashOf(std::monostate) { return 1; }
uint64_t HashOf(EmptyList) { return 2; }
uint64_t HashOf(const std::string& value) { return HashText(value); }
uint64_t HashOf(int64_t value) { return static_cast<uint64_t>(value); }
uint64_t HashOf(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t HashOf(bool value) { return value ? 7 : 3; }
uint64_t HashOf(DType value) { return static_cast<uint64_t>(value); }
uint64_t HashOf(const PartialShape& value) {
  uint64_t hash = static_cast<uint64_t>(value.rank()) + 11;
  for (int64_t dim : value.dims()) hash = Mix(hash, static_cast<uint64_t>(dim));
  return hash;
}
uint64_t HashOf(const Tensor& value) {
  uint64_t hash = Mix(static_cast<uint64_t>(value.dtype()), HashOf(PartialShape(value.shape())));
  // The beginning tells most tensors apart, and hashing a large constant takes time; equality
  // compares all of it.
  if (IsPlainData(value.dtype())) {
    hash = Mix(hash, HashText({static_cast<const char*>(value.raw()),
                               std::min<size_t>(value.bytes(), 4096)}));
  } else if (value.dtype() == DT_STRING) {
    for (int64_t i = 0; i < std::min<int64_t>(value.elements(), 64); ++i)
      hash = Mix(hash, HashText(value.strings()[i]));
  }
  return hash;
}
uint64_t HashOf(const FunctionName& value) { return HashText(value.name); }
template <typename T>
uint64_t HashOf(const std::vector<T>& values) {
  uint64_t hash = values.size();
  for (size_t i = 0; i < values.size(); ++i) hash = Mix(hash, HashOf(static_cast<T>(values[i])));
  return hash;
}

bool Same(const Tensor& a, const Tensor& b) { return BitEqual(a, b); }
bool Same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return Same(x, y); });
}
template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}

struct NameLess {
  bool operator()(const std::pair<std::string, AttrValue>& entry, std::string_view name) const {
    return entry.first < name;
  }
};

}  // namespace

std::string_view AttrTypeName(const AttrValue& value) {
  return std::visit(
      Overload{[](std::monostate) { return "none"; }, [](const std::string&) { return "string"; },
               [](int64_t) { return "int"; }, [](float) { return "float"; },
               [](bool) { return "bool"; }, [](DType) { return "type"; },
               [](const PartialShape&) { return "shape"; }, [](const Tensor&) { return "tensor"; },
               [](const FunctionName&) { return "func"; }, [](EmptyList) { return "list"; },
               [](const std::vector<std::string>&) { return "list(string)"; },
               [](const std::vector<int64_t>&) { return "list(int)"; },
               [](const std::vector<float>&) { return "list(float)"; },
               [](const std::vector<bool>&) { return "list(bool)"; },
               [](const std::vector<DType>&) { return "list(type)"; },
               [](const std::vector<PartialShape>&) { return "list(shape)"; },
               [](const std::vector<FunctionName>&) { return "list(func)"; }},
      value);
}

std::string AttrToString(const AttrValue& value) {
  return std::visit([](const auto& v) { return ToText(v); }, value);
}

bool AttrEqual(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        return Same(value, std::get<T>(b));
      },
      a);
}

uint64_t AttrHash(const AttrValue& value) {
  return Mix(value.index(), std::visit([](const auto& v) { return HashOf(v); }, value));
}

void Attrs::Set(std::string_view name, AttrValue value) {
  auto place = std::lower_bound(values_.begin(), values_.end(), name, NameLess());
  if (place != values_.end() && place->first == name) {
    place->second = std::move(value);
  } else {
    values_.emplace(place, std::string(name), std::move(value));
  }
}

void Attrs::Remove(std::string_view name) {
  auto place = std::lower_bound(values_.begin(), values_.end(), name, NameLess());
  if (place != values_.end() && place->first == name) values_.erase(place);
}

const AttrValue* Attrs::Find(std::string_view name) const {
  for (const auto& entry : values_) {  // few: a scan is faster than bisection
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

uint64_t Attrs::Hash() const {
  uint64_t hash = values_.size();
  for (const auto& [name, value] : values_) hash = Mix(Mix(hash, HashText(name)), AttrHash(value));
  return hash;
}

bool operator==(const Attrs& a, const Attrs& b) {
  return std::equal(a.values_.begin(), a.values_.end(), b.values_.begin(), b.values_.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && AttrEqual(x.second, y.second);
                    });
}

}  // namespace monograph
