// Readers and their kernels. A reader serves one attempt to read after the other. An attempt that
// finds no open file dequeues the name of one, which may wait, and goes on in the queue's callback;
// whoever waits for the reader waits in a list. So only the attempt that the reader serves touches
// the file, and no lock is held while it reads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/summary_cpu.h"
#include "ops/queue/queue_resource_cpu.h"
#include "ops/reader/record_file.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::reader {
namespace {

using queue::QueueResource;
using variable::FindResource;

struct ReaderSpec {
  static constexpr const char* kNoun = "reader";
  std::string kind, name, compression;
  int64_t header = 0, record = 0, footer = 0, hop = 0;

  std::string ToString() const {
    return kind + "(" + compression + ", " + std::to_string(header) + ", " +
           std::to_string(record) + ", " + std::to_string(footer) + ", " + std::to_string(hop) +
           ")";
  }
};

struct Record {
  std::string key, value;
};

// The records of one file.
class Source {
 public:
  static Result<std::unique_ptr<Source>> Open(const ReaderSpec& spec, const std::string& path) {
    std::unique_ptr<Source> made(new Source(spec, path));
    if (spec.kind != "Identity") {
      MG_ASSIGN_OR_RETURN(made->file_, RecordFile::Open(path, spec.compression));
    }
    if (spec.kind == "TextLine") {
      std::string line;
      for (; made->number_ < spec.header; ++made->number_) {
        MG_ASSIGN_OR_RETURN(const bool more, made->file_->TakeLine(&line));
        if (!more) break;
      }
    } else if (spec.kind == "FixedLengthRecord") {
      MG_RETURN_IF_ERROR(made->file_->Take(static_cast<size_t>(spec.header)).status());
    }
    return made;
  }

  // False at the end.
  Result<bool> Next(Record* record) {
    if (spec_.kind == "TextLine") return NextLine(record);
    if (spec_.kind == "TFRecord") return NextTfRecord(record);
    if (spec_.kind == "FixedLengthRecord") return NextFixed(record);
    if (number_++ > 0) return false;
    record->key = path_;
    record->value = path_;
    if (file_ == nullptr) return true;
    record->value.clear();
    for (;;) {
      MG_ASSIGN_OR_RETURN(const std::string_view part, file_->Take(size_t{1} << 20));
      if (part.empty()) return true;
      record->value += part;
    }
  }

 private:
  Source(const ReaderSpec& spec, std::string path) : spec_(spec), path_(std::move(path)) {}

  Result<bool> NextLine(Record* record) {
    MG_ASSIGN_OR_RETURN(const bool more, file_->TakeLine(&record->value));
    record->key = path_ + ":" + std::to_string(++number_);
    return more;
  }

  Result<bool> NextTfRecord(Record* record) {
    record->key = path_ + ":" + std::to_string(file_->offset());
    return file_->TakeRecord(&record->value);
  }

  // A footer is known as such only when the file ends behind it: it is held back.
  Result<bool> NextFixed(Record* record) {
    const auto size = static_cast<size_t>(spec_.record), footer = static_cast<size_t>(spec_.footer);
    while (held_.size() < size + footer) {
      MG_ASSIGN_OR_RETURN(const std::string_view part, file_->Take(size + footer - held_.size()));
      if (part.empty()) return false;
      held_ += part;
    }
    record->key = path_ + ":" + std::to_string(number_++);
    record->value.assign(held_, 0, size);
    const size_t step = spec_.hop > 0 ? static_cast<size_t>(spec_.hop) : size;
    for (size_t skipped = held_.size(); skipped < step;) {
      MG_ASSIGN_OR_RETURN(const std::string_view part, file_->Take(step - skipped));
      if (part.empty()) break;
      skipped += part.size();
    }
    held_.erase(0, step);
    return true;
  }

  const ReaderSpec& spec_;  // the reader's
  const std::string path_;
  std::unique_ptr<RecordFile> file_;
  int64_t number_ = 0;  // of lines or records so far
  std::string held_;
};

class Reader : public Resource, public std::enable_shared_from_this<Reader> {
 public:
  using Spec = ReaderSpec;
  using Given = std::function<void(const Status&, std::vector<Record>)>;

  explicit Reader(ReaderSpec spec) : spec_(std::move(spec)) {}
  const ReaderSpec& spec() const { return spec_; }

