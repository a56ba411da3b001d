// Reads protocol buffers' wire format where it lies.
#include <algorithm>
#include <cstring>

#include "ops/example/features.h"

namespace monograph::ops::example {
namespace {

// Reads protocol buffers' wire format. ok() is false once something did not fit.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }

  // The next field; false at the end.
  bool Next(uint32_t* number) {
    if (!ok_ || rest_.empty()) return false;
    const uint64_t tag = Varint();
    type_ = static_cast<uint32_t>(tag & 7);
    *number = static_cast<uint32_t>(tag >> 3);
    return ok_;
  }
  bool is_bytes() const { return type_ == 2; }
  bool is_fixed32() const { return type_ == 5; }
  bool is_varint() const { return type_ == 0; }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  std::string_view Bytes() { return Take(Varint()); }
  float Fixed32() {
    const std::string_view bytes = Take(4);
    float value = 0;
    if (ok_) std::memcpy(&value, bytes.data(), 4);
    return value;
  }
  void Skip() {
    switch (type_) {
      case 0:
        Varint();
        return;
      case 1:
        Take(8);
        return;
      case 2:
        Bytes();
        return;
      case 5:
        Take(4);
        return;
      default:
        ok_ = false;
    }
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view Take(uint64_t n) {
    if (!ok_ || n > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  std::string_view rest_;
  uint32_t type_ = 0;
  bool ok_ = true;
};

bool FindFeature(std::string_view feature, Found* found) {
  Wire wire(feature);
  for (uint32_t number = 0; wire.Next(&number);) {
    if (number < 1 || number > 3 || !wire.is_bytes()) {
      wire.Skip();
      continue;
    }
    found->dtype = number == 1 ? DT_STRING : number == 2 ? DT_FLOAT : DT_INT64;
    found->list = wire.Bytes();
  }
  return wire.ok();
}

}  // namespace

int64_t Column::size() const {
  return static_cast<int64_t>(dtype == DT_FLOAT   ? floats.size()
                              : dtype == DT_INT64 ? ints.size()
                                                  : texts.size());
}

void Column::Put(int64_t first, int64_t n, Tensor* to, int64_t at) const {
  if (dtype == DT_FLOAT) {
    std::copy_n(floats.begin() + first, n, to->data<float>() + at);
  } else if (dtype == DT_INT64) {
    std::copy_n(ints.begin() + first, n, to->data<int64_t>() + at);
  } else {
    std::copy_n(texts.begin() + first, n, to->strings() + at);
  }
}

bool FindFeatures(std::string_view example, const FeatureNumbers& wanted,
                  std::vector<Found>* found) {
  std::fill(found->begin(), found->end(), Found());
  Wire wire(example);
  for (uint32_t number = 0; wire.Next(&number);) {
    if (number != 1 || !wire.is_bytes()) {
      wire.Skip();
      continue;
    }
    Wire features(wire.Bytes());
    while (features.Next(&number)) {
      if (number != 1 || !features.is_bytes()) {
        features.Skip();
        continue;
      }
      Wire entry(features.Bytes());
      std::string_view key, feature;
      while (entry.Next(&number)) {
        if ((number == 1 || number == 2) && entry.is_bytes()) {
          (number == 1 ? key : feature) = entry.Bytes();
        } else {
          entry.Skip();
        }
      }
      if (!entry.ok()) return false;
      const auto at = wanted.find(key);
      if (at == wanted.end()) continue;
      Found last;
      if (!FindFeature(feature, &last)) return false;
      (*found)[at->second] = last;
    }
    if (!features.ok()) return false;
  }
  return wire.ok();
}

bool AppendList(std::string_view list, Column* column) {
  Wire wire(list);
  for (uint32_t number = 0; wire.Next(&number);) {
    if (number != 1) {
      wire.Skip();
    } else if (column->dtype == DT_STRING && wire.is_bytes()) {
      column->texts.emplace_back(wire.Bytes());
    } else if (column->dtype == DT_FLOAT && wire.is_fixed32()) {
      column->floats.push_back(wire.Fixed32());
    } else if (column->dtype == DT_FLOAT && wire.is_bytes()) {
      Wire packed(wire.Bytes());
      while (packed.ok() && !packed.empty()) column->floats.push_back(packed.Fixed32());
      if (!packed.ok()) return false;
    } else if (column->dtype == DT_INT64 && wire.is_varint()) {
      column->ints.push_back(static_cast<int64_t>(wire.Varint()));
    } else if (column->dtype == DT_INT64 && wire.is_bytes()) {
      Wire packed(wire.Bytes());
      while (packed.ok() && !packed.empty())
        column->ints.push_back(static_cast<int64_t>(packed.Varint()));
      if (!packed.ok()) return false;
    } else {
      return false;
    }
  }
  return wire.ok();
}

}  // namespace monograph::ops::example
