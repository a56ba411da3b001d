// Updates of variables, for those who compare devices: the inputs of each op by kind.
#pragma once

#include <string>
#include <string_view>

#include "graph/attr.h"

namespace monograph::optest {

struct UpdateCase {
  const char* op;
  const char* inputs;  // in order: v a variable, c a coefficient, g a gradient, i indices

  bool has_rows() const { return std::string_view(inputs).find('i') != std::string_view::npos; }
  // use_nesterov or update_slots.
  const char* flag_name() const {
    const std::string_view name = op;
    if (name.find("Adagrad") != name.npos) return "update_slots";
    if (name.find("Amsgrad") != name.npos) return nullptr;
    return name.find("Momentum") != name.npos || name.find("Adam") != name.npos ? "use_nesterov"
                                                                                : nullptr;
  }
  bool has_flag() const { return flag_name() != nullptr; }
  Attrs AttrsFor(DType dtype, bool flag) const {
    const std::string_view kinds = inputs;
    Attrs attrs = {{kinds == "vg" || kinds == "vig" ? "dtype" : "T", dtype}};
    if (has_rows()) attrs.Set("Tindices", DT_INT64);
    if (has_flag()) attrs.Set(flag_name(), flag);
    return attrs;
  }
};

inline constexpr UpdateCase kUpdateCases[] = {
    {"ResourceApplyGradientDescent", "vcg"},
    {"ResourceApplyMomentum", "vvcgc"},
    {"ResourceApplyKerasMomentum", "vvcgc"},
    {"ResourceApplyAdam", "vvvccccccg"},
    {"ResourceApplyAdamWithAmsgrad", "vvvvccccccg"},
    {"ResourceApplyAdagrad", "vvcg"},
    {"ResourceApplyAdagradV2", "vvccg"},
    {"ResourceApplyRMSProp", "vvvccccg"},
    {"ResourceApplyCenteredRMSProp", "vvvvccccg"},
    {"ResourceSparseApplyMomentum", "vvcgic"},
    {"ResourceSparseApplyKerasMomentum", "vvcgic"},
    {"ResourceSparseApplyAdagrad", "vvcgi"},
    {"ResourceSparseApplyAdagradV2", "vvccgi"},
    {"ResourceSparseApplyRMSProp", "vvvccccgi"},
    {"ResourceSparseApplyCenteredRMSProp", "vvvvccccgi"},
    {"ResourceScatterAdd", "vig"},
    {"ResourceScatterSub", "vig"},
    {"AssignAddVariableOp", "vg"},
    {"AssignSubVariableOp", "vg"},
};

}  // namespace monograph::optest
