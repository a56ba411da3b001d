// The distributions. That of learned unigrams counts in a tree of partial sums (P. Fenwick, "A new
// data structure for cumulative frequency tables", 1994), which takes four bytes for a class; it
// finds the class that TensorFlow's binary tree finds, as both look for a place in the running
// sums. That of fixed unigrams is a table of aliases (M. Vose, "A linear algorithm for generating
// random numbers with a given distribution", 1991), whose pairs are made in TensorFlow's order.
//
// What grows with the range is made in Prepare: there it can be cut, and counts in the limit of
// memory.
#include "ops/candidate_sampler/range_sampler_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/reserve_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/string/parse_number.h"

namespace monograph::ops::candidate_sampler {
namespace {

class UniformSampler : public RangeSampler {
 public:
  explicit UniformSampler(int64_t range) : range_(range) {}

  int64_t drawable() const override { return range_; }
  int64_t Draw(Numbers* numbers) const override {
    return static_cast<int64_t>(numbers->Below(static_cast<uint64_t>(range_)));
  }
  float Probability(int64_t) const override {
    return static_cast<float>(1.0 / static_cast<double>(range_));
  }

 private:
  const int64_t range_;
};

class LogUniformSampler : public RangeSampler {
 public:
  explicit LogUniformSampler(int64_t range)
      : range_(range), log_range_(std::log1p(static_cast<double>(range))) {}

  int64_t drawable() const override { return range_; }
  int64_t Draw(Numbers* numbers) const override {
    const double drawn = std::exp(numbers->Double() * log_range_);
    if (drawn >= 0x1p63) return range_ - 1;  // rounding, for ranges near 2^63
    return (static_cast<int64_t>(drawn) - 1) % range_;
  }
  float Probability(int64_t value) const override {
    const auto k = static_cast<double>(value);
    return static_cast<float>(std::log((k + 2.0) / (k + 1.0)) / log_range_);
  }

 private:
  const int64_t range_;
  const double log_range_;
};

// Each class has counted once before the first was learned.
class LearnedSampler : public RangeSampler {
 public:
  explicit LearnedSampler(int64_t range) : range_(range), total_(range) {}

  Status Prepare(const KernelContext& c) override {
    if (static_cast<int64_t>(sums_.size()) == range_) return Status();
    MG_RETURN_IF_ERROR(ReserveWithin(&sums_, static_cast<size_t>(range_), &room_));
    sums_.clear();
    const bool whole = InPieces(c, range_, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums_.push_back(static_cast<int32_t>(LowBit(i + 1)));
    });
    return whole ? Status() : StepAborted();
  }
  int64_t drawable() const override { return range_; }
  int64_t Draw(Numbers* numbers) const override {
    int64_t place = numbers->Below(static_cast<uint32_t>(total_)), k = 0;
    for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(range_))); step > 0;
         step /= 2) {
      if (k + step > range_ || Sum(k + step) > place) continue;
      k += step;
      place -= Sum(k);
    }
    return k;
  }
  float Probability(int64_t value) const override {
    int64_t count = Sum(value + 1);
    const int64_t rest = value + 1 - LowBit(value + 1);
    for (int64_t k = value; k > rest; k -= LowBit(k)) count -= Sum(k);
    return static_cast<float>(count) / static_cast<float>(total_);
  }
  void Learn(const KernelContext& c, std::span<const int64_t> values) override {
    Looks looks(c);
    for (const int64_t value : values) {
      if (total_ == kMostInt32 || !looks.GoOn(40)) return;
      ++total_;
      for (int64_t k = value + 1; k <= range_; k += LowBit(k)) ++sums_[static_cast<size_t>(k - 1)];
    }
  }

 private:
  static int64_t LowBit(int64_t k) { return k & -k; }
  // Of the LowBit(k) classes before k.
  int64_t Sum(int64_t k) const { return sums_[static_cast<size_t>(k - 1)]; }

  const int64_t range_;
  int64_t total_;
  std::shared_ptr<void> room_;
  std::vector<int32_t> sums_;
};

