// SummaryWriter: scalars, histograms and graphs for TensorBoard (tf.summary.FileWriter).
//
//   auto writer = SummaryWriter::Open("logs/run1").value();
//   writer->AddGraph(graph);
//   writer->AddScalar("loss", loss, global_step);
//   MG_RETURN_IF_ERROR(writer->Flush());
//
// Each writer has a file of its own in the folder, events.out.tfevents.*, in TensorFlow's format:
// TFRecord frames (length, its masked CRC-32C, bytes, their masked CRC-32C) of Event messages
// (train/event.proto). What cannot be written is told by the next Flush, or logged at the end.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

class Graph;
namespace pb {
class Event;
}

class SummaryWriter {
 public:
  // Makes the folder if it is not there. FailedPrecondition names what cannot be written.
  static Result<std::unique_ptr<SummaryWriter>> Open(const std::string& folder);
  ~SummaryWriter();  // flushes
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  void AddScalar(const std::string& tag, double value, int64_t step);
  // Of a tensor of numbers, in TensorFlow's buckets, which grow by a tenth. InvalidArgument for one
  // of another type, or with values that are not finite.
  Status AddHistogram(const std::string& tag, const Tensor& values, int64_t step);
  void AddGraph(const Graph& graph);
  // Training begins, or goes on, with step `first` (SessionLog START): TensorBoard then drops the
  // events of that step and later ones that it has read so far, of this file and of older ones in
  // the folder. Nothing is written where this writer has said so and has no such event since.
  void AddStart(int64_t first);
  // The file has all that was added so far.
  Status Flush();
  const std::string& path() const { return path_; }

 private:
  SummaryWriter(std::string path, std::ofstream file);
  void Write(pb::Event* event);
  void WriteLocked(pb::Event* event) MG_REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::ofstream file_ MG_GUARDED_BY(mutex_);
  bool started_ MG_GUARDED_BY(mutex_) = false;  // AddStart was called
  int64_t last_ MG_GUARDED_BY(mutex_) = 0;      // highest step of an event since
};

}  // namespace monograph
