// CPU kernels. Groups of values are drawn side by side on several threads (Draw); group k of a
// stream can be computed without those before it, so values do not depend on threads. Sample
// chooses classes for both multinomial ops by the running sums of their probabilities. StreamKernel
// has the streams of the stateful ops, which are those of ops/random.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/first_failure.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/random/distributions.h"
#include "ops/random/streams_cpu.h"

namespace monograph::ops::stateless_random {
namespace {

using random::Draw;
using random::PhiloxStream;

Result<PhiloxStream> StreamOf(const Tensor& seed) {
  if (!(seed.shape() == Shape{2}))
    return InvalidArgument("seed must have shape [2], not " + seed.shape().ToString());
  return PhiloxStream::OfSeed(static_cast<uint64_t>(IndexAt(seed, 0)),
                              static_cast<uint64_t>(IndexAt(seed, 1)));
}

template <typename Distribution>
Status DrawFloats(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
  MG_ASSIGN_OR_RETURN(const PhiloxStream stream, StreamOf(c.input(1)));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  return WithFloatType(out->dtype(), [&](auto t) {
    Draw<decltype(t)>(c, stream, Distribution(), out);
    return Status();
  });
}

Status DrawIntegers(KernelContext& c, const Attrs&) {  // of a range, or of all
  MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "the shape"));
  MG_ASSIGN_OR_RETURN(const PhiloxStream stream, StreamOf(c.input(1)));
  random::IntegerValues values;
  if (c.num_inputs() > 2) {
    if (c.input(2).shape().rank() != 0 || c.input(3).shape().rank() != 0)
      return InvalidArgument("minval and maxval must be scalars");
    const int64_t low = IndexAt(c.input(2), 0), high = IndexAt(c.input(3), 0);
    if (low >= high) {
      return InvalidArgument("Need minval < maxval, got " + std::to_string(low) +
                             " >= " + std::to_string(high));
    }
    values = {static_cast<uint64_t>(low), static_cast<uint64_t>(high) - static_cast<uint64_t>(low)};
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (DTypeSize(out->dtype()) == 8) {
    Draw<uint64_t>(c, stream, values, out);
  } else {
    Draw<uint32_t>(c, stream, values, out);
  }
  return Status();
}

// start(rows, samples) is called once, if there is something to draw. It returns a function: that
// of (row, sample) gives a number in [0, 1), which chooses the class by the sums of probabilities.
template <typename StartFn>
Status Sample(KernelContext& c, const StartFn& start) {
  const Tensor& logits = c.input(0);
  if (logits.shape().rank() != 2)
    return InvalidArgument("logits should be a matrix, got shape " + logits.shape().ToString());
  MG_ASSIGN_OR_RETURN(const int64_t samples, IntOf(c.input(1), "num_samples"));
  if (samples < 0)
    return InvalidArgument("num_samples should be nonnegative, got " + std::to_string(samples));
  const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  if (classes == 0 && rows > 0 && samples > 0)
    return InvalidArgument("num_classes should be positive, got 0");
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{rows, samples}));
  if (out->elements() == 0) return Status();
  const auto draw = start(rows, samples);
  return WithRealType(logits.dtype(), [&](auto t) {
    using T = decltype(t);
    FirstFailure failure;
    c.ParallelFor(rows, 30 * (classes + samples), [&](int64_t begin, int64_t end) {
      Result<Tensor> memory = c.AllocateTemp(DT_DOUBLE, Shape{classes});
      if (!memory.ok()) return failure.Update(memory.status());
      double* const sums = memory->data<double>();
      for (int64_t r = begin; r < end; ++r) {
        const T* row = logits.data<T>() + r * classes;
        // Without classes whose logit is infinite or no number.
        double highest = std::numeric_limits<float>::lowest();
        InPieces(c, classes, [&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) {
            if (const auto logit = static_cast<double>(row[k]); std::isfinite(logit))
              highest = std::max(highest, logit);
          }
        });
        double sum = 0;
        InPieces(c, classes, [&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) {
            if (const auto logit = static_cast<double>(row[k]); std::isfinite(logit))
              sum += std::exp(logit - highest);
            sums[k] = sum;
          }
        });
        if (c.cancelled()) return;
        InPieces(c, samples, [&](int64_t first, int64_t last) {
          for (int64_t s = first; s < last; ++s) {
            const double at = draw(r, s) * sum;
            const auto chosen = std::upper_bound(sums, sums + classes, at) - sums;
            SetIndex(out, r * samples + s, std::min<int64_t>(chosen, classes - 1));
          }
        });
      }
    });
    return failure.status();
  });
}

// One number after the other, as TensorFlow draws them with one thread.
auto InOrder(const PhiloxStream& stream, int64_t samples) {
  return [=](int64_t row, int64_t sample) {
    const auto k = static_cast<uint64_t>(row * samples + sample);
    const random::PhiloxBlock bits = stream.Block(k / 2);
    return random::UnitValue<double>(bits.words[2 * (k % 2)], bits.words[2 * (k % 2) + 1]);
  };
}

Status SampleStateless(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const PhiloxStream stream, StreamOf(c.input(2)));
  return Sample(c, [&](int64_t, int64_t samples) { return InOrder(stream, samples); });
}

