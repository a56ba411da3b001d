// A file of TFRecords, and of lines: the bytes as they are, plain and inflated; with the right
// checksums, behind which a search without help would not come; and these deflated, of which the
// same is read.
#include <zlib.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "ops/reader/record_file.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

using ops::reader::RecordFile;

// What was read, and with which code it ended.
using Contents = std::pair<std::vector<std::string>, Code>;

Contents ReadAll(std::string_view bytes, const char* compression,
                 Result<bool> (RecordFile::*next)(std::string*)) {
  static MemoryFile file;
  Contents contents;
  auto opened = RecordFile::Open(file.Fill(bytes), compression);
  MG_CHECK(opened.ok());
  RecordFile& records = **opened;
  for (uint64_t before = 0;; before = records.offset()) {
    std::string record;
    const Result<bool> more = (records.*next)(&record);
    contents.second = more.status().code();
    MG_CHECK(more.ok() || contents.second == Code::kDataLoss);
    if (!more.ok() || !*more) return contents;
    MG_CHECK(records.offset() > before);
    MG_CHECK(*compression != '\0' || records.offset() <= bytes.size());
    contents.first.push_back(std::move(record));
  }
}

std::string FramesWithChecksums(std::string_view bytes) {
  std::string text(bytes);
  const auto check = [&](size_t begin, size_t size) {
    const uint32_t crc = MaskedCrc32c(AddToCrc32c(0, text.data() + begin, size));
    std::memcpy(text.data() + begin + size, &crc, sizeof crc);
  };
  for (size_t at = 0; text.size() - at >= 12;) {
    uint64_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof length);
    check(at, sizeof length);
    at += 12;
    if (text.size() - at < 4 || length > text.size() - at - 4) break;
    check(at, length);
    at += length + 4;
  }
  return text;
}

// A zlib stream, or two gzip streams one after the other.
std::string Deflated(std::string_view text, bool gzip) {
  std::string deflated;
  const size_t half = gzip ? text.size() / 2 : 0;
  for (const std::string_view part : {text.substr(0, half), text.substr(half)}) {
    if (!gzip && part.empty() && !text.empty()) continue;
    z_stream stream{};
    MG_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, (gzip ? 16 : 0) + 9, 1, Z_DEFAULT_STRATEGY) ==
             Z_OK);
    const size_t before = deflated.size();
    deflated.resize(before + deflateBound(&stream, part.size()));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    stream.next_out = reinterpret_cast<Bytef*>(deflated.data() + before);
    stream.avail_out = static_cast<uInt>(deflated.size() - before);
    MG_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    deflated.resize(before + stream.total_out);
    deflateEnd(&stream);
    if (text.empty()) break;
  }
  return deflated;
}

}  // namespace

void records(std::string_view bytes) {
  for (const char* compression : {"", "GZIP"}) {
    ReadAll(bytes, compression, &RecordFile::TakeRecord);
    ReadAll(bytes, compression, &RecordFile::TakeLine);
  }
  const std::string good = FramesWithChecksums(bytes);
  const Contents plain = ReadAll(good, "", &RecordFile::TakeRecord);
  MG_CHECK(plain == ReadAll(Deflated(good, true), "GZIP", &RecordFile::TakeRecord));
  MG_CHECK(ReadAll(good, "", &RecordFile::TakeLine) ==
           ReadAll(Deflated(good, false), "ZLIB", &RecordFile::TakeLine));
}

}  // namespace monograph::fuzz
