#include "ops/string/string_cpu.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "executor/kernel.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/string/regex_cpu.h"

namespace monograph::ops::string {
namespace {

class StringJoinKernel : public Kernel {
 public:
  explicit StringJoinKernel(const KernelConstruction& c)
      : separator_(c.attr<std::string>("separator")) {}

  Status Compute(KernelContext& c) override {
    std::optional<Shape> shape;
    for (const Tensor& input : c.inputs()) {
      if (input.shape().rank() == 0) continue;
      if (shape && *shape != input.shape()) {
        return InvalidArgument("Input shapes do not match: " + shape->ToString() + " and " +
                               input.shape().ToString());
      }
      shape = input.shape();
    }
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape.value_or(Shape())));
    Looks looks(c);
    for (int64_t i = 0; i < output->elements(); ++i) {
      std::string& text = output->strings()[i];
      for (int input = 0; input < c.num_inputs(); ++input) {
        const Tensor& from = c.input(input);
        if (input > 0 && !AppendText(&looks, separator_, &text)) return Status();
        if (!AppendText(&looks, from.strings()[from.shape().rank() == 0 ? 0 : i], &text))
          return Status();
      }
    }
    return Status();
  }

 private:
  const std::string separator_;
};

Status Match(const Regex& regex, KernelContext& c) {
  const Tensor& input = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  bool* const matches = output->data<bool>();
  c.ParallelFor(input.elements(), 1000, [&](int64_t begin, int64_t end) {
    Looks looks(c);
    const auto go_on = [&c] { return !c.cancelled(); };
    for (int64_t i = begin; i < end && looks.GoOn(input.strings()[i]); ++i)
      matches[i] = regex.FullMatch(input.strings()[i], go_on);
  });
  return Status();
}

class StaticRegexFullMatchKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    MG_ASSIGN_OR_RETURN(Regex regex, Regex::Parse(c.attr<std::string>("pattern")));
    return std::unique_ptr<Kernel>(new StaticRegexFullMatchKernel(std::move(regex)));
  }

  Status Compute(KernelContext& c) override { return Match(regex_, c); }

 private:
  explicit StaticRegexFullMatchKernel(Regex regex) : regex_(std::move(regex)) {}

  const Regex regex_;
};

class RegexFullMatchKernel : public Kernel {
 public:
  explicit RegexFullMatchKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor& pattern = c.input(1);
    if (pattern.shape().rank() != 0) {
      return InvalidArgument("the pattern has shape " + pattern.shape().ToString() +
                             "; it must be a scalar");
    }
    MG_ASSIGN_OR_RETURN(const Regex regex, Regex::Parse(pattern.strings()[0]));
    return Match(regex, c);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<StringJoinKernel>({.op = "StringJoin"});
  registry->Add<StaticRegexFullMatchKernel>({.op = "StaticRegexFullMatch"});
  registry->Add<RegexFullMatchKernel>({.op = "RegexFullMatch"});
  RegisterHashes(registry);
  RegisterReplacements(registry);
}

}  // namespace monograph::ops::string
