// The numbers of a training run, and their file. ToJson writes what ReadResult reads: a field that
// is added to one belongs in the other. The digest of the variables is a SHA-256 of each variable's
// type, shape and bytes, and then of the sorted list of names and digests: two runs with equal
// digests have equal bits in every variable.
#include "tools/run_metrics.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/input_file.h"
#include "base/json_value.h"
#include "client/session.h"
#include "executor/worker/task_status.h"

namespace monograph {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;

class Sha256 {
 public:
  Sha256() { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(const void* data, size_t bytes) { EVP_DigestUpdate(context_.get(), data, bytes); }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += "0123456789abcdef"[digest[i] >> 4];
      text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free};
};

std::string DigestOf(const Tensor& value) {
  Sha256 sha;
  const std::string kind = std::string(DTypeName(value.dtype())) + value.shape().ToString();
  sha.Add(kind.data(), kind.size());
  sha.Add(value.raw(), value.bytes());
  return sha.Hex();
}

RunResult::Task Counters(const TaskStatus& status) {
  return {status.task,          status.bytes_sent,        status.bytes_received,
          status.messages_sent, status.messages_received, status.cpu_seconds};
}

OrderedJson ToJsonValue(const std::optional<CriticalPath>& path) {
  if (!path) return nullptr;
  OrderedJson segments = OrderedJson::array();
  for (const PathSegment& segment : path->segments) {
    segments.push_back({{"kind", PathKindName(segment.kind)},
                        {"name", segment.name},
                        {"op", segment.op},
                        {"task", segment.task},
                        {"start_us", segment.start_us},
                        {"us", segment.us}});
  }
  return {{"total_us", path->total_us},
          {"compute_us", path->compute_us},
          {"transfer_us", path->transfer_us},
          {"wait_us", path->wait_us},
          {"segments", std::move(segments)}};
}

std::optional<CriticalPath> ReadPath(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  CriticalPath path{.total_us = json.at("total_us"),
                    .compute_us = json.at("compute_us"),
                    .transfer_us = json.at("transfer_us"),
                    .wait_us = json.at("wait_us"),
                    .segments = {}};
  for (const auto& item : json.at("segments")) {
    PathSegment segment{.name = item.at("name"),
                        .op = item.at("op"),
                        .task = item.at("task"),
                        .start_us = item.at("start_us"),
                        .us = item.at("us")};
    const std::string kind = item.at("kind");
    segment.kind = kind == "compute"    ? PathSegment::Kind::kCompute
                   : kind == "transfer" ? PathSegment::Kind::kTransfer
                                        : PathSegment::Kind::kWait;
    path.segments.push_back(std::move(segment));
  }
  return path;
}

RunResult ReadResult(const nlohmann::json& json) {
  RunResult result;
  result.program = json.at("program");
  result.flags = json.at("flags").get<std::map<std::string, std::string>>();
  result.client = json.at("client");
  result.clients = json.at("clients");
  result.workers = json.at("workers");
  result.batch_size = json.at("batch_size");
  result.started_at = json.at("started_at");
  result.seconds = json.at("seconds");
  result.images = json.at("images");
  result.cpu_seconds = json.at("cpu_seconds");
  const auto starts = json.at("steps").at("start_us").get<std::vector<double>>();
  const auto times = json.at("steps").at("us").get<std::vector<double>>();
  for (size_t i = 0; i < std::min(starts.size(), times.size()); ++i)
    result.steps.push_back({starts[i], times[i]});
  for (const auto& line : json.at("display"))
    result.display.push_back(
        {line.at("step"), line.at("us"),
         line.at("loss").is_null() ? NAN : line.at("loss").get<double>(),
         line.at("accuracy").is_null() ? NAN : line.at("accuracy").get<double>()});
  if (!json.at("test_accuracy").is_null())
    result.test_accuracy = json.at("test_accuracy").get<double>();
  for (const auto& task : json.at("tasks"))
    result.tasks.push_back({task.at("task"), task.at("bytes_sent"), task.at("bytes_received"),
                            task.at("messages_sent"), task.at("messages_received"),
                            task.at("cpu_seconds")});
  result.variables = json.at("variables").get<std::map<std::string, std::string>>();
  result.digest = json.at("digest");
  result.critical_path = ReadPath(json.at("critical_path"));
  return result;
}

// Tenths of microseconds are enough, and short.
double Rounded(double us) { return std::round(us * 10) / 10; }

}  // namespace

std::string ToJson(const RunResult& result) {
  OrderedJson starts = OrderedJson::array(), times = OrderedJson::array();
  for (const RunResult::Step& step : result.steps) {
    starts.push_back(Rounded(step.start_us));
    times.push_back(Rounded(step.us));
  }
  OrderedJson display = OrderedJson::array();
  for (const RunResult::Progress& line : result.display)
    display.push_back({{"step", line.step},
                       {"us", Rounded(line.us)},
                       {"loss", line.loss},
                       {"accuracy", line.accuracy}});
  OrderedJson tasks = OrderedJson::array();
  for (const RunResult::Task& task : result.tasks) {
    tasks.push_back({{"task", task.task},
                     {"bytes_sent", task.bytes_sent},
                     {"bytes_received", task.bytes_received},
                     {"messages_sent", task.messages_sent},
                     {"messages_received", task.messages_received},
                     {"cpu_seconds", task.cpu_seconds}});
  }
  const OrderedJson json = {
      {"monograph_result", kVersion},
      {"program", result.program},
      {"flags", result.flags},
      {"client", result.client},
      {"clients", result.clients},
      {"workers", result.workers},
      {"batch_size", result.batch_size},
      {"started_at", result.started_at},
      {"seconds", result.seconds},
      {"images", result.images},
      {"cpu_seconds", result.cpu_seconds},
      {"steps", {{"start_us", std::move(starts)}, {"us", std::move(times)}}},
      {"display", std::move(display)},
      {"test_accuracy",
       result.test_accuracy ? OrderedJson(*result.test_accuracy) : OrderedJson(nullptr)},
      {"tasks", std::move(tasks)},
      {"variables", result.variables},
      {"digest", result.digest},
      {"critical_path", ToJsonValue(result.critical_path)}};
  return JsonText(json) + "\n";
}

