// CPU kernels, one thread each: strings are short and few beside what is computed with them; where
// they are not, loops look at cancellation (Looks), and what an aborted kernel leaves unfinished
// nobody reads. Splits keep views of the input and copy once, when the number of parts is known
// (PutParts). Characters are bytes or, with unit UTF8_CHAR, UTF-8.
#include "ops/string/string_cpu.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/dims.h"
#include "ops/string/parse_number.h"
#include "ops/string/parsers_cpu.h"
#include "ops/string/regex_cpu.h"

namespace monograph::ops::string {
namespace {

// What a short text costs beside its bytes, in the units of Looks.
constexpr int64_t kEachText = 32;

class StringJoinKernel : public Kernel {
 public:
  explicit StringJoinKernel(const KernelConstruction& c)
      : separator_(c.attr<std::string>("separator")) {}

  Status Compute(KernelContext& c) override {
    std::optional<Shape> shape;
    for (const Tensor& input : c.inputs()) {
      if (input.shape().rank() == 0) continue;
      if (shape && *shape != input.shape()) {
        return InvalidArgument("Input shapes do not match: " + shape->ToString() + " and " +
                               input.shape().ToString());
      }
      shape = input.shape();
    }
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape.value_or(Shape())));
    Looks looks(c);
    for (int64_t i = 0; i < output->elements(); ++i) {
      std::string& text = output->strings()[i];
      const auto part = [&](int input) -> const std::string& {
        const Tensor& from = c.input(input);
        return from.strings()[from.shape().rank() == 0 ? 0 : i];
      };
      size_t size = separator_.size() * static_cast<size_t>(std::max(0, c.num_inputs() - 1));
      for (int input = 0; input < c.num_inputs(); ++input) size += part(input).size();
      if (!looks.Reserve(&text, size)) return Status();
      for (int input = 0; input < c.num_inputs(); ++input) {
        if (input > 0 && !AppendText(&looks, separator_, &text)) return Status();
        if (!AppendText(&looks, part(input), &text)) return Status();
      }
    }
    return Status();
  }

 private:
  const std::string separator_;
};

Status Match(const Regex& regex, KernelContext& c) {
  const Tensor& input = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  bool* const matches = output->data<bool>();
  c.ParallelFor(input.elements(), 1000, [&](int64_t begin, int64_t end) {
    Looks looks(c);
    const auto go_on = [&c] { return !c.cancelled(); };
    for (int64_t i = begin; i < end && looks.GoOn(input.strings()[i]); ++i)
      matches[i] = regex.FullMatch(input.strings()[i], go_on);
  });
  return Status();
}

class StaticRegexFullMatchKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    MG_ASSIGN_OR_RETURN(Regex regex, Regex::Parse(c.attr<std::string>("pattern")));
    return std::unique_ptr<Kernel>(new StaticRegexFullMatchKernel(std::move(regex)));
  }

  Status Compute(KernelContext& c) override { return Match(regex_, c); }

 private:
  explicit StaticRegexFullMatchKernel(Regex regex) : regex_(std::move(regex)) {}

  const Regex regex_;
};

class RegexFullMatchKernel : public Kernel {
 public:
  explicit RegexFullMatchKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor& pattern = c.input(1);
    if (pattern.shape().rank() != 0) {
      return InvalidArgument("the pattern has shape " + pattern.shape().ToString() +
                             "; it must be a scalar");
    }
    MG_ASSIGN_OR_RETURN(const Regex regex, Regex::Parse(pattern.strings()[0]));
    return Match(regex, c);
  }
};

// A part that a split has found, with its place in a vector that grows.
constexpr size_t kPerPart = 2 * sizeof(std::string_view);

// The outputs of a split: the place of each part in its string, the part, the shape.
Status PutParts(KernelContext& c, const std::vector<std::vector<std::string_view>>& parts) {
  int64_t total = 0, most = 0;
  for (const auto& row : parts) {
    total += static_cast<int64_t>(row.size());
    most = std::max(most, static_cast<int64_t>(row.size()));
  }
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, Shape{total, 2}));
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, Shape{total}));
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape{2}));
  int64_t next = 0;
  Looks looks(c);
  for (size_t row = 0; row < parts.size(); ++row) {
    if (!looks.GoOn(1)) return Status();
    for (size_t k = 0; k < parts[row].size(); ++k, ++next) {
      indices->data<int64_t>()[2 * next] = static_cast<int64_t>(row);
      indices->data<int64_t>()[2 * next + 1] = static_cast<int64_t>(k);
      if (!AppendText(&looks, parts[row][k], values->strings() + next)) return Status();
    }
  }
  shape->data<int64_t>()[0] = static_cast<int64_t>(parts.size());
  shape->data<int64_t>()[1] = most;
  return Status();
}

