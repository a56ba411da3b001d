// Which steps gpu_bench measures, and to which goals its rows are held.
#include "bench/gpu_steps.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/temporary_folder.h"

namespace monograph::bench {
namespace {

TEST(GpuSteps, SevenAreMeasuredInBothModesUnderNamesOfTheirOwn) {
  const std::vector<GpuStep> steps = GpuSteps();
  ASSERT_EQ(steps.size(), 14U);
  std::map<std::string, std::set<bool>> modes;  // by what torch calls it
  for (const GpuStep& step : steps) {
    modes[step.peers].insert(step.mode.deterministic);
    EXPECT_EQ(step.images[0], 64);
    for (const GpuStep& other : steps) {
      EXPECT_EQ(other.name.find(step.name) != std::string::npos, &other == &step)
          << "--case='" << step.name << "' picks " << other.name;
    }
  }
  EXPECT_EQ(modes.size(), 7U);
  for (const auto& [name, both] : modes) EXPECT_EQ(both.size(), 2U) << name;
}

// Ours is as fast as the calls and slower than torch.
TEST(GpuSteps, EachOfTorchsSidesHasAGoalOfItsOwn) {
  const TemporaryFolder folder;
  const std::string python = folder.File("python");
  std::ofstream(python) << "#!/bin/sh\n"
                           "echo '{\"ready\": true, \"version\": \"2.0\"}'\n"
                           "while read -r name; do echo '{\"value\": 125}'; done\n";
  ASSERT_EQ(chmod(python.c_str(), 0700), 0);
  const auto torch = Peer::Start(python, "torch_gpu.py", {});
  ASSERT_TRUE(torch->WaitReady());
  const GpuStep step = GpuSteps()[5];
  std::vector<Side> references{Side::Of("calls", [] { return 100.0; })};
  for (Side& side : TorchSides(*torch, step)) references.push_back(std::move(side));
  Args args;
  args.json = folder.File("rows.json");
  Report(args).Compare("gpu", "images/s", {{step.name, kGoalOfCalls}},
                       Side::Of("ours", [] { return 100.0; }), references, 3);

  std::map<std::string, nlohmann::json> rows;
  std::ifstream text(args.json);
  for (std::string line; std::getline(text, line);) {
    const auto row = nlohmann::json::parse(line);
    rows[row["reference"].get<std::string>()] = row;
  }
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows["calls"]["goal"], 0.95);
  for (const char* side : {"torch eager", "torch compiled"}) {
    EXPECT_EQ(rows[side]["goal"], 1.0) << side;
    EXPECT_EQ(rows[side]["goal_is"], "min") << side;
    EXPECT_EQ(rows[side]["ratio"], 0.8) << side;
  }
}

}  // namespace
}  // namespace monograph::bench
