// What the report of a comparison says of its figures, and when it says nothing.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/tools/made_up_report.h"
#include "tools/compare/page_template.h"
#include "tools/compare/sentences.h"

namespace monograph {
namespace {

ReportSentences Sentences(const CompareReport& report) {
  return SentencesOf(report, Cells(report));
}

WorkersSentences SentencesAt(const CompareReport& report, int workers) {
  return monograph::SentencesAt(report, Cells(report), workers);
}

// Two modes at one number of workers; `step_us` is that of between-graph in each repeat, in-graph
// has 1000.
CompareReport AtOneNumber(const std::vector<double>& step_us, int workers = 2) {
  CompareReport report = TwoModes();
  report.workers = {workers};
  report.repeats = static_cast<int>(step_us.size());
  report.runs.clear();
  for (int repeat = 1; repeat <= report.repeats; ++repeat) {
    report.runs.push_back(MadeUpRun("in_graph", workers, repeat, 1000));
    report.runs.push_back(
        MadeUpRun("between_graph", workers, repeat, step_us[static_cast<size_t>(repeat - 1)]));
  }
  for (ComparedRun& run : report.runs) run.load = kCalm;
  return report;
}

// A word of a claim about speed.
bool Claims(const std::string& text) {
  return std::regex_search(text, std::regex("fast|agree|equal|larger|differ"));
}

TEST(CompareSentences, AClearDifferenceIsStatedWithItsRange) {
  const ReportSentences said = Sentences(AtOneNumber({1200, 1250, 1300}));
  EXPECT_EQ(said.headline, "In-graph is 1.25 times as fast as between-graph at 2 workers");
  EXPECT_EQ(said.certainty,
            "Every repeat agrees: 1.20 to 1.30 times as fast over 3 interleaved repeats.");
  EXPECT_EQ(said.throughput, "In-graph is fastest at 2 workers");
  const ReportSentences slower = Sentences(AtOneNumber({800, 810, 790}));
  EXPECT_EQ(slower.headline, "In-graph is 0.80 times as fast as between-graph at 2 workers");
  EXPECT_EQ(slower.throughput, "Between-graph is fastest at 2 workers");
}

TEST(CompareSentences, EqualIsOnlyWhatLiesCloseTogether) {
  const ReportSentences equal = Sentences(AtOneNumber({980, 1000, 1020}));
  EXPECT_EQ(equal.headline, "In-graph and between-graph are equally fast at 2 workers");
  EXPECT_EQ(equal.certainty,
            "Every repeat lies within 5.0 % of equal: 0.98 to 1.02 times as fast over 3 "
            "interleaved repeats.");
  // On one side of 1, but shown as 1.00.
  EXPECT_EQ(Sentences(AtOneNumber({1001, 1002, 1003})).headline, equal.headline);

  const ReportSentences unclear = Sentences(AtOneNumber({800, 1000, 1300}));
  EXPECT_EQ(unclear.headline, "Neither in-graph nor between-graph is clearly faster at 2 workers");
  EXPECT_EQ(unclear.certainty,
            "The spread is larger than the difference: 0.80 to 1.30 times as fast over 3 "
            "interleaved repeats.");
  EXPECT_EQ(unclear.throughput, "In-graph and between-graph do not clearly differ at 2 workers");
}

TEST(CompareSentences, FewerThanThreeRepeatsGiveNoConclusion) {
  for (const auto& [steps, headline] : std::vector<std::pair<std::vector<double>, std::string>>{
           {{1290}, "No conclusion from 1 repeat: at least 3 are needed"},
           {{1290, 1300}, "No conclusion from 2 repeats: at least 3 are needed"}}) {
    const CompareReport report = AtOneNumber(steps);
    const ReportSentences said = Sentences(report);
    EXPECT_EQ(said.headline, headline);
    EXPECT_EQ(said.certainty,
              "Run it again with --repeats=3 or more, on a machine that is not busy.");
    EXPECT_FALSE(Claims(said.throughput)) << said.throughput;
    const WorkersSentences at = SentencesAt(report, 2);
    EXPECT_EQ(at.ratios, "No conclusion: fewer than 3 repeats");
    for (const std::string& text : {at.ratios, at.ratios_note, at.steps, at.cpu, at.bytes, at.path})
      EXPECT_FALSE(Claims(text)) << text;
    EXPECT_FALSE(nlohmann::json::parse(ReportJson(report))["ratios"][0]["clear"]);
    EXPECT_NE(ReportTable(report).find("no conclusion: fewer than 3 repeats"), std::string::npos);
  }
}

TEST(CompareSentences, RepeatsThatFailedOrNeverRanAreMissingToo) {
  CompareReport report = AtOneNumber({1200, 1250, 1300});
  report.runs[1].clients.clear();
  report.runs[1].error = "lost";
  EXPECT_EQ(Sentences(report).headline, "No conclusion from 2 repeats: at least 3 are needed");
  EXPECT_EQ(Sentences(report).certainty,
            "Only 2 of 3 repeats at 2 workers went through; see the runs that failed.");
  EXPECT_EQ(Sentences(report).failures, "1 of 6 runs failed, and the figures are of the others");

  report = AtOneNumber({1200, 1250, 1300});
  report.runs.resize(3);
  report.interrupted = true;
  EXPECT_EQ(Sentences(report).headline, "No conclusion from 1 repeat: at least 3 are needed");
  EXPECT_EQ(Sentences(report).certainty,
            "The comparison was interrupted after 1 repeat at 2 workers; let it run to its end.");
}

TEST(CompareSentences, ABusyMachineGivesNoConclusion) {
  CompareReport report = AtOneNumber({1200, 1250, 1300});
  report.runs[3].load = kBusy;
  const ReportSentences said = Sentences(report);
  EXPECT_EQ(said.headline, "No conclusion: other work kept the machine busy");
  EXPECT_EQ(said.certainty,
            "A conclusion needs 3 repeats on a machine that is not busy; of 3 at 2 workers, 1 was "
            "on a busy one. Run it again when the machine is idle; if it never is for long, with "
            "more --repeats: busy ones are left out.");
  EXPECT_EQ(said.load,
            "The machine was busy in 1 of 6 runs: other work used up to 1.90 of 2 processors (busy "
            "is more than 0.10).");
  EXPECT_EQ(said.throughput, "No conclusion on a busy machine at 2 workers");
  EXPECT_EQ(SentencesAt(report, 2).ratios,
            "No conclusion: fewer than 3 repeats on a machine that was not busy");
}

TEST(CompareSentences, BusyRepeatsAreLeftOutIfThreeOthersRemain) {
  CompareReport report = AtOneNumber({1200, 600, 1250, 1300});
  report.runs[2].load = kBusy;
  EXPECT_EQ(Sentences(report).headline,
            "In-graph is 1.25 times as fast as between-graph at 2 workers");
  EXPECT_EQ(Sentences(report).certainty,
            "Every repeat agrees: 1.20 to 1.30 times as fast over 3 interleaved repeats (1 on a "
            "busy machine left out).");
}

TEST(CompareSentences, OurOwnLoadIsNoBusyMachine) {
  CompareReport report = AtOneNumber({1200, 1250, 1300});
  for (ComparedRun& run : report.runs)
    run.load = RunLoad{.processors = 2, .load_average = 12, .others = 0.1, .pressure = 0.99};
  EXPECT_EQ(Sentences(report).headline,
            "In-graph is 1.25 times as fast as between-graph at 2 workers");
  EXPECT_EQ(Sentences(report).load,
            "The machine was not busy: other work used at most 0.10 of 2 processors during a run "
            "(busy is more than 0.10).");
  for (ComparedRun& run : report.runs) run.load.reset();
  EXPECT_EQ(Sentences(report).load, "How busy the machine was is not known.");
}

TEST(CompareSentences, EachNumberOfWorkersKeepsItsOwnFinding) {
  CompareReport report = TwoModes();
  EXPECT_EQ(Sentences(report).headline,
            "In-graph is 1.25 times as fast as between-graph at 2 workers");
  EXPECT_EQ(Sentences(report).throughput,
            "In-graph and between-graph are equally fast at 1 worker; in-graph is fastest at 2 "
            "workers");
  EXPECT_EQ(SentencesAt(report, 2).ratios, "1 of 2 differences is larger than the spread");
  report.workers = {1, 2, 4, 8};
  for (int repeat = 1; repeat <= 3; ++repeat) {
    report.runs.push_back(MadeUpRun("in_graph", 4, repeat, 800));
    report.runs.push_back(MadeUpRun("between_graph", 4, repeat, 1000));
    report.runs.push_back(MadeUpRun("in_graph", 8, repeat, 800));
    report.runs.push_back(MadeUpRun("between_graph", 8, repeat, 700));
    report.runs.back().load = kBusy;
  }
  EXPECT_EQ(Sentences(report).throughput,
            "In-graph and between-graph are equally fast at 1 worker; in-graph is fastest at 2 and "
            "4 workers; no conclusion on a busy machine at 8 workers");
  EXPECT_EQ(Sentences(report).crowding, "4 and 8 workers share 2 cores");
  // A headline comes from where there is a conclusion.
  for (ComparedRun& run : report.runs) {
    if (run.workers == 2) run.load = kBusy;
  }
  EXPECT_EQ(Sentences(report).headline,
            "In-graph is 1.25 times as fast as between-graph at 4 workers");
}

// The fastest two may be as one while a third is clearly slower: "equal" names the two.
TEST(CompareSentences, OfManyModesThoseThatAreEquallyFastAreNamed) {
  CompareReport report = TwoModes();
  report.modes = ParseModes({"in_graph", "between_graph", "hybrid"}).value();
  report.workers = {1, 2};
  report.runs.clear();
  for (int repeat = 1; repeat <= 3; ++repeat) {
    report.runs.push_back(MadeUpRun("in_graph", 1, repeat, 1000));
    report.runs.push_back(MadeUpRun("between_graph", 1, repeat, 1295));
    report.runs.push_back(MadeUpRun("hybrid", 1, repeat, 960 + 20 * repeat));
    report.runs.push_back(MadeUpRun("in_graph", 2, repeat, 800));
    report.runs.push_back(MadeUpRun("between_graph", 2, repeat, 1000));
    report.runs.push_back(MadeUpRun("hybrid", 2, repeat, 900 + 10 * repeat));
  }
  EXPECT_EQ(Sentences(report).throughput,
            "In-graph and hybrid are equally fast and lead the others at 1 worker; in-graph is "
            "fastest at 2 workers");
  EXPECT_EQ(Sentences(report).headline, "In-graph is the fastest of 3 modes at 2 workers");
  EXPECT_EQ(Sentences(report).certainty,
            "Every repeat agrees: 1.14 to 1.16 times as fast as hybrid, the next, over 3 "
            "interleaved repeats.");
  report.workers = {1};
  EXPECT_EQ(Sentences(report).headline,
            "In-graph and hybrid are the fastest of 3 modes at 1 worker");
  EXPECT_EQ(Sentences(report).certainty,
            "Of the two fastest, in-graph and hybrid, every repeat lies within 5.0 % of equal: "
            "0.98 to 1.02 times as fast over 3 interleaved repeats.");
}

TEST(CompareSentences, OneModeAloneHasAFigureAndNothingToCompareWith) {
  CompareReport report = AtOneNumber({1, 1, 1});
  report.modes.resize(1);
  EXPECT_EQ(Sentences(report).headline, "In-graph trains 200,000 images/sec at 2 workers");
  EXPECT_EQ(Sentences(report).certainty,
            "200,000 to 200,000 over 3 repeats. One mode only: there is nothing to compare with.");
  for (ComparedRun& run : report.runs) run.load = kBusy;
  EXPECT_EQ(Sentences(report).headline, "No conclusion: other work kept the machine busy");
}

TEST(CompareSentences, TellWhetherTheWeightsAreTheSameBits) {
  CompareReport report = TwoModes();
  EXPECT_NE(Sentences(report).weights.find("bit-equal weights (12 runs)"), std::string::npos);
  EXPECT_EQ(SentencesAt(report, 2).verdict, "Bit-equal");
  RunResult& odd = report.runs.back().clients[0];
  odd.digest = "d2";
  odd.variables["b"] = "33";
  const std::vector<Equality> equalities = Equalities(report);
  EXPECT_TRUE(equalities[0].equal());
  EXPECT_FALSE(equalities[1].equal());
  EXPECT_EQ(equalities[1].differ, std::vector<std::string>{"b"});
  EXPECT_EQ(Sentences(report).weights,
            "Weights of synchronous runs are not the same bits at 2 workers.");
  EXPECT_EQ(Sentences(report).weights_title, "Not the same bits at 2 workers");
  EXPECT_EQ(SentencesAt(report, 2).verdict, "They differ");
  EXPECT_EQ(SentencesAt(report, 2).verdict_note,
            "2 sets of weights in 6 runs; variables that differ: b");
}

TEST(CompareSentences, TitlesOfChartsStateTheirFigures) {
  CompareReport report = TwoModes();
  const WorkersSentences at = SentencesAt(report, 2);
  EXPECT_EQ(at.steps, "Half of the steps end within 800 µs in-graph and 1.00 ms between-graph");
  EXPECT_EQ(at.cpu, "In-graph needs 80 µs client CPU per step, between-graph 100 µs");
  EXPECT_EQ(at.bytes, "A step moves 1000 B in-graph and 1000 B between-graph");
  EXPECT_EQ(at.path, "No run traced a step");
  EXPECT_EQ(at.loss, "One curve: every mode ends at loss 1.000 after 20 steps");
  for (size_t i = 0; i < 4; ++i) {
    report.runs[i].clients[0].critical_path =
        CriticalPath{.total_us = 100, .compute_us = i % 2 == 0 ? 50.0 : 25.0, .segments = {}};
  }
  EXPECT_EQ(SentencesAt(report, 2).path,
            "Of the path in repeat 1, computing makes up 50 % in-graph and 25 % between-graph");
}

// Each mode's own median run would be of another repeat.
TEST(CompareSentences, CriticalPathsSideBySideAreOfOneRepeat) {
  CompareReport report = AtOneNumber({1250, 1300, 1200});
  report.runs[0].clients = {MadeUpClient(0, 1, 1010, 100, 200)};
  report.runs[2].clients = {MadeUpClient(0, 1, 1000, 100, 200)};
  report.runs[4].clients = {MadeUpClient(0, 1, 990, 100, 200)};
  for (ComparedRun& run : report.runs)
    run.clients[0].critical_path = CriticalPath{.total_us = 100.0 + run.repeat, .segments = {}};
  const auto repeats = [](const CompareReport& from) {
    std::vector<int> seen;
    const auto json = nlohmann::json::parse(ReportJson(from));
    for (const auto& cell : json["cells"]) {
      EXPECT_EQ(cell["critical_path"]["total_us"],
                100 + cell["critical_path"]["repeat"].get<int>());
      seen.push_back(cell["critical_path"]["repeat"]);
    }
    return seen;
  };
  EXPECT_EQ(repeats(report), (std::vector<int>{1, 1}));
  report.runs[0].load = kBusy;
  EXPECT_EQ(repeats(report), (std::vector<int>{2, 2}));
  report.runs[2].clients[0].critical_path.reset();
  EXPECT_EQ(repeats(report), (std::vector<int>{3, 3})) << "only in the third all traced a step";
}

// The sentences in the page's markup.
std::string Element(const std::string& page, const std::string& open, const std::string& close) {
  const size_t at = page.find(open);
  EXPECT_NE(at, std::string::npos) << open;
  const size_t begin = at + open.size();
  return page.substr(begin, page.find(close, begin) - begin);
}

TEST(CompareSentences, TextPageAndJsonSayTheSame) {
  CompareReport calm = TwoModes(), busy = TwoModes(), few = TwoModes(2);
  busy.runs[1].load = busy.runs[3].load = kBusy;
  for (const CompareReport* report : {&calm, &busy, &few}) {
    const ReportSentences said = Sentences(*report);
    const std::string page = ReportPage(*report), table = ReportTable(*report);
    const auto json = nlohmann::json::parse(ReportJson(*report));
    EXPECT_EQ(Element(page, "<title>", "</title>"), said.headline);
    EXPECT_EQ(Element(page, "<header", "</header>").find("<!--"), std::string::npos);
    EXPECT_EQ(Element(Element(page, "<header", "</header>"), "<h1>", "</h1>"), said.headline);
    for (const std::string& text :
         {said.headline, said.certainty, said.throughput, said.weights, said.load}) {
      EXPECT_NE(page.find(text), std::string::npos) << text;
      EXPECT_NE(table.find(text), std::string::npos) << text;
    }
    EXPECT_EQ(json["headline"], said.headline);
    EXPECT_EQ(json["certainty"], said.certainty);
    EXPECT_EQ(json["throughput_text"], said.throughput);
    EXPECT_EQ(json["equality_text"], said.weights);
    EXPECT_EQ(json["load_text"], said.load);
    EXPECT_EQ(json["titles"][1]["workers"], 2);
    EXPECT_EQ(json["titles"][1]["steps"], SentencesAt(*report, 2).steps);
  }
}

TEST(CompareSentences, ThePagesScriptMakesNoneOfItsOwn) {
  const std::string page = kPageTemplate;
  const std::string script = page.substr(page.rfind("<script>"));
  std::smatch found;
  EXPECT_FALSE(std::regex_search(script, found,
                                 std::regex("fastest|equally|within the spread|larger than|agree|"
                                            "same bits|end within|step moves|One curve")))
      << found.str();
}

TEST(CompareSentences, LoadOfEachRunStandsInJsonTextAndPage) {
  CompareReport report = TwoModes();
  report.runs[0].load = {
      .processors = 2, .load_average = 1.5, .others = 0.75, .stolen = 0.25, .pressure = 0.5};
  report.runs[1].load.reset();
  const auto runs = nlohmann::json::parse(ReportJson(report))["runs"];
  EXPECT_EQ(runs[0]["load"], nlohmann::json({{"processors", 2},
                                             {"load_average", 1.5},
                                             {"others", 0.75},
                                             {"stolen", 0.25},
                                             {"pressure", 0.5},
                                             {"busy", true}}));
  EXPECT_TRUE(runs[1]["load"].is_null());
  EXPECT_TRUE(runs[2]["load"]["pressure"].is_null());
  EXPECT_TRUE(std::regex_search(ReportTable(report),
                                std::regex("in_graph +1 +1 +0\\.75 +0\\.25 +50 +1\\.50 +busy\n")))
      << ReportTable(report);
}

}  // namespace
}  // namespace monograph
