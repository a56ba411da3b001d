// One kernel for all samplers, which differ in their RangeSampler, and ComputeAccidentalHits. A
// node's runs follow each other (`serial`), as its stream goes on and some samplers learn: a run
// takes its part of the stream, and adds to what was learned, only once nothing can be refused.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/candidate_sampler/range_sampler_cpu.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"

namespace monograph::ops::candidate_sampler {
namespace {

using random::PhiloxStream;

Status CheckTrueClasses(const Tensor& classes, int64_t num_true) {
  if (classes.shape().rank() == 2 && classes.shape()[1] == num_true) return Status();
  return InvalidArgument("true_classes must be a matrix of num_true = " + std::to_string(num_true) +
                         " columns, not of shape " + classes.shape().ToString());
}

// Which classes were drawn: a table of places that are free (-1) or hold one, at least half of them
// free. A class that finds its place taken goes into the next free one.
class Drawn {
 public:
  static Result<Drawn> Make(KernelContext& c, int64_t most) {
    const auto size = static_cast<int64_t>(std::bit_ceil(2 * static_cast<uint64_t>(most)));
    MG_ASSIGN_OR_RETURN(Tensor memory, c.AllocateTemp(DT_INT64, Shape{size}));
    int64_t* const places = memory.data<int64_t>();
    const bool whole = InPieces(c, size, [places](int64_t begin, int64_t end) {
      std::fill(places + begin, places + end, -1);
    });
    if (!whole) return StepAborted();
    return Drawn(std::move(memory));
  }
  // Whether it is new.
  bool Insert(int64_t value) {
    int64_t* const places = memory_.data<int64_t>();
    const auto mask = static_cast<uint64_t>(memory_.elements() - 1);
    uint64_t at = static_cast<uint64_t>(value) * 0x9e3779b97f4a7c15;
    for (at = at >> 32 & mask;; at = (at + 1) & mask) {
      if (places[at] == value) return false;
      if (places[at] != -1) continue;
      places[at] = value;
      return true;
    }
  }

 private:
  explicit Drawn(Tensor memory) : memory_(std::move(memory)) {}
  Tensor memory_;
};

class SamplerKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    for (const char* name : {"num_true", "num_sampled"}) {
      if (const auto value = c.attr<int64_t>(name); value > kMostInt32) {
        return InvalidArgument("Attr " + std::string(name) + " has value " + std::to_string(value) +
                               " out of range for an int32");
      }
    }
    std::unique_ptr<RangeSampler> sampler;  // none: all classes, each once
    if (c.op() != "AllCandidateSampler") {
      MG_ASSIGN_OR_RETURN(sampler, MakeRangeSampler(c));
    }
    return std::unique_ptr<Kernel>(new SamplerKernel(c, std::move(sampler)));
  }

