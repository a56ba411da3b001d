// Strings to buckets by hashes whose values are the same everywhere: FarmHash's fingerprint,
// SipHash, whose key keeps others from choosing strings of one bucket, and MurmurHash64A, by which
// TensorFlow's first op for this goes.
#include "ops/string/hash_cpu.h"

#include <farmhash.h>

#include <bit>
#include <cstring>

#include "ops/cpu/looks_cpu.h"
#include "ops/string/siphash_cpu.h"
#include "ops/string/string_cpu.h"

namespace monograph::ops::string {
namespace {

// fn(text, looks): a hash of 64 bits.
template <typename Fn>
Status ToBuckets(KernelContext& c, int64_t buckets, const Fn& fn) {
  const Tensor& input = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  int64_t* const to = output->data<int64_t>();
  c.ParallelFor(input.elements(), 50, [&](int64_t begin, int64_t end) {
    Looks looks(c);
    for (int64_t i = begin; i < end && looks.GoOn(1); ++i) {
      const uint64_t hash = fn(input.strings()[i], &looks);
      to[i] = static_cast<int64_t>(hash % static_cast<uint64_t>(buckets));
    }
  });
  return Status();
}

// Source: A. Appleby, MurmurHash2, 64-bit version for 64-bit machines; with TensorFlow's seed.
}  // namespace

uint64_t Murmur(std::string_view text) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995, kSeed = 0xdecafcaffe;
  constexpr int kShift = 47;
  uint64_t hash = kSeed ^ (text.size() * kFactor);
  for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof(word));
    word *= kFactor;
    word ^= word >> kShift;
    hash = (hash ^ (word * kFactor)) * kFactor;
  }
  if (!text.empty()) {
    uint64_t rest = 0;
    std::memcpy(&rest, text.data(), text.size());
    hash = (hash ^ rest) * kFactor;
  }
  hash = (hash ^ (hash >> kShift)) * kFactor;
  return hash ^ (hash >> kShift);
}

namespace {

uint64_t Fingerprint(std::string_view text) {
  return util::Fingerprint64(text.data(), text.size());
}

template <uint64_t kHash(std::string_view)>
class FastHashKernel : public Kernel {
 public:
  explicit FastHashKernel(const KernelConstruction& c) : buckets_(c.attr<int64_t>("num_buckets")) {}

  Status Compute(KernelContext& c) override {
    return ToBuckets(c, buckets_, [](const std::string& text, Looks* looks) {
      return looks->GoOn(text) ? kHash(text) : 0;
    });
  }

 private:
  const int64_t buckets_;
};

class StrongHashKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    const auto& key = c.attr<std::vector<int64_t>>("key");
    if (key.size() != 2) {
      return InvalidArgument("Key must have 2 elements, got " + std::to_string(key.size()));
    }
    return std::unique_ptr<Kernel>(new StrongHashKernel(
        c.attr<int64_t>("num_buckets"),
        SipHash(static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1]))));
  }

  Status Compute(KernelContext& c) override {
    return ToBuckets(c, buckets_, [this](const std::string& text, Looks* looks) {
      SipHash hash = keyed_;
      return InParts(looks, text, [&](std::string_view part) { hash.Add(part); }) ? hash.End() : 0;
    });
  }

 private:
  StrongHashKernel(int64_t buckets, const SipHash& keyed) : buckets_(buckets), keyed_(keyed) {}

  const int64_t buckets_;
  const SipHash keyed_;
};

}  // namespace

void RegisterHashes(KernelRegistry* registry) {
  registry->Add<FastHashKernel<Murmur>>({.op = "StringToHashBucket"});
  registry->Add<FastHashKernel<Fingerprint>>({.op = "StringToHashBucketFast"});
  registry->Add<StrongHashKernel>({.op = "StringToHashBucketStrong"});
}

}  // namespace monograph::ops::string
