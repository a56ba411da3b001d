// The format (LevelDB's doc/table_format.md): data blocks, a meta index block, an index block, and
// at the end a footer of 48 bytes with the places of the two last, as varints of offset and size,
// and the magic number. The index block has the last key of each data block, and its place. Behind
// each block: a byte, whether Snappy has compressed it, and the masked CRC-32C of both. In a block:
//
//   entry     varint32 shared, varint32 added, varint32 value size, key's end, value
//             the key is the first `shared` bytes of the one before and `added` bytes of its own
//   restarts  uint32 each, where keys begin that share nothing; their number, uint32
//
// LevelDB's library writes them. Its reader is made for files of its own: it trusts lengths in a
// block whose checksum is right, which in a file of somebody else lead out of the block, and says
// of damage only that it is there. So they are read here.
#include "ops/checkpoint_files/table.h"

#include <leveldb/env.h>
#include <leveldb/options.h>
#include <leveldb/table_builder.h>
#include <snappy.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/codec.h"
#include "base/crc32c.h"
#include "base/input_file.h"
#include "ops/checkpoint_files/disk.h"

namespace monograph {
namespace {

constexpr size_t kFooterBytes = 48, kTrailerBytes = 5;
constexpr uint64_t kMagic = 0xdb4775248b80fb57;

// What the builder writes goes to a NewFile, whose failure is kept.
class TableFile : public leveldb::WritableFile {
 public:
  explicit TableFile(NewFile* file) : file_(file) {}
  leveldb::Status Append(const leveldb::Slice& data) override {
    if (status_.ok()) status_ = file_->Write(data.data(), data.size());
    return status_.ok() ? leveldb::Status::OK() : leveldb::Status::IOError(status_.message());
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }
  const Status& status() const { return status_; }

 private:
  NewFile* const file_;
  Status status_;
};

// Takes a varint off `text`. False if there is none, or it is larger than a Number.
template <typename Number>
bool TakeVarint(std::string_view* text, Number* number) {
  constexpr int kBits = std::numeric_limits<Number>::digits;
  *number = 0;
  for (int shift = 0; shift < kBits && !text->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text->front());
    text->remove_prefix(1);
    const Number low = byte & 127;
    if (shift > kBits - 7 && (low >> (kBits - shift)) != 0) return false;
    *number |= low << shift;
    if (byte < 128) return true;
  }
  return false;
}

struct Place {
  uint64_t begin = 0, size = 0;
};

bool TakePlace(std::string_view* text, Place* place) {
  return TakeVarint(text, &place->begin) && TakeVarint(text, &place->size);
}

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  Result<std::map<std::string, std::string>> Parse() {
    if (bytes_.size() < kFooterBytes) return Damaged({0, bytes_.size()}, "they are no table");
    const Place footer{bytes_.size() - kFooterBytes, kFooterBytes};
    std::string_view places = bytes_.substr(footer.begin);
    if (Decoder(places.substr(kFooterBytes - sizeof kMagic)).Get<uint64_t>() != kMagic)
      return Damaged(footer, "they are not the end of a table: it is truncated, or none");
    Place meta, index;
    if (!TakePlace(&places, &meta) || !TakePlace(&places, &index))
      return Damaged(footer, "they name no blocks");
    // Nothing is wanted of the meta index; but what is damaged is told.
    MG_RETURN_IF_ERROR(Block(meta).status());
    std::map<std::string, std::string> blocks, entries;
    MG_RETURN_IF_ERROR(AddEntries(index, &blocks));
    for (const auto& [last_key, text] : blocks) {
      std::string_view rest = text;
      Place block;
      if (!TakePlace(&rest, &block)) return Damaged(index, "they name no block");
      MG_RETURN_IF_ERROR(AddEntries(block, &entries));
    }
    return entries;
  }

