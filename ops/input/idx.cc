#include "ops/input/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/input_file.h"
#include "base/pool_allocator.h"

namespace monograph {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr size_t kChunk = size_t{1} << 20, kFirst = 64 << 10;

// A plain or gzip file, read from its start to its end.
class GzipReader {
 public:
  static Result<GzipReader> Open(const std::string& path) {
    MG_ASSIGN_OR_RETURN(InputFile opened, InputFile::Open("data file", path));
    Descriptor descriptor = std::move(opened).Release();
    gzFile file = gzdopen(descriptor.get(), "rb");
    if (file == nullptr) return ResourceExhausted(path + ": no memory to read it");
    descriptor.Disown();  // `file` closes it
    gzbuffer(file, 1 << 16);
    return GzipReader(path, file);
  }

  // Up to `bytes` bytes; fewer only at the end of the file.
  Result<size_t> Read(void* to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
      const auto part = static_cast<unsigned>(std::min(bytes - done, kChunk));
      const int got = gzread(file_.get(), static_cast<char*>(to) + done, part);
      int code = Z_OK;
      const char* text = gzerror(file_.get(), &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        if (code == Z_ERRNO) return DataLoss(path_ + ": cannot read: " + std::strerror(errno));
        if (code == Z_BUF_ERROR)
          return DataLoss(path_ + ": the gzip stream ends in the middle: the file is truncated");
        return DataLoss(path_ + ": the gzip stream is damaged: " + text);
      }
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  struct Closer {
    void operator()(gzFile file) const { gzclose_r(file); }
  };
  GzipReader(const std::string& path, gzFile file) : path_(path), file_(file) {}
  std::string path_;
  std::unique_ptr<gzFile_s, Closer> file_;
};

std::string Hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    char digits[8];
    std::snprintf(digits, sizeof digits, "%s%02x", i == 0 ? "" : " ", bytes[i]);
    text += digits;
  }
  return text;
}

}  // namespace

Result<IdxArray> ReadIdx(const std::string& path, int rank) {
  MG_ASSIGN_OR_RETURN(GzipReader reader, GzipReader::Open(path));
  uint8_t magic[4] = {};
  MG_ASSIGN_OR_RETURN(size_t got, reader.Read(magic, sizeof magic));
  if (got < sizeof magic || magic[0] != 0 || magic[1] != 0) {
    return DataLoss(path + ": not an IDX file: it must begin with the bytes 00 00 08 0" +
                    std::to_string(rank) + ", found " +
                    (got == 0 ? "an empty file" : Hex(magic, got)));
  }
  if (magic[2] != kUnsignedByte) {
    return DataLoss(path + ": element type " + Hex(magic + 2, 1) +
                    " in the IDX header; expected 08 (unsigned byte)");
  }
  if (magic[3] != rank) {
    return DataLoss(path + ": the IDX header says " + std::to_string(magic[3]) +
                    " dimensions; expected " + std::to_string(rank));
  }
  IdxArray array;
  uint64_t expected = 1;
  for (int i = 0; i < rank; ++i) {
    uint8_t bytes[4];
    MG_ASSIGN_OR_RETURN(got, reader.Read(bytes, sizeof bytes));
    if (got < sizeof bytes) {
      return DataLoss(path + ": truncated in the IDX header: " + std::to_string(rank) +
                      " dimensions expected, the file ends in number " + std::to_string(i + 1));
    }
    const uint64_t dim =
        uint64_t{bytes[0]} << 24 | uint64_t{bytes[1]} << 16 | uint64_t{bytes[2]} << 8 | bytes[3];
    array.dims.push_back(static_cast<int64_t>(dim));
    if (__builtin_mul_overflow(expected, dim, &expected) || expected > kMostDataBytes) {
      return DataLoss(path + ": the dimensions of the IDX header are absurdly large (" +
                      Hex(bytes, 4) + " for dimension " + std::to_string(i) + ")");
    }
  }
  // The header is believed only as far as there are bytes: memory grows with what was read.
  while (array.values.size() < expected) {
    const size_t have = array.values.size();
    const size_t want = std::min<size_t>(expected - have, std::max(kFirst, have));
    if (array.room.emplace_back(HostPool().Reserve(want)) == nullptr) {
      return ResourceExhausted(path + ": no memory for its " + std::to_string(expected) +
                               " values: " + HostPool().Explain(want));
    }
    array.values.resize(have + want);
    MG_ASSIGN_OR_RETURN(got, reader.Read(array.values.data() + have, want));
    if (got < want) {
      return DataLoss(path + ": truncated: the IDX header promises " + std::to_string(expected) +
                      " values, found " + std::to_string(have + got));
    }
  }
  uint8_t extra;
  MG_ASSIGN_OR_RETURN(got, reader.Read(&extra, 1));
  if (got != 0) {
    return DataLoss(path + ": bytes after the " + std::to_string(expected) +
                    " values that the IDX header promises");
  }
  return array;
}

}  // namespace monograph
