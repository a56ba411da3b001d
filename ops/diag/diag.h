// Diagonals of matrices, which are the last two dimensions of a tensor: taken, made, and replaced;
// and of whole tensors (Diag, DiagPart).
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// `k` is an int32 scalar, the diagonal, or a vector of the lowest and the highest of a band: 0 is
// the main one, above it they count up, below it down. A band is [..., diagonals, longest], the
// highest first. `align` says at which end shorter diagonals stand, those above the main one and
// those below: "LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT" or "RIGHT_RIGHT".
Output MatrixDiagPart(const Scope& scope, Output input, Output k, Output padding_value,
                      const std::string& align = "RIGHT_LEFT");
// A matrix with these diagonals, and padding_value elsewhere. num_rows and num_cols are int32
// scalars; -1: as few as there must be, or a square if both are.
Output MatrixDiag(const Scope& scope, Output diagonal, Output k, Output num_rows, Output num_cols,
                  Output padding_value, const std::string& align = "RIGHT_LEFT");
// `input` with these diagonals in place of its own.
Output MatrixSetDiag(const Scope& scope, Output input, Output diagonal, Output k,
                     const std::string& align = "RIGHT_LEFT");
// What lies at most num_lower below and num_upper above the main diagonal, else 0; negative: all.
Output MatrixBandPart(const Scope& scope, Output input, Output num_lower, Output num_upper);
// A tensor of twice the rank with the elements of `diagonal` on its diagonal, zeros elsewhere; and
// back.
Output Diag(const Scope& scope, const Output& diagonal);
Output DiagPart(const Scope& scope, const Output& input);

}  // namespace monograph
