#include "tools/compare/standing.h"

#include <algorithm>
#include <tuple>

namespace monograph {
namespace {

// Of one mode alone: enough repeats tell its figure.
void JudgeAlone(Standing* standing) {
  for (const ComparedRun* run : standing->present[0]->runs) {
    ++standing->repeats;
    if (run->busy()) ++standing->busy;
  }
  if (standing->repeats - standing->busy >= kMinRepeats) {
    standing->conclusion = Conclusion::kClear;
    standing->leaders = standing->present;
  } else if (standing->repeats >= kMinRepeats) {
    standing->conclusion = Conclusion::kBusy;
  }
}

// The fastest by median against each other mode.
void Judge(const CompareReport& report, Standing* standing) {
  const std::vector<const Cell*>& present = standing->present;
  std::vector<Ratio> against;
  for (size_t i = 1; i < present.size(); ++i) against.push_back(RatioOf(*present[0], *present[i]));
  const auto few = std::min_element(
      against.begin(), against.end(),
      [](const auto& a, const auto& b) { return a.repeats - a.busy < b.repeats - b.busy; });
  standing->repeats = few->repeats;
  standing->busy = few->busy;
  standing->ratio = against[0];
  if (present.size() == 2 && present[0]->mode->name != report.modes[0].name)
    standing->ratio = RatioOf(*present[1], *present[0]);
  standing->conclusion = few->conclusion;
  if (!Concludes(few->conclusion)) return;

  standing->leaders = {present[0]};
  standing->conclusion = Conclusion::kClear;
  for (size_t i = 1; i < present.size(); ++i) {
    const Ratio& ratio = against[i - 1];
    if (ratio.conclusion == Conclusion::kClear && ratio.ratio.low > 1) continue;
    standing->leaders.push_back(present[i]);
    if (ratio.conclusion != Conclusion::kEqual) standing->conclusion = Conclusion::kUnclear;
    if (standing->conclusion == Conclusion::kClear) standing->conclusion = Conclusion::kEqual;
  }
}

}  // namespace

std::vector<Standing> Standings(const CompareReport& report, const std::vector<Cell>& cells) {
  std::vector<Standing> standings;
  for (const int workers : report.workers) {
    Standing standing{.workers = workers};
    for (const Cell& cell : cells) {
      if (cell.workers == workers && !cell.runs.empty()) standing.present.push_back(&cell);
    }
    if (standing.present.empty()) continue;
    std::stable_sort(standing.present.begin(), standing.present.end(),
                     [](const Cell* a, const Cell* b) {
                       return a->images_per_second.median > b->images_per_second.median;
                     });
    if (standing.present.size() == 1) {
      JudgeAlone(&standing);
    } else {
      Judge(report, &standing);
    }
    standings.push_back(std::move(standing));
  }
  return standings;
}

const Standing* HeadlineStanding(const std::vector<Standing>& standings) {
  const auto rank = [](const Standing& standing) {
    return std::tuple(standing.present.size() > 1 && Concludes(standing.conclusion),
                      Concludes(standing.conclusion), standing.workers == 2);
  };
  const Standing* best = nullptr;
  for (const Standing& standing : standings) {
    if (best == nullptr || rank(standing) >= rank(*best)) best = &standing;
  }
  return best;
}

}  // namespace monograph