  // Up to `most` records of one file; calls `done` once, with one or more.
  void Read(KernelContext& c, std::shared_ptr<QueueResource> queue, int64_t most, Given done) {
    Enter([this, &c, queue = std::move(queue), most, done = std::move(done)]() mutable {
      Continue({&c, std::move(queue), most, std::move(done)});
    });
  }
  void Reset(Done done) {
    Enter([this, done = std::move(done)] {
      source_.reset();
      {
        MutexLock lock(mutex_);
        records_ = files_ = 0;
      }
      done(Status());
      Leave();
    });
  }

  int64_t records() const {
    MutexLock lock(mutex_);
    return records_;
  }
  int64_t files() const {
    MutexLock lock(mutex_);
    return files_;
  }
  std::string DebugString() const override { return spec_.ToString() + " " + spec_.name; }

 private:
  struct Attempt {
    KernelContext* c;
    std::shared_ptr<QueueResource> queue;
    int64_t most;
    Given done;
  };

  // Runs `work` when nobody else uses the file. It ends with Leave.
  void Enter(std::function<void()> work) {
    {
      MutexLock lock(mutex_);
      waiting_.push_back(std::move(work));
      if (busy_) return;
      busy_ = true;
    }
    RunNext();
  }
  void Leave() { RunNext(); }
  void RunNext() {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) {
        busy_ = false;
        return;
      }
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const auto self = shared_from_this();  // a completion may drop the last reference
    work();
  }

  void End(const Attempt& attempt, const Status& status, std::vector<Record> records) {
    attempt.done(status, std::move(records));
    Leave();
  }

  void Continue(Attempt attempt) {
    if (source_ == nullptr) return TakeFile(std::move(attempt));
    std::vector<Record> records;
    bool more = true;
    while (more && static_cast<int64_t>(records.size()) < attempt.most) {
      Record record;
      const auto next = source_->Next(&record);
      if (!next.ok()) {
        source_.reset();
        return End(attempt, next.status(), {});
      }
      more = *next;
      if (more) records.push_back(std::move(record));
    }
    {
      MutexLock lock(mutex_);
      records_ += static_cast<int64_t>(records.size());
      if (!more) ++files_;
    }
    if (!more) source_.reset();
    if (records.empty()) return TakeFile(std::move(attempt));
    End(attempt, Status(), std::move(records));
  }

  void TakeFile(Attempt attempt) {
    const std::shared_ptr<QueueResource> queue = attempt.queue;
    KernelContext& c = *attempt.c;
    queue->Dequeue(c, 1, false,
                   [self = shared_from_this(), attempt = std::move(attempt)](
                       const Status& status, std::vector<QueueResource::Tuple> tuples) mutable {
                     if (!status.ok()) return self->End(attempt, status, {});
                     const Tensor& name = tuples[0][0];
                     if (tuples[0].size() != 1 || name.dtype() != DT_STRING || name.elements() != 1)
                       return self->End(attempt,
                                        InvalidArgument("Expected queue of single strings"), {});
                     auto opened = Source::Open(self->spec_, *name.strings());
                     if (!opened.ok()) return self->End(attempt, opened.status(), {});
                     self->source_ = std::move(opened).value();
                     self->Continue(std::move(attempt));
                   });
  }

  const ReaderSpec spec_;
  std::unique_ptr<Source> source_;  // of whom the reader serves
  mutable Mutex mutex_;
  std::deque<std::function<void()>> waiting_ MG_GUARDED_BY(mutex_);
  bool busy_ MG_GUARDED_BY(mutex_) = false;
  int64_t records_ MG_GUARDED_BY(mutex_) = 0, files_ MG_GUARDED_BY(mutex_) = 0;
};

Result<ReaderSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  ReaderSpec spec;
  spec.kind = std::string(k.op().substr(0, k.op().find("Reader")));
  spec.name = name;
  const Attrs& attrs = k.attrs();
  spec.compression = attrs.GetOr<std::string>("compression_type", "");
  if (spec.kind == "TextLine") spec.header = attrs.Get<int64_t>("skip_header_lines");
  if (spec.kind != "FixedLengthRecord") return spec;
  spec.compression = attrs.Get<std::string>("encoding");
  spec.header = attrs.Get<int64_t>("header_bytes");
  spec.record = attrs.Get<int64_t>("record_bytes");
  spec.footer = attrs.Get<int64_t>("footer_bytes");
  spec.hop = attrs.Get<int64_t>("hop_bytes");
  if (spec.record <= 0 || spec.header < 0 || spec.footer < 0 || spec.hop < 0) {
    return InvalidArgument(
        "record_bytes must be positive, and header_bytes, footer_bytes and "
        "hop_bytes must not be negative");
  }
  return spec;
}