Status CheckSplit(const KernelContext& c) {
  if (c.input(0).shape().rank() != 1)
    return InvalidArgument("input must be a vector, got shape: " + c.input(0).shape().ToString());
  if (c.input(1).shape().rank() != 0)
    return InvalidArgument("the separator must be a scalar, got shape: " +
                           c.input(1).shape().ToString());
  return Status();
}

// The first place from `begin` on where find(a part of the text) finds something that is up to
// `size` bytes long; else, and once the step is aborted, npos. It may compare all of these bytes at
// each place.
template <typename Find>
size_t FindIn(Looks* looks, std::string_view text, size_t begin, size_t size, const Find& find) {
  const size_t step = std::max<size_t>(1, static_cast<size_t>(kPiece) / size);
  for (; begin < text.size(); begin += step) {
    const std::string_view part = text.substr(begin, step + size - 1);
    const size_t at = find(part);
    if (!looks->GoOn(static_cast<int64_t>(std::min(at, part.size())))) break;
    if (at != part.npos) return begin + at;
  }
  return text.npos;
}

// Splits at any byte of the delimiter; if it is empty, into bytes.
Status SplitOf(KernelContext& c, const Attrs& attrs) {
  MG_RETURN_IF_ERROR(CheckSplit(c));
  const std::string& delimiters = *c.input(1).strings();
  const bool skip_empty = attrs.Get<bool>("skip_empty");
  std::vector<std::vector<std::string_view>> parts(static_cast<size_t>(c.input(0).elements()));
  Looks looks(c);
  for (size_t row = 0; row < parts.size(); ++row) {
    const std::string_view text = c.input(0).strings()[row];
    if (!looks.GoOn(kEachText)) return Status();
    if (delimiters.empty()) {
      for (size_t i = 0; i < text.size() && looks.GoOn(kEachText) && looks.RoomFor(kPerPart); ++i)
        parts[row].push_back(text.substr(i, 1));
      continue;
    }
    if (text.empty()) continue;
    for (size_t begin = 0;
         begin <= text.size() && looks.GoOn(kEachText) && looks.RoomFor(kPerPart);) {
      const size_t found = FindIn(&looks, text, begin, 1, [&](std::string_view part) {
        return part.find_first_of(delimiters);
      });
      const size_t end = std::min(found, text.size());
      if (end > begin || !skip_empty) parts[row].push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return PutParts(c, parts);
}

// Splits at the whole separator; if it is empty, at runs of white space.
Status SplitV2Of(KernelContext& c, const Attrs& attrs) {
  MG_RETURN_IF_ERROR(CheckSplit(c));
  const std::string& separator = *c.input(1).strings();
  const int64_t most = attrs.Get<int64_t>("maxsplit");
  std::vector<std::vector<std::string_view>> parts(static_cast<size_t>(c.input(0).elements()));
  Looks looks(c);
  for (size_t row = 0; row < parts.size(); ++row) {
    if (!looks.GoOn(kEachText)) return Status();
    std::string_view text = c.input(0).strings()[row];
    const auto full = [&] { return most >= 0 && static_cast<int64_t>(parts[row].size()) == most; };
    if (separator.empty() && most != 0) {
      for (text = WithoutSpace(text); !text.empty(); text = WithoutSpace(text)) {
        if (full()) break;
        const size_t found = FindIn(&looks, text, 0, 1, [](std::string_view part) {
          const auto* at = std::find_if(part.begin(), part.end(), IsSpace);
          return at == part.end() ? part.npos : static_cast<size_t>(at - part.begin());
        });
        const size_t end = std::min(found, text.size());
        if (!looks.GoOn(kEachText) || !looks.RoomFor(kPerPart)) return Status();
        parts[row].push_back(text.substr(0, end));
        text.remove_prefix(end);
      }
      if (full()) parts[row].push_back(text);  // what is left, also if it is nothing
      continue;
    }
    if (separator.empty()) {
      parts[row].push_back(text);
      continue;
    }
    const auto find = [&](std::string_view part) { return part.find(separator); };
    for (size_t end = 0;
         !full() && (end = FindIn(&looks, text, 0, separator.size(), find)) != text.npos;) {
      if (!looks.GoOn(kEachText) || !looks.RoomFor(kPerPart)) return Status();
      parts[row].push_back(text.substr(0, end));
      text.remove_prefix(end + separator.size());
    }
    parts[row].push_back(text);
  }
  return PutParts(c, parts);
}

class AsStringKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<AsStringKernel>();
    const auto precision = k.attr<int64_t>("precision"), width = k.attr<int64_t>("width");
    const bool scientific = k.attr<bool>("scientific"), shortest = k.attr<bool>("shortest");
    const auto& fill = k.attr<std::string>("fill");
    const DType dtype = k.input_dtype(0);
    if (scientific && shortest)
      return InvalidArgument("Cannot select both scientific and shortest notation");
    if (!IsFloating(dtype) && (scientific || shortest || precision > -1)) {
      return InvalidArgument(
          "scientific, shortest and precision are for floating-point types, not " +
          std::string(DTypeName(dtype)));
    }
    if (fill.size() > 1 || (!fill.empty() && std::string_view(" +-0#").find(fill) == fill.npos))
      return InvalidArgument("Fill string must be one of ' ', '+', '-', '0' and '#'; not '" + fill +
                             "'");
    if (precision > 100 || width > 1000)
      return InvalidArgument("precision and width must be small numbers");
    std::string& format = kernel->format_;
    format = "%" + fill;
    if (width > -1) format += std::to_string(width);
    if (IsFloating(dtype)) {
      if (precision > -1) format += "." + std::to_string(precision);
      format += shortest ? "g" : scientific ? "e" : "f";
    } else {
      format += dtype == DT_UINT64 || dtype == DT_UINT32 || dtype == DT_UINT16 || dtype == DT_UINT8
                    ? "llu"
                    : "lld";
    }
    kernel->width_ = std::max<int64_t>(width, -1);
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const Tensor& in = c.input(0);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, in.shape()));
    const int64_t n = in.elements();
    Looks looks(c);
    if (in.dtype() == DT_STRING || in.dtype() == DT_BOOL) {
      for (int64_t i = 0; i < n; ++i) {
        const std::string_view text = in.dtype() == DT_STRING ? std::string_view(in.strings()[i])
                                      : in.data<bool>()[i]    ? "true"
                                                              : "false";
        const auto missing = std::max<int64_t>(0, width_ - static_cast<int64_t>(text.size()));
        if (!looks.Reserve(out->strings() + i, static_cast<size_t>(missing) + text.size())) break;
        out->strings()[i].assign(static_cast<size_t>(missing), ' ');
        if (!AppendText(&looks, text, out->strings() + i)) break;
      }
      return Status();
    }
    return WithRealType(in.dtype(), [&](auto t) {
      using T = decltype(t);
      constexpr int64_t kCost = 300;  // of a call of snprintf
      for (int64_t i = 0; i < n && looks.GoOn(kCost); ++i) {
        const T value = in.data<T>()[i];
        char buffer[1600];
        int size = 0;
        if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>) {
          size = std::snprintf(buffer, sizeof buffer, format_.c_str(),
                               static_cast<unsigned long long>(value));
        } else if constexpr (std::is_integral_v<T>) {
          size =
              std::snprintf(buffer, sizeof buffer, format_.c_str(), static_cast<long long>(value));
        } else {
          size = std::snprintf(buffer, sizeof buffer, format_.c_str(), static_cast<double>(value));
        }
        const size_t whole = std::min(static_cast<size_t>(std::max(size, 0)), sizeof buffer - 1);
        if (!looks.Reserve(out->strings() + i, whole)) break;
        out->strings()[i].assign(buffer, whole);
      }
      return Status();
    });
  }

 private:
  std::string format_;
  int64_t width_ = -1;
};

