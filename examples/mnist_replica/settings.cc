// The flags of mnist_replica: AddTo declares them, Check refuses combinations that contradict each
// other, and CheckPlace what does not fit the cluster. All checks run before a session is opened,
// so that a wrong flag fails at once and not after the cluster has started.
#include "examples/mnist_replica/settings.h"

#include <cstdlib>
#include <sstream>

namespace monograph::examples {
void Settings::AddTo(Flags* flags) {
  flags->Section("Training");
  flags->Add("batch_size", &batch_size,
             "examples of one update: of all replicas together or, if each updates by itself, of "
             "one replica",
             1, Flags::kMostExamples);
  flags->Add("num_batches", &num_batches, "updates that are timed, of all workers together", 1);
  flags->Add("num_warmup_batches", &num_warmup_batches,
             "updates before those, not timed or displayed", 0);
  flags->Add("display_every", &display_every, "updates between progress lines", 1);
  flags->Add("learning_rate", &learning_rate, "of Adam");
  flags->Add("seed", &seed, "of weights, order of examples and dropout: same seed, same result");
  flags->Add("eval_batch_size", &eval_batch_size,
             "examples at a time when the test set is evaluated at the end", 1,
             Flags::kMostExamples);
  flags->Add("steps_in_flight", &steps_in_flight,
             "steps that run at the same time; above 1 a step may read weights before the last "
             "update, and results vary from run to run",
             1, Flags::kMostThreads);
  flags->Add("steps_per_run", &steps_per_run,
             "steps that the executors make by themselves before they report to the client, with "
             "the same result; progress lines come at the ends of such runs",
             1);
  flags->AddOutputFolder(
      "train_dir", &train_dir,
      "folder of the chief's checkpoints, from the latest of which training goes on, and of "
      "summaries for TensorBoard");
  flags->Add("sharded_checkpoints", &sharded_checkpoints,
             "the tasks that hold variables write and read the checkpoints of --train_dir, which "
             "all of them see, and not the client");
  flags->Add(
      "refuse_damaged_checkpoint", &refuse_damaged_checkpoint,
      "--train_dir: end where the latest checkpoint is damaged, instead of going on from the "
      "latest one that is whole");
  flags->Add("save_steps", &save_steps, "updates between checkpoints", 1);
  flags->Add("save_summaries_steps", &save_summaries_steps, "updates between summaries", 1);
  flags->Add("max_recoveries", &max_recoveries,
             "--train_dir: how often in a row, without a new step in between, training goes on by "
             "itself from the latest checkpoint after a task was lost; 0: it ends",
             0);
  flags->Add("recovery_timeout", &recovery_timeout,
             "--train_dir: longest time from a loss to the next new step, in seconds");
  flags->AddOutputFile("trace_file", &trace_file,
                       "write Chrome's trace of one step, the last of the warm-up");
  flags->AddOutputFile(
      "result_file", &result_file,
      "write what the run measured, as JSON, for `monograph compare`; worker N's client "
      "writes FILE.N");
  flags->Section("Model");
  flags->Add("fc", &model.fc, "units of the dense layer", 1, Flags::kMostUnits);
  flags->Add(
      "dropout", &model.dropout,
      "fraction of them that each training step drops (1 - keep_prob of the tutorials); 0: none");
  flags->AddChoice("dtype", &dtype, {"float", "bfloat16", "half"},
                   "what lies between the layers; variables, their updates and the loss are float");
  flags->Add("loss_scale", &loss_scale,
             "multiplies the loss, so that small gradients survive in half: none, a number of at "
             "least 1, or dynamic (halved when a gradient overflows, doubled after 2000 steps); "
             "auto: dynamic with --dtype=half, else none");
  flags->Section("Data");
  flags->AddChoice("data_name", &data_name, {"fashion_mnist", "mnist", "synthetic"},
                   "data set; synthetic needs no files");
  flags->Add("data_dir", &data_dir,
             "directory of the four files, plain or .gz; default: that of Debian's package "
             "dataset-fashion-mnist");
  flags->AddChoice("input", &input, {"client", "executor"},
                   "who reads the data: this program, or each worker its own part (the same rows)");
  flags->AddChoice("image_type", &image_type, {"float", "uint8"},
                   "how images travel to the workers");
  flags->Section("Replication");
  AddReplicasTo(flags);
  flags->Add("async", &async, "in_graph: every replica trains at its own pace");
  flags->Add("sync", &sync,
             "between_graph with parameter servers: all workers make one update together");
  flags->Add("num_gpus", &num_gpus,
             "GPUs of each worker, or of this process without a cluster. in_graph: a replica on "
             "each; else replica i is on GPU i % N. 0: workers compute on a GPU if they have one, "
             "and what is split over CPU devices on those",
             0, kMostReplicas);
  flags->Add("split", &split,
             "in_graph: how the batch is cut: even, weights=3,1 (in proportion), or measured (by "
             "the speed of each replica during the warm-up)");
  flags->Add("container", &container,
             "jobs in containers of their own do not see each other's variables; a client that "
             "names one keeps variables that have values already: it comes back to a running job");
  session.AddTo(flags);
  flags->AddCheck([this]() -> Status {
    MG_RETURN_IF_ERROR(Check());
    return CheckPlace();
  });
}

Status Settings::Check() const {
  MG_RETURN_IF_ERROR(CheckReplicas());
  if (!(model.dropout >= 0 && model.dropout < 1))
    return InvalidArgument("--dropout must be in [0, 1)");
  if (!(learning_rate > 0)) return InvalidArgument("--learning_rate must be greater than 0");
  if (steps_per_run > 1 && (steps_in_flight > 1 || (in_graph() && async))) {
    return InvalidArgument("--steps_per_run is for one step at a time: leave out --" +
                           std::string(steps_in_flight > 1 ? "steps_in_flight" : "async"));
  }
  if (steps_per_run > 1 && sync && variable_update != "replicated") {
    return InvalidArgument(
        "--steps_per_run is not for --sync, where each step waits for the chief; with "
        "--variable_update=replicated workers keep in step without one");
  }
  if (!train_dir.empty() && steps_in_flight > 1)
    return InvalidArgument("--train_dir saves between steps: leave out --steps_in_flight");
  if (!(recovery_timeout > 0)) return InvalidArgument("--recovery_timeout must be greater than 0");
  if (split != "even" && (!in_graph() || async)) {
    return InvalidArgument(
        "--split is for --replication=in_graph without --async, where one client "
        "cuts the batch");
  }
  if (split != "even" && input == "executor")
    return InvalidArgument("--split=" + split + " cuts what this program feeds: --input=client");
  if (split == "measured" && num_warmup_batches == 0)
    return InvalidArgument(
        "--split=measured measures in the warm-up: --num_warmup_batches above 0");
  if (split == "measured" && central_device == "client") {
    return InvalidArgument(
        "--split=measured opens a session anew, and variables in this program end with their "
        "session: leave out --central_device=client");
  }
  return LossScaleOf(*this).status();
}

Result<std::optional<LossScaleOptions>> LossScaleOf(const Settings& settings) {
  using Scale = std::optional<LossScaleOptions>;
  const std::string& word = settings.loss_scale;
  if (word == "none" || (word == "auto" && settings.dtype != "half")) return Scale();
  if (word == "dynamic" || word == "auto") return Scale(LossScaleOptions());
  char* end = nullptr;
  const double scale = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !(scale >= 1 && scale <= 1e30)) {
    return InvalidArgument("--loss_scale is auto, none, dynamic or a number of at least 1, not '" +
                           word + "'");
  }
  return Scale({.initial = scale, .dynamic = false, .largest = scale});
}

