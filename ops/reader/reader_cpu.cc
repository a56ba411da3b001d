// Readers and their kernels. A reader serves one attempt to read after the other. An attempt that
// finds no open file dequeues the name of one; where that waits, a thread (mg-file) goes on when it
// has come. Whoever waits for the reader waits in a list, which an abort of its step takes it out
// of. So only the attempt that the reader serves touches the file, and no lock is held while it
// reads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "graph/wire.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/room_cpu.h"
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

  // A file is one record, which ends it: between two records the reader has none open, and all
  // there is to know of it are its counts. It is then that a reader has a state to keep.
  bool has_state() const { return kind == "WholeFile" || kind == "Identity"; }

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
  static Result<std::unique_ptr<Source>> Open(const KernelContext& c, const ReaderSpec& spec,
                                              const std::string& path) {
    std::unique_ptr<Source> made(new Source(spec, path));
    if (spec.kind != "Identity") {
      MG_ASSIGN_OR_RETURN(made->file_, RecordFile::Open(path, spec.compression));
    }
    if (spec.kind == "TextLine") {
      std::string line;
      Looks looks(c);
      for (; made->number_ < spec.header; ++made->number_) {
        if (!looks.GoOn(line)) return StepAborted();
        MG_ASSIGN_OR_RETURN(const bool more, made->file_->TakeLine(&line));
        if (!more) break;
      }
    } else if (spec.kind == "FixedLengthRecord") {
      MG_RETURN_IF_ERROR(made->file_->Take(static_cast<size_t>(spec.header)).status());
    }
    return made;
  }

  const std::string& path() const { return path_; }
  // What was read is the last, as is known without a further look.
  bool ended() const { return spec_.has_state() && number_ > 0; }

  // False at the end; not called behind it. Cancelled once the step of `c` is aborted.
  Result<bool> Next(const KernelContext& c, Record* record) {
    if (spec_.kind == "TextLine") return NextLine(record);
    if (spec_.kind == "TFRecord") return NextTfRecord(record);
    if (spec_.kind == "FixedLengthRecord") return NextFixed(record);
    ++number_;
    record->key = path_;
    record->value = path_;
    if (file_ == nullptr) return true;
    record->value.clear();
    for (;;) {
      if (c.cancelled()) return StepAborted();
      MG_ASSIGN_OR_RETURN(const std::string_view part, file_->Take(size_t{1} << 20));
      if (part.empty()) return true;
      MG_RETURN_IF_ERROR(room_.Hold(2 * (record->value.size() + part.size()), path_));
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
  Room room_;  // for a file that is one record
};

class Reader : public Resource, public std::enable_shared_from_this<Reader> {
 public:
  using Spec = ReaderSpec;
  using Given = std::function<void(const Status&, std::vector<Record>)>;

  explicit Reader(ReaderSpec spec) : spec_(std::move(spec)) {}
  const ReaderSpec& spec() const { return spec_; }

  // Up to `most` records of one file; calls `done` once, with one or more.
  void Read(KernelContext& c, std::shared_ptr<QueueResource> queue, int64_t most, Given done) {
    Attempt attempt;
    attempt.c = &c;
    attempt.queue = std::move(queue);
    attempt.most = most;
    attempt.done = std::move(done);
    Enter(std::move(attempt));
  }
  void Reset(KernelContext& c, Done done) {
    Attempt attempt;
    attempt.c = &c;
    attempt.done = [done = std::move(done)](const Status& status, const std::vector<Record>&) {
      done(status);
    };
    Enter(std::move(attempt));
  }

  int64_t records() const {
    MutexLock lock(mutex_);
    return records_;
  }
  int64_t files() const {
    MutexLock lock(mutex_);
    return files_;
  }
  // TensorFlow's message of a reader's state; fields of 0 and empty ones are left out:
  //   { 1: varint, files begun  2: varint, files read  3: varint, records  4: bytes, last file }
  Result<std::string> State() const {
    if (!spec_.has_state()) return Unimplemented("Reader SerializeState");
    MutexLock lock(mutex_);
    std::string state;
    uint64_t field = 0;
    for (const int64_t count : {begun_, files_, records_}) {
      ++field;
      if (count == 0) continue;
      wire_format::PutVarint(&state, field << 3);
      wire_format::PutVarint(&state, static_cast<uint64_t>(count));
    }
    if (!last_file_.empty()) wire_format::PutBytes(&state, 4, last_file_);
    return state;
  }
  // A state that cannot be resets the reader.
  Status Restore(std::string_view state) {
    if (!spec_.has_state()) return Unimplemented("Reader RestoreState");
    int64_t counts[3] = {};
    std::string_view last;
    wire_format::Reader in(state);
    while (!in.done()) {
      const uint64_t tag = in.Tag(), field = tag >> 3;  // 0 where there is no tag
      if ((tag & 7) == 0 && field >= 1 && field <= 3) {
        counts[field - 1] = static_cast<int64_t>(in.Varint());
      } else if (tag == (4 << 3 | 2)) {
        in.Bytes(&last);
      } else {
        in.Skip(tag);
      }
    }
    Status status;
    const std::string reader = spec_.kind + "Reader '" + spec_.name + "'";
    if (!in.ok()) {
      status = InvalidArgument("Could not parse state for " + reader);
    } else if (std::any_of(counts, counts + 3, [](int64_t count) { return count < 0; })) {
      status = InvalidArgument("Unexpected negative value when restoring in " + reader);
    } else if (counts[0] > counts[1]) {
      status =
          InvalidArgument("Inconsistent work started vs. finished when restoring in " + reader +
                          ": " + std::to_string(counts[0]) + " and " + std::to_string(counts[1]));
    }
    MutexLock lock(mutex_);
    begun_ = status.ok() ? counts[0] : 0;
    files_ = status.ok() ? counts[1] : 0;
    records_ = status.ok() ? counts[2] : 0;
    last_file_ = status.ok() ? last : "";
    return status;
  }

  std::string DebugString() const override { return spec_.ToString() + " " + spec_.name; }

 private:
  struct Attempt {
    KernelContext* c = nullptr;
    std::shared_ptr<QueueResource> queue;  // nullptr: resets the reader
    int64_t most = 0;
    Given done;
    std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
  };
  // What the queue gives an attempt, perhaps later and on a thread of others.
  struct Answer {
    Status status;
    std::vector<QueueResource::Tuple> tuples;
    // Set by who answers and by who asked, when the call that asks is over: the second goes on.
    std::atomic<bool> one_is_through{false};
  };

  Status Aborted() const {
    return Cancelled("reader '" + spec_.name + "' is used by another step").AsDerived();
  }

  void Enter(Attempt attempt) {
    const std::shared_ptr<Reader> self = shared_from_this();
    const std::shared_ptr<std::atomic<bool>> aborted = attempt.aborted;
    // Before others may serve it, which leaves something else to cancel.
    const bool runs = attempt.c->OnCancel([self, aborted] {
      *aborted = true;
      self->Drop(aborted.get());
    });
    std::optional<Attempt> refused;
    {
      MutexLock lock(mutex_);
      if (!runs || *aborted) {
        refused = std::move(attempt);
      } else {
        waiting_.push_back(std::move(attempt));
        if (std::exchange(busy_, true)) return;
      }
    }
    if (refused) return refused->done(Aborted(), {});
    Serve(self, std::nullopt, nullptr);
  }

  // Ends an attempt that still waits for the reader.
  void Drop(const std::atomic<bool>* aborted) {
    std::optional<Attempt> dropped;
    {
      MutexLock lock(mutex_);
      const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const Attempt& waits) {
        return waits.aborted.get() == aborted;
      });
      if (at == waiting_.end()) return;
      dropped = std::move(*at);
      waiting_.erase(at);
    }
    dropped->done(Aborted(), {});
  }

  // The next attempt. Without one nobody uses the reader any more.
  std::optional<Attempt> Next() {
    MutexLock lock(mutex_);
    busy_ = !waiting_.empty();
    if (!busy_) return std::nullopt;
    std::optional<Attempt> next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

  // Serves one attempt after the other, from `attempt` on, whose answer has come, until one must
  // wait for the queue or there is none. `self`: a completion may drop the last reference.
  static void Serve(const std::shared_ptr<Reader>& self, std::optional<Attempt> attempt,
                    std::shared_ptr<Answer> answer) {
    for (;;) {
      if (!attempt) attempt = self->Next();
      if (!attempt) return;
      if (attempt->queue == nullptr) {
        self->Restart();
        attempt->done(Status(), {});
        attempt.reset();
        continue;
      }
      std::vector<Record> records;
      Room room;  // for the records, until they are given out
      Status status = answer == nullptr ? Status() : self->Open(*attempt->c, *answer);
      answer.reset();
      if (status.ok() && self->source_ != nullptr)
        status = self->Take(*attempt->c, attempt->most, &records, &room);
      if (!status.ok() || !records.empty()) {
        if (!status.ok()) records.clear();
        attempt->done(status, std::move(records));
        attempt.reset();
        continue;
      }
      answer = Ask(self, *attempt);
      if (answer == nullptr) return;
    }
  }

  void Restart() {
    source_.reset();
    MutexLock lock(mutex_);
    records_ = files_ = begun_ = 0;
    last_file_.clear();
  }

  Status Open(const KernelContext& c, const Answer& answer) {
    MG_RETURN_IF_ERROR(answer.status);
    const QueueResource::Tuple& tuple = answer.tuples[0];
    if (tuple.size() != 1 || tuple[0].dtype() != DT_STRING || tuple[0].elements() != 1)
      return InvalidArgument("Expected queue of single strings");
    MG_ASSIGN_OR_RETURN(source_, Source::Open(c, spec_, *tuple[0].strings()));
    return Status();
  }

  // None if the file has no more. An aborted step gets what was read until then, which nobody will
  // see; the next one goes on behind it.
  Status Take(const KernelContext& c, int64_t most, std::vector<Record>* records, Room* room) {
    bool more = true;
    size_t bytes = 0;
    Looks looks(c);
    Status status;
    while (status.ok() && more && static_cast<int64_t>(records->size()) < most) {
      Record record;
      const auto next = source_->Next(c, &record);
      status = next.status();
      more = status.ok() && *next;
      if (!more) break;
      bytes += sizeof(Record) + record.key.size() + record.value.size();
      status = room->Hold(2 * bytes, spec_.name);
      records->push_back(std::move(record));
      more = !source_->ended();
      if (!looks.GoOn(records->back().value)) break;
    }
    const std::string path = source_->path();
    if (!more || !status.ok()) source_.reset();
    MG_RETURN_IF_ERROR(status);
    MutexLock lock(mutex_);
    records_ += static_cast<int64_t>(records->size());
    if (more) return Status();
    ++begun_;
    // Counts that were restored may differ.
    files_ = spec_.has_state() ? begun_ : files_ + 1;
    last_file_ = path;
    return Status();
  }

  // The name of the next file; nullptr if it is not there yet: a thread goes on when it comes,
  // since who enqueues it may have other duties.
  static std::shared_ptr<Answer> Ask(const std::shared_ptr<Reader>& self, const Attempt& attempt) {
    auto answer = std::make_shared<Answer>();
    attempt.queue->Dequeue(
        *attempt.c, 1, false,
        [self, attempt, answer](const Status& status, std::vector<QueueResource::Tuple> tuples) {
          answer->status = status;
          answer->tuples = std::move(tuples);
          if (!answer->one_is_through.exchange(true)) return;
          const auto go_on = [self, attempt, answer] { Serve(self, attempt, answer); };
          try {
            StartThread("mg-file", go_on).detach();
          } catch (const std::system_error&) {  // no more threads: here, then
            go_on();
          }
        });
    return answer->one_is_through.exchange(true) ? answer : nullptr;
  }

  const ReaderSpec spec_;
  std::unique_ptr<Source> source_;  // of whom the reader serves
  mutable Mutex mutex_;
  std::deque<Attempt> waiting_ MG_GUARDED_BY(mutex_);
  bool busy_ MG_GUARDED_BY(mutex_) = false;
  int64_t records_ MG_GUARDED_BY(mutex_) = 0, files_ MG_GUARDED_BY(mutex_) = 0;
  int64_t begun_ MG_GUARDED_BY(mutex_) = 0;  // of the files that were read to their end
  std::string last_file_ MG_GUARDED_BY(mutex_);
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
  for (const int64_t bytes : {spec.record, spec.header, spec.footer, spec.hop}) {
    if (static_cast<uint64_t>(bytes) <= kMostDataBytes) continue;
    return InvalidArgument(
        "record_bytes, header_bytes, footer_bytes and hop_bytes must be at most " +
        std::to_string(kMostDataBytes) + ", not " + std::to_string(bytes));
  }
  return spec;
}

