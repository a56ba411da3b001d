#include "tests/gpu/emulated/fatbin.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace monograph::ptx {
namespace {

// A container is a Header and the entries behind it; an entry is an Entry and its bytes. Both say
// themselves how long their headers are.
constexpr uint32_t kMagic = 0xba55ed50;
struct Header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all entries
};
struct Entry {
  uint16_t kind, version;  // kind 1: PTX; 2: machine code
  uint32_t header_bytes;
  uint64_t bytes;  // with what fills it up
  uint32_t compressed_bytes, unknown[5];
  uint64_t flags, unknown2, text_bytes;  // text_bytes: uncompressed
};
static_assert(sizeof(Header) == 16 && sizeof(Entry) == 64);
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;

Result<std::string> Unpack(const char* data, const Entry& entry) {
  if ((entry.flags & kLz4) != 0)
    return Unimplemented("PTX that is compressed as nvcc 12 did it (-Xfatbin -compress-all)");
  if ((entry.flags & kZstd) == 0) {
    const std::string text(data, entry.bytes);
    return text.substr(0, text.find('\0'));
  }
  using Decompress = size_t (*)(void*, size_t, const void*, size_t);
  static void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return FailedPrecondition(dlerror());
  static const auto decompress = reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress"));
  if (decompress == nullptr) return FailedPrecondition(dlerror());
  std::string text(entry.text_bytes, '\0');
  if (decompress(text.data(), text.size(), data, entry.compressed_bytes) != text.size())
    return DataLoss("the compressed PTX of a fatbin is damaged");
  return text.substr(0, text.find('\0'));
}

}  // namespace

Result<std::vector<std::string>> PtxOfFatbin(const void* fatbin) {
  const char* at = static_cast<const char*>(fatbin);
  Header header;
  std::memcpy(&header, at, sizeof header);
  if (header.magic != kMagic || header.header_bytes < sizeof header)
    return InvalidArgument("this is no fatbin");
  at += header.header_bytes;
  std::vector<std::string> texts;
  for (const char* const end = at + header.bytes; at < end;) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.header_bytes < sizeof entry || entry.bytes > static_cast<uint64_t>(end - at))
      return DataLoss("an entry of a fatbin is damaged");
    at += entry.header_bytes;
    if (entry.kind == 1) {
      MG_ASSIGN_OR_RETURN(std::string text, Unpack(at, entry));
      texts.push_back(std::move(text));
    }
    at += entry.bytes;
  }
  return texts;
}

}  // namespace monograph::ptx
