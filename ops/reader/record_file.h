// A file that records are read from, front to back: its bytes as they are, or inflated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/input_file.h"
#include "base/status.h"
#include "ops/cpu/room_cpu.h"

namespace monograph::ops::reader {

class RecordFile {
 public:
  // compression: "", "GZIP" or "ZLIB".
  static Result<std::unique_ptr<RecordFile>> Open(const std::string& path,
                                                  const std::string& compression);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }
  // Bytes of the contents that were taken so far.
  uint64_t offset() const { return offset_; }
  // The next `n` bytes, or fewer at the end of the file; valid until the next call.
  Result<std::string_view> Take(size_t n);
  // The next line, without its end; no value at the end of the file.
  Result<bool> TakeLine(std::string* line);
  // The next TFRecord; no value at the end of the file, DataLoss for one that is cut or damaged.
  Result<bool> TakeRecord(std::string* record);

 private:
  struct Inflater;
  RecordFile(std::string path, InputFile file, bool inflates);

  // Makes `ready_` longer; false at the end of the file.
  Result<bool> More();
  Result<bool> ReadMore(std::string* to);
  // Room for one more part of the contents, within the task's memory.
  Status MakeRoom();

  const std::string path_;
  const InputFile file_;
  uint64_t read_ = 0;  // bytes of the file itself
  uint64_t offset_ = 0;
  std::string ready_;  // contents; those before `taken_` are used
  size_t taken_ = 0;
  Room room_;                           // for ready_
  std::unique_ptr<Inflater> inflater_;  // nullptr: the bytes as they are
};

}  // namespace monograph::ops::reader
