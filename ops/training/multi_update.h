// _MultiResourceApply: several updates of one kind with the same coefficients, as one node.
// GroupUpdates makes it, so that a GPU runs the updates of all its variables in one launch.
//
//   variables     V handles: of each update the variable and its slots, as its own op has them
//   coefficients  C scalars, in the order of that op's inputs
//   gradients     N, of the type of the variables; half and bfloat16, too, if that is float
//   update        the op that it stands for; `flag`: that op's use_nesterov or update_slots
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernel.h"
#include "ops/training/formulas.h"

namespace monograph::ops::training {

// Where the node's inputs are.
struct MultiInputs {
  explicit MultiInputs(const KernelConstruction& k)
      : updates(static_cast<int>(k.attr<int64_t>("N"))),
        gradient(static_cast<int>(k.attr<int64_t>("V") + k.attr<int64_t>("C"))),
        flag(k.attr<bool>("flag")) {
    for (int i = static_cast<int>(k.attr<int64_t>("V")); i < gradient; ++i)
      coefficients.push_back(i);
  }
  int updates;
  std::vector<int> coefficients;
  int gradient;  // the first
  bool flag;
};

inline bool Is16Bit(DType dtype) { return dtype == DT_HALF || dtype == DT_BFLOAT16; }

// The kernel that make.operator()<Formula>() makes for the node's update; InvalidArgument if counts
// or types do not fit it.
template <typename Make>
Result<std::unique_ptr<Kernel>> MakeMultiUpdate(const KernelConstruction& k, const Make& make) {
  const std::string& update = k.attr<std::string>("update");
  const DType dtype = k.attr<DType>("T");
  Status unfit;
  std::unique_ptr<Kernel> kernel;
  ForEachUpdate([&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
                    const char* name, std::initializer_list<const char*>) {
    if (update != name) return;
    constexpr int kCoefficients = FormulaOf<float>::kCoefficients;
    const auto updates = static_cast<int64_t>(k.attr<std::vector<DType>>("G").size());
    if (k.attr<int64_t>("N") != updates || k.attr<int64_t>("V") != updates * kInputs.variables ||
        k.attr<int64_t>("C") != kCoefficients) {
      unfit.Update(InvalidArgument(update + " updates " + std::to_string(kInputs.variables) +
                                   " variables with " + std::to_string(kCoefficients) +
                                   " coefficients and a gradient each"));
      return;
    }
    kernel = make.template operator()<FormulaOf>();
  });
  for (DType gradient : k.attr<std::vector<DType>>("G")) {
    if (gradient != dtype && !(dtype == DT_FLOAT && Is16Bit(gradient))) {
      unfit.Update(InvalidArgument("a gradient of " + std::string(DTypeName(gradient)) +
                                   " does not fit variables of " + std::string(DTypeName(dtype))));
    }
  }
  MG_RETURN_IF_ERROR(unfit);
  if (!kernel) return InvalidArgument("no update of many variables is called '" + update + "'");
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));  // nvcc would copy it
}

}  // namespace monograph::ops::training