class ReadKernel : public AsyncKernel {  // also up to a number
 public:
  explicit ReadKernel(const KernelConstruction&) {}
  void ComputeAsync(KernelContext& c, Done done) override {
    c.AllowCancel();
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
    Looks looks(c);
    for (size_t i = 0; i < records.size(); ++i) {
      const size_t bytes =
          StringBytes(records[i].key.size()) + StringBytes(records[i].value.size());
      if (!looks.GoOn(records[i].value) || !looks.RoomFor(bytes)) return StepAborted();
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
    (*reader)->Reset(c, std::move(done));
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

class StateKernel : public Kernel {
 public:
  explicit StateKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Reader> reader, FindResource<Reader>(c));
    MG_ASSIGN_OR_RETURN(std::string state, reader->State());
    c.set_output(0, Tensor::String(std::move(state)));
    return Status();
  }
};

class RestoreKernel : public Kernel {
 public:
  explicit RestoreKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Reader> reader, FindResource<Reader>(c));
    if (c.input(1).shape().rank() != 0) {
      return InvalidArgument("Reader state must be scalar, but had shape: " +
                             c.input(1).shape().ToString());
    }
    return reader->Restore(*c.input(1).strings());
  }
};

Status ReadFileOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::string* path, StringOf(c.input(0), "filename"));
  MG_ASSIGN_OR_RETURN(std::string contents, ReadInputFile("the file", *path, kMostDataBytes));
  c.set_output(0, Tensor::String(std::move(contents)));
  return Status();
}

