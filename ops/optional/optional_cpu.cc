#include <algorithm>
#include <string>
#include <vector>

#include "executor/kernel.h"
#include "ops/cpu/tensor_util_cpu.h"

namespace monograph::ops::optional {
namespace {

// Some tensors, or none.
class Optional : public VariantValue {
 public:
  explicit Optional(std::vector<Tensor> components, int nesting = 1)
      : components_(std::move(components)), nesting_(nesting) {}
  const std::vector<Tensor>& components() const { return components_; }

  std::string_view type_name() const override { return "tensorflow::data::Optional"; }
  int nesting() const override { return nesting_; }
  bool holds_handles() const override {
    return std::any_of(components_.begin(), components_.end(), HoldsHandles);
  }
  Result<Variant> ZerosLike(const OfTensor& of) const override {
    std::vector<Tensor> zeros = components_;
    for (Tensor& component : zeros) {
      MG_ASSIGN_OR_RETURN(component, of(component));
    }
    return Variant(std::make_shared<Optional>(std::move(zeros), nesting_));
  }
  Result<Variant> Add(const VariantValue& other, const OfTwo& sum) const override {
    const auto* const optional = dynamic_cast<const Optional*>(&other);
    if (optional == nullptr || optional->components_.size() != components_.size()) {
      return InvalidArgument(
          "Cannot add optional values when one has a value and the other does not, or when they "
          "have different numbers of components.");
    }
    std::vector<Tensor> sums = components_;
    for (size_t i = 0; i < sums.size(); ++i) {
      MG_ASSIGN_OR_RETURN(sums[i], sum(components_[i], optional->components_[i]));
    }
    return Variant(
        std::make_shared<Optional>(std::move(sums), std::max(nesting_, optional->nesting_)));
  }

 private:
  const std::vector<Tensor> components_;
  const int nesting_;
};

Status SetOptional(KernelContext& c, Variant value) {
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
  *out->variants() = std::move(value);
  return Status();
}

Result<std::shared_ptr<Optional>> FindOptional(const KernelContext& c) {
  const Tensor& input = c.input(0);
  auto found =
      input.shape().rank() == 0 ? std::dynamic_pointer_cast<Optional>(*input.variants()) : nullptr;
  if (found != nullptr) return found;
  return InvalidArgument("input must be a scalar optional, not " + input.ToString(1));
}

class FromValueKernel : public Kernel {
 public:
  explicit FromValueKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    int nesting = 1;
    for (const Tensor& component : c.inputs()) {
      MG_ASSIGN_OR_RETURN(const int around, VariantValue::NestingAround(component));
      nesting = std::max(nesting, around);
    }
    const auto inputs = c.inputs();
    return SetOptional(
        c, std::make_shared<Optional>(std::vector<Tensor>(inputs.begin(), inputs.end()), nesting));
  }
};

class NoneKernel : public Kernel {
 public:
  explicit NoneKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    return SetOptional(c, std::make_shared<Optional>(std::vector<Tensor>()));
  }
};

class HasValueKernel : public Kernel {
 public:
  explicit HasValueKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Optional> optional, FindOptional(c));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    *out->data<bool>() = !optional->components().empty();
    return Status();
  }
};

class GetValueKernel : public Kernel {
 public:
  explicit GetValueKernel(const KernelConstruction& k)
      : types_(k.attr<std::vector<DType>>("output_types")),
        shapes_(k.attr<std::vector<PartialShape>>("output_shapes")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Optional> optional, FindOptional(c));
    const std::vector<Tensor>& components = optional->components();
    if (components.empty()) return InvalidArgument("The given optional does not have a value.");
    if (components.size() != types_.size()) {
      return InvalidArgument("The given optional has " + std::to_string(components.size()) +
                             " components, expected " + std::to_string(types_.size()) + ".");
    }
    for (size_t i = 0; i < types_.size(); ++i) {
      const std::string which = "The given optional does not match the expected ",
                        at = " for component " + std::to_string(i);
      if (components[i].dtype() != types_[i]) {
        return InvalidArgument(which + "type" + at +
                               ". Expected: " + std::string(DTypeName(types_[i])) +
                               ". Actual: " + std::string(DTypeName(components[i].dtype())) + ".");
      }
      if (!shapes_[i].Accepts(components[i].shape())) {
        return InvalidArgument(which + "shape" + at + ". Expected: " + shapes_[i].ToString() +
                               ". Actual: " + components[i].shape().ToString() + ".");
      }
      c.set_output(static_cast<int>(i), components[i]);
    }
    return Status();
  }

 private:
  const std::vector<DType> types_;
  const std::vector<PartialShape> shapes_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<FromValueKernel>({.op = "OptionalFromValue", .cost = KernelCost::kCheap});
  registry->Add<NoneKernel>({.op = "OptionalNone", .cost = KernelCost::kCheap});
  registry->Add<HasValueKernel>({.op = "OptionalHasValue", .cost = KernelCost::kCheap});
  registry->Add<GetValueKernel>({.op = "OptionalGetValue", .cost = KernelCost::kCheap});
}

}  // namespace monograph::ops::optional
