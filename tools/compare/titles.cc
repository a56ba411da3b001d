// The sentences of one number of workers: the titles of the page's charts. Each lists the figure of
// every mode that ran; of many modes it names the lowest and the highest.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/compare/sentences.h"
#include "tools/compare/words.h"

namespace monograph {
namespace {

// More modes than this are not listed: a title names the lowest and the highest.
constexpr size_t kListed = 3;

using Values = std::vector<std::pair<std::string, double>>;  // title of a mode, figure

// "1 ms in-graph and 2 ms between-graph", of many "from 1 ms hybrid to 3 ms in-graph".
std::string Figures(Values values, const std::function<std::string(double)>& text) {
  const auto part = [&](const auto& value) {
    return text(value.second) + " " + InSentence(value.first);
  };
  if (values.size() == 1) return text(values[0].second);
  if (values.size() > kListed) {
    const auto [low, high] =
        std::minmax_element(values.begin(), values.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    return "from " + part(*low) + " to " + part(*high);
  }
  std::vector<std::string> parts;
  for (const auto& value : values) parts.push_back(part(value));
  return Listed(parts);
}

std::vector<const Cell*> Present(const std::vector<Cell>& cells, int workers) {
  std::vector<const Cell*> present;
  for (const Cell& cell : cells) {
    if (cell.workers == workers && !cell.runs.empty()) present.push_back(&cell);
  }
  return present;
}

Values Of(const std::vector<const Cell*>& cells, const std::function<double(const Cell&)>& figure) {
  Values values;
  for (const Cell* cell : cells) values.push_back({cell->mode->title, figure(*cell)});
  return values;
}

// Two modes are shown over all numbers of workers, more of them at one.
std::vector<Ratio> RatiosShown(const CompareReport& report, const std::vector<Cell>& cells,
                               int workers) {
  std::vector<Ratio> ratios = Ratios(report, cells);
  if (report.modes.size() > 2)
    std::erase_if(ratios, [&](const Ratio& ratio) { return ratio.workers != workers; });
  return ratios;
}

std::string RatiosTitle(const std::vector<Ratio>& ratios) {
  if (ratios.empty()) return "Nothing to compare with";
  const auto count = [&](auto condition) {
    return std::count_if(ratios.begin(), ratios.end(), condition);
  };
  const auto all = static_cast<std::ptrdiff_t>(ratios.size());
  const auto clear =
      count([](const Ratio& ratio) { return ratio.conclusion == Conclusion::kClear; });
  const auto none = count([](const Ratio& ratio) { return !Concludes(ratio.conclusion); });
  if (none == all) return "No conclusion: " + RatioText(ratios.back());
  std::string text;
  if (clear == all) {
    text = all == 1 ? "The difference is larger than the spread"
                    : "Every difference is larger than the spread";
  } else if (clear == 0) {
    text = "No difference is larger than the spread";
  } else {
    text = std::to_string(clear) + " of " + std::to_string(all) + " differences " +
           (clear == 1 ? "is" : "are") + " larger than the spread";
  }
  if (none > 0) text += "; no conclusion for " + std::to_string(none);
  return text;
}

std::string RatiosNote(const CompareReport& report, const std::vector<Ratio>& ratios, int workers) {
  if (ratios.empty()) return "";
  const auto any = [&](auto condition) {
    return std::any_of(ratios.begin(), ratios.end(), condition);
  };
  std::string text =
      "Images per second of " + ModeInSentence(report, report.modes[0].name) + " over " +
      (report.modes.size() == 2 ? ModeInSentence(report, report.modes[1].name)
                                : "each other mode at " + Plural(workers, "worker")) +
      ", repeat by repeat.";
  if (any([](const Ratio& ratio) {
        return ratio.conclusion == Conclusion::kEqual || ratio.conclusion == Conclusion::kUnclear;
      }))
    text += " ±: not beyond the spread.";
  if (any([](const Ratio& ratio) { return !Concludes(ratio.conclusion); }))
    text += " ?: no conclusion.";
  return text;
}

std::string CpuTitle(const std::vector<const Cell*>& cells) {
  const auto cpu = [](const Cell* cell) { return cell->client_cpu_us.median; };
  if (cells.size() == 1) return "The client uses " + Micros(cpu(cells[0])) + " CPU per step";
  const auto [low, high] = std::minmax_element(
      cells.begin(), cells.end(), [&](const Cell* a, const Cell* b) { return cpu(a) < cpu(b); });
  return (*low)->mode->title + " needs " + Micros(cpu(*low)) + " client CPU per step, " +
         InSentence((*high)->mode->title) + " " + Micros(cpu(*high));
}

std::string PathTitle(const std::vector<Cell>& all, std::vector<const Cell*> cells, int workers) {
  const int repeat = PathRepeat(all, workers);
  std::erase_if(cells, [&](const Cell* cell) { return PathOf(*cell, repeat) == nullptr; });
  if (cells.empty()) return "No run traced a step";
  const Values shares = Of(cells, [&](const Cell& cell) {
    const CriticalPath& path = *PathOf(cell, repeat);
    return path.total_us > 0 ? path.compute_us / path.total_us : 0;
  });
  return "Of the path in repeat " + std::to_string(repeat) + ", computing makes up " +
         Figures(shares, Percent);
}

using Curve = std::vector<RunResult::Progress>;

bool Coincide(const std::vector<const Cell*>& cells) {
  const Curve& first = cells[0]->figures[0].loss;
  for (const Cell* cell : cells) {
    for (const RunFigures& figures : cell->figures) {
      if (figures.loss.size() != first.size()) return false;
      for (size_t i = 0; i < first.size(); ++i) {
        if (!(std::abs(figures.loss[i].loss - first[i].loss) < 5e-4)) return false;
      }
    }
  }
  return true;
}

std::string LossTitle(std::vector<const Cell*> cells) {
  std::erase_if(cells, [](const Cell* cell) { return cell->figures[0].loss.empty(); });
  if (cells.empty()) return "No run displayed a loss";
  const auto loss = [](double value) {
    return std::isfinite(value) ? Fixed(value, 3) : "not a number";
  };
  const RunResult::Progress& last = cells[0]->figures[0].loss.back();
  const std::string after = Plural(static_cast<int>(last.step), "step");
  if (cells.size() > 1 && Coincide(cells))
    return "One curve: every mode ends at loss " + loss(last.loss) + " after " + after;
  return "After " + after + (cells.size() > kListed ? " the loss goes " : " the loss is ") +
         Figures(Of(cells, [](const Cell& cell) { return cell.figures[0].loss.back().loss; }),
                 loss);
}

std::pair<std::string, std::string> Verdict(const CompareReport& report, int workers) {
  for (const Equality& equality : Equalities(report)) {
    if (equality.workers != workers) continue;
    if (equality.runs < 2) return {"Not compared", "one run only"};
    if (equality.equal())
      return {"Bit-equal", std::to_string(equality.runs) + " synchronous runs at " +
                               Plural(workers, "worker") + " ended with the same bits"};
    const std::vector<std::string>& differ = equality.differ;
    const std::vector<std::string> first(
        differ.begin(), differ.begin() + std::min<std::ptrdiff_t>(3, std::ssize(differ)));
    return {"They differ",
            Plural(static_cast<int>(equality.digests.size()), "set") + " of weights in " +
                Plural(equality.runs, "run") +
                (first.empty() ? ""
                               : "; variables that differ: " + Listed(first) +
                                     (differ.size() > first.size() ? " and others" : ""))};
  }
  return {"Not compared", "no run reported its weights"};
}

}  // namespace

std::string RatioText(const Ratio& ratio) {
  const std::string least = std::to_string(kMinRepeats);
  switch (ratio.conclusion) {
    case Conclusion::kClear:
      return "every repeat lies on the same side of 1";
    case Conclusion::kEqual:
      return "every repeat lies within " + Percent(kEqualWithin) + " of 1";
    case Conclusion::kUnclear:
      return "the spread is larger than the difference";
    case Conclusion::kFewRepeats:
      return "fewer than " + least + " repeats";
    case Conclusion::kBusy:
      return "fewer than " + least + " repeats on a machine that was not busy";
  }
  return "";
}

WorkersSentences SentencesAt(const CompareReport& report, const std::vector<Cell>& cells,
                             int workers) {
  const std::vector<const Cell*> present = Present(cells, workers);
  const std::vector<Ratio> ratios = RatiosShown(report, cells, workers);
  const auto [verdict, verdict_note] = Verdict(report, workers);
  WorkersSentences sentences{.ratios = RatiosTitle(ratios),
                             .ratios_note = RatiosNote(report, ratios, workers),
                             .verdict = verdict,
                             .verdict_note = verdict_note};
  if (present.empty()) return sentences;
  const bool many = present.size() > kListed;
  sentences.steps =
      (many ? "Median steps take " : "Half of the steps end within ") +
      Figures(Of(present, [](const Cell& cell) { return cell.step_p50_us.median; }), Micros);
  sentences.cpu = CpuTitle(present);
  sentences.bytes = "A step moves " + Figures(Of(present, BytesPerStep), ByteSize);
  sentences.path = PathTitle(cells, present, workers);
  sentences.loss = LossTitle(present);
  sentences.loss_note =
      "Mean over the global batch at each progress line" +
      std::string(present.size() > 1 ? "; curves that coincide show through each other." : ".");
  return sentences;
}

}  // namespace monograph
