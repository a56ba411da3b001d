// The library's own parser says neither which number is out of range nor that a key came twice, and
// its errors are exceptions. So a text is read twice: Checker, a handler of events, finds the first
// mistake and its place; the values are made afterwards from a text that is known to be good.
#include "base/json_value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/nesting.h"

namespace monograph {
namespace {

using Json = nlohmann::json;

constexpr size_t kExcerpt = 80;

// `text` without half a character at its end.
std::string Cut(std::string text) {
  if (text.size() <= kExcerpt) return text;
  size_t end = kExcerpt;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

class Checker : public nlohmann::json_sax<Json> {
 public:
  const std::string& mistake() const { return mistake_; }
  size_t offset() const { return offset_; }  // of the mistake
  const std::string& doubled() const { return doubled_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    doubled_ = name;
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& token,
                   const Json::exception& error) override {
    // Positions count from 1 and stand behind the token.
    const bool number = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    offset_ = position - std::min(position, number ? token.size() : 1);
    mistake_ = number ? "the number " + Cut(token) + " is out of range" : "not JSON";
    return false;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string mistake_, doubled_;
  size_t offset_ = 0;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view source) {
  MG_RETURN_IF_ERROR(CheckNesting(text, source));
  Checker checker;
  if (Json::sax_parse(text, &checker)) return Json::parse(text, nullptr, false);
  std::string where(source);
  if (!checker.mistake().empty())
    return InvalidArgument(where + ", " + PlaceInText(text, checker.offset()) + ": " +
                           checker.mistake());
  return InvalidArgument(where + ": an object has the key " + JsonExcerpt(checker.doubled()) +
                         " twice");
}

std::string JsonText(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}
std::string JsonText(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string JsonExcerpt(const Json& value) { return Cut(JsonText(value)); }

Result<uint64_t> JsonWhole(const Json& value, uint64_t most) {
  uint64_t number = 0;
  bool whole = false;
  if (value.is_number_integer()) {
    whole = value.is_number_unsigned() || value.get<int64_t>() >= 0;
    number = value.get<uint64_t>();
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    whole = real >= 0 && real < 9007199254740992.0 && real == std::floor(real);  // 2^53: exact
    if (whole) number = static_cast<uint64_t>(real);
  }
  if (whole && number <= most) return number;
  return InvalidArgument(JsonExcerpt(value) + " is no whole number of 0 to " +
                         std::to_string(most));
}

}  // namespace monograph
