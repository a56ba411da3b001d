// The sentences that speak of the whole report: headline, certainty, throughput, weights, load.
//
// Each is made from the standings (who leads at one number of workers, if the repeats tell), so
// that headline and throughput cannot disagree.
#include "tools/compare/sentences.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/compare/standing.h"
#include "tools/compare/words.h"

namespace monograph {
namespace {

std::string WorkersText(int workers) { return Plural(workers, "worker"); }

// "1 worker", "2 and 4 workers".
std::string WorkersText(const std::vector<int>& workers) {
  if (workers.size() == 1) return WorkersText(workers[0]);
  std::vector<std::string> words;
  for (const int count : workers) words.push_back(std::to_string(count));
  return Listed(words) + " workers";
}

std::string Names(const std::vector<const Cell*>& cells, bool in_sentence) {
  std::vector<std::string> names;
  for (const Cell* cell : cells)
    names.push_back(in_sentence || !names.empty() ? InSentence(cell->mode->title)
                                                  : cell->mode->title);
  return Listed(names);
}

std::string Range(const Spread& spread) {
  return Fixed(spread.low, 2) + " to " + Fixed(spread.high, 2);
}

std::string RepeatsNeeded() { return "at least " + std::to_string(kMinRepeats) + " are needed"; }

// ---- headline

std::string NoConclusion(const Standing& standing) {
  if (standing.conclusion == Conclusion::kBusy)
    return "No conclusion: other work kept the machine busy";
  if (standing.repeats == 0) return "No conclusion: the modes have no repeat in common";
  return "No conclusion from " + Plural(standing.repeats, "repeat") + ": " + RepeatsNeeded();
}

std::string Headline(const Standing* standing) {
  if (standing == nullptr) return "No run went through";
  if (!Concludes(standing->conclusion)) return NoConclusion(*standing);
  const std::string where = " at " + WorkersText(standing->workers);
  const std::vector<const Cell*>&present = standing->present, &leaders = standing->leaders;
  if (present.size() == 1)
    return present[0]->mode->title + " trains " + Digits(present[0]->images_per_second.median) +
           " images/sec" + where;
  if (present.size() > 2) {
    const std::string of = " of " + std::to_string(present.size()) + " modes" + where;
    if (leaders.size() == 1) return Names(leaders, false) + " is the fastest" + of;
    if (leaders.size() > 3) return "No single mode is the fastest" + of;
    return Names(leaders, false) + " are the fastest" + of;
  }
  const Ratio& ratio = *standing->ratio;
  // The report's order, not that of speed: the ratio is of the first over the other.
  const bool swapped = present[0]->mode->name != ratio.baseline;
  const std::string first = present[swapped ? 1 : 0]->mode->title,
                    other = InSentence(present[swapped ? 0 : 1]->mode->title);
  switch (standing->conclusion) {
    case Conclusion::kClear:
      return first + " is " + Fixed(ratio.ratio.median, 2) + " times as fast as " + other + where;
    case Conclusion::kEqual:
      return first + " and " + other + " are equally fast" + where;
    default:
      return "Neither " + InSentence(first) + " nor " + other + " is clearly faster" + where;
  }
}

// ---- certainty

std::string WhatIsMissing(const CompareReport& report, const Standing& standing) {
  const std::string at = " at " + WorkersText(standing.workers);
  if (standing.conclusion == Conclusion::kBusy)
    return "A conclusion needs " + Plural(kMinRepeats, "repeat") +
           " on a machine that is not busy; of " + std::to_string(standing.repeats) + at + ", " +
           std::to_string(standing.busy) + (standing.busy == 1 ? " was" : " were") +
           " on a busy one. Run it again when the machine is idle; if it never is for long, with "
           "more --repeats: busy ones are left out.";
  if (report.repeats < kMinRepeats)
    return "Run it again with --repeats=" + std::to_string(kMinRepeats) +
           " or more, on a machine that is not busy.";
  if (report.interrupted)
    return "The comparison was interrupted after " + Plural(standing.repeats, "repeat") + at +
           "; let it run to its end.";
  return "Only " + std::to_string(standing.repeats) + " of " + Plural(report.repeats, "repeat") +
         at + " went through; see the runs that failed.";
}

// "3 interleaved repeats", and how many do not count.
std::string Over(const Ratio& ratio) {
  std::string text = "over " + std::to_string(ratio.ratio.count) + " interleaved repeats";
  if (const int left_out = ratio.repeats - ratio.ratio.count; left_out > 0)
    text += " (" + std::to_string(left_out) + " on a busy machine left out)";
  return text + ".";
}

std::string Certainty(const CompareReport& report, const Standing* standing) {
  if (standing == nullptr) return "";
  if (!Concludes(standing->conclusion)) return WhatIsMissing(report, *standing);
  if (!standing->ratio) {
    const Spread& spread = standing->present[0]->images_per_second;
    return Digits(spread.low) + " to " + Digits(spread.high) + " over " +
           Plural(spread.count, "repeat") + ". " +
           (report.modes.size() == 1 ? "One mode only" : "No other mode went through") +
           ": there is nothing to compare with.";
  }
  const Ratio& ratio = *standing->ratio;
  // Of many modes the ratio is of the two fastest.
  const bool many = standing->present.size() > 2;
  const std::string next = many
                               ? " as fast as " + ModeInSentence(report, ratio.mode) + ", the next,"
                               : " as fast",
                    between = many ? "Of the two fastest, " +
                                         ModeInSentence(report, ratio.baseline) + " and " +
                                         ModeInSentence(report, ratio.mode) + ", "
                                   : "";
  const std::string range = Range(ratio.ratio) + " times";
  const auto sentence = [&](const std::string& text) {
    return between.empty() ? Capitalized(text) : between + text;
  };
  switch (ratio.conclusion) {
    case Conclusion::kClear:
      return "Every repeat agrees: " + range + next + " " + Over(ratio);
    case Conclusion::kEqual:
      return sentence("every repeat lies within " + Percent(kEqualWithin) + " of equal: ") + range +
             " as fast " + Over(ratio);
    default:
      return sentence("the spread is larger than the difference: ") + range + " as fast " +
             Over(ratio);
  }
}

// ---- throughput

// What is said of a standing, without its number of workers. Equal texts share one clause.
std::string Clause(const Standing& standing, bool first) {
  const std::vector<const Cell*>& leaders = standing.leaders;
  switch (standing.conclusion) {
    case Conclusion::kFewRepeats:
      return "no conclusion from " + Plural(standing.repeats, "repeat");
    case Conclusion::kBusy:
      return "no conclusion on a busy machine";
    default:
      break;
  }
  if (standing.present.size() == 1)
    return (first ? "Only " : "only ") + Names(leaders, true) + " went through";
  if (leaders.size() == 1) return Names(leaders, !first) + " is fastest";
  const std::string how =
      standing.conclusion == Conclusion::kEqual ? " are equally fast" : " do not clearly differ";
  return Names(leaders, !first) + how +
         (leaders.size() < standing.present.size() ? " and lead the others" : "");
}

std::string Throughput(const CompareReport& report, const std::vector<Standing>& standings) {
  if (standings.empty()) return "";
  if (report.modes.size() == 1) {
    std::vector<int> workers;
    for (const Standing& standing : standings) workers.push_back(standing.workers);
    return "Images per second of " + ModeInSentence(report, report.modes[0].name) + " at " +
           WorkersText(workers);
  }
  std::vector<std::pair<const Standing*, std::vector<int>>> groups;
  for (const Standing& standing : standings) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return Clause(*group.first, false) == Clause(standing, false);
    });
    if (same == groups.end()) {
      groups.push_back({&standing, {standing.workers}});
    } else {
      same->second.push_back(standing.workers);
    }
  }
  std::string text;
  for (const auto& [standing, workers] : groups)
    text += (text.empty() ? "" : "; ") + Clause(*standing, text.empty()) + " at " +
            WorkersText(workers);
  return Capitalized(text);
}