Result<RunResult> ParseRunResult(const std::string& text, const std::string& source) {
  MG_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, source));
  if (!json.is_object() || !json.contains("monograph_result"))
    return InvalidArgument(
        source + " is not the result of a run: an object with \"monograph_result\" is expected");
  if (json["monograph_result"] != kVersion)
    return Unimplemented(source + " has version " + JsonExcerpt(json["monograph_result"]) +
                         "; this program reads " + std::to_string(kVersion));
  try {
    return ReadResult(json);
  } catch (const OrderedJson::exception& error) {
    return InvalidArgument(source + ": " + error.what());
  }
}

Result<RunResult> ReadRunResult(const std::string& path) {
  MG_ASSIGN_OR_RETURN(const std::string text, ReadInputFile("result", path, kMostTableBytes));
  return ParseRunResult(text, path);
}

std::string ResultPath(const std::string& path, int client) {
  return client == 0 ? path : path + "." + std::to_string(client);
}

Status RunMetrics::Begin(Session* session) {
  before_.clear();
  end_.reset();
  MG_ASSIGN_OR_RETURN(const std::vector<TaskStatus> tasks, session->Tasks());
  for (const TaskStatus& task : tasks) before_.push_back(Counters(task));
  MutexLock lock(mutex_);
  result_.started_at =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  begin_ = Clock::now();
  return Status();
}

namespace {

// A task that was restarted in between has counted from 0 since.
template <typename T>
T Since(T before, T now) {
  return now >= before ? now - before : now;
}

}  // namespace

Status RunMetrics::End(Session* session) {
  if (!end_) end_ = Clock::now();
  const std::vector<Result<TaskStatus>> tasks = session->EachTask();
  MG_RETURN_IF_ERROR(tasks[0].status());  // this process
  if (tasks.size() != before_.size())
    return FailedPrecondition("RunMetrics::End with another session than Begin");
  MutexLock lock(mutex_);
  result_.seconds = std::chrono::duration<double>(*end_ - begin_).count();
  result_.tasks.clear();
  Status status;
  for (size_t i = 0; i < tasks.size(); ++i) {
    status.Update(tasks[i].status());
    if (!tasks[i].ok()) continue;
    RunResult::Task task = Counters(*tasks[i]);
    task.bytes_sent = Since(before_[i].bytes_sent, task.bytes_sent);
    task.bytes_received = Since(before_[i].bytes_received, task.bytes_received);
    task.messages_sent = Since(before_[i].messages_sent, task.messages_sent);
    task.messages_received = Since(before_[i].messages_received, task.messages_received);
    task.cpu_seconds = Since(before_[i].cpu_seconds, task.cpu_seconds);
    result_.tasks.push_back(std::move(task));
  }
  result_.cpu_seconds = result_.tasks[0].cpu_seconds;
  std::sort(
      result_.steps.begin(), result_.steps.end(),
      [](const RunResult::Step& a, const RunResult::Step& b) { return a.start_us < b.start_us; });
  return status;
}

void RunMetrics::Step(Clock::time_point begin, Clock::time_point end, int64_t images, int steps) {
  const auto us = [](Clock::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  MutexLock lock(mutex_);
  const double each = us(end - begin) / steps;
  for (int i = 0; i < steps; ++i) result_.steps.push_back({us(begin - begin_) + i * each, each});
  result_.images += images;
}

void RunMetrics::Display(int64_t step, double loss, double accuracy) {
  MutexLock lock(mutex_);
  result_.display.push_back(
      {step, std::chrono::duration<double, std::micro>(Clock::now() - begin_).count(), loss,
       accuracy});
}

Status RunMetrics::ReadVariables(Session* session, std::span<const ModelVariable> variables) {
  std::vector<Output> values;
  for (const ModelVariable& variable : variables) values.push_back(variable.value);
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, session->Run({}, values));
  MutexLock lock(mutex_);
  result_.variables.clear();
  for (size_t i = 0; i < tensors.size(); ++i)
    result_.variables[variables[i].name] = DigestOf(tensors[i]);
  Sha256 all;
  for (const auto& [name, digest] : result_.variables) {
    const std::string line = name + " " + digest + "\n";
    all.Add(line.data(), line.size());
  }
  result_.digest = all.Hex();
  return Status();
}

Status RunMetrics::TraceStep(const std::string& trace_json) {
  MG_ASSIGN_OR_RETURN(auto critical_path, FindCriticalPath(trace_json));
  MutexLock lock(mutex_);
  result_.critical_path = std::move(critical_path);
  return Status();
}

Status RunMetrics::Write(const std::string& path) const {
  // A plain file is replaced as a whole; a pipe or /dev/stdout is written to.
  std::error_code error;
  const bool plain =
      !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error);
  const std::string beside = plain ? path + ".part" : path;
  std::ofstream file(beside);
  file << ToJson(result());
  file.close();
  error.clear();
  if (file && plain) std::filesystem::rename(beside, path, error);
  if (!file || error) return FailedPrecondition("cannot write the results to '" + path + "'");
  return Status();
}

}  // namespace monograph
