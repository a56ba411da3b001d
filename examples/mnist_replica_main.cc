// mnist_replica: trains the tutorials' CNN, replicated in every way that there is: one client with
// one graph for all workers, or a client per worker.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/session.h"
#include "examples/mnist_replica/program.h"
#include "examples/mnist_replica/settings.h"
#include "tools/flags.h"
#include "tools/progress_line.h"
#include "tools/run_metrics.h"
#include "train/hooks.h"
#include "train/monitored_training_session.h"
#include "train/summary_writer.h"

namespace monograph::examples {
namespace {

using Clock = std::chrono::steady_clock;

// How long a replica whose worker was lost looks for it at a time.
constexpr std::chrono::seconds kReconnectTimeout{3};

// One client's run.
class Run {
 public:
  Run(const Settings& settings, const std::optional<ClusterSpec>& cluster, const Layout& layout)
      : settings_(settings), cluster_(cluster), layout_(layout), metrics_(About()) {}

  Status Train();

 private:
  // A graph and its training for a cut of the batch. Variables that were there stay.
  Status Build(const std::vector<int64_t>& shares, bool initialize);
  // Where the chief saves, and from where it goes on.
  Status AddTrainDir(MonitoredTrainingOptions* how);
  Result<std::unique_ptr<Session>> Open(SessionFlags flags,
                                        std::chrono::milliseconds start_timeout);
  Status Measure();
  RunResult About() const;
  Status TrainAndTest();
  Status WarmUp();
  Status WriteTrace(const std::string& trace);
  // Asks the cluster for what the result says of it. After a loss this begins anew where the client
  // can do so by itself, since the others may be gone. Elsewhere training is done all the same: the
  // result lacks `what`, and a warning says so.
  Status AfterTraining(const std::string& what, const std::function<Status()>& work);
  Status Timed();
  Status WriteResult();
  bool IsDisplayed(int64_t number) const;
  void Display(const TrainedStep& step);
  Result<double> Evaluate();