  Status Compute(KernelContext& c) override {
    const Tensor& classes = c.input(0);
    MG_RETURN_IF_ERROR(CheckTrueClasses(classes, num_true_));
    if (sampler_ != nullptr) {
      MG_RETURN_IF_ERROR(sampler_->Prepare(c));
      if (unique_ && num_sampled_ > sampler_->drawable())
        return InvalidArgument("Sampler's range is too small.");
    }
    MG_ASSIGN_OR_RETURN(Tensor * sampled, c.AllocateOutput(0, Shape{num_sampled_}));
    MG_ASSIGN_OR_RETURN(Tensor * true_count, c.AllocateOutput(1, classes.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * count, c.AllocateOutput(2, Shape{num_sampled_}));
    Looks looks(c);
    for (const int64_t value : classes.values<int64_t>()) {
      if (!looks.GoOn(2)) return Status();
      if (value < 0 || value >= range_) {
        return InvalidArgument("`true_candidate` out of range [0, " + std::to_string(range_) +
                               "), received " + std::to_string(value));
      }
    }
    int64_t* const drawn = sampled->data<int64_t>();
    if (sampler_ == nullptr) {
      InPieces(c, num_sampled_, [drawn](int64_t begin, int64_t end) {
        std::iota(drawn + begin, drawn + end, begin);
      });
      Fill(c, 1, count), Fill(c, 1, true_count);
      return Status();
    }
    MG_ASSIGN_OR_RETURN(const int64_t tries, Draw(c, &looks, drawn));
    const auto counts = [&](const Tensor& of, Tensor* to) {
      for (int64_t i = 0; i < of.elements() && looks.GoOn(40); ++i) {
        to->data<float>()[i] = Expected(sampler_->Probability(of.data<int64_t>()[i]), tries);
      }
    };
    counts(*sampled, count);
    counts(classes, true_count);
    sampler_->Learn(c, classes.values<int64_t>());
    return Status();
  }

 private:
  SamplerKernel(const KernelConstruction& c, std::unique_ptr<RangeSampler> sampler)
      : num_true_(c.attr<int64_t>("num_true")),
        num_sampled_(c.attr<int64_t>("num_sampled")),
        range_(sampler != nullptr ? c.attr<int64_t>("range_max") : num_sampled_),
        unique_(c.attr<bool>("unique")),
        seeded_(c.attr<int64_t>("seed") != 0 || c.attr<int64_t>("seed2") != 0),
        of_node_(0, 0, c.node_name(), 0),
        next_(static_cast<uint64_t>(c.attr<int64_t>("seed")), 0,
              static_cast<uint64_t>(c.attr<int64_t>("seed2"))),
        sampler_(std::move(sampler)) {}

  static void Fill(const KernelContext& c, float value, Tensor* to) {
    float* const first = to->data<float>();
    InPieces(c, to->elements(),
             [=](int64_t begin, int64_t end) { std::fill(first + begin, first + end, value); });
  }

  // Every run has 2048 words for each class that it draws.
  PhiloxStream StreamOfRun(const KernelContext& c) {
    if (!seeded_) return PhiloxStream(of_node_.key, 0, c.step_id());
    const PhiloxStream stream = next_;
    next_ = next_.After(512 * static_cast<uint64_t>(num_sampled_));
    return stream;
  }

  // How many draws it took. Cancelled once the step is aborted.
  Result<int64_t> Draw(KernelContext& c, Looks* looks, int64_t* to) {
    if (!unique_) {
      Numbers numbers(StreamOfRun(c));
      for (int64_t i = 0; i < num_sampled_; ++i) {
        if (!looks->GoOn(50)) return StepAborted();
        to[i] = sampler_->Draw(&numbers);
      }
      return num_sampled_;
    }
    MG_ASSIGN_OR_RETURN(Drawn drawn, Drawn::Make(c, num_sampled_));
    Numbers numbers(StreamOfRun(c));
    int64_t tries = 0;
    for (int64_t n = 0; n < num_sampled_; ++tries) {
      if (!looks->GoOn(50)) return StepAborted();
      if (tries == kMostInt32) {
        return InvalidArgument("there are no " + std::to_string(num_sampled_) +
                               " unique classes among " + std::to_string(tries) + " drawn ones");
      }
      const int64_t value = sampler_->Draw(&numbers);
      if (drawn.Insert(value)) to[n++] = value;
    }
    return tries;
  }

  // How often a class of probability p is expected among those that were drawn; if each is to be
  // there once only, 1 - (1 - p)^tries, as if so many tries were always needed.
  float Expected(float p, int64_t tries) const {
    if (tries == num_sampled_) return p * static_cast<float>(num_sampled_);
    return -std::expm1(static_cast<float>(tries) * std::log1p(-p));
  }

  const int64_t num_true_, num_sampled_, range_;
  const bool unique_, seeded_;
  const random::RandomStream of_node_;
  PhiloxStream next_;
  const std::unique_ptr<RangeSampler> sampler_;
};

// The sampled classes are sorted once, and each true one is looked up among them.
Status AccidentalHitsOf(KernelContext& c, const Attrs& attrs) {
  const Tensor &classes = c.input(0), &sampled = c.input(1);
  const auto num_true = attrs.Get<int64_t>("num_true");
  MG_RETURN_IF_ERROR(CheckTrueClasses(classes, num_true));
  if (sampled.shape().rank() != 1) {
    return InvalidArgument("sampled_candidates must be a vector, not of shape " +
                           sampled.shape().ToString());
  }
  if (classes.elements() > 0 && classes.shape()[0] > kMostInt32)
    return InvalidArgument("true_classes has more rows than indices of int32 count");
  const int64_t* const of = sampled.data<int64_t>();
  std::vector<int64_t> order(static_cast<size_t>(sampled.elements()));
  std::iota(order.begin(), order.end(), 0);
  if (!StableSort(c, &order, [of](int64_t a, int64_t b) { return of[a] < of[b]; }))
    return StepAborted();
  struct Hit {
    int64_t row, place;
  };
  std::vector<Hit> hits;
  Looks looks(c);
  for (int64_t i = 0; i < classes.elements(); ++i) {
    if (!looks.GoOn(60)) return Status();
    const int64_t value = classes.data<int64_t>()[i];
    const auto behind = std::upper_bound(order.begin(), order.end(), value,
                                         [of](int64_t v, int64_t k) { return v < of[k]; });
    if (behind == order.begin() || of[behind[-1]] != value) continue;
    hits.push_back({i / num_true, behind[-1]});  // of several that are equal the last one
  }
  const Shape shape{static_cast<int64_t>(hits.size())};
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, shape));
  MG_ASSIGN_OR_RETURN(Tensor * ids, c.AllocateOutput(1, shape));
  MG_ASSIGN_OR_RETURN(Tensor * weights, c.AllocateOutput(2, shape));
  for (size_t i = 0; i < hits.size() && looks.GoOn(5); ++i) {
    indices->data<int32_t>()[i] = static_cast<int32_t>(hits[i].row);
    ids->data<int64_t>()[i] = hits[i].place;
    weights->data<float>()[i] = -FLT_MAX;
  }
  return Status();
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  for (const char* op : {"UniformCandidateSampler", "LogUniformCandidateSampler",
                         "LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler",
                         "FixedUnigramCandidateSampler", "AllCandidateSampler"}) {
    registry->Add<SamplerKernel>({.op = op, .serial = true});
  }
  registry->Add<FunctionKernel<AccidentalHitsOf>>({.op = "ComputeAccidentalHits"});
}

}  // namespace monograph::ops::candidate_sampler
