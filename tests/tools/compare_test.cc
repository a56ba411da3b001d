// What a comparison makes of the runs' results: figures, findings, table, page and JSON.
#include "tools/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/tools/made_up_report.h"
#include "tools/compare/mode.h"
#include "tools/compare/report.h"
#include "tools/compare/sentences.h"

namespace monograph {
namespace {

TEST(CompareModes, NamesStandForFlags) {
  const auto modes =
      ParseModes({"in_graph", "between_graph", "between_graph_async", "in_graph_replicated",
                  "in_graph_async", "mine=--replication=in_graph --split=measured", "hybrid",
                  "four=--replication=hybrid --replicas_per_worker=4"});
  ASSERT_TRUE(modes.ok()) << modes.status();
  const auto flags = [&](size_t i) {
    std::string all;
    for (const std::string& flag : modes->at(i).flags) all += flag + " ";
    return all;
  };
  EXPECT_EQ(flags(0), "--replication=in_graph --variable_update=parameter_server ");
  EXPECT_EQ(flags(1), "--replication=between_graph --variable_update=parameter_server --sync ");
  EXPECT_EQ(flags(2), "--replication=between_graph --variable_update=parameter_server ");
  EXPECT_FALSE(modes->at(2).synchronous);
  EXPECT_FALSE(modes->at(3).uses_ps);
  EXPECT_EQ(flags(4), "--replication=in_graph --variable_update=parameter_server --async ");
  EXPECT_EQ(modes->at(5).name, "mine");
  EXPECT_EQ(flags(5), "--replication=in_graph --split=measured ");
  EXPECT_TRUE(modes->at(5).synchronous);
  EXPECT_EQ(flags(6),
            "--replication=hybrid --variable_update=parameter_server --replicas_per_worker=2 ");
  EXPECT_FALSE(modes->at(6).synchronous);
  EXPECT_TRUE(modes->at(6).per_worker);
  EXPECT_EQ(modes->at(6).executor_flags, std::vector<std::string>{"--cpu_devices=2"});
  EXPECT_EQ(modes->at(7).executor_flags, std::vector<std::string>{"--cpu_devices=4"});
}

// The command line cuts --modes at its commas.
TEST(CompareModes, AFlagOfOnesOwnModeMayHaveNumbersWithCommas) {
  const auto modes =
      ParseModes({"cut=--split=weights=3", "1", "2 --fc=8", "in_graph", "fast=--fc=1"});
  ASSERT_TRUE(modes.ok()) << modes.status();
  ASSERT_EQ(modes->size(), 3u);
  EXPECT_EQ(modes->at(0).name, "cut");
  EXPECT_EQ(modes->at(0).flags, (std::vector<std::string>{"--split=weights=3,1,2", "--fc=8"}));
  EXPECT_EQ(modes->at(2).flags, std::vector<std::string>{"--fc=1"});
  for (const char* before : {"in_graph", ""})
    EXPECT_EQ(ParseModes({before, "1"}).status().code(), Code::kInvalidArgument) << before;
}

TEST(CompareModes, AnUnknownOneIsRefusedWithTheNearestName) {
  const Status unknown = ParseModes({"in_grap"}).status();
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.message().find("did you mean 'in_graph'"), std::string::npos) << unknown;
  EXPECT_EQ(ParseModes({"in_graph", "in_graph"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseModes({}).status().code(), Code::kInvalidArgument);
}

TEST(CompareFigures, AMedianStandsBetweenItsNeighbours) {
  const Spread spread = SpreadOf({3, 1, 2, 10});
  EXPECT_EQ(spread.median, 2.5);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 10);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5}, 0.99), 4.96);
}

TEST(CompareFigures, OfOneClientAreItsOwn) {
  const RunFigures figures = FiguresOf({MadeUpClient(0, 1, 1000, 100, 200)});
  EXPECT_NEAR(figures.images_per_second, 200000, 1e-6);
  EXPECT_EQ(figures.step_p50_us, 1000);
  EXPECT_NEAR(figures.client_cpu_us, 100, 1e-9);
  EXPECT_NEAR(figures.tasks[0].sent, 1000, 1e-9);
}

TEST(CompareFigures, OfSeveralClientsCountEachDaemonOnceAndEachClient) {
  // Each client sees the parameter server and its own worker.
  std::vector<RunResult> clients = {MadeUpClient(0, 2, 1000, 100, 200),
                                    MadeUpClient(1, 2, 1000, 100, 200)};
  for (int i = 0; i < 2; ++i) {
    clients[static_cast<size_t>(i)].tasks.push_back(
        {"/job:ps/replica:0/task:0", 500000, 400000, 100, 100, 0.05});
    clients[static_cast<size_t>(i)].tasks.push_back(
        {"/job:worker/replica:0/task:" + std::to_string(i), 300000, 0, 0, 0, 0.1});
  }
  const RunFigures figures = FiguresOf(clients);
  EXPECT_NEAR(figures.images_per_second, 200000, 2100)
      << "both together train the global batch in each step";
  std::vector<std::string> names;
  for (const RunFigures::Traffic& traffic : figures.tasks) names.push_back(traffic.task);
  EXPECT_EQ(names,
            (std::vector<std::string>{"client 0", "client 1", "ps/0", "worker/0", "worker/1"}));
  EXPECT_NEAR(figures.tasks[2].sent, 5000, 1e-6);
  EXPECT_NEAR(figures.client_cpu_us, 200, 1e-6);
  EXPECT_NEAR(figures.daemon_cpu_us, 500 + 1000 + 1000, 1e-6);
  EXPECT_NEAR(figures.loss[1].loss, 1.5, 1e-9) << "the mean of both";
}