  const Settings& settings_;
  const std::optional<ClusterSpec>& cluster_;
  const Layout& layout_;
  std::shared_ptr<const Dataset> test_;
  std::unique_ptr<TrainingData> data_;
  std::unique_ptr<Program> program_;
  std::shared_ptr<SummaryWriter> summaries_;
  std::unique_ptr<MonitoredTrainingSession> training_;
  bool opened_ = false, recovered_ = false;  // the session; since the last step
  RunMetrics metrics_;
  std::optional<ProgressLine> progress_;  // while steps are timed
  double images_per_second_ = 0;          // of all clients
  int64_t displayed_ = 0;
  Clock::time_point displayed_at_;
};

RunResult Run::About() const {
  RunResult about;
  about.program = "mnist_replica";
  about.flags = {{"replication", settings_.replication},
                 {"variable_update", settings_.variable_update},
                 {"async", settings_.asynchronous() ? "true" : "false"},
                 {"split", settings_.split}};
  about.client = layout_.rank;
  about.clients = layout_.workers;
  about.workers = layout_.replicas_of_all();
  about.batch_size = settings_.batch_size;
  return about;
}

Result<std::unique_ptr<Session>> Run::Open(SessionFlags flags,
                                           std::chrono::milliseconds start_timeout) {
  flags.options.start_timeout = start_timeout;
  recovered_ = std::exchange(opened_, true);
  if (recovered_) flags.log_device_placement = "none";  // it is the same
  return flags.Open(cluster_, program_->graph, static_cast<int>(layout_.replicas.size()));
}

Status Run::Build(const std::vector<int64_t>& shares, bool initialize) {
  training_ = nullptr;  // before the graph that it runs
  opened_ = false;
  MG_ASSIGN_OR_RETURN(program_, BuildProgram(settings_, layout_, test_->pixels(), shares));
  // From a checkpoint, a new beginning has them, too.
  if (!initialize && settings_.train_dir.empty()) program_->step.init = {};
  MonitoredTrainingOptions how{.trainer = {.join = !settings_.container.empty(),
                                           .steps_in_flight = settings_.steps_in_flight,
                                           .steps_per_run = settings_.steps_per_run}};
  MG_RETURN_IF_ERROR(AddTrainDir(&how));
  const SessionFlags flags = SessionOf(settings_, layout_);
  how.trainer.start_timeout = flags.options.start_timeout;
  if (cluster_) {
    SessionFlags again = flags;
    again.options.start_timeout = kReconnectTimeout;
    again.log_device_placement = "none";
    how.trainer.reconnect = [this, again] { return again.Open(cluster_, program_->graph); };
  }
  training_ = std::make_unique<MonitoredTrainingSession>(
      [this, flags](std::chrono::milliseconds timeout) { return Open(flags, timeout); },
      program_->step, program_->feeds,
      [this](int loop, int64_t batch) { return data_->Feeds(loop, batch); }, std::move(how));
  return training_->Start();
}

Status Run::AddTrainDir(MonitoredTrainingOptions* how) {
  how->checkpoint_dir = settings_.train_dir;
  how->max_recoveries = settings_.max_recoveries;
  how->recovery_timeout =
      std::chrono::milliseconds(std::llround(settings_.recovery_timeout * 1000));
  if (settings_.train_dir.empty() || layout_.rank != 0) return Status();
  const Scope root(&program_->graph);
  how->saver =
      std::make_shared<Saver>(root, SaverOptions{.sharded = settings_.sharded_checkpoints});
  how->refuse_damaged_checkpoint = settings_.refuse_damaged_checkpoint;
  how->save_checkpoint = {.steps = settings_.save_steps};
  MG_RETURN_IF_ERROR(root.status());
  if (summaries_ == nullptr) {
    MG_ASSIGN_OR_RETURN(summaries_, SummaryWriter::Open(settings_.train_dir));
    summaries_->AddGraph(program_->graph);
  }
  how->trainer.chief_only_hooks = {
      std::make_shared<SummarySaverHook>(summaries_, std::vector<std::string>{"loss", "accuracy"},
                                         HookEvery{.steps = settings_.save_summaries_steps}),
      std::make_shared<StepCounterHook>(settings_.save_summaries_steps, summaries_)};
  return Status();
}

// Cuts the batch anew, by the speed that each replica has shown.
Status Run::Measure() {
  std::vector<double> seconds;
  MG_RETURN_IF_ERROR(training_->Run([&]() -> Status {
    MG_ASSIGN_OR_RETURN(seconds, training_->trainer()->TimeTowers(3));
    return Status();
  }));
  std::vector<int64_t> shares;
  double fastest = *std::min_element(seconds.begin(), seconds.end());
  std::string text;
  for (const double took : seconds) {
    shares.push_back(std::max<int64_t>(1, std::llround(1000 * fastest / took)));
    text += (text.empty() ? "" : ",") + std::to_string(shares.back());
  }
  std::printf("--split=measured: weights=%s\n", text.c_str());
  std::fflush(stdout);
  return Build(shares, false);
}

Status Run::WriteTrace(const std::string& trace) {
  if (!settings_.result_file.empty()) MG_RETURN_IF_ERROR(metrics_.TraceStep(trace));
  if (settings_.trace_file.empty()) return Status();
  std::ofstream file(settings_.trace_file);
  file << trace;
  file.close();
  if (!file) return FailedPrecondition("cannot write the trace to '" + settings_.trace_file + "'");
  return Status();
}

Status Run::WarmUp() {
  const int64_t warmup = settings_.num_warmup_batches;
  const bool trace = !settings_.trace_file.empty() ||
                     (!settings_.result_file.empty() && warmup > 0 && program_->feeds.size() == 1);
  MG_RETURN_IF_ERROR(training_->Train(trace ? warmup - 1 : warmup));
  if (settings_.split == "measured") MG_RETURN_IF_ERROR(Measure());
  if (!trace) return Status();
  std::string json;
  MG_RETURN_IF_ERROR(training_->Run([&]() -> Status {
    MG_ASSIGN_OR_RETURN(json, training_->trainer()->TraceStep());
    return Status();
  }));
  return WriteTrace(json);
}

Status Run::AfterTraining(const std::string& what, const std::function<Status()>& work) {
  const Status status = layout_.rank == 0 ? training_->Run(work) : work();
  if (!IsLoss(status)) return status;
  LogWarning("The result '" + ResultPath(settings_.result_file, layout_.rank) + "' lacks " + what +
             ": " + status.message());
  return Status();
}

Status Run::Timed() {
  const bool measure = !settings_.result_file.empty();
  const int64_t rows = RowsOfStep(settings_, layout_);
  if (measure) {
    MG_RETURN_IF_ERROR(training_->Run([this] { return metrics_.Begin(training_->session()); }));
  }
  const int64_t first = training_->trainer()->global_step();
  const Clock::time_point start = displayed_at_ = Clock::now();
  const int64_t last = settings_.num_warmup_batches + settings_.num_batches;
  if (first >= last) {
    LogInfo("Nothing is left to train: --num_batches and --num_warmup_batches end at global step " +
            std::to_string(last) + ", and " + std::to_string(first) + " have been made");
  }
  // After a resume from --train_dir steps have been made that the first line must not count.
  displayed_ = std::max<int64_t>(0, first - settings_.num_warmup_batches);
  progress_.emplace(displayed_, settings_.num_batches, settings_.batch_size);
  MG_RETURN_IF_ERROR(training_->Train(last, [&](const TrainedStep& step) {
    if (measure) metrics_.Step(step.begin, step.end, rows * step.steps, step.steps);
    Display(step);
  }));
  progress_.reset();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // Updates of all clients: each is one batch.
  images_per_second_ =
      static_cast<double>((training_->trainer()->global_step() - first) * settings_.batch_size) /
      seconds;
  if (!measure) return Status();
  return AfterTraining("counters of tasks", [this] { return metrics_.End(training_->session()); });
}

Status Run::WriteResult() {
  MG_RETURN_IF_ERROR(AfterTraining("digests of variables", [this] {
    return metrics_.ReadVariables(training_->session(), program_->step.variables);
  }));
  return metrics_.Write(ResultPath(settings_.result_file, layout_.rank));
}

bool Run::IsDisplayed(int64_t number) const {
  if (number <= 0) return false;
  // One of several clients does not see every number if others make updates without it (backup
  // workers), or within a run of several steps. Where each client speaks for itself, exactly one of
  // them makes each number.
  if (settings_.steps_per_run == 1 && (settings_.in_graph() || settings_.asynchronous()))
    return number % settings_.display_every == 0;
  return number / settings_.display_every > displayed_ / settings_.display_every;
}

void Run::Display(const TrainedStep& step) {
  const int64_t number = step.global_step - settings_.num_warmup_batches;
  if (std::exchange(recovered_, false)) {  // it has gone back
    displayed_ = number - step.steps;
    displayed_at_ = step.begin;
  }
  const float loss = step.results[0].scalar<float>(), accuracy = step.results[1].scalar<float>();
  progress_->Show(number, loss);
  if (!IsDisplayed(number)) return;
  if (!settings_.result_file.empty()) metrics_.Display(number, loss, accuracy);
  const int64_t since = number - std::exchange(displayed_, number);
  const double seconds =
      std::chrono::duration<double>(step.end - std::exchange(displayed_at_, step.end)).count();
  if (!settings_.asynchronous() && layout_.rank != 0) return;  // the chief speaks for all
  progress_->Clear();
  if (settings_.in_graph() && !settings_.async) {
    const double rate = static_cast<double>(since * settings_.batch_size) / seconds;
    std::printf("step %lld  loss %.3f  accuracy %.2f  images/sec %.1f\n",
                static_cast<long long>(number), loss, accuracy, rate);
  } else {
    std::printf("Worker: %d, Step: %lld, Accuracy(batch): %.2f\n", layout_.rank + step.loop,
                static_cast<long long>(number), accuracy);
  }
  std::fflush(stdout);
}

Result<double> Run::Evaluate() {
  Session* const session = training_->session();
  MG_ASSIGN_OR_RETURN(const Callable callable,
                      session->MakeCallable({program_->eval_images, program_->eval_labels},
                                            {program_->evaluation[1]}));
  double hits = 0;
  for (int64_t begin = 0; begin < test_->examples; begin += settings_.eval_batch_size) {
    const int64_t end = std::min(begin + settings_.eval_batch_size, test_->examples);
    MG_ASSIGN_OR_RETURN(Batch batch, Rows(*test_, begin, end, settings_.images()));
    const std::vector<Tensor> feeds = {std::move(batch.images), std::move(batch.labels)};
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session->RunCallable(callable, feeds));
    hits += std::round(static_cast<double>(results[0].scalar<float>()) *
                       static_cast<double>(end - begin));
  }
  return hits / static_cast<double>(test_->examples);
}

Status Run::Train() {
  MG_ASSIGN_OR_RETURN(test_, LoadDataset({.name = settings_.data_name,
                                          .data_dir = settings_.data_dir,
                                          .split = "test",
                                          .seed = static_cast<uint64_t>(settings_.seed)}));
  if (test_->height != test_->width) return InvalidArgument("the model takes square images");
  MG_ASSIGN_OR_RETURN(data_, TrainingData::Load(settings_, layout_, *test_));
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> shares,
                      SharesOf(settings_, layout_.replicas.size()));
  MG_RETURN_IF_ERROR(Build(shares, true));
  const Status status = TrainAndTest();
  // Where a loss ends the job, the error says which flag makes it go on.
  if (!IsLoss(status) || !settings_.train_dir.empty() || settings_.steps_in_flight > 1)
    return status;
  return status.WithMessage(status.message() + " (with --train_dir the run would go on by itself)");
}

