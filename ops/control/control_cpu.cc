// CPU kernels: what does nothing or hands its inputs on, Assert and Print, which tell the first
// values of their inputs, what fails where a recursion is too deep, and CheckNumerics, which looks
// through a tensor in pieces that end with the step.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "executor/kernel.h"
#include "graph/structural_ops.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/summary_cpu.h"

namespace monograph::ops::control {
namespace {

class NoOpKernel : public Kernel {
 public:
  explicit NoOpKernel(const KernelConstruction&) {}
  Status Compute(KernelContext&) override { return Status(); }
};

// Every output is the input of the same number, the same memory.
class PassKernel : public Kernel {
 public:
  explicit PassKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.TakeInput(i));
    return Status();
  }
};

class AssertKernel : public Kernel {
 public:
  explicit AssertKernel(const KernelConstruction& k)
      : summarize_(static_cast<int>(k.attr<int64_t>("summarize"))) {}
  Status Compute(KernelContext& c) override {
    if (c.input(0).shape().rank() != 0) {
      return InvalidArgument("the condition must be a scalar, not of shape " +
                             c.input(0).shape().ToString());
    }
    if (c.input(0).scalar<bool>()) return Status();
    std::string message = "assertion failed:";
    for (int i = 1; i < c.num_inputs(); ++i) {
      message += " [" + SummaryOf(c.input(i), summarize_) + "]";
    }
    return InvalidArgument(std::move(message));
  }

 private:
  const int summarize_;
};

class RecursionEndKernel : public Kernel {
 public:
  explicit RecursionEndKernel(const KernelConstruction& k) : text_(k.attr<std::string>("text")) {}
  Status Compute(KernelContext&) override { return ResourceExhausted(text_); }

 private:
  const std::string text_;
};

class PrintKernel : public Kernel {
 public:
  explicit PrintKernel(const KernelConstruction& k)
      : message_(k.attr<std::string>("message")),
        first_(k.attr<int64_t>("first_n")),
        summarize_(k.attr<int64_t>("summarize")) {}
  Status Compute(KernelContext& c) override {
    // Relaxed: only the number matters.
    if (first_ < 0 || printed_.fetch_add(1, std::memory_order_relaxed) < first_) {
      std::string line = message_;
      for (int i = 1; i < c.num_inputs(); ++i)
        line += "[" + SummaryOf(c.input(i), summarize_) + "]";
      std::cerr << line + "\n" << std::flush;
    }
    c.set_output(0, c.TakeInput(0));
    return Status();
  }

 private:
  const std::string message_;
  const int64_t first_, summarize_;
  std::atomic<int64_t> printed_ = 0;
};

class PrintV2Kernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<PrintV2Kernel>();
    kernel->stream_ = k.attr<std::string>("output_stream");
    kernel->end_ = k.attr<std::string>("end");
    const std::string& stream = kernel->stream_;
    const bool log = stream == "log(info)" || stream == "log(warning)" || stream == "log(error)";
    if (stream != "stdout" && stream != "stderr" && !log) {
      return InvalidArgument("output_stream '" + stream +
                             "' is not supported; known are stdout, stderr, log(info), "
                             "log(warning) and log(error)");
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string* text, StringOf(c.input(0), "input"));
    (stream_ == "stdout" ? std::cout : std::cerr) << *text + end_ << std::flush;
    return Status();
  }

 private:
  std::string stream_, end_;
};

class CheckNumericsKernel : public Kernel {
 public:
  explicit CheckNumericsKernel(const KernelConstruction& k)
      : message_(k.attr<std::string>("message")) {}
  Status Compute(KernelContext& c) override {
    bool nan = false, infinite = false;
    switch (c.input(0).dtype()) {
      case DT_FLOAT:
        Look<float>(c, &nan, &infinite);
        break;
      case DT_DOUBLE:
        Look<double>(c, &nan, &infinite);
        break;
      case DT_HALF:
        Look<half>(c, &nan, &infinite);
        break;
      default:
        Look<bfloat16>(c, &nan, &infinite);
        break;
    }
    if (nan || infinite) {
      return InvalidArgument(message_ + " : Tensor had " +
                             (nan && infinite ? "NaN and Inf"
                              : nan           ? "NaN"
                                              : "Inf") +
                             " values");
    }
    c.set_output(0, c.TakeInput(0));
    return Status();
  }

 private:
  template <typename T>
  static void Look(const KernelContext& c, bool* nan, bool* infinite) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    bool any_nan = false, any_infinite = false;
    const T* elements = c.input(0).data<T>();
    InPieces(c, c.input(0).elements(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Wide value = static_cast<Wide>(elements[i]);
        any_nan |= std::isnan(value);
        any_infinite |= std::isinf(value);
      }
    });
    *nan = any_nan;
    *infinite = any_infinite;
  }
  const std::string message_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<NoOpKernel>({.op = "NoOp", .cost = KernelCost::kCheap});
  registry->Add<AssertKernel>({.op = "Assert", .cost = KernelCost::kCheap});
  registry->Add<RecursionEndKernel>(
      {.op = std::string(kRecursionEndOp), .cost = KernelCost::kCheap});
  registry->Add<PrintKernel>({.op = "Print"});
  registry->Add<PrintV2Kernel>({.op = "PrintV2"});
  for (const char* name : {"Identity", "IdentityN", "StopGradient", "PreventGradient"}) {
    registry->Add<PassKernel>({.op = name, .cost = KernelCost::kCheap});
  }
  constexpr DType kFloats[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};
  AddForTypes<CheckNumericsKernel>(registry, {.op = "CheckNumerics"}, "T", kFloats);
}

}  // namespace monograph::ops::control
