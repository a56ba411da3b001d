// Recovery: a job counts and saves, the ps or something else is lost on the way, and the next
// session restores the last save that was confirmed. What it restores is what the variable was when
// it was saved, whole, and what follows adds to that.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ops/checkpoint/checkpoint.h"
#include "ops/constant/constant.h"
#include "ops/variable/variable.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/counts.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"

namespace monograph::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A vector of one string.
Tensor Names(const std::string& name) {
  Tensor names = Tensor::Allocate(DT_STRING, Shape{1}).value();
  *names.strings() = name;
  return names;
}

struct SavingGraph : CountingGraph {
  explicit SavingGraph(const DisturbedCluster& cluster)
      : CountingGraph(cluster.device(cluster.ps()), {cluster.device(0)}) {
    const Scope home = Scope(&graph).WithDevice(cluster.device(cluster.ps()));
    prefix = Placeholder(home, DT_STRING, Shape{});
    const Output names = Const(home, Names("counts"));
    const Output slices = Const(home, Names(""));
    save = SaveV2(home, prefix, names, slices, {value});
    restore = AssignVariable(home, variable, RestoreV2(home, prefix, names, slices, {DT_INT64})[0]);
    if (!home.ok()) Fail("the graph of saves is wrong: " + home.status().ToString());
  }
  Output prefix;
  Operation save, restore;
};

class SavingJob {
 public:
  SavingJob() : cluster_(1), graph_(cluster_) {
    cluster_.Keeps(graph_.bytes());
    folder_ = ScratchFolder() + "/recovery";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void Run();

 private:
  void Open(bool first);
  void CountOnce(int field, bool must);
  void Save(int number, bool must);
  void CheckVariable();

  DisturbedCluster cluster_;
  const SavingGraph graph_;
  std::string folder_;
  Counts counts_;
  int ps_life_ = 0;
  std::string saved_;   // the last save that was confirmed
  Counts counts_then_;  // when it began
  std::unique_ptr<Session> session_;
};

void SavingJob::CheckVariable() {
  const auto value = session_->Run({}, {graph_.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  counts_.Check(value->at(0), "the variable");
}

void SavingJob::Open(bool first) {
  session_ = MustConnect(cluster_, graph_.graph, seconds(5));
  for (int task = 0; task < cluster_.tasks(); ++task)
    cluster_.network().Replay(0, cluster_.host(task));
  const bool lost = cluster_.life(cluster_.ps()) != ps_life_;
  ps_life_ = cluster_.life(cluster_.ps());
  if (!lost) return CheckVariable();
  counts_.Forget();
  const bool restores = !first && !saved_.empty();
  const auto made =
      restores ? session_->Run({{graph_.prefix, Tensor::String(saved_)}}, {}, {graph_.restore})
               : session_->Run({}, {}, {graph_.init});
  if (!made.ok()) Fail("the variable cannot be restored: " + made.status().ToString());
  if (!restores) return;
  const auto value = session_->Run({}, {graph_.value});
  if (!value.ok()) Fail("the variable cannot be read: " + value.status().ToString());
  counts_then_.Check(value->at(0), "the restored variable");
  counts_.SetTo(value->at(0));
}

void SavingJob::CountOnce(int field, bool must) {
  const auto& member = graph_.members[0];
  counts_.Try(field);
  const Within time(kRunEnds, "a step");
  const auto ran = session_->Run({{member.feed, graph_.Of(field)}}, {}, {member.update});
  if (ran.ok()) return counts_.Confirm(field);
  if (must) Fail("a step failed: " + ran.status().ToString());
}

void SavingJob::Save(int number, bool must) {
  const Counts now = counts_;
  const std::string prefix = folder_ + "/save-" + std::to_string(number) + ".safetensors";
  const Within time(kRunEnds, "a save");
  const auto ran = session_->Run({{graph_.prefix, Tensor::String(prefix)}}, {}, {graph_.save});
  if (ran.ok()) {
    saved_ = prefix;
    counts_then_ = now;
  } else if (must) {
    Fail("a save failed: " + ran.status().ToString());
  }
}

void SavingJob::Run() {
  int field = 0;
  for (int round = 0; round < 3; ++round) {
    const bool disturbed = round < 2;
    HoldThreads(false);
    Open(round == 0);
    HoldThreads(disturbed);
    {
      std::optional<Trouble> trouble;
      if (disturbed) trouble.emplace(&cluster_);
      for (int step = 0; step < 2; ++step) {
        CountOnce(field++, !disturbed);
        Save(10 * round + step, !disturbed);
        CountOnce(field++, !disturbed);
      }
    }
    if (!disturbed) CheckVariable();
    {
      const Within time(kCloseEnds, "closing the session");
      (void)session_->Close();
    }
    cluster_.Repair();
  }
  session_ = nullptr;
}

}  // namespace

void RunRecovery() { SavingJob().Run(); }

}  // namespace monograph::simulation