// The streams of ops/random: of the seeds alone where the session asks for TensorFlow's; else of
// the seeds, the node's name and the step's number.
class StreamKernel : public Kernel {
 public:
  explicit StreamKernel(const KernelConstruction& k)
      : seeded_(k), stream_(k.attr<int64_t>("seed"), k.attr<int64_t>("seed2"), k.node_name(), 0) {}

 protected:
  random::RandomStream StreamOfStep(const KernelContext& c) const {
    random::RandomStream stream = stream_;
    stream.step = c.step_id();
    return stream;
  }

  const random::SeededStream seeded_;

 private:
  const random::RandomStream stream_;
};

class MultinomialKernel : public StreamKernel {
 public:
  using StreamKernel::StreamKernel;
  Status Compute(KernelContext& c) override {
    if (seeded_) {
      return Sample(c, [this](int64_t rows, int64_t samples) {
        const int64_t taken_for = (samples + 3) / 4 * 4 * 2;  // two words for each number
        return InOrder(seeded_.TakeForNumbers(rows * taken_for), samples);
      });
    }
    const random::RandomStream stream = StreamOfStep(c);
    return Sample(c, [stream](int64_t, int64_t samples) {
      return [=](int64_t row, int64_t sample) {
        const random::PhiloxBlock bits =
            stream.Block(static_cast<uint64_t>(row * samples + sample));
        return random::UnitDouble(bits.words[0], bits.words[1]);
      };
    });
  }
};

class ShuffleKernel : public StreamKernel {
 public:
  using StreamKernel::StreamKernel;
  Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(0);
    const int64_t rows = value.shape().rank() == 0 ? 1 : value.shape()[0];
    if (rows <= 1 || value.elements() == 0) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor memory, c.AllocateTemp(DT_INT64, Shape{rows}));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, value.shape()));
    int64_t* const order = memory.data<int64_t>();
    InPieces(c, rows,
             [&](int64_t begin, int64_t end) { std::iota(order + begin, order + end, begin); });
    if (!(seeded_ ? ShuffleFromFirst(c, rows, order) : ShuffleFromLast(c, rows, order)))
      return Status();
    const size_t bytes = out->bytes() / static_cast<size_t>(rows);
    const char* from = static_cast<const char*>(value.raw());
    char* to = static_cast<char*>(out->raw());
    c.ParallelFor(rows, 5 + static_cast<int64_t>(bytes / 8), [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (bytes > size_t{kPiece} && c.cancelled()) return;
        CopyElements(c, value.dtype(), from + static_cast<size_t>(order[i]) * bytes, to + i * bytes,
                     bytes);
      }
    });
    return Status();
  }

 private:
  // False: the step is aborted.
  bool ShuffleFromLast(const KernelContext& c, int64_t rows, int64_t* order) const {
    const random::RandomStream stream = StreamOfStep(c);
    return InPieces(c, rows, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end && k + 1 < rows; ++k) {
        const auto i = static_cast<size_t>(rows - 1 - k);
        const uint64_t with = random::UniformInt(stream, i, 0, i + 1);
        std::swap(order[i], order[with]);
      }
    });
  }
  // As TensorFlow: a word for each row but the last.
  bool ShuffleFromFirst(const KernelContext& c, int64_t rows, int64_t* order) const {
    random::PhiloxWords words(seeded_.Take((static_cast<uint64_t>(rows) + 2) / 4));
    return InPieces(c, rows - 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::swap(order[i], order[i + static_cast<int64_t>(words.Next()) % (rows - i)]);
    });
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const auto floats = [registry]<typename K>(const char* op) {
    AddForTypes<K>(registry, {.op = op, .host_args = {"shape", "seed"}}, "dtype", kFloatTypes);
  };
  floats.operator()<FunctionKernel<DrawFloats<random::UniformValues>>>("StatelessRandomUniform");
  floats.operator()<FunctionKernel<DrawFloats<random::NormalValues>>>("StatelessRandomNormal");
  floats.operator()<FunctionKernel<DrawFloats<random::TruncatedValues>>>(
      "StatelessTruncatedNormal");
  AddForTypes<FunctionKernel<DrawIntegers>>(
      registry,
      {.op = "StatelessRandomUniformInt", .host_args = {"shape", "seed", "minval", "maxval"}},
      "dtype", kIndexTypes);
  constexpr DType kWhole[] = {DT_INT32, DT_INT64, DT_UINT32, DT_UINT64};
  AddForTypes<FunctionKernel<DrawIntegers>>(
      registry, {.op = "StatelessRandomUniformFullInt", .host_args = {"shape", "seed"}}, "dtype",
      kWhole);
  AddForTypes<FunctionKernel<SampleStateless>>(
      registry, {.op = "StatelessMultinomial", .host_args = {"num_samples", "seed"}}, "T",
      kRealTypes);
  AddForTypes<MultinomialKernel>(registry, {.op = "Multinomial", .host_args = {"num_samples"}}, "T",
                                 kRealTypes);
  AddForCopiedTypes<ShuffleKernel>(registry, {.op = "RandomShuffle"});
}

}  // namespace monograph::ops::stateless_random
