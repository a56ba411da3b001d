// Standing: which modes are the fastest at one number of workers, and whether the repeats tell.
#pragma once

#include <optional>
#include <vector>

#include "tools/compare/report.h"

namespace monograph {

struct Standing {
  int workers = 0;
  std::vector<const Cell*> present;  // modes with a run that went through, the fastest first
  // The fastest and those that are not clearly slower; empty if there is no conclusion.
  std::vector<const Cell*> leaders;
  // kClear: one mode leads. kEqual, kUnclear: several do, and this is what the repeats say of them.
  Conclusion conclusion = Conclusion::kFewRepeats;
  int repeats = 0;             // that went through: of the two modes that share the fewest
  int busy = 0;                // of those, on a busy machine
  std::optional<Ratio> ratio;  // of two modes: the report's first over the other; of more: the
                               // fastest over the next; of one: none
};
// One for each number of workers at which a run went through.
std::vector<Standing> Standings(const CompareReport& report, const std::vector<Cell>& cells);
// The one that the headline speaks of: of those with a conclusion, at 2 workers or else the last.
// nullptr: no run went through.
const Standing* HeadlineStanding(const std::vector<Standing>& standings);

}  // namespace monograph