class FixedSampler : public RangeSampler {
 public:
  static Result<std::unique_ptr<RangeSampler>> Make(const KernelConstruction& c) {
    const auto& file = c.attr<std::string>("vocab_file");
    const auto& unigrams = c.attr<std::vector<float>>("unigrams");
    if (file.empty() && unigrams.empty())
      return InvalidArgument("Must provide either vocab_file or unigrams.");
    if (!file.empty() && !unigrams.empty())
      return InvalidArgument("Must only provide one of vocab_file and unigrams.");
    const auto range = c.attr<int64_t>("range_max"), reserved = c.attr<int64_t>("num_reserved_ids"),
               shards = c.attr<int64_t>("num_shards"), shard = c.attr<int64_t>("shard");
    for (const int64_t value : {range, reserved, shards, shard}) {
      if (value > kMostInt32) {
        return InvalidArgument(
            "range_max, num_reserved_ids, num_shards and shard must be at most " +
            std::to_string(kMostInt32) + ", not " + std::to_string(value));
      }
    }
    std::unique_ptr<FixedSampler> sampler(
        new FixedSampler(range, file, unigrams, c.attr<float>("distortion")));
    sampler->reserved_ = std::max<int64_t>(0, reserved);
    sampler->shards_ = shards;
    sampler->shard_ = shard;
    return std::unique_ptr<RangeSampler>(std::move(sampler));
  }

  Status Prepare(const KernelContext& c) override {
    if (ready_) return Status();
    Looks looks(c);
    Room room;
    std::string text;
    if (!file_.empty()) {
      std::error_code error;
      if (const uintmax_t size = std::filesystem::file_size(file_, error); !error)
        MG_RETURN_IF_ERROR(room.Hold(size, "'" + file_ + "'"));
      MG_ASSIGN_OR_RETURN(text, ReadInputFile("vocabulary", file_, kMostDataBytes));
    }
    // The reserved ones of this shard come first, and the others are counted on from there; no
    // more than these can follow.
    const int64_t reserved = (reserved_ - shard_ + shards_ - 1) / shards_;
    size_ = std::max<int64_t>(0, reserved);
    if (size_ > range_) return WrongSize();
    const int64_t most = size_ + static_cast<int64_t>(unigrams_.size() + text.size());
    weights_.clear();
    MG_RETURN_IF_ERROR(
        ReserveWithin(&weights_, static_cast<size_t>(std::min(range_, most)), &weights_room_));
    const bool whole = InPieces(c, size_, [this](int64_t, int64_t end) {
      weights_.resize(static_cast<size_t>(end), 0.0f);
    });
    if (!whole) return StepAborted();
    next_id_ = size_;
    drawable_ = 0;
    total_ = 0;
    for (const float weight : unigrams_) {
      if (!looks.GoOn(20)) return StepAborted();
      Add(weight);
    }
    MG_RETURN_IF_ERROR(AddLines(text, &looks));
    if (size_ != range_) return WrongSize();
    MG_RETURN_IF_ERROR(Pair(c, &looks));
    ready_ = true;
    return Status();
  }

  int64_t drawable() const override { return drawable_; }
  int64_t Draw(Numbers* numbers) const override {
    const float at = numbers->Float();
    const uint32_t k = numbers->Below(static_cast<uint32_t>(range_));
    return at < aliases_[k].own ? k : aliases_[k].other;
  }
  float Probability(int64_t value) const override {
    return weights_[static_cast<size_t>(value)] / total_;
  }

 private:
  // Of a place that is drawn, the part that is the class of that number's own, and whose the rest
  // is.
  struct Alias {
    float own;
    int32_t other;
  };

  FixedSampler(int64_t range, std::string file, std::vector<float> unigrams, float distortion)
      : range_(range),
        file_(std::move(file)),
        unigrams_(std::move(unigrams)),
        distortion_(distortion) {}

  Status WrongSize() const {
    return InvalidArgument("range is " + std::to_string(range_) +
                           " must be equal to weights size  " + std::to_string(size_));
  }

  // The next id's, if it is of this shard.
  void Add(float weight) {
    if (next_id_++ % shards_ != shard_) return;
    weight = std::pow(weight, distortion_);
    total_ += weight;
    if (size_++ >= range_) return;  // which will be refused
    weights_.push_back(weight);
    if (!(weight <= 0)) ++drawable_;
  }

