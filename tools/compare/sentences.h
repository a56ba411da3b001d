// The sentences of a report. Table, page and JSON show these and make none of their own, so that
// they agree.
//
// No sentence says which mode is faster, or that modes are equally fast, unless kMinRepeats repeats
// on a machine that was not busy say so. It then says "no conclusion", why, and what to do. Weights
// are another matter: bits are equal or not, whatever else the machine does.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/report.h"

namespace monograph {

struct ReportSentences {
  std::string headline;       // "In-graph is 1.25 times as fast as between-graph at 2 workers"
  std::string certainty;      // how certain that is, or what is missing for a conclusion
  std::string throughput;     // the fastest modes over all numbers of workers
  std::string weights;        // whether synchronous runs ended with the same bits
  std::string weights_title;  // the same in short
  std::string load;           // how busy others kept the machine
  std::string crowding;       // "" unless there are more workers than cores
  std::string failures;       // "" if every run went through
};
ReportSentences SentencesOf(const CompareReport& report, const std::vector<Cell>& cells);

// Those that speak of one number of workers: the titles of the page's charts.
struct WorkersSentences {
  std::string ratios, ratios_note;
  std::string steps, cpu, bytes, path, loss, loss_note;
  std::string verdict;  // of the weights: "Bit-equal", "They differ", "Not compared"
  std::string verdict_note;
};
WorkersSentences SentencesAt(const CompareReport& report, const std::vector<Cell>& cells,
                             int workers);

// What a ratio's tooltip and row say of it: "every repeat lies on the same side of 1".
std::string RatioText(const Ratio& ratio);
// "in-graph" for "In-graph": the title of a mode inside a sentence.
std::string ModeInSentence(const CompareReport& report, const std::string& mode);

}  // namespace monograph
