#include <utility>

#include "ops/string/csv_fields.h"

namespace monograph::ops::string {

Status ReadCsvFields(Looks* looks, std::string_view record, const CsvFormat& format,
                     std::vector<std::string>* fields) {
  fields->clear();
  size_t wanted = 0;
  size_t i = 0;
  for (int64_t column = 0;; ++column) {
    const bool take = format.columns.empty() ||
                      (wanted < format.columns.size() && format.columns[wanted] == column);
    std::string field;
    if (format.quotes && i < record.size() && record[i] == '"') {
      for (++i;; ++i) {
        if (!looks->GoOn(3)) return Status();
        if (i >= record.size())
          return InvalidArgument("Quoted field has to end with quote followed by delim or end");
        if (record[i] == '"') {
          if (i + 1 == record.size() || record[i + 1] == format.delimiter) break;
          if (record[i + 1] != '"')
            return InvalidArgument("Quote inside a string has to be escaped by another quote");
          ++i;
        }
        field.push_back(record[i]);
      }
      ++i;
    } else {
      for (; i < record.size() && record[i] != format.delimiter; ++i) {
        if (!looks->GoOn(3)) return Status();
        if (record[i] == '\n' || record[i] == '\r' || (format.quotes && record[i] == '"'))
          return InvalidArgument("Unquoted fields cannot have quotes/CRLFs inside");
        field.push_back(record[i]);
      }
    }
    if (take) {
      fields->push_back(std::move(field));
      ++wanted;
    }
    if (i >= record.size()) return Status();
    ++i;  // the delimiter; a field follows, which may be empty
  }
}

}  // namespace monograph::ops::string