class ReadKernel : public AsyncKernel {  // also up to a number
 public:
  explicit ReadKernel(const KernelConstruction&) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto reader = FindResource<Reader>(c);
    if (!reader.ok()) return done(reader.status());
    const auto handle = variable::HandleOf(c, 1);
    if (!handle.ok()) return done(handle.status());
    auto queue = c.resources().Find<QueueResource>((*handle)->container, (*handle)->name);
    if (!queue.ok()) return done(queue.status());
    const bool many = c.num_inputs() > 2;
    const int64_t most = many && c.input(2).elements() == 1 ? IndexAt(c.input(2), 0) : many ? 0 : 1;
    if (most < 1) return done(InvalidArgument("num_records must be one positive number"));
    (*reader)->Read(c, std::move(queue).value(), most,
                    [&c, many, done = std::move(done)](const Status& status,
                                                       const std::vector<Record>& records) {
                      done(status.ok() ? Put(c, many, records) : status);
                    });
  }

 private:
  static Status Put(KernelContext& c, bool many, const std::vector<Record>& records) {
    const Shape shape = many ? Shape{static_cast<int64_t>(records.size())} : Shape();
    MG_ASSIGN_OR_RETURN(Tensor * keys, c.AllocateOutput(0, shape));
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, shape));
    for (size_t i = 0; i < records.size(); ++i) {
      keys->strings()[i] = records[i].key;
      values->strings()[i] = records[i].value;
    }
    return Status();
  }
};

class ResetKernel : public AsyncKernel {
 public:
  explicit ResetKernel(const KernelConstruction&) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    auto reader = FindResource<Reader>(c);
    if (!reader.ok()) return done(reader.status());
    (*reader)->Reset(std::move(done));
  }
};

template <int64_t (Reader::*kCount)() const>
class CountKernel : public Kernel {
 public:
  explicit CountKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Reader> reader, FindResource<Reader>(c));
    c.set_output(0, Tensor::Scalar(((*reader).*kCount)()));
    return Status();
  }
};

Result<const std::string*> OneString(const KernelContext& c, int input, const char* name) {
  if (c.input(input).elements() != 1)
    return InvalidArgument(std::string(name) + " must be a scalar, but had shape: " +
                           c.input(input).shape().ToString());
  return c.input(input).strings();
}

Status ReadFileOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::string* path, OneString(c, 0, "filename"));
  MG_ASSIGN_OR_RETURN(std::string contents, ReadInputFile("the file", *path, kMostDataBytes));
  c.set_output(0, Tensor::String(std::move(contents)));
  return Status();
}

// Writes beside the file and then renames, so that nobody reads a part.
Status WriteFileOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::string* path, OneString(c, 0, "filename"));
  MG_ASSIGN_OR_RETURN(const std::string* contents, OneString(c, 1, "contents"));
  std::error_code error;
  const std::filesystem::path file(*path);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  const std::string beside = *path + ".part";
  {
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    out.write(contents->data(), static_cast<std::streamsize>(contents->size()));
    out.flush();
    if (!out) return FailedPrecondition("cannot write '" + *path + "'");
  }
  std::filesystem::rename(beside, file, error);
  if (error) return FailedPrecondition("cannot write '" + *path + "': " + error.message());
  return Status();
}

// *, ? and [...] within one name of a path.
bool Matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern.front() == '*') {
      pattern.remove_prefix(1);
      for (size_t i = 0; i <= name.size(); ++i) {
        if (Matches(pattern, name.substr(i))) return true;
      }
      return false;
    }
    if (name.empty()) return false;
    size_t used = 1;
    if (const size_t end = pattern.find(']', 2); pattern.front() == '[' && end != pattern.npos) {
      std::string_view set = pattern.substr(1, end - 1);
      const bool turned = set.front() == '^' || set.front() == '!';
      if (turned) set.remove_prefix(1);
      bool found = false;
      for (size_t i = 0; i < set.size(); ++i) {
        if (i + 2 < set.size() && set[i + 1] == '-') {
          found = found || (set[i] <= name.front() && name.front() <= set[i + 2]);
          i += 2;
        } else {
          found = found || set[i] == name.front();
        }
      }
      if (found == turned) return false;
      used = end + 1;
    } else {
      if (pattern.front() == '\\' && pattern.size() > 1)
        pattern.remove_prefix(1);
      else if (pattern.front() == '?') {
        pattern.remove_prefix(1);
        name.remove_prefix(1);
        continue;
      }
      if (pattern.front() != name.front()) return false;
    }
    pattern.remove_prefix(used);
    name.remove_prefix(1);
  }
  return name.empty();
}

