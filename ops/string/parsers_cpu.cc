// StringToNumber, DecodeRaw and DecodeCSV: texts and bytes to numbers. DecodeCSV reads each record
// once (ReadCsvFields), then converts it field by field (Put).
#include "ops/string/parsers_cpu.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/dims.h"
#include "ops/string/csv_fields.h"
#include "ops/string/parse_number.h"

namespace monograph::ops::string {
namespace {

Status NumbersOf(KernelContext& c, const Attrs&) {
  const Tensor& in = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, in.shape()));
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) < 4) {
      return Unimplemented("StringToNumber of this type");
    } else {
      Looks looks(c);
      for (int64_t i = 0; i < in.elements() && looks.GoOn(in.strings()[i]); ++i) {
        if (!ParseNumber(in.strings()[i], out->data<T>() + i))
          return InvalidArgument("StringToNumberOp could not correctly convert string: " +
                                 in.strings()[i]);
      }
      return Status();
    }
  });
}

Status DecodeRawOf(KernelContext& c, const Attrs& attrs) {
  const Tensor& in = c.input(0);
  const size_t bytes = in.elements() == 0 ? 0 : in.strings()[0].size();
  for (int64_t i = 1; i < in.elements(); ++i) {
    if (in.strings()[i].size() != bytes) {
      return InvalidArgument(
          "DecodeRaw requires input strings to all be the same size, but "
          "element " +
          std::to_string(i) + " has size " + std::to_string(in.strings()[i].size()) +
          " != " + std::to_string(bytes));
    }
  }
  const size_t size = DTypeSize(c.output_dtype(0));
  if (bytes % size != 0) {
    return InvalidArgument("Input to DecodeRaw has length " + std::to_string(bytes) +
                           " that is not a multiple of " + std::to_string(size) + ", the size of " +
                           std::string(DTypeName(c.output_dtype(0))));
  }
  if (in.shape().rank() == kMaxRank) return TooManyDimensions();
  Shape shape = in.shape();
  shape.AddDim(static_cast<int64_t>(bytes / size));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  const bool turn =
      size > 1 && attrs.Get<bool>("little_endian") != (std::endian::native == std::endian::little);
  char* to = static_cast<char*>(out->raw());
  Looks looks(c);
  for (int64_t i = 0; i < in.elements(); ++i) {
    const bool whole = InParts(&looks, in.strings()[i], [&](std::string_view part) {
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
      to += part.size();
    });
    if (!whole) return Status();
  }
  if (turn || out->dtype() == DT_BOOL) {
    char* const first = static_cast<char*>(out->raw());
    InPieces(c, static_cast<int64_t>(out->bytes() / size), [&](int64_t begin, int64_t end) {
      char *k = first + static_cast<size_t>(begin) * size,
           *last = first + static_cast<size_t>(end) * size;
      for (; turn && k < last; k += size) std::reverse(k, k + size);
      for (; out->dtype() == DT_BOOL && k < last; ++k) *k = *k != 0;  // any byte but 0 is true
    });
  }
  return Status();
}

// What a field costs beside its bytes, in the units of Looks.
constexpr int64_t kEachField = 32;

class DecodeCsvKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<DecodeCsvKernel>();
    const auto& delimiter = k.attr<std::string>("field_delim");
    if (delimiter.size() != 1) return InvalidArgument("field_delim should be only 1 char");
    kernel->format_.delimiter = delimiter[0];
    kernel->format_.quotes = k.attr<bool>("use_quote_delim");
    kernel->missing_ = k.attr<std::string>("na_value");
    kernel->format_.columns = k.attrs().GetOr<std::vector<int64_t>>("select_cols", {});
    const auto& columns = kernel->format_.columns;
    if (!columns.empty() && static_cast<int>(columns.size()) != k.num_outputs())
      return InvalidArgument("select_cols must have one entry for each output");
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i] < 0 || (i > 0 && columns[i] <= columns[i - 1]))
        return InvalidArgument("select_cols should be non-negative and strictly increasing");
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const Tensor& records = c.input(0);
    const int n = c.num_outputs();
    std::vector<Tensor*> outputs;
    for (int i = 0; i < n; ++i) {
      if (c.input(i + 1).elements() > 1)
        return InvalidArgument("There should only be 1 default per field but field " +
                               std::to_string(i) + " has " +
                               std::to_string(c.input(i + 1).elements()));
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, records.shape()));
      outputs.push_back(out);
    }
    std::vector<std::string> fields;
    Looks looks(c);
    for (int64_t r = 0; r < records.elements(); ++r) {
      MG_RETURN_IF_ERROR(ReadCsvFields(&looks, records.strings()[r], format_, &fields));
      if (!looks.GoOn(kEachField * (1 + n))) break;
      if (static_cast<int>(fields.size()) != n) {
        return InvalidArgument("Expect " + std::to_string(n) + " fields but have " +
                               std::to_string(fields.size()) + " in record " + std::to_string(r));
      }
      for (int i = 0; i < n; ++i)
        MG_RETURN_IF_ERROR(
            Put(c, i, r, fields[static_cast<size_t>(i)], outputs[static_cast<size_t>(i)]));
    }
    return Status();
  }

 private:
  Status Put(const KernelContext& c, int field, int64_t record, const std::string& text,
             Tensor* out) const {
    if (text.empty() || text == missing_) {
      const Tensor& fallback = c.input(field + 1);
      if (fallback.elements() != 1) {
        return InvalidArgument("Field " + std::to_string(field) +
                               " is required but missing in record " + std::to_string(record) +
                               "!");
      }
      const size_t bytes = DTypeSize(out->dtype());
      CopyElements(out->dtype(), static_cast<const char*>(fallback.raw()),
                   static_cast<char*>(out->raw()) + static_cast<size_t>(record) * bytes, bytes);
      return Status();
    }
    if (out->dtype() == DT_STRING) {
      out->strings()[record] = text;
      return Status();
    }
    return WithRealType(out->dtype(), [&](auto t) {
      using T = decltype(t);
      if constexpr (sizeof(T) < 4) {
        return Unimplemented("fields of this type");
      } else {
        if (ParseNumber(text, out->data<T>() + record)) return Status();
        return InvalidArgument("Field " + std::to_string(field) + " in record " +
                               std::to_string(record) + " is not a valid " +
                               std::string(DTypeName(out->dtype())) + ": " + text);
      }
    });
  }

  CsvFormat format_;
  std::string missing_;
};

}  // namespace

void RegisterParsers(KernelRegistry* registry) {
  registry->Add<FunctionKernel<NumbersOf>>({.op = "StringToNumber"});
  registry->Add<FunctionKernel<DecodeRawOf>>({.op = "DecodeRaw"});
  registry->Add<DecodeCsvKernel>({.op = "DecodeCSV"});
}

}  // namespace monograph::ops::string
