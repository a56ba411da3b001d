// A record of comma-separated values, behind a first byte that says how it is read:
//   1 quotes have their meaning | 2 tabs part the fields | 4 only the first and the third field
// Its fields are numbers, too, which the C library reads alike.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "ops/string/csv_fields.h"
#include "ops/string/parse_number.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

using ops::string::CsvFormat;

// What the C library takes, and we do not: hexadecimal numbers and characters behind a NaN.
bool IsOurs(std::string_view text) { return text.find_first_of("xXpP(") == text.npos; }

template <typename T>
void CheckFloating(const std::string& text, T (*read)(const char*, char**)) {
  T value = 0;
  const bool parsed = ops::string::ParseNumber(text, &value);
  const std::string stripped(ops::string::Stripped(text));
  if (!IsOurs(stripped) || stripped.find('\0') != stripped.npos) return;
  char* end = nullptr;
  const T known = read(stripped.c_str(), &end);
  MG_CHECK(parsed == (!stripped.empty() && *end == '\0'));
  if (!parsed) return;
  MG_CHECK(std::isnan(value) ? std::isnan(known) : value == known);
  MG_CHECK(std::isnan(value) || std::signbit(value) == std::signbit(known));
}

template <typename T>
void CheckInteger(const std::string& text) {
  T value = 0;
  const bool parsed = ops::string::ParseNumber(text, &value);
  const std::string stripped(ops::string::Stripped(text));
  if (stripped.find('\0') != stripped.npos) return;
  char* end = nullptr;
  errno = 0;
  const long long known = std::strtoll(stripped.c_str(), &end, 10);
  const bool fits = errno == 0 && known >= std::numeric_limits<T>::min() &&
                    known <= std::numeric_limits<T>::max();
  MG_CHECK(parsed == (!stripped.empty() && *end == '\0' && fits));
  MG_CHECK(!parsed || value == known);
}

// The record of these fields, each in quotes.
std::string InQuotes(const std::vector<std::string>& fields, char delimiter) {
  std::string record;
  for (const std::string& field : fields) {
    record += record.empty() ? "\"" : std::string{delimiter} + "\"";
    for (const char c : field) record += c == '"' ? "\"\"" : std::string(1, c);
    record += '"';
  }
  return record;
}

}  // namespace

void csv(std::string_view bytes) {
  const unsigned mark = bytes.empty() ? 1 : static_cast<unsigned char>(bytes.front());
  const std::string_view record = bytes.substr(bytes.empty() ? 0 : 1);
  CsvFormat format{.delimiter = (mark & 2) != 0 ? '\t' : ',', .quotes = (mark & 1) != 0};
  std::vector<std::string> fields, again;
  Looks looks;
  const bool good = ops::string::ReadCsvFields(&looks, record, format, &fields).ok();
  if (good) {
    MG_CHECK(!fields.empty());
    const CsvFormat quoted{.delimiter = format.delimiter, .quotes = true};
    MG_CHECK(ops::string::ReadCsvFields(&looks, InQuotes(fields, format.delimiter), quoted, &again)
                 .ok());
    MG_CHECK(fields == again);
  }
  if ((mark & 4) != 0) {
    format.columns = {0, 2};
    MG_CHECK(ops::string::ReadCsvFields(&looks, record, format, &again).ok() == good);
    MG_CHECK(!good || again.size() == (fields.size() > 2 ? 2u : 1u));
    MG_CHECK(!good ||
             (again.front() == fields.front() && (fields.size() < 3 || again.back() == fields[2])));
  }
  fields.emplace_back(record);
  for (const std::string& field : fields) {
    CheckFloating<float>(field, std::strtof);
    CheckFloating<double>(field, std::strtod);
    CheckInteger<int32_t>(field);
    CheckInteger<int64_t>(field);
  }
}

}  // namespace monograph::fuzz