// ---- weights

std::vector<int> WhereWeightsDiffer(const std::vector<Equality>& equalities) {
  std::vector<int> workers;
  for (const Equality& equality : equalities) {
    if (!equality.equal()) workers.push_back(equality.workers);
  }
  return workers;
}

bool OneRunEach(const std::vector<Equality>& equalities) {
  return std::all_of(equalities.begin(), equalities.end(),
                     [](const Equality& equality) { return equality.runs == 1; });
}

std::string Weights(const CompareReport& report, const std::vector<Equality>& equalities) {
  if (equalities.empty()) return "No synchronous run reported its weights.";
  if (const auto differ = WhereWeightsDiffer(equalities); !differ.empty())
    return "Weights of synchronous runs are not the same bits at " + WorkersText(differ) + ".";
  if (OneRunEach(equalities)) return "One run each: nothing to compare its weights with.";
  std::set<std::string> modes;
  int runs = 0;
  for (const Equality& equality : equalities) runs += equality.runs;
  for (const ComparedRun& run : report.runs) {
    if (run.error.empty() && Synchronous(report, run)) modes.insert(run.mode);
  }
  return "For each number of workers, all runs of " +
         (modes.size() == 1 ? ModeInSentence(report, *modes.begin())
                            : std::to_string(modes.size()) + " synchronous modes") +
         " ended with bit-equal weights (" + std::to_string(runs) + " runs).";
}

