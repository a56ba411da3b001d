#include "train/clip.h"

#include <limits>

#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/select/select.h"

namespace monograph {
namespace {

bool CheckPositive(const Scope& scope, const char* function, double clip_norm) {
  if (!(clip_norm > 0)) {
    scope.Fail(InvalidArgument(std::string(function) + ": clip_norm must be positive, got " +
                               std::to_string(clip_norm)));
  }
  return scope.ok();
}

// clip_norm / max(norm, clip_norm) as TensorFlow computes it; NaN for a norm that is not finite.
Output GlobalScale(const Scope& scope, const Output& norm, double clip_norm) {
  const DType t = norm.dtype();
  const Output one = ScalarConst(scope, 1, t);
  const Output inverse =
      Minimum(scope, RealDiv(scope, one, norm), ScalarConst(scope, 1 / clip_norm, t));
  const Output scale = Mul(scope, ScalarConst(scope, clip_norm, t), inverse);
  return Select(scope, IsFinite(scope, norm), scale,
                ScalarConst(scope, std::numeric_limits<double>::quiet_NaN(), t));
}

}  // namespace

Output ClipByValue(const Scope& scope, const Output& t, double low, double high) {
  if (!scope.ok() || !t.valid()) return {};
  if (!(low <= high)) {
    scope.Fail(InvalidArgument("ClipByValue: " + std::to_string(low) + " to " +
                               std::to_string(high) + " is no range"));
    return {};
  }
  const Scope s = scope.SubScope("clip_by_value").ColocateWith(t);
  return Maximum(s, Minimum(s.WithOpName("Minimum"), t, ScalarConst(s, high, t.dtype())),
                 ScalarConst(s, low, t.dtype()));
}

Output ClipByNorm(const Scope& scope, const Output& t, double clip_norm,
                  std::span<const int64_t> axes) {
  if (!scope.ok() || !t.valid() || !CheckPositive(scope, "ClipByNorm", clip_norm)) return {};
  const Scope s = scope.SubScope("clip_by_norm").ColocateWith(t);
  const Output limit = ScalarConst(s, clip_norm, t.dtype());
  const Output sum = Sum(s, Square(s, t), axes.empty() ? AllAxes(s, t) : IntsConst(s, axes), true);
  // The square root has no gradient at 0, so 0 does not pass through it.
  const Output positive = Greater(s, sum, ScalarConst(s, 0, t.dtype()));
  const Output norm = Select(s, positive, Sqrt(s, Select(s, positive, sum, OnesLike(s, sum))), sum);
  return RealDiv(s, Mul(s, t, limit), Maximum(s, norm, limit));
}

Output GlobalNorm(const Scope& scope, std::span<const Output> tensors) {
  const Scope s = scope.SubScope("global_norm");
  Outputs halves;  // half of each squared norm (L2Loss)
  for (const Output& tensor : tensors) {
    if (scope.ok() && tensor.valid()) halves.push_back(L2Loss(s.ColocateWith(tensor), tensor));
  }
  if (scope.ok() && halves.empty()) scope.Fail(InvalidArgument("GlobalNorm: no tensors"));
  if (!scope.ok()) return {};
  const Scope together = s.ColocateWith(halves[0]);
  const Output half = halves.size() == 1 ? halves[0] : ReduceSum(together, Pack(together, halves));
  return Sqrt(together, Mul(together, half, ScalarConst(together, 2, half.dtype())));
}

ClippedByGlobalNorm ClipByGlobalNorm(const Scope& scope, std::span<const Output> tensors,
                                     double clip_norm) {
  ClippedByGlobalNorm result;
  if (!scope.ok() || !CheckPositive(scope, "ClipByGlobalNorm", clip_norm)) return result;
  const Scope s = scope.SubScope("clip_by_global_norm");
  result.norm = GlobalNorm(s, tensors);
  if (!scope.ok()) return result;
  const Output scale = GlobalScale(s.ColocateWith(result.norm), result.norm, clip_norm);
  for (const Output& tensor : tensors) {
    result.tensors.push_back(
        scope.ok() && tensor.valid() ? Mul(s.ColocateWith(tensor), tensor, scale) : Output());
  }
  return result;
}

ClippedGradients ClipByGlobalNorm(const Scope& scope, std::span<const GradientAndVariable> pairs,
                                  double clip_norm) {
  Outputs gradients;
  for (const GradientAndVariable& pair : pairs) gradients.push_back(pair.gradient);
  const ClippedByGlobalNorm clipped = ClipByGlobalNorm(scope, gradients, clip_norm);
  ClippedGradients result{{pairs.begin(), pairs.end()}, clipped.norm};
  for (size_t i = 0; i < clipped.tensors.size(); ++i) result.pairs[i].gradient = clipped.tensors[i];
  return result;
}

Regularizer L2Regularizer(double scale) {
  return [scale](const Scope& scope, const Output& weights) {
    const Scope s = scope.SubScope("l2_regularizer");
    const Output loss = L2Loss(s, weights);
    return loss.valid() ? Mul(s, loss, ScalarConst(s, scale, loss.dtype())) : Output();
  };
}

Regularizer L1Regularizer(double scale) {
  return [scale](const Scope& scope, const Output& weights) {
    const Scope s = scope.SubScope("l1_regularizer");
    const Output sum = ReduceSum(s, Abs(s, weights));
    return sum.valid() ? Mul(s, sum, ScalarConst(s, scale, sum.dtype())) : Output();
  };
}

Output ApplyRegularization(const Scope& scope, const Regularizer& regularizer,
                           std::span<const ModelVariable> variables) {
  Outputs penalties;
  for (const ModelVariable& variable : variables) {
    if (!scope.ok()) return {};
    penalties.push_back(regularizer(scope.ColocateWith(variable.handle), variable.value));
  }
  if (scope.ok() && penalties.empty())
    scope.Fail(InvalidArgument("ApplyRegularization: no variables"));
  if (!scope.ok()) return {};
  return penalties.size() == 1 ? penalties[0] : AddN(scope, penalties);
}

}  // namespace monograph