Status Run::TrainAndTest() {
  MG_RETURN_IF_ERROR(WarmUp());
  MG_RETURN_IF_ERROR(Timed());
  if (layout_.rank == 0) {
    double accuracy = 0;
    MG_RETURN_IF_ERROR(training_->Run([&]() -> Status {
      MG_ASSIGN_OR_RETURN(accuracy, Evaluate());
      return Status();
    }));
    metrics_.TestAccuracy(accuracy);
    std::printf(settings_.in_graph() ? "test accuracy: %.4f\n" : "Test-Accuracy: %.4f\n", accuracy);
    if (images_per_second_ > 0) std::printf("total images/sec: %.2f\n", images_per_second_);
    std::fflush(stdout);
  }
  if (!settings_.result_file.empty()) MG_RETURN_IF_ERROR(WriteResult());
  return training_->Close();
}

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "mnist_replica",
      "Trains a convolutional network on MNIST's format of data, replicated in one graph or in a "
      "graph per worker, and prints its accuracy on the test set.\n\n"
      "Examples:\n"
      "  mnist_replica                                                   in this process\n"
      "  mnist_replica --num_replicas=2 --log_device_placement=summary   two replicas in it\n"
      "  monograph launch --ps=1 --workers=2 -- mnist_replica --fc=128   on daemons, ended after "
      "it\n"
      "  monograph launch --ps=1 --workers=3 -- mnist_replica --replication=between_graph\n"
      "                                                                  a client per worker\n"
      "  mnist_replica --cluster=cluster.json --input=executor --trace_file=step.json\n");
  settings.AddTo(&flags);
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  const auto train = [&](const std::optional<ClusterSpec>& cluster, const Layout& layout) {
    return Run(settings, cluster, layout).Train();
  };
  return flags.Exit(RunReplicas(settings, train));
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