  // Each line ends with a weight, behind the last comma.
  Status AddLines(std::string_view text, Looks* looks) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!looks->GoOn(line)) return StepAborted();
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      float weight = 0;
      if (next_id_ % shards_ == shard_ &&
          !string::ParseNumber(line.substr(line.rfind(',') + 1), &weight)) {
        constexpr size_t kShown = 100;
        return InvalidArgument("Wrong vocabulary format at line: " +
                               std::string(line.substr(0, kShown)));
      }
      Add(weight);
    }
    return Status();
  }

  Status Pair(const KernelContext& c, Looks* looks) {
    const auto n = static_cast<size_t>(range_);
    std::shared_ptr<void> places_room, order_room;
    std::vector<double> parts;   // of a place, of which each class has one on average
    std::vector<int32_t> order;  // classes with less than one from the front, others from the back
    MG_RETURN_IF_ERROR(ReserveWithin(&aliases_, n, &aliases_room_));
    MG_RETURN_IF_ERROR(ReserveWithin(&parts, n, &places_room));
    MG_RETURN_IF_ERROR(ReserveWithin(&order, n, &order_room));
    double sum = 0;
    for (const float weight : weights_) {
      if (!looks->GoOn(3)) return StepAborted();
      sum += static_cast<double>(weight);
    }
    const bool whole = InPieces(c, range_, [&](int64_t, int64_t end) {
      aliases_.resize(static_cast<size_t>(end));
      order.resize(static_cast<size_t>(end));
    });
    if (!whole) return StepAborted();
    size_t low = 0, high = n;
    const auto put = [&](size_t k) {
      order[parts[k] < 1.0 ? low++ : --high] = static_cast<int32_t>(k);
    };
    for (size_t k = 0; k < n; ++k) {
      if (!looks->GoOn(20)) return StepAborted();
      // The product is of floats, as TensorFlow's.
      parts.push_back(static_cast<double>(weights_[k] * static_cast<float>(n)) / sum);
      put(k);
    }
    while (low > 0 && high < n) {
      if (!looks->GoOn(20)) return StepAborted();
      const auto small = static_cast<size_t>(order[--low]),
                 large = static_cast<size_t>(order[high++]);
      aliases_[small].other = static_cast<int32_t>(large);
      parts[large] -= 1.0 - parts[small];
      put(large);
    }
    for (size_t k = 0; k < n; ++k) {
      if (!looks->GoOn(2)) return StepAborted();
      aliases_[k].own = static_cast<float>(parts[k]);
    }
    // Those that are left have about one; they keep all of it.
    for (size_t i = 0; i < n; ++i) {
      if (!looks->GoOn(2)) return StepAborted();
      if (i < low || i >= high) aliases_[static_cast<size_t>(order[i])] = {1, order[i]};
    }
    return Status();
  }

  const int64_t range_;
  const std::string file_;
  const std::vector<float> unigrams_;
  const float distortion_;
  int64_t reserved_ = 0, shards_ = 1, shard_ = 0;
  bool ready_ = false;
  int64_t next_id_ = 0, size_ = 0, drawable_ = 0;
  float total_ = 0;
  std::shared_ptr<void> weights_room_, aliases_room_;
  std::vector<float> weights_;
  std::vector<Alias> aliases_;
};

}  // namespace

Result<std::unique_ptr<RangeSampler>> MakeRangeSampler(const KernelConstruction& construction) {
  const std::string_view op = construction.op();
  if (op == "FixedUnigramCandidateSampler") return FixedSampler::Make(construction);
  const auto range = construction.attr<int64_t>("range_max");
  if (op == "UniformCandidateSampler")
    return std::unique_ptr<RangeSampler>(new UniformSampler(range));
  if (op == "LogUniformCandidateSampler")
    return std::unique_ptr<RangeSampler>(new LogUniformSampler(range));
  if (range >= kMostInt32) {
    return InvalidArgument("range_max must be less than " + std::to_string(kMostInt32) +
                           " for unigram samplers, got " + std::to_string(range));
  }
  return std::unique_ptr<RangeSampler>(new LearnedSampler(range));
}

}  // namespace monograph::ops::candidate_sampler