Result<std::vector<int64_t>> SharesOf(const Settings& settings, size_t replicas) {
  std::vector<int64_t> shares;
  if (settings.split == "even" || settings.split == "measured") return shares;
  const std::string prefix = "weights=";
  if (settings.split.rfind(prefix, 0) != 0) {
    return InvalidArgument("--split is even, measured or weights=3,1,..., not '" + settings.split +
                           "'");
  }
  std::istringstream words(settings.split.substr(prefix.size()));
  for (std::string word; std::getline(words, word, ',');) {
    if (word.empty() || word.size() > 6 ||
        word.find_first_not_of("0123456789") != std::string::npos || std::stoll(word) == 0) {
      return InvalidArgument("--split=" + settings.split + ": '" + word +
                             "' is no whole number above 0");
    }
    shares.push_back(std::stoll(word));
  }
  if (shares.size() != replicas) {
    return InvalidArgument("--split=" + settings.split + " has " + std::to_string(shares.size()) +
                           " weights for " + std::to_string(replicas) + " replicas");
  }
  return shares;
}

Status Settings::CheckPlace() const {
  MG_ASSIGN_OR_RETURN(const Place place, FindPlace(*this));
  if (!place.layout) return Status();
  const Layout& layout = *place.layout;
  if (!place.cluster && split == "measured")
    return InvalidArgument("--split=measured compares the workers of a cluster: give --cluster");
  const int sharers =
      asynchronous() ? static_cast<int>(layout.replicas.size()) : layout.replicas_of_all();
  const int needed = in_graph() && async ? 1 : sharers;
  if (batch_size < needed) {
    return InvalidArgument("--batch_size=" + std::to_string(batch_size) + " is smaller than the " +
                           std::to_string(needed) + " replicas: each needs at least one example");
  }
  return SharesOf(*this, layout.replicas.size()).status();
}

}  // namespace monograph::examples
