// Files of records. A file is read, and inflated if it is compressed, in pieces into one buffer,
// from which records and lines are taken; what is taken is moved out when the next piece comes. A
// TFRecord is: length (8 bytes), its masked CRC-32C (4), the record, its masked CRC-32C (4).
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "ops/reader/record_file.h"

namespace monograph::ops::reader {
namespace {

constexpr size_t kChunk = size_t{256} << 10;

bool IsChecksum(const char* crc, std::string_view bytes) {
  uint32_t expected = 0;
  std::memcpy(&expected, crc, sizeof expected);
  return MaskedCrc32c(AddToCrc32c(0, bytes.data(), bytes.size())) == expected;
}

}  // namespace

struct RecordFile::Inflater {
  z_stream stream{};
  std::string input;
  bool ended = false;  // of a stream; another may follow
  bool begun = false;

  ~Inflater() {
    if (begun) inflateEnd(&stream);
  }
};

Result<std::unique_ptr<RecordFile>> RecordFile::Open(const std::string& path,
                                                     const std::string& compression) {
  if (!compression.empty() && compression != "GZIP" && compression != "ZLIB") {
    return InvalidArgument("Unknown compression type '" + compression +
                           "': it must be '', 'GZIP' or 'ZLIB'");
  }
  MG_ASSIGN_OR_RETURN(InputFile file, InputFile::Open("records", path));
  std::unique_ptr<RecordFile> made(new RecordFile(path, std::move(file), !compression.empty()));
  if (made->inflater_ != nullptr) {
    constexpr int kGzipOrZlib = 32 + MAX_WBITS;
    if (inflateInit2(&made->inflater_->stream, kGzipOrZlib) != Z_OK)
      return ResourceExhausted("no memory to inflate '" + path + "'");
    made->inflater_->begun = true;
  }
  return made;
}

RecordFile::RecordFile(std::string path, InputFile file, bool inflates)
    : path_(std::move(path)),
      file_(std::move(file)),
      inflater_(inflates ? std::make_unique<Inflater>() : nullptr) {}
RecordFile::~RecordFile() = default;

Result<bool> RecordFile::ReadMore(std::string* to) {
  const auto n = static_cast<size_t>(std::min<uint64_t>(kChunk, file_.size() - read_));
  if (n == 0) return false;
  const size_t before = to->size();
  to->resize(before + n);
  MG_RETURN_IF_ERROR(file_.Read(read_, n, to->data() + before));
  read_ += n;
  return true;
}

Status RecordFile::MakeRoom() {
  if (ready_.capacity() - ready_.size() >= kChunk) return Status();
  const size_t capacity = std::max(ready_.size() + kChunk, 2 * ready_.capacity());
  MG_RETURN_IF_ERROR(room_.Hold(capacity, "'" + path_ + "'"));
  ready_.reserve(capacity);
  return Status();
}

Result<bool> RecordFile::More() {
  if (taken_ > kChunk) {
    ready_.erase(0, taken_);
    taken_ = 0;
  }
  MG_RETURN_IF_ERROR(MakeRoom());
  if (inflater_ == nullptr) return ReadMore(&ready_);
  z_stream& stream = inflater_->stream;
  for (;;) {
    if (stream.avail_in == 0) {
      inflater_->input.clear();
      MG_ASSIGN_OR_RETURN(const bool more, ReadMore(&inflater_->input));
      if (!more) {
        if (inflater_->ended || read_ == 0) return false;
        return DataLoss("'" + path_ + "' ends within a compressed stream");
      }
      stream.next_in = reinterpret_cast<Bytef*>(inflater_->input.data());
      stream.avail_in = static_cast<uInt>(inflater_->input.size());
    }
    if (inflater_->ended) {
      inflater_->ended = false;
      if (inflateReset(&stream) != Z_OK) return DataLoss("cannot inflate '" + path_ + "'");
    }
    const size_t before = ready_.size();
    ready_.resize(before + kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(ready_.data() + before);
    stream.avail_out = static_cast<uInt>(kChunk);
    const int state = inflate(&stream, Z_NO_FLUSH);
    ready_.resize(before + kChunk - stream.avail_out);
    if (state == Z_STREAM_END) {
      inflater_->ended = true;
    } else if (state != Z_OK && state != Z_BUF_ERROR) {
      return DataLoss("'" + path_ + "' is damaged, or not compressed");
    }
    if (ready_.size() > before) return true;
  }
}

Result<std::string_view> RecordFile::Take(size_t n) {
  while (ready_.size() - taken_ < n) {
    MG_ASSIGN_OR_RETURN(const bool more, More());
    if (!more) break;
  }
  const std::string_view taken = std::string_view(ready_).substr(taken_, n);
  taken_ += taken.size();
  offset_ += taken.size();
  return taken;
}

Result<bool> RecordFile::TakeLine(std::string* line) {
  size_t looked = taken_;
  for (;;) {
    const size_t end = ready_.find('\n', looked);
    if (end != ready_.npos) {
      line->assign(ready_, taken_, end - taken_);
      offset_ += end + 1 - taken_;
      taken_ = end + 1;
      break;
    }
    const size_t pending = ready_.size() - taken_;
    MG_ASSIGN_OR_RETURN(const bool more, More());
    looked = taken_ + pending;
    if (more) continue;
    if (pending == 0) return false;
    line->assign(ready_, taken_, pending);
    offset_ += pending;
    taken_ = ready_.size();
    break;
  }
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

Result<bool> RecordFile::TakeRecord(std::string* record) {
  const uint64_t at = offset_;
  const auto damaged = [&](const char* what) {
    return DataLoss(std::string(what) + " record at " + std::to_string(at) + " of " + path_);
  };
  MG_ASSIGN_OR_RETURN(const std::string_view head, Take(12));
  if (head.empty()) return false;
  if (head.size() < 12) return damaged("truncated");
  uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof length);
  if (!IsChecksum(head.data() + sizeof length, head.substr(0, sizeof length)))
    return damaged("corrupted");
  if (length > kMostDataBytes) return damaged("too large a");
  MG_ASSIGN_OR_RETURN(const std::string_view body, Take(static_cast<size_t>(length) + 4));
  if (body.size() < length + 4) return damaged("truncated");
  const std::string_view value = body.substr(0, body.size() - 4);
  if (!IsChecksum(value.data() + value.size(), value)) return damaged("corrupted");
  *record = value;
  return true;
}

}  // namespace monograph::ops::reader
