// Event files by hand: TFRecord frames around protocol messages. A frame is written under the lock
// as a whole, so that threads may share a writer.
#include "train/summary_writer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/record.h"
#include "graph/graph_def.h"
#include "ops/summary/histogram.h"
#include "train/event.pb.h"

namespace monograph {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::unique_ptr<SummaryWriter>> SummaryWriter::Open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FailedPrecondition("cannot make '" + folder + "': " + error.message());
  static std::atomic<int> writers = 0;  // default order: once per file
  char host[256] = "localhost";
  (void)gethostname(host, sizeof host - 1);
  const std::string path = folder + "/events.out.tfevents." +
                           std::to_string(static_cast<int64_t>(NowSeconds())) + "." + host + "." +
                           std::to_string(getpid()) + "." + std::to_string(writers++);
  std::ofstream file(path, std::ios::binary);
  if (!file) return FailedPrecondition("cannot write '" + path + "'");
  std::unique_ptr<SummaryWriter> writer(new SummaryWriter(path, std::move(file)));
  pb::Event event;
  event.set_file_version("brain.Event:2");
  writer->Write(&event);
  MG_RETURN_IF_ERROR(writer->Flush());
  return writer;
}

SummaryWriter::SummaryWriter(std::string path, std::ofstream file)
    : path_(std::move(path)), file_(std::move(file)) {}

SummaryWriter::~SummaryWriter() {
  if (const Status status = Flush(); !status.ok()) LogWarning(status.message());
}

void SummaryWriter::Write(pb::Event* event) {
  MutexLock lock(mutex_);
  WriteLocked(event);
}

void SummaryWriter::WriteLocked(pb::Event* event) {
  last_ = std::max<int64_t>(last_, event->step());
  event->set_wall_time(NowSeconds());
  std::string record;
  AppendRecord(event->SerializeAsString(), &record);
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
}

void SummaryWriter::AddScalar(const std::string& tag, double value, int64_t step) {
  pb::Event event;
  event.set_step(step);
  pb::Summary::Value* scalar = event.mutable_summary()->add_value();
  scalar->set_tag(tag);
  scalar->set_simple_value(static_cast<float>(value));
  Write(&event);
}

Status SummaryWriter::AddHistogram(const std::string& tag, const Tensor& values, int64_t step) {
  pb::Event event;
  event.set_step(step);
  pb::Summary::Value* histogram = event.mutable_summary()->add_value();
  histogram->set_tag(tag);
  MG_RETURN_IF_ERROR(FillHistogram(tag, values, histogram->mutable_histo()));
  Write(&event);
  return Status();
}

void SummaryWriter::AddGraph(const Graph& graph) {
  pb::Event event;
  event.set_graph_def(SerializeGraph(graph));
  Write(&event);
}

void SummaryWriter::AddStart(int64_t first) {
  pb::Event event;
  event.set_step(first);
  event.mutable_session_log()->set_status(pb::SessionLog::START);
  MutexLock lock(mutex_);
  if (started_ && last_ < first) return;
  started_ = true;
  WriteLocked(&event);
  last_ = first - 1;
}

Status SummaryWriter::Flush() {
  MutexLock lock(mutex_);
  file_.flush();
  return file_ ? Status() : FailedPrecondition("cannot write '" + path_ + "'");
}

}  // namespace monograph