// Whether this byte begins a character of UTF-8.
bool Begins(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// The bytes [first, first + size) of what is character [pos, pos + len), counted from the end where
// pos is negative. False: it begins outside of the string.
bool PartOf(Looks* looks, std::string_view text, int64_t pos, int64_t len, bool characters,
            std::string* part) {
  std::vector<size_t> starts;  // of characters, and the end
  if (characters) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (Begins(text[i])) starts.push_back(i);
      if (!looks->GoOn(1)) return true;
    }
    starts.push_back(text.size());
  }
  const auto count = static_cast<int64_t>(characters ? starts.size() - 1 : text.size());
  if (pos < -count || pos > count) return false;
  const int64_t begin = pos < 0 ? pos + count : pos;
  const int64_t end = len > count - begin ? count : begin + std::max<int64_t>(0, len);
  const auto at = [&](int64_t i) {
    return characters ? starts[static_cast<size_t>(i)] : static_cast<size_t>(i);
  };
  AppendText(looks, text.substr(at(begin), at(end) - at(begin)), part);
  return true;
}

Status SubstrOf(KernelContext& c, const Attrs& attrs) {
  const Tensor &in = c.input(0), &pos = c.input(1), &len = c.input(2);
  if (pos.shape() != len.shape()) {
    return InvalidArgument("pos and len should have the same shape, got: " +
                           pos.shape().ToString() + " vs. " + len.shape().ToString());
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(in.shape(), pos.shape()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  const bool characters = attrs.Get<std::string>("unit") == "UTF8_CHAR";
  const auto place = [&](const Shape& own, int64_t i) {  // of element i of the result
    int64_t at = 0, step = 1;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      const int k = d - (shape.rank() - own.rank());
      if (k >= 0) {
        if (own[k] != 1) at += i % shape[d] * step;
        step *= own[k];
      }
      i /= shape[d];
    }
    return at;
  };
  Looks looks(c);
  for (int64_t i = 0; i < shape.elements() && looks.GoOn(kEachText); ++i) {
    const std::string& text = in.strings()[place(in.shape(), i)];
    const int64_t k = place(pos.shape(), i);
    if (!PartOf(&looks, text, IndexAt(pos, k), IndexAt(len, k), characters, out->strings() + i)) {
      return InvalidArgument("pos " + std::to_string(IndexAt(pos, k)) +
                             " out of range for string b'" + text + "' at index " +
                             std::to_string(i));
    }
  }
  return Status();
}

Status LengthOf(KernelContext& c, const Attrs& attrs) {
  const Tensor& in = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, in.shape()));
  const bool characters = attrs.Get<std::string>("unit") == "UTF8_CHAR";
  Looks looks(c);
  for (int64_t i = 0; i < in.elements() && looks.GoOn(1); ++i) {
    const std::string& text = in.strings()[i];
    auto n = static_cast<std::ptrdiff_t>(text.size());
    if (characters) {
      n = 0;
      InParts(&looks, text, [&n](std::string_view part) {
        n += std::count_if(part.begin(), part.end(), Begins);
      });
    }
    out->data<int32_t>()[i] = static_cast<int32_t>(n);
  }
  return Status();
}

