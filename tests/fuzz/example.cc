// A serialized tf.Example, of which features of three keys are wanted, and a list of values by
// itself. What was read is written as protocol buffers write it, and read again.
#include <cstring>
#include <functional>
#include <string>

#include "ops/example/features.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

using ops::example::AppendList;
using ops::example::Column;
using ops::example::FeatureNumbers;
using ops::example::FindFeatures;
using ops::example::Found;

constexpr const char* kKeys[] = {"a", "b", "label"};

std::string Varint(uint64_t number) {
  std::string text;
  for (; number >= 128; number >>= 7) text += static_cast<char>(number | 128);
  return text + static_cast<char>(number);
}
std::string Field(int number, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}

std::string ListOf(const Column& column) {
  std::string list, packed;
  for (const std::string& text : column.texts) list += Field(1, text);
  for (const float value : column.floats)
    packed.append(reinterpret_cast<const char*>(&value), sizeof value);
  for (const int64_t value : column.ints) packed += Varint(static_cast<uint64_t>(value));
  return packed.empty() ? list : Field(1, packed);
}

bool Same(const Column& a, const Column& b) {
  return a.texts == b.texts && a.ints == b.ints && a.floats.size() == b.floats.size() &&
         (a.floats.empty() ||
          std::memcmp(a.floats.data(), b.floats.data(), a.floats.size() * sizeof(float)) == 0);
}

void ReadList(std::string_view list, DType dtype) {
  Looks looks;
  Column column{.key = "a", .dtype = dtype}, again = column;
  const bool good = AppendList(&looks, list, &column);
  MG_CHECK(static_cast<size_t>(column.size()) <= list.size());
  if (!good) return;
  MG_CHECK(AppendList(&looks, ListOf(column), &again) && Same(column, again));
}

}  // namespace

void example(std::string_view bytes) {
  for (const DType dtype : {DT_STRING, DT_FLOAT, DT_INT64}) ReadList(bytes, dtype);
  Looks looks;
  FeatureNumbers numbers;
  for (const char* key : kKeys) numbers.emplace(key, numbers.size());
  std::vector<Found> found(numbers.size());
  if (!FindFeatures(&looks, bytes, numbers, &found)) return;
  std::string features;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].dtype == DT_INVALID) continue;
    const std::string_view list = found[i].list;
    const std::less_equal<> before;
    MG_CHECK(list.empty() || (before(bytes.data(), list.data()) &&
                              before(list.data() + list.size(), bytes.data() + bytes.size())));
    ReadList(list, found[i].dtype);
    const int number = found[i].dtype == DT_STRING ? 1 : found[i].dtype == DT_FLOAT ? 2 : 3;
    features += Field(1, Field(1, kKeys[i]) + Field(2, Field(number, list)));
  }
  const std::string written = Field(1, features);
  std::vector<Found> again(numbers.size());
  MG_CHECK(FindFeatures(&looks, written, numbers, &again));
  for (size_t i = 0; i < found.size(); ++i)
    MG_CHECK(again[i].dtype == found[i].dtype && again[i].list == found[i].list);
}

}  // namespace monograph::fuzz