TEST(CompareFigures, ClientsThatBeginAtOtherTimesAreCountedWhileBothTrain) {
  std::vector<RunResult> clients = {MadeUpClient(0, 2, 1000, 100, 200),
                                    MadeUpClient(1, 2, 500, 200, 200)};
  clients[1].started_at += 0.02;
  // From 20 to 100 ms: 80 steps of the one, 160 of the other, 100 images each.
  EXPECT_NEAR(FiguresOf(clients).images_per_second, 240 * 100 / 0.08, 4000);
}

TEST(CompareReport, AFailedRunIsNamedAndTheOthersStandForTheMode) {
  CompareReport report = TwoModes(4);
  ComparedRun& failed = report.runs[3];
  failed.clients.clear();
  failed.error = "exit code 1; it printed last:\nno <memory>";
  const std::string table = ReportTable(report);
  EXPECT_NE(table.find("FAILED: between_graph, 2 workers, repeat 1: exit code 1"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("In-graph is 1.25 times as fast as between-graph at 2 workers"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("1 of 16 runs failed, and the figures are of the others"), std::string::npos)
      << table;
  const auto json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["cells"][3]["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][3]["error"], failed.error);

  for (ComparedRun& run : report.runs) {
    run.clients.clear();
    run.error = "lost";
  }
  EXPECT_NE(ReportTable(report).find("No run went through"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(ReportJson(report)));
}

TEST(CompareReport, TheTableHasARowForEachModeAndNumberOfWorkers) {
  const std::string table = ReportTable(TwoModes());
  EXPECT_TRUE(std::regex_search(
      table, std::regex("in_graph +2 +1 +250000\\.0 \\(250000\\.0\\.\\.250000\\.0\\) +0\\.80 ")))
      << table;
  EXPECT_NE(table.find("CPU ms/step, all clients"), std::string::npos) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex("in_graph / between_graph +2 +1\\.250 ")))
      << table;
  EXPECT_TRUE(std::regex_search(
      table, std::regex("in_graph / between_graph +1 .*every repeat lies within 5.0 % of 1")))
      << table;
}

TEST(CompareReport, ThePageStandsByItself) {
  CompareReport report = TwoModes();
  report.runs[0].command = "sh -c '</script><script src=x>'";
  const std::string page = ReportPage(report);
  // No address, and nothing that loads.
  for (const char* pattern : {"https?:", "src *=", "href *=", "@import", "url\\(", "<link",
                              "<iframe", "<img", "fetch *\\(", "XMLHttpRequest", "import *\\("}) {
    std::smatch found;
    const std::string outside = std::regex_replace(page, std::regex("sh -c '[^']*'"), "");
    EXPECT_FALSE(std::regex_search(outside, found, std::regex(pattern)))
        << pattern << ": " << found.str();
  }
  EXPECT_EQ(page.find("<!--DATA-->"), std::string::npos);
  EXPECT_EQ(page.find("</script><script src"), std::string::npos) << "a command ended the script";
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  EXPECT_EQ(data["headline"], "In-graph is 1.25 times as fast as between-graph at 2 workers");
  EXPECT_EQ(data["command"], "mnist_replica --fc=<1>");
  EXPECT_EQ(data, nlohmann::json::parse(ReportJson(report)));
}

TEST(CompareOptions, ThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    CompareOptions options{.command = {"true"}, .out = ::testing::TempDir() + "compare_test.html"};
    change(options);
    const Result<int> code = Compare(options);
    EXPECT_EQ(code.status().code(), Code::kInvalidArgument) << code.status();
    return code.status().message();
  };
  EXPECT_NE(refused([](CompareOptions& o) { o.command.clear(); }).find("after --"),
            std::string::npos);
  EXPECT_NE(refused([](CompareOptions& o) { o.repeats = 0; }).find("--repeats"), std::string::npos);
  EXPECT_NE(refused([](CompareOptions& o) {
              o.workers = {2, 0};
            }).find("--workers"),
            std::string::npos);
  EXPECT_NE(refused([](CompareOptions& o) {
              o.workers = {2, 2};
            }).find("twice"),
            std::string::npos);
  EXPECT_NE(refused([](CompareOptions& o) { o.json = o.out; }).find("the same file"),
            std::string::npos);
  EXPECT_NE(refused([](CompareOptions& o) { o.modes = {"x"}; }).find("--modes"), std::string::npos);
}

}  // namespace
}  // namespace monograph
