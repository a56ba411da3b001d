// Reads protocol buffers' wire format where it lies.
#include <algorithm>

#include "graph/wire.h"
#include "ops/example/features.h"

namespace monograph::ops::example {
namespace {

using wire_format::Reader;

// What these cost, in the units of Looks.
constexpr int64_t kEachField = 20, kEachPacked = 5;

// The tags of fields that are read: their number, and how they are written.
constexpr uint64_t Varints(int field) { return static_cast<uint64_t>(field) << 3; }
constexpr uint64_t Bytes(int field) { return static_cast<uint64_t>(field) << 3 | 2; }
constexpr uint64_t Fixed32(int field) { return static_cast<uint64_t>(field) << 3 | 5; }

bool FindFeature(std::string_view feature, Found* found) {
  Reader in(feature);
  while (!in.done()) {
    const uint64_t tag = in.Tag();
    if (tag != Bytes(1) && tag != Bytes(2) && tag != Bytes(3)) {
      in.Skip(tag);
      continue;
    }
    found->dtype = tag == Bytes(1) ? DT_STRING : tag == Bytes(2) ? DT_FLOAT : DT_INT64;
    in.Bytes(&found->list);
  }
  return in.ok();
}

}  // namespace

int64_t Column::size() const {
  return static_cast<int64_t>(dtype == DT_FLOAT   ? floats.size()
                              : dtype == DT_INT64 ? ints.size()
                                                  : texts.size());
}

void Column::Put(Looks* looks, int64_t first, int64_t n, Tensor* to, int64_t at) const {
  for (int64_t left = n; dtype == DT_STRING && left > 0; --left) {
    if (!AppendText(looks, texts[static_cast<size_t>(first++)], to->strings() + at++)) return;
  }
  for (int64_t begin = 0; dtype != DT_STRING && begin < n; begin += kPiece) {
    const int64_t size = std::min(kPiece, n - begin);
    if (!looks->GoOn(size)) return;
    if (dtype == DT_FLOAT) {
      std::copy_n(floats.begin() + first + begin, size, to->data<float>() + at + begin);
    } else {
      std::copy_n(ints.begin() + first + begin, size, to->data<int64_t>() + at + begin);
    }
  }
}

bool FindFeatures(Looks* looks, std::string_view example, const FeatureNumbers& wanted,
                  std::vector<Found>* found) {
  std::fill(found->begin(), found->end(), Found());
  Reader in(example);
  std::string_view bytes;
  while (!in.done()) {
    const uint64_t tag = in.Tag();
    if (tag != Bytes(1)) {
      in.Skip(tag);
      continue;
    }
    if (!in.Bytes(&bytes)) return false;
    Reader features(bytes);
    while (!features.done()) {
      const uint64_t feature_tag = features.Tag();
      if (feature_tag != Bytes(1)) {
        features.Skip(feature_tag);
        continue;
      }
      if (!features.Bytes(&bytes)) return false;
      Reader entry(bytes);
      std::string_view key, feature;
      while (!entry.done()) {
        if (!looks->GoOn(kEachField)) return false;
        const uint64_t entry_tag = entry.Tag();
        if (entry_tag == Bytes(1) || entry_tag == Bytes(2)) {
          entry.Bytes(entry_tag == Bytes(1) ? &key : &feature);
        } else {
          entry.Skip(entry_tag);
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
  return in.ok();
}

bool AppendList(Looks* looks, std::string_view list, Column* column) {
  Reader in(list);
  std::string_view bytes;
  float value;
  while (!in.done()) {
    if (!looks->GoOn(kEachField)) return false;
    const uint64_t tag = in.Tag();
    if (tag >> 3 != 1) {
      in.Skip(tag);
    } else if (column->dtype == DT_STRING && tag == Bytes(1)) {
      if (in.Bytes(&bytes) && !AppendText(looks, bytes, &column->texts.emplace_back()))
        return false;
    } else if (column->dtype == DT_FLOAT && tag == Fixed32(1)) {
      if (in.Fixed32(&value)) column->floats.push_back(value);
    } else if (column->dtype == DT_FLOAT && tag == Bytes(1)) {
      if (!in.Bytes(&bytes)) return false;
      for (Reader packed(bytes); !packed.done() && looks->GoOn(kEachPacked);) {
        if (!packed.Fixed32(&value)) return false;
        column->floats.push_back(value);
      }
    } else if (column->dtype == DT_INT64 && tag == Varints(1)) {
      column->ints.push_back(static_cast<int64_t>(in.Varint()));
    } else if (column->dtype == DT_INT64 && tag == Bytes(1)) {
      if (!in.Bytes(&bytes)) return false;
      Reader packed(bytes);
      while (!packed.done() && looks->GoOn(kEachPacked))
        column->ints.push_back(static_cast<int64_t>(packed.Varint()));
      if (!packed.ok()) return false;
    } else {
      return false;
    }
  }
  return in.ok();
}

}  // namespace monograph::ops::example