 private:
  static Status Damaged(const Place& where, const std::string& why) {
    return DataLoss("its bytes " + std::to_string(where.begin) + " to " +
                    std::to_string(where.begin + where.size) + ": " + why);
  }

  // What a block holds, checked and decompressed.
  Result<std::string> Block(const Place& place) const {
    const uint64_t end = bytes_.size() - kFooterBytes;
    if (place.begin > end || end - place.begin < kTrailerBytes ||
        place.size > end - place.begin - kTrailerBytes)
      return DataLoss("a block is outside of the file: the table is truncated, or damaged");
    const std::string_view content = bytes_.substr(place.begin, place.size);
    Decoder trailer(bytes_.substr(place.begin + place.size, kTrailerBytes));
    const auto type = trailer.Get<uint8_t>();
    const auto says = trailer.Get<uint32_t>();
    if (MaskedCrc32c(AddToCrc32c(0, content.data(), content.size() + 1)) != says)
      return Damaged(place, "they are damaged: the CRC-32C is another");
    if (type == leveldb::kNoCompression) return std::string(content);
    size_t size = 0;
    if (type != leveldb::kSnappyCompression ||
        !snappy::GetUncompressedLength(content.data(), content.size(), &size) ||
        !snappy::IsValidCompressedBuffer(content.data(), content.size()))
      return Damaged(place, "nothing that is known has compressed them");
    if (size > kMostTableBytes) return TooLarge();
    std::string plain(size, '\0');
    if (!snappy::RawUncompress(content.data(), content.size(), plain.data()))
      return Damaged(place, "they cannot be decompressed");
    return plain;
  }

  Status AddEntries(const Place& place, std::map<std::string, std::string>* entries) {
    MG_ASSIGN_OR_RETURN(const std::string block, Block(place));
    std::string_view rest = block;
    uint32_t restarts = 0;
    if (rest.size() >= sizeof restarts)
      restarts = Decoder(rest.substr(rest.size() - sizeof restarts)).Get<uint32_t>();
    if (restarts == 0 || restarts > rest.size() / sizeof restarts - 1)
      return Damaged(place, "they are no block of a table");
    rest.remove_suffix((size_t{1} + restarts) * sizeof restarts);
    std::string key;
    while (!rest.empty()) {
      uint32_t shared = 0, added = 0, value = 0;
      if (!TakeVarint(&rest, &shared) || !TakeVarint(&rest, &added) || !TakeVarint(&rest, &value) ||
          shared > key.size() || added > rest.size() || value > rest.size() - added)
        return Damaged(place, "an entry leads out of its block");
      key.replace(shared, std::string::npos, rest.substr(0, added));
      rest.remove_prefix(added);
      // Keys that share much, and blocks that are named twice, make much of few bytes.
      held_ += key.size() + value;
      if (held_ > kMostTableBytes) return TooLarge();
      if (!entries->empty() && key <= entries->rbegin()->first)
        return Damaged(place, "its keys do not rise");
      entries->emplace_hint(entries->end(), key, rest.substr(0, value));
      rest.remove_prefix(value);
    }
    return Status();
  }

  static Status TooLarge() {
    return ResourceExhausted("it holds more than " + std::to_string(kMostTableBytes) + " bytes");
  }

  const std::string_view bytes_;
  uint64_t held_ = 0;  // bytes of keys and values so far
};

}  // namespace

Status WriteTable(const std::map<std::string, std::string>& entries, NewFile* file) {
  TableFile out(file);
  // TensorFlow's: blocks of 256 KiB, which old versions of it read only without compression.
  leveldb::Options options;
  options.block_size = size_t{256} << 10;
  options.compression = leveldb::kNoCompression;
  leveldb::TableBuilder builder(options, &out);
  for (const auto& [key, value] : entries) builder.Add(key, value);
  builder.Finish();
  return out.status();
}

Result<std::map<std::string, std::string>> ParseTable(std::string_view bytes) {
  return Parser(bytes).Parse();
}

}  // namespace monograph
