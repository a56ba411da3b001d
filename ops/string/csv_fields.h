// The fields of a record of comma-separated values, as DecodeCSV takes them apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/cpu/looks_cpu.h"

namespace monograph::ops::string {

struct CsvFormat {
  char delimiter = ',';
  bool quotes = true;                 // a quote at a field's begin has its own meaning
  std::vector<int64_t> columns = {};  // those that are wanted, in order; none: all
};

// The fields that are wanted. A field in quotes may hold delimiters and ends of lines; two quotes
// in it stand for one. InvalidArgument for quotes or ends of lines elsewhere. Ends early, with OK
// and without the rest, once the step of `looks` is aborted.
Status ReadCsvFields(Looks* looks, std::string_view record, const CsvFormat& format,
                     std::vector<std::string>* fields);

}  // namespace monograph::ops::string