// The paths that match, folder by folder.
std::vector<std::string> MatchesOf(const std::string& pattern) {
  std::vector<std::string> found = {pattern.starts_with('/') ? "/" : ""};
  for (const std::filesystem::path& part : std::filesystem::path(pattern).relative_path()) {
    std::vector<std::string> next;
    const bool plain = part.string().find_first_of("*?[\\") == std::string::npos;
    for (const std::string& folder : found) {
      const std::string prefix = folder.empty() || folder == "/" ? folder : folder + "/";
      std::error_code error;
      if (plain) {
        if (std::filesystem::exists(prefix + part.string(), error))
          next.push_back(prefix + part.string());
        continue;
      }
      const std::filesystem::path where = folder.empty() ? "." : folder;
      for (auto entry = std::filesystem::directory_iterator(where, error);
           !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (Matches(part.string(), name)) next.push_back(prefix + name);
      }
    }
    found = std::move(next);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Status MatchingFilesOf(KernelContext& c, const Attrs&) {
  std::vector<std::string> all;
  for (const std::string& pattern :
       std::span(c.input(0).strings(), static_cast<size_t>(c.input(0).elements()))) {
    std::vector<std::string> found = MatchesOf(pattern);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::sort(all.begin(), all.end());
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{static_cast<int64_t>(all.size())}));
  std::move(all.begin(), all.end(), out->strings());
  return Status();
}

class PrintKernel : public Kernel {
 public:
  explicit PrintKernel(const KernelConstruction& k)
      : message_(k.attr<std::string>("message")),
        first_(k.attr<int64_t>("first_n")),
        summarize_(k.attr<int64_t>("summarize")) {}
  Status Compute(KernelContext& c) override {
    // Relaxed: only the number matters.
    if (first_ < 0 || printed_.fetch_add(1, std::memory_order_relaxed) < first_) {
      std::string line = message_;
      for (int i = 1; i < c.num_inputs(); ++i)
        line += "[" + SummaryOf(c.input(i), summarize_) + "]";
      std::cerr << line + "\n" << std::flush;
    }
    c.set_output(0, c.TakeInput(0));
    return Status();
  }

 private:
  const std::string message_;
  const int64_t first_, summarize_;
  std::atomic<int64_t> printed_ = 0;
};

class PrintV2Kernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<PrintV2Kernel>();
    kernel->stream_ = k.attr<std::string>("output_stream");
    kernel->end_ = k.attr<std::string>("end");
    const std::string& stream = kernel->stream_;
    const bool log = stream == "log(info)" || stream == "log(warning)" || stream == "log(error)";
    if (stream != "stdout" && stream != "stderr" && !log) {
      return InvalidArgument("output_stream '" + stream +
                             "' is not supported; known are stdout, stderr, log(info), "
                             "log(warning) and log(error)");
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string* text, OneString(c, 0, "input"));
    (stream_ == "stdout" ? std::cout : std::cerr) << *text + end_ << std::flush;
    return Status();
  }

 private:
  std::string stream_, end_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::HandleKernel;
  for (const char* op : {"TFRecordReaderV2", "TextLineReaderV2", "FixedLengthRecordReaderV2",
                         "WholeFileReaderV2", "IdentityReaderV2"}) {
    registry->Add<HandleKernel<Reader, SpecOf>>({.op = op});
  }
  const auto add = [registry]<typename K>(const char* op) { registry->Add<K>({.op = op}); };
  add.operator()<ReadKernel>("ReaderReadV2");
  add.operator()<ReadKernel>("ReaderReadUpToV2");
  add.operator()<ResetKernel>("ReaderResetV2");
  add.operator()<CountKernel<&Reader::records>>("ReaderNumRecordsProducedV2");
  add.operator()<CountKernel<&Reader::files>>("ReaderNumWorkUnitsCompletedV2");
  add.operator()<FunctionKernel<ReadFileOf>>("ReadFile");
  add.operator()<FunctionKernel<WriteFileOf>>("WriteFile");
  add.operator()<FunctionKernel<MatchingFilesOf>>("MatchingFiles");
  add.operator()<PrintKernel>("Print");
  add.operator()<PrintV2Kernel>("PrintV2");
}

}  // namespace monograph::ops::reader