// Changes each string: change(looks, text, its place in the result), which may fail.
template <typename Change>
Status ChangeEach(KernelContext& c, const Change& change) {
  const Tensor& in = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, in.shape()));
  Looks looks(c);
  for (int64_t i = 0; i < in.elements() && looks.GoOn(kEachText); ++i)
    MG_RETURN_IF_ERROR(change(&looks, in.strings()[i], out->strings() + i));
  return Status();
}

template <bool kUpper>
Status CaseOf(KernelContext& c, const Attrs&) {
  return ChangeEach(c, [](Looks* looks, const std::string& text, std::string* out) {
    if (!looks->Reserve(out, text.size())) return Status();
    InParts(looks, text, [out](std::string_view part) {
      const size_t begin = out->size();
      out->append(part);
      for (size_t i = begin; i < out->size(); ++i) {
        char& letter = (*out)[i];
        if (kUpper ? letter >= 'a' && letter <= 'z' : letter >= 'A' && letter <= 'Z')
          letter = static_cast<char>(letter ^ 0x20);
      }
    });
    return Status();
  });
}

Status StripOf(KernelContext& c, const Attrs&) {
  return ChangeEach(c, [](Looks* looks, const std::string& text, std::string* out) {
    AppendText(looks, Stripped(text), out);
    return Status();
  });
}

// The alphabet of URLs.
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

Status EncodeBase64Of(KernelContext& c, const Attrs& attrs) {
  const bool pad = attrs.Get<bool>("pad");
  return ChangeEach(c, [pad](Looks* looks, const std::string& text, std::string* out) {
    if (!looks->Reserve(out, (text.size() + 2) / 3 * 4)) return Status();
    for (size_t i = 0; i < text.size() && looks->GoOn(10); i += 3) {
      uint32_t bits = 0;
      const size_t n = std::min<size_t>(3, text.size() - i);
      for (size_t k = 0; k < 3; ++k)
        bits = bits << 8 | (k < n ? static_cast<unsigned char>(text[i + k]) : 0);
      for (size_t k = 0; k < 4; ++k) {
        if (k <= n) {
          out->push_back(kBase64[bits >> (18 - 6 * k) & 63]);
        } else if (pad) {
          out->push_back('=');
        }
      }
    }
    return Status();
  });
}

