// Strings to buckets by hashes whose values are the same everywhere: FarmHash's fingerprint, and
// SipHash, whose key keeps others from choosing strings of one bucket.
#include <farmhash.h>

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

class FastHashKernel : public Kernel {
 public:
  explicit FastHashKernel(const KernelConstruction& c) : buckets_(c.attr<int64_t>("num_buckets")) {}

  Status Compute(KernelContext& c) override {
    return ToBuckets(c, buckets_, [](const std::string& text, Looks* looks) {
      return looks->GoOn(text) ? uint64_t{util::Fingerprint64(text.data(), text.size())} : 0;
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
  registry->Add<FastHashKernel>({.op = "StringToHashBucketFast"});
  registry->Add<StrongHashKernel>({.op = "StringToHashBucketStrong"});
}

}  // namespace monograph::ops::string