std::string WeightsTitle(const std::vector<Equality>& equalities) {
  if (equalities.empty()) return "No weights were reported";
  if (const auto differ = WhereWeightsDiffer(equalities); !differ.empty())
    return "Not the same bits at " + WorkersText(differ);
  return OneRunEach(equalities) ? "One run each: nothing to compare"
                                : "Synchronous runs agree bit for bit";
}

// ---- load

std::string Load(const CompareReport& report) {
  int runs = 0, busy = 0;
  const RunLoad* most = nullptr;
  for (const ComparedRun& run : report.runs) {
    if (!run.error.empty()) continue;
    ++runs;
    if (run.busy()) ++busy;
    if (run.load && (most == nullptr || run.load->others > most->others)) most = &*run.load;
  }
  if (runs == 0) return "";
  if (most == nullptr) return "How busy the machine was is not known.";
  const std::string used = Fixed(most->others, 2) + " of " + Plural(most->processors, "processor"),
                    limit = Fixed(kBusyShare * most->processors, 2);
  if (busy == 0)
    return "The machine was not busy: other work used at most " + used +
           " during a run (busy is more than " + limit + ").";
  return "The machine was busy in " + std::to_string(busy) + " of " + Plural(runs, "run") +
         ": other work used up to " + used + " (busy is more than " + limit + ").";
}

std::string Crowding(const CompareReport& report) {
  std::vector<std::string> crowded;
  for (const int workers : report.workers) {
    if (workers > report.machine.cores) crowded.push_back(std::to_string(workers));
  }
  if (crowded.empty()) return "";
  return Listed(crowded) + " workers share " + Plural(report.machine.cores, "core");
}

std::string Failures(const CompareReport& report) {
  const auto failed = std::count_if(report.runs.begin(), report.runs.end(),
                                    [](const ComparedRun& run) { return !run.error.empty(); });
  std::string text;
  if (report.interrupted) text = "Interrupted: the figures are of the runs that had ended";
  if (failed > 0)
    text += (text.empty() ? "" : "; ") + std::to_string(failed) + " of " +
            Plural(static_cast<int>(report.runs.size()), "run") +
            " failed, and the figures are of the others";
  return text;
}

}  // namespace

std::string ModeInSentence(const CompareReport& report, const std::string& name) {
  for (const CompareMode& mode : report.modes) {
    if (mode.name == name) return InSentence(mode.title);
  }
  return name;
}

ReportSentences SentencesOf(const CompareReport& report, const std::vector<Cell>& cells) {
  const std::vector<Standing> standings = Standings(report, cells);
  const Standing* headline = HeadlineStanding(standings);
  const std::vector<Equality> equalities = Equalities(report);
  return {.headline = Headline(headline),
          .certainty = Certainty(report, headline),
          .throughput = Throughput(report, standings),
          .weights = Weights(report, equalities),
          .weights_title = WeightsTitle(equalities),
          .load = Load(report),
          .crowding = Crowding(report),
          .failures = Failures(report)};
}

}  // namespace monograph
