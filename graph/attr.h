// AttrValue: the value of a node's attribute; Attrs: all of a node's, shared between nodes that
// have the same.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/tensor.h"

namespace monograph {

// A reference to a function of the graph's library.
struct FunctionName {
  std::string name;
  friend bool operator==(const FunctionName&, const FunctionName&) = default;
};

// An empty TensorFlow list carries no element type: it is std::monostate's list, `EmptyList`, and
// matches any list.
struct EmptyList {
  friend bool operator==(EmptyList, EmptyList) { return true; }
};

using AttrValue =
    std::variant<std::monostate, std::string, int64_t, float, bool, DType, PartialShape, Tensor,
                 FunctionName, EmptyList, std::vector<std::string>, std::vector<int64_t>,
                 std::vector<float>, std::vector<bool>, std::vector<DType>,
                 std::vector<PartialShape>, std::vector<FunctionName>>;

// "int", "list(type)", ...: the name by which an OpDef declares the type that `value` has.
std::string_view AttrTypeName(const AttrValue& value);
std::string AttrToString(const AttrValue& value);
bool AttrEqual(const AttrValue& a, const AttrValue& b);  // tensors and floats bit by bit
uint64_t AttrHash(const AttrValue& value);               // equal values have equal hashes

// Sorted by name. Immutable once a node holds it.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> values) {
    for (const auto& [name, value] : values) Set(name, value);
  }

  void Set(std::string_view name, AttrValue value);
  void Remove(std::string_view name);
  const AttrValue* Find(std::string_view name) const;  // nullptr if there is none
  // REQUIRES (our own bug otherwise): there is one, of this type. Checked attributes of a node in a
  // Graph always are.
  template <typename T>
  const T& Get(std::string_view name) const {
    const AttrValue* value = Find(name);
    MG_CHECK(value != nullptr);
    MG_CHECK(std::holds_alternative<T>(*value));
    return std::get<T>(*value);
  }
  // As Get, or `fallback` if there is none or it has another type. An EmptyList gives an empty
  // vector.
  template <typename T>
  T GetOr(std::string_view name, T fallback) const {
    const AttrValue* value = Find(name);
    if (value == nullptr || !std::holds_alternative<T>(*value)) return fallback;
    return std::get<T>(*value);
  }
  const std::vector<std::pair<std::string, AttrValue>>& values() const { return values_; }
  bool empty() const { return values_.empty(); }
  uint64_t Hash() const;

  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  std::vector<std::pair<std::string, AttrValue>> values_;
};

}  // namespace monograph