// Writes beside the file and then renames, so that nobody reads a part.
Status WriteFileOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::string* path, StringOf(c.input(0), "filename"));
  MG_ASSIGN_OR_RETURN(const std::string* contents, StringOf(c.input(1), "contents"));
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

// How much of the pattern stands for one character, if it stands for this one; else 0.
size_t UsedBy(std::string_view pattern, char c) {
  if (pattern.empty()) return 0;
  if (pattern.front() == '?') return 1;
  if (pattern.front() == '\\' && pattern.size() > 1) return pattern[1] == c ? 2 : 0;
  const size_t end = pattern.front() == '[' ? pattern.find(']', 2) : pattern.npos;
  if (end == pattern.npos) return pattern.front() == c ? 1 : 0;
  std::string_view set = pattern.substr(1, end - 1);
  const bool turned = set.front() == '^' || set.front() == '!';
  if (turned) set.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (set[i] <= c && c <= set[i + 2]);
      i += 2;
    } else {
      found = found || set[i] == c;
    }
  }
  return found == turned ? 0 : end + 1;
}

// *, ? and [...] within one name of a path. Only the last star can have to take one character more:
// an earlier one that took more would leave less to what follows.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, behind_star = pattern.npos, star_until = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      behind_star = ++p;
      star_until = n;
    } else if (const size_t used = UsedBy(pattern.substr(p), name[n]); used > 0) {
      p += used;
      ++n;
    } else if (behind_star != pattern.npos) {
      p = behind_star;
      n = ++star_until;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

// Paths that were found, and room for them.
class Paths {
 public:
  Status Add(std::string path) {
    bytes_ += sizeof(std::string) + path.size();
    MG_RETURN_IF_ERROR(room_.Hold(2 * bytes_, "the list of matching files"));
    paths_.push_back(std::move(path));
    return Status();
  }
  std::vector<std::string>& paths() { return paths_; }

 private:
  std::vector<std::string> paths_;
  size_t bytes_ = 0;
  Room room_;
};

// Adds the paths that match, folder by folder. A pattern that goes back up ("*/../*") names the
// same folders again and again: there may be very many.
Status FindMatches(const std::string& pattern, Looks* looks, Paths* matches) {
  constexpr int64_t kEachFile = 1000;
  const auto look = [looks](const std::string& part) {
    return looks->GoOn(kEachFile + static_cast<int64_t>(part.size()))
               ? Status()
               : Cancelled("the step was aborted");
  };
  Paths found;
  MG_RETURN_IF_ERROR(found.Add(pattern.starts_with('/') ? "/" : ""));
  for (const std::filesystem::path& name_or_pattern :
       std::filesystem::path(pattern).relative_path()) {
    const std::string part = name_or_pattern.string();
    Paths next;
    const bool plain = part.find_first_of("*?[\\") == std::string::npos;
    for (const std::string& folder : found.paths()) {
      const std::string prefix = folder.empty() || folder == "/" ? folder : folder + "/";
      std::error_code error;
      MG_RETURN_IF_ERROR(look(part));
      if (plain) {
        if (std::filesystem::exists(prefix + part, error))
          MG_RETURN_IF_ERROR(next.Add(prefix + part));
        continue;
      }
      const std::filesystem::path where = folder.empty() ? "." : folder;
      for (auto entry = std::filesystem::directory_iterator(where, error);
           !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename();
        MG_RETURN_IF_ERROR(look(part));
        if (Matches(part, name)) MG_RETURN_IF_ERROR(next.Add(prefix + name));
      }
    }
    found = std::move(next);
  }
  for (std::string& path : found.paths()) MG_RETURN_IF_ERROR(matches->Add(std::move(path)));
  return Status();
}

Status MatchingFilesOf(KernelContext& c, const Attrs&) {
  Paths matches;
  Looks looks(c);
  for (const std::string& pattern :
       std::span(c.input(0).strings(), static_cast<size_t>(c.input(0).elements())))
    MG_RETURN_IF_ERROR(FindMatches(pattern, &looks, &matches));
  std::vector<std::string>& all = matches.paths();
  std::sort(all.begin(), all.end());
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{static_cast<int64_t>(all.size())}));
  std::move(all.begin(), all.end(), out->strings());
  return Status();
}

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
  add.operator()<StateKernel>("ReaderSerializeStateV2");
  add.operator()<RestoreKernel>("ReaderRestoreStateV2");
  add.operator()<FunctionKernel<ReadFileOf>>("ReadFile");
  add.operator()<FunctionKernel<WriteFileOf>>("WriteFile");
  add.operator()<FunctionKernel<MatchingFilesOf>>("MatchingFiles");
}

}  // namespace monograph::ops::reader
