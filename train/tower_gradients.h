// For users who write the loop over devices themselves: one list of gradients per tower becomes one
// list, applied once.
//
//   std::vector<std::vector<GradientAndVariable>> towers;
//   for (each device) {
//     const Scope tower = root.SubScope("tower_" + std::to_string(i)).WithDevice(device);
//     towers.push_back(ComputeGradients(tower, Loss(tower, ...), variables).value());
//   }
//   Operation train = Adam(1e-4).ApplyGradients(root, AverageGradients(root, towers).value(),
//   &init);
#pragma once

#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

// The mean of each variable's gradients over the towers, summed in the order of towers beside the
// variable. Every tower lists the same variables in the same order. A gradient that is sparse in
// every tower stays sparse: rows of all towers. A tower whose loss does not depend on a variable
// counts as zeros; where no tower has a gradient, the pair has none.
Result<std::vector<GradientAndVariable>> AverageGradients(
    const Scope& scope, const std::vector<std::vector<GradientAndVariable>>& towers);

}  // namespace monograph
