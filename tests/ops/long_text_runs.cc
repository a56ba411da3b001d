// Runs of kernels of texts: of many short ones, of some long ones, and of serialised examples and
// summaries.
#include "ops/summary/summary.pb.h"
#include "tests/ops/long_runs.h"

namespace monograph::testing {
namespace {

constexpr size_t kLong = 2'000'000;  // bytes of a long text

std::string Repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}
Tensor LongTexts(int64_t n, const std::string& part = "a") {
  return Texts(n, Repeated(part, kLong));
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string Field(int number, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(bytes.size()) + bytes;
}
// A serialised example: feature "a" of n numbers.
std::string ExampleOf(int64_t n) {
  const std::string numbers(static_cast<size_t>(4 * n), '\0');
  const std::string feature = Field(2, Field(1, numbers));
  return Field(1, Field(1, Field(1, "a") + Field(2, feature)));
}

void AddExamples(std::vector<LongRun>* runs) {
  using Types = std::vector<DType>;
  const Types one{DT_FLOAT}, none{};
  const int64_t n = 2 * kMillion;
  const std::vector<PartialShape> shapes{PartialShape({n})};
  const auto examples = [=](int64_t count) { return Texts(count, ExampleOf(n)); };
  const auto no_default = [] { return Zeros(DT_FLOAT, {0}); };
  runs->push_back({"ParseExample",
                   [=] {
                     return std::vector{examples(20), Texts(0, ""), Text("a"), no_default()};
                   },
                   {{"Nsparse", int64_t{0}},
                    {"Ndense", int64_t{1}},
                    {"sparse_types", none},
                    {"Tdense", one},
                    {"dense_shapes", shapes}}});
  runs->push_back({"ParseExampleV2",
                   [=] {
                     return std::vector{Texts(500'000, ExampleOf(3)), Texts(0, ""), Texts(1, "a"),
                                        Texts(0, ""), Texts(0, "")};
                   },
                   {{"Tdense", none},
                    {"num_sparse", int64_t{1}},
                    {"sparse_types", one},
                    {"ragged_value_types", none},
                    {"ragged_split_types", none},
                    {"dense_shapes", std::vector<PartialShape>{}}},
                   " of many examples"});
  runs->push_back({"ParseSingleExample",
                   [=] {
                     return std::vector{Text(ExampleOf(20 * n)), no_default()};
                   },
                   {{"num_sparse", int64_t{0}},
                    {"sparse_keys", std::vector<std::string>{}},
                    {"dense_keys", std::vector<std::string>{"a"}},
                    {"sparse_types", none},
                    {"Tdense", one},
                    {"dense_shapes", std::vector<PartialShape>{PartialShape({20 * n})}}}});
}

void AddSummaries(std::vector<LongRun>* runs) {
  const auto numbers = [](int64_t n) { return Zeros(DT_FLOAT, {n}); };
  runs->push_back({"HistogramSummary", [=] {
                     return std::vector{Text("t"), numbers(20 * kMillion)};
                   }});
  runs->push_back({"MergeSummary",
                   [=] {
                     pb::Summary summary;
                     summary.add_value()->set_simple_value(1);
                     return std::vector{Texts(kMillion, summary.SerializeAsString())};
                   },
                   {{"N", int64_t{1}}}});
}

// Noise, which takes longer than zeros.
Tensor Picture(int64_t height) {
  Tensor image = Zeros(DT_UINT8, {height, 2000, 3});
  uint32_t state = 1;
  for (int64_t i = 0; i < image.elements(); ++i)
    image.data<uint8_t>()[i] = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return image;
}

void AddPictures(std::vector<LongRun>* runs) {
  runs->push_back({"EncodeJpeg", [] { return std::vector{Picture(4000)}; }});
  runs->push_back({"EncodePng", [] { return std::vector{Picture(2000)}; }});
  const auto decode = [runs](const char* op, const char* encoder, const Attrs& attrs,
                             const char* note) {
    runs->push_back(
        {.op = op, .inputs = {}, .note = note, .with_resources = [=](const RunFirst& run) {
           return run(encoder, {Picture(4000)}, attrs);
         }});
  };
  decode("DecodeJpeg", "EncodeJpeg", {}, "");
  decode("DecodeJpeg", "EncodeJpeg", {{"progressive", true}}, " of several scans");
  decode("DecodePng", "EncodePng", {}, "");
  decode("DecodeImage", "EncodePng", {}, "");
  const auto bmp = [] {
    constexpr int32_t kSide = 8192;
    std::string file(54 + size_t{4} * kSide * kSide, '\x55');
    const int32_t header[] = {54, 40, kSide, kSide, 32 << 16};
    std::memcpy(file.data(), "BM", 2);
    std::memcpy(file.data() + 10, header, sizeof(header));
    return std::vector{Tensor::String(std::move(file))};
  };
  runs->push_back({"DecodeBmp", bmp});
}

}  // namespace

std::vector<LongRun> TextRuns() {
  const int64_t many = 2 * kMillion;
  std::vector<LongRun> runs;
  const auto add = [&runs](const char* op, auto inputs, Attrs attrs = {}, const char* note = "") {
    runs.push_back({op, inputs, std::move(attrs), note});
  };
  add("StringSplit", [=] { return std::vector{Texts(50, Repeated("a ", kLong / 20)), Text(" ")}; });
  add(
      "StringSplit",
      [=] {
        return std::vector{LongTexts(50), Text(" ,;")};
      },
      {}, " at nothing");
  add("StringSplitV2", [=] {
    return std::vector{Texts(50, Repeated("a ", kLong / 20)), Text("")};
  });
  add(
      "StringSplitV2",
      [=] {
        return std::vector{LongTexts(50), Text("ab")};
      },
      {}, " at nothing");
  add("StringToNumber", [=] { return std::vector{Texts(2 * many, "12.5")}; },
      {{"out_type", DT_FLOAT}});
  add("AsString", [=] { return std::vector{Zeros(DT_FLOAT, {many})}; });
  add(
      "AsString", [=] { return std::vector{LongTexts(100)}; }, {}, " of long texts");
  add("Substr",
      [=] {
        return std::vector{LongTexts(20), Zeros(DT_INT32, {20}), Zeros(DT_INT32, {20})};
      },
      {{"unit", std::string("UTF8_CHAR")}});
  add("StringLength", [=] { return std::vector{LongTexts(200)}; },
      {{"unit", std::string("UTF8_CHAR")}});
  for (const char* op : {"StringLower", "StringUpper", "StringStrip"})
    add(op, [=] { return std::vector{LongTexts(100)}; });
  add(
      "StringUpper", [=] { return std::vector{Texts(2 * many, "ab")}; }, {}, " of short texts");
  for (const char* op : {"EncodeBase64", "DecodeBase64"})
    add(op, [=] { return std::vector{LongTexts(20)}; });
  add("ReduceJoin", [=] { return std::vector{Texts(2 * many, "ab"), Ints({0})}; });
  for (const bool little : {true, false}) {
    add(
        "DecodeRaw", [=] { return std::vector{LongTexts(50)}; },
        {{"out_type", DT_INT32}, {"little_endian", little}}, little ? "" : " in turn");
  }
  add("DecodeCSV",
      [=] {
        return std::vector{Texts(many / 4, "1,2,three"), Zeros(DT_INT32, {0}), Zeros(DT_FLOAT, {0}),
                           Texts(0, "")};
      },
      {{"OUT_TYPE", std::vector<DType>{DT_INT32, DT_FLOAT, DT_STRING}}});
  add(
      "DecodeCSV",
      [=] {
        return std::vector{LongTexts(20), Texts(0, "")};
      },
      {{"OUT_TYPE", std::vector<DType>{DT_STRING}}}, " of long fields");
  add("StringJoin",
      [=] {
        return std::vector{Texts(many, "ab"), Texts(many, "cd")};
      },
      {{"N", int64_t{2}}});
  add(
      "StringJoin",
      [=] {
        return std::vector{LongTexts(60), LongTexts(60)};
      },
      {{"N", int64_t{2}}}, " of long texts");
  add("StaticRegexFullMatch", [=] { return std::vector{LongTexts(4)}; },
      {{"pattern", std::string("(a|b)*c")}});
  add("RegexFullMatch", [=] { return std::vector{LongTexts(1), Text("(a?b?c?){20}.*a")}; });
  add(
      "ConcatV2",
      [=] {
        return std::vector{LongTexts(40), LongTexts(40), Tensor::Scalar(0)};
      },
      {{"N", int64_t{2}}}, " of long texts");
  add("StringToHashBucketFast", [=] { return std::vector{Texts(3 * many, "some words")}; },
      {{"num_buckets", int64_t{10}}});
  add("StringToHashBucketStrong", [=] { return std::vector{LongTexts(100)}; },
      {{"num_buckets", int64_t{10}}, {"key", std::vector<int64_t>{1, 2}}});
  add("StaticRegexReplace", [=] { return std::vector{LongTexts(2)}; },
      {{"pattern", std::string("a(a)")}, {"rewrite", std::string("\\1b")}});
  add(
      "StaticRegexReplace", [=] { return std::vector{LongTexts(1)}; },
      {{"pattern", std::string("(a|b)*c")}, {"rewrite", std::string("")}}, " of nothing");
  AddExamples(&runs);
  AddPictures(&runs);
  AddSummaries(&runs);
  return runs;
}

}  // namespace monograph::testing
