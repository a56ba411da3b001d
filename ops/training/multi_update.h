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
#include <type_traits>
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

// The kernel that MakerOf<T, Formula>::Make makes for the node's update; InvalidArgument if counts
// or types do not fit it.
template <typename T, template <typename, template <typename> typename> typename MakerOf>
Result<std::unique_ptr<Kernel>> MakeMultiUpdate(const KernelConstruction& k) {
  const std::string& update = k.attr<std::string>("update");
  Status unfit;
  std::unique_ptr<Kernel> kernel;
  ForEachUpdate([&]<template <typename> typename FormulaOf, const UpdateInputs&>(
                    const char* name, std::initializer_list<const char*>) {
    if (update != name) return;
    using Formula = FormulaOf<Accumulator<T>>;
    if (k.attr<int64_t>("V") != k.attr<int64_t>("N") * Formula::kVariables ||
        k.attr<int64_t>("C") != Formula::kCoefficients) {
      unfit.Update(InvalidArgument(update + " updates " + std::to_string(Formula::kVariables) +
                                   " variables with " + std::to_string(Formula::kCoefficients) +
                                   " coefficients and a gradient each"));
      return;
    }
    kernel = MakerOf<T, FormulaOf>::Make(k);
  });
  for (DType gradient : k.attr<std::vector<DType>>("G")) {
    if (gradient != kDTypeOf<T> && !(std::is_same_v<T, float> && Is16Bit(gradient))) {
      unfit.Update(InvalidArgument("a gradient of " + std::string(DTypeName(gradient)) +
                                   " does not fit variables of " +
                                   std::string(DTypeName(kDTypeOf<T>))));
    }
  }
  MG_RETURN_IF_ERROR(unfit);
  if (!kernel) return InvalidArgument("no update of many variables is called '" + update + "'");
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));  // nvcc would copy it
}

}  // namespace monograph::ops::training
