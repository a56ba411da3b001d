// A TensorFlow checkpoint whose index and data are both all bytes: as they are, and with the right
// checksums of a table of one block, behind which a search without help would not come.
#include "ops/checkpoint_files/tensor_bundle.h"

#include <cstring>

#include "base/crc32c.h"
#include "ops/checkpoint_files/table.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

constexpr size_t kFooter = 48, kTrailer = 5;

void ReadBundle(std::string_view bytes) {
  static MemoryFolder folder({BundleIndexName("model"), BundleDataName("model", 0, 1)});
  folder.Fill(bytes);
  Result<BundleReader> reader = BundleReader::Open(folder.path() + "/model");
  if (!reader.ok()) return;
  for (const auto& [name, entry] : reader->entries()) {
    // A tensor in slices says how large it is, and no bytes bear it out before they are read.
    if (entry.shape.elements() > int64_t{1} << 20) continue;
    Result<Tensor> value = Tensor::Allocate(entry.dtype, entry.shape);
    if (!value.ok()) continue;
    (void)reader->Read(name, Box::Whole(entry.shape), &*value);
    if (entry.shape.rank() < 1 || entry.shape[0] < 2) continue;
    Box rows = Box::Whole(entry.shape);
    rows.begin[0] = 1;
    rows.shape.set_dim(0, entry.shape[0] - 1);
    Tensor part = Tensor::Allocate(entry.dtype, rows.shape).value();
    (void)reader->Read(name, rows, &part);
  }
}

size_t TakeNumber(std::string_view* text) {
  size_t number = 0;
  for (int shift = 0; shift < 28 && !text->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text->front());
    text->remove_prefix(1);
    number |= size_t{byte & 127u} << shift;
    if (byte < 128) break;
  }
  return number;
}

std::string WithChecksums(std::string_view bytes) {
  std::string table(bytes);
  const size_t end = table.size() - kFooter;
  const auto check = [&](size_t begin, size_t size) {
    if (begin + size + kTrailer > end) return;
    const uint32_t crc = MaskedCrc32c(AddToCrc32c(0, table.data() + begin, size + 1));
    std::memcpy(table.data() + begin + size + 1, &crc, sizeof crc);
  };
  std::string_view places = bytes.substr(end);
  const size_t meta = TakeNumber(&places);
  const size_t meta_size = TakeNumber(&places);
  const size_t index = TakeNumber(&places);
  const size_t index_size = TakeNumber(&places);
  if (meta >= kTrailer) check(0, meta - kTrailer);
  check(meta, meta_size);
  check(index, index_size);
  return table;
}

}  // namespace

void tensor_bundle(std::string_view bytes) {
  (void)ParseTable(bytes);
  ReadBundle(bytes);
  if (bytes.size() >= kFooter) ReadBundle(WithChecksums(bytes));
}

}  // namespace monograph::fuzz