Status DecodeBase64Of(KernelContext& c, const Attrs&) {
  return ChangeEach(c, [](Looks* looks, const std::string& text, std::string* out) {
    std::string_view given = text;
    if (given.size() % 4 == 0) {
      for (int i = 0; i < 2 && given.ends_with('='); ++i) given.remove_suffix(1);
    }
    if (given.size() % 4 == 1)
      return InvalidArgument("Invalid base64: " + std::to_string(given.size()) + " characters");
    if (!looks->Reserve(out, given.size() / 4 * 3 + 2)) return Status();
    uint32_t bits = 0;
    int held = 0;
    for (char letter : given) {
      if (!looks->GoOn(5)) break;
      const size_t value = kBase64.find(letter);
      if (value == kBase64.npos)
        return InvalidArgument("Invalid character found in base64: '" + std::string(1, letter) +
                               "'");
      bits = bits << 6 | static_cast<uint32_t>(value);
      held += 6;
      if (held < 8) continue;
      held -= 8;
      out->push_back(static_cast<char>(bits >> held & 0xff));
    }
    return Status();
  });
}

// Joins along the given dimensions, one after the other.
Status ReduceJoinOf(KernelContext& c, const Attrs& attrs) {
  const Tensor& in = c.input(0);
  const Shape shape = in.shape();
  MG_ASSIGN_OR_RETURN(const SmallInts axes, IntsOf(c.input(1), "reduction_indices"));
  const bool keep = attrs.Get<bool>("keep_dims");
  const auto& separator = attrs.Get<std::string>("separator");
  const auto strides = StridesOf(shape);
  std::vector<bool> joined(static_cast<size_t>(shape.rank()));
  std::vector<int> order;
  for (int64_t axis : axes.span()) {
    const int64_t at = axis < 0 ? axis + shape.rank() : axis;
    if (at < 0 || at >= shape.rank())
      return InvalidArgument("Invalid reduction dimension " + std::to_string(axis) +
                             " for input with " + std::to_string(shape.rank()) + " dimension(s)");
    if (joined[static_cast<size_t>(at)])
      return InvalidArgument("Duplicate reduction dimension " + std::to_string(at));
    joined[static_cast<size_t>(at)] = true;
    order.push_back(static_cast<int>(at));
  }
  std::reverse(order.begin(), order.end());
  Shape out_shape;
  std::vector<int> kept;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!joined[static_cast<size_t>(i)]) {
      kept.push_back(i);
      out_shape.AddDim(shape[i]);
    } else if (keep) {
      out_shape.AddDim(1);
    }
  }
  // The element of number `i` along `dims`, the last of them fastest.
  const auto place = [&](const std::vector<int>& dims, int64_t i) {
    int64_t at = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      at += i % shape[dims[d]] * strides[static_cast<size_t>(dims[d])];
      i /= shape[dims[d]];
    }
    return at;
  };
  int64_t parts = 1;
  for (int axis : order) parts *= shape[axis];
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
  Looks looks(c);
  for (int64_t i = 0; i < out->elements(); ++i) {
    std::string& text = out->strings()[i];
    const int64_t first = place(kept, i);
    if (!looks.GoOn(kEachText)) break;
    for (int64_t k = 0; k < parts; ++k) {
      if (k > 0 && !AppendText(&looks, separator, &text)) break;
      if (!AppendText(&looks, in.strings()[first + place(order, k)], &text)) break;
    }
  }
  return Status();
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const auto add = [registry]<typename K>(const char* op) { registry->Add<K>({.op = op}); };
  add.operator()<StringJoinKernel>("StringJoin");
  add.operator()<StaticRegexFullMatchKernel>("StaticRegexFullMatch");
  add.operator()<RegexFullMatchKernel>("RegexFullMatch");
  add.operator()<FunctionKernel<SplitOf>>("StringSplit");
  add.operator()<FunctionKernel<SplitV2Of>>("StringSplitV2");
  add.operator()<AsStringKernel>("AsString");
  add.operator()<FunctionKernel<SubstrOf>>("Substr");
  add.operator()<FunctionKernel<LengthOf>>("StringLength");
  add.operator()<FunctionKernel<CaseOf<false>>>("StringLower");
  add.operator()<FunctionKernel<CaseOf<true>>>("StringUpper");
  add.operator()<FunctionKernel<StripOf>>("StringStrip");
  add.operator()<FunctionKernel<EncodeBase64Of>>("EncodeBase64");
  add.operator()<FunctionKernel<DecodeBase64Of>>("DecodeBase64");
  add.operator()<FunctionKernel<ReduceJoinOf>>("ReduceJoin");
  RegisterParsers(registry);
  RegisterHashes(registry);
  RegisterReplacements(registry);
}

}  // namespace monograph::ops::string
