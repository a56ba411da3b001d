#include <optional>
#include <string>

#include "executor/kernel.h"

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
    for (int64_t i = 0; i < output->elements(); ++i) {
      std::string& text = output->strings()[i];
      text.clear();
      for (int input = 0; input < c.num_inputs(); ++input) {
        if (input > 0) text += separator_;
        text += c.input(input).strings()[c.input(input).shape().rank() == 0 ? 0 : i];
      }
    }
    return Status();
  }

 private:
  const std::string separator_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<StringJoinKernel>({.op = "StringJoin"});
}

}  // namespace monograph::ops::string
