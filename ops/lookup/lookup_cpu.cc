// Tables and their kernels. Keys and values are held as bytes, those of strings as they are, so
// that one class serves all types. A call takes the table's lock once, for all of its keys.
//
// What fills a table is put together apart, so that an error or an aborted step leaves the table as
// it was. An insertion has its room before the first key goes in, and so cannot run out of memory
// half-way; where its step is aborted, or that of a removal, the keys up to there are done.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/mutex.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/string/parse_number.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::lookup {
namespace {

using variable::FindResource;

struct TableSpec {
  static constexpr const char* kNoun = "table";
  bool is_mutable = false;
  std::string name;
  DType key = DT_INVALID, value = DT_INVALID;

  std::string ToString() const {
    return std::string(is_mutable ? "MutableHashTable" : "HashTable") + "(" +
           std::string(DTypeName(key)) + " to " + std::string(DTypeName(value)) + ")";
  }
};

std::string BytesAt(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DT_STRING) return tensor.strings()[i];
  const size_t bytes = DTypeSize(tensor.dtype());
  return {static_cast<const char*>(tensor.raw()) + static_cast<size_t>(i) * bytes, bytes};
}
size_t SizeAt(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DT_STRING ? tensor.strings()[i].size() : DTypeSize(tensor.dtype());
}
void SetBytes(const std::string& bytes, Tensor* tensor, int64_t i) {
  if (tensor->dtype() == DT_STRING) {
    tensor->strings()[i] = bytes;
  } else {
    std::memcpy(static_cast<char*>(tensor->raw()) + static_cast<size_t>(i) * bytes.size(),
                bytes.data(), bytes.size());
  }
}

// What one key costs, in units of Looks, beside the bytes of its text.
constexpr int64_t kPerKey = 150;

class Table : public Resource {
 public:
  using Spec = TableSpec;
  explicit Table(TableSpec spec) : spec_(std::move(spec)) {}
  const TableSpec& spec() const { return spec_; }

  Status CheckTypes(DType key, DType value) const {
    if (key == spec_.key && value == spec_.value) return Status();
    return InvalidArgument("table '" + spec_.name + "' maps " + std::string(DTypeName(spec_.key)) +
                           " to " + std::string(DTypeName(spec_.value)) + ", not " +
                           std::string(DTypeName(key)) + " to " + std::string(DTypeName(value)));
  }

  // Fills a table that is filled once. A second time must bring the same.
  Status Initialize(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    if (spec_.is_mutable)
      return InvalidArgument("table '" + spec_.name + "' is mutable and is not initialized");
    if (keys.shape().rank() != 1 || values.shape() != keys.shape()) {
      return InvalidArgument("keys and values must be vectors of one length, got " +
                             keys.shape().ToString() + " and " + values.shape().ToString());
    }
    Contents made;
    MG_RETURN_IF_ERROR(Make(c, keys, values, /*repeated=*/false, &made));
    MutexLock lock(mutex_);
    if (initialized_) return RequireSame(c, made.entries);
    MG_RETURN_IF_ERROR(c.BeginChange());
    std::swap(contents_, made);
    initialized_ = true;
    return Status();
  }

  Status Find(KernelContext& c, const Tensor& keys, const Tensor& fallback, Tensor* values) const {
    const std::string otherwise = BytesAt(fallback, 0);
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    const Entries& entries = contents_.entries;
    for (int64_t i = 0; i < keys.elements(); ++i) {
      const std::string key = BytesAt(keys, i);
      const auto at = entries.find(key);
      const std::string& value = at == entries.end() ? otherwise : at->second;
      if (!looks.GoOn(Work(key, value))) return StepAborted();
      SetBytes(value, values, i);
    }
    return Status();
  }

  Status Insert(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckInsertion(keys, values));
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(MakeRoom(c, keys, values));
    Status status;
    for (int64_t i = 0; i < keys.elements(); ++i) {
      std::string key = BytesAt(keys, i), value = BytesAt(values, i);
      if (!looks.GoOn(Work(key, value))) {
        status = StepAborted();
        break;
      }
      contents_.Set(std::move(key), std::move(value));
    }
    MG_RETURN_IF_ERROR(contents_.room.Hold(contents_.used, named_));  // no more than it has
    return status;
  }

  // Takes the place of what was there.
  Status Import(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckInsertion(keys, values));
    Contents made;  // then what was there, which is given back without the lock
    MG_RETURN_IF_ERROR(Make(c, keys, values, /*repeated=*/true, &made));
    MG_RETURN_IF_ERROR(c.BeginChange());
    MutexLock lock(mutex_);
    std::swap(contents_, made);
    return Status();
  }

  Status Remove(KernelContext& c, const Tensor& keys) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), spec_.value));
    MG_RETURN_IF_ERROR(RequireMutable());
    Looks looks(c);
    MutexLock lock(mutex_);
    Status status;
    for (int64_t i = 0; i < keys.elements(); ++i) {
      const std::string key = BytesAt(keys, i);
      if (!looks.GoOn(Work(key, {}))) {
        status = StepAborted();
        break;
      }
      const auto at = contents_.entries.find(key);
      if (at == contents_.entries.end()) continue;
      contents_.used -= SizeOf(at->first.size(), at->second.size());
      contents_.entries.erase(at);
    }
    MG_RETURN_IF_ERROR(contents_.room.Hold(contents_.used, named_));
    return status;
  }

  // With room for them.
  Result<std::vector<std::pair<std::string, std::string>>> All(KernelContext& c, Room* room) const {
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    const Entries& entries = contents_.entries;
    // And for the pointers by which the caller sorts them, and the sort's own.
    MG_RETURN_IF_ERROR(room->Hold(contents_.used + 2 * sizeof(void*) * entries.size(), named_));
    std::vector<std::pair<std::string, std::string>> all;
    all.reserve(entries.size());
    for (const auto& [key, value] : entries) {
      if (!looks.GoOn(Work(key, value))) return StepAborted();
      all.emplace_back(key, value);
    }
    return all;
  }
  int64_t size() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(contents_.entries.size());
  }

  std::string DebugString() const override { return spec_.ToString() + " " + spec_.name; }
  int64_t bytes() const override {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(contents_.used);
  }

 private:
  using Entries = std::unordered_map<std::string, std::string>;

  // In memory, with the node and its place in the table.
  static size_t SizeOf(size_t key, size_t value) {
    constexpr size_t kNode = 40;
    return kNode + 2 * sizeof(std::string) + key + value;
  }
  static int64_t Work(std::string_view key, std::string_view value) {
    return kPerKey + static_cast<int64_t>(key.size() + value.size());
  }

  struct Contents {
    Entries entries;
    size_t used = 0;  // bytes, for which there is room
    Room room;

    void Set(std::string key, std::string value) {
      const auto at = entries.find(key);
      if (at == entries.end()) {
        used += SizeOf(key.size(), value.size());
        entries.emplace(std::move(key), std::move(value));
      } else {
        used += value.size();
        used -= at->second.size();
        at->second = std::move(value);
      }
    }
  };

  // Contents of these keys and values alone. `repeated`: a key may come again with another value,
  // of which the last one counts.
  Status Make(KernelContext& c, const Tensor& keys, const Tensor& values, bool repeated,
              Contents* made) const {
    const int64_t n = keys.elements();
    // All places at once: to move all keys to more places is a single, long call.
    const size_t places = static_cast<size_t>(n) * sizeof(void*);
    MG_RETURN_IF_ERROR(made->room.Hold(places, named_));
    made->entries.reserve(static_cast<size_t>(n));
    Looks looks(c);
    for (int64_t i = 0; i < n; ++i) {
      std::string key = BytesAt(keys, i), value = BytesAt(values, i);
      if (!looks.GoOn(Work(key, value))) return StepAborted();
      MG_RETURN_IF_ERROR(
          made->room.Hold(places + made->used + SizeOf(key.size(), value.size()), named_));
      if (!repeated) {
        const auto at = made->entries.find(key);
        if (at != made->entries.end() && at->second != value) {
          return FailedPrecondition("table '" + spec_.name + "' gets different values for key " +
                                    std::to_string(i));
        }
      }
      made->Set(std::move(key), std::move(value));
    }
    if (made->entries.size() < static_cast<size_t>(n) / 4) made->entries.rehash(0);
    return made->room.Hold(made->used, named_);
  }

  Status CheckInsertion(const Tensor& keys, const Tensor& values) const {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    MG_RETURN_IF_ERROR(RequireMutable());
    if (keys.shape() == values.shape()) return Status();
    return InvalidArgument("keys of shape " + keys.shape().ToString() + " and values of shape " +
                           values.shape().ToString() + " differ");
  }

  // Room for all keys that are to go in, as if none of them was given twice; and where there is
  // none if all were new, for those that are.
  Status MakeRoom(KernelContext& c, const Tensor& keys, const Tensor& values) MG_REQUIRES(mutex_) {
    const int64_t n = keys.elements();
    Looks looks(c);
    size_t bytes = contents_.used;
    for (int64_t i = 0; i < n; ++i) {
      if (!looks.GoOn(5)) return StepAborted();
      bytes += SizeOf(SizeAt(keys, i), SizeAt(values, i));
    }
    if (contents_.room.Hold(bytes, named_).ok()) return Status();
    bytes = contents_.used;
    for (int64_t i = 0; i < n; ++i) {
      const std::string key = BytesAt(keys, i);
      if (!looks.GoOn(Work(key, {}))) return StepAborted();
      const auto at = contents_.entries.find(key);
      const size_t value = SizeAt(values, i);
      if (at == contents_.entries.end()) {
        bytes += SizeOf(key.size(), value);
      } else if (value > at->second.size()) {
        bytes += value - at->second.size();
      }
    }
    return contents_.room.Hold(bytes, named_);
  }

  Status RequireSame(KernelContext& c, const Entries& entries) const MG_REQUIRES(mutex_) {
    bool same = entries.size() == contents_.entries.size();
    Looks looks(c);
    for (auto it = entries.begin(); same && it != entries.end(); ++it) {
      if (!looks.GoOn(Work(it->first, it->second))) return StepAborted();
      const auto at = contents_.entries.find(it->first);
      same = at != contents_.entries.end() && at->second == it->second;
    }
    if (same) return Status();
    return FailedPrecondition("Table '" + spec_.name +
                              "' was already initialized with different data.");
  }

  Status RequireFilled() const MG_REQUIRES(mutex_) {
    if (spec_.is_mutable || initialized_) return Status();
    return FailedPrecondition("Table not initialized: run the initializer of table '" + spec_.name +
                              "' first");
  }
  Status RequireMutable() const {
    if (spec_.is_mutable) return Status();
    return Unimplemented("table '" + spec_.name + "' is filled once: it cannot be changed");
  }

  const TableSpec spec_;
  const std::string named_ = "table '" + spec_.name + "'";
  mutable Mutex mutex_;
  Contents contents_ MG_GUARDED_BY(mutex_);
  bool initialized_ MG_GUARDED_BY(mutex_) = false;
};

template <bool kMutable>
Result<TableSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  TableSpec spec{kMutable, name, k.attr<DType>("key_dtype"), k.attr<DType>("value_dtype")};
  for (DType dtype : {spec.key, spec.value}) {
    if (dtype != DT_STRING && !IsPlainData(dtype))
      return Unimplemented("a table of " + std::string(DTypeName(dtype)) + " is not supported");
  }
  if (IsFloating(spec.key))
    return Unimplemented("a table with keys of " + std::string(DTypeName(spec.key)) +
                         " is not supported");
  return spec;
}

class FindKernel : public Kernel {
 public:
  explicit FindKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    MG_RETURN_IF_ERROR(table->CheckTypes(c.input(1).dtype(), c.input(2).dtype()));
    if (c.input(2).elements() != 1) return InvalidArgument("default_value must be a scalar");
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(0, c.input(1).shape()));
    c.AllowCancel();
    return table->Find(c, c.input(1), c.input(2), values);
  }
};

class InitializeKernel : public Kernel {
 public:
  explicit InitializeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    c.AllowCancel();
    return table->Initialize(c, c.input(1), c.input(2));
  }
};

// What a table that is filled once imports fills it.
template <bool kAnew>
class InsertKernel : public Kernel {
 public:
  explicit InsertKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    c.AllowCancel();
    if constexpr (!kAnew) return table->Insert(c, c.input(1), c.input(2));
    return table->spec().is_mutable ? table->Import(c, c.input(1), c.input(2))
                                    : table->Initialize(c, c.input(1), c.input(2));
  }
};

class RemoveKernel : public Kernel {
 public:
  explicit RemoveKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    c.AllowCancel();
    return table->Remove(c, c.input(1));
  }
};

class ExportKernel : public Kernel {
 public:
  explicit ExportKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    MG_RETURN_IF_ERROR(table->CheckTypes(c.output_dtype(0), c.output_dtype(1)));
    c.AllowCancel();
    Room room;
    MG_ASSIGN_OR_RETURN(const auto entries, table->All(c, &room));
    std::vector<const std::pair<std::string, std::string>*> order;
    order.reserve(entries.size());
    for (const auto& entry : entries) order.push_back(&entry);
    const auto less = [](const auto* a, const auto* b) { return a->first < b->first; };
    if (!StableSort(c, &order, less)) return StepAborted();  // the same order each time
    const Shape shape{static_cast<int64_t>(entries.size())};
    MG_ASSIGN_OR_RETURN(Tensor * keys, c.AllocateOutput(0, shape));
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, shape));
    Looks looks(c);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = *order[i];
      if (!looks.GoOn(kPerKey + static_cast<int64_t>(key.size() + value.size())))
        return StepAborted();
      SetBytes(key, keys, static_cast<int64_t>(i));
      SetBytes(value, values, static_cast<int64_t>(i));
    }
    return Status();
  }
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    c.set_output(0, Tensor::Scalar(table->size()));
    return Status();
  }
};

// Keys and values from the lines of a file.
class FromFileKernel : public Kernel {
 public:
  explicit FromFileKernel(const KernelConstruction& k)
      : key_(k.attr<int64_t>("key_index")),
        value_(k.attr<int64_t>("value_index")),
        size_(k.attr<int64_t>("vocab_size")),
        offset_(k.attr<int64_t>("offset")),
        delimiter_(k.attr<std::string>("delimiter")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    if (c.input(1).elements() != 1 || c.input(1).dtype() != DT_STRING)
      return InvalidArgument("filename must be one string");
    if (delimiter_.size() != 1) return InvalidArgument("delimiter must be one character");
    c.AllowCancel();
    Looks looks(c);
    const std::string& path = *c.input(1).strings();
    Room room;  // for the file and its lines, until they are in the table
    std::error_code error;
    if (const uintmax_t size = std::filesystem::file_size(path, error); !error)
      MG_RETURN_IF_ERROR(room.Hold(size, "'" + path + "'"));
    MG_ASSIGN_OR_RETURN(const std::string text, ReadInputFile("vocabulary", path, kMostDataBytes));
    size_t most = 1;
    const bool counted = InParts(&looks, text, [&most](std::string_view part) {
      most += static_cast<size_t>(std::count(part.begin(), part.end(), '\n'));
    });
    if (!counted) return StepAborted();
    MG_RETURN_IF_ERROR(
        room.Hold(text.size() + 2 * most * sizeof(std::string_view), "'" + path + "'"));
    std::vector<std::string_view> lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (!looks.GoOn(line)) return StepAborted();
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (size_ < 0 || static_cast<int64_t>(lines.size()) < size_) lines.push_back(line);
      begin = end + 1;
    }
    const auto n = static_cast<int64_t>(lines.size());
    if (size_ >= 0 && n != size_) {
      return InvalidArgument("Invalid vocab_size in " + path + ": expected " +
                             std::to_string(size_) + " but got " + std::to_string(n));
    }
    const TableSpec& spec = table->spec();
    MG_ASSIGN_OR_RETURN(Tensor keys, Tensor::Allocate(spec.key, Shape{n}));
    MG_ASSIGN_OR_RETURN(Tensor values, Tensor::Allocate(spec.value, Shape{n}));
    for (int64_t i = 0; i < n; ++i) {
      const std::string_view line = lines[static_cast<size_t>(i)];
      if (!looks.GoOn(line)) return StepAborted();
      MG_RETURN_IF_ERROR(Put(path, line, i, key_, &keys));
      MG_RETURN_IF_ERROR(Put(path, line, i, value_, &values));
    }
    return table->Initialize(c, keys, values);
  }

 private:
  Status Put(const std::string& path, std::string_view line, int64_t number, int64_t column,
             Tensor* to) const {
    const auto where = [&] { return " in line " + std::to_string(number + 1) + " of " + path; };
    if (column == -1) {
      if (to->dtype() != DT_INT64)
        return InvalidArgument("numbers of lines are int64, but the table has " +
                               std::string(DTypeName(to->dtype())));
      to->data<int64_t>()[number] =
          static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(offset_));
      return Status();
    }
    for (int64_t skipped = 0; column >= 0; ++skipped) {
      const size_t end = line.find(delimiter_);
      if (skipped == column) {
        line = line.substr(0, end);
        break;
      }
      if (end == line.npos)
        return InvalidArgument("there is no column " + std::to_string(column) + where());
      line.remove_prefix(end + 1);
    }
    if (to->dtype() == DT_STRING) {
      to->strings()[number] = line;
      return Status();
    }
    return WithRealType(to->dtype(), [&](auto t) {
      using T = decltype(t);
      if constexpr (sizeof(T) < 4) {
        return Unimplemented("a column of " + std::string(DTypeName(to->dtype())));
      } else {
        if (string::ParseNumber(line, to->data<T>() + number)) return Status();
        return InvalidArgument("'" + std::string(line) + "' is no " +
                               std::string(DTypeName(to->dtype())) + where());
      }
    });
  }

  const int64_t key_, value_, size_, offset_;
  const std::string delimiter_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::HandleKernel;
  const auto add = [registry]<typename K>(const char* op) {
    registry->Add<K>({.op = op, .host_args = {"table_handle"}});
  };
  add.operator()<HandleKernel<Table, SpecOf<false>>>("HashTableV2");
  add.operator()<HandleKernel<Table, SpecOf<true>>>("MutableHashTableV2");
  add.operator()<FindKernel>("LookupTableFindV2");
  add.operator()<InitializeKernel>("InitializeTableV2");
  add.operator()<FromFileKernel>("InitializeTableFromTextFileV2");
  add.operator()<InsertKernel<false>>("LookupTableInsertV2");
  add.operator()<InsertKernel<true>>("LookupTableImportV2");
  add.operator()<RemoveKernel>("LookupTableRemoveV2");
  add.operator()<ExportKernel>("LookupTableExportV2");
  add.operator()<SizeKernel>("LookupTableSizeV2");
}

}  // namespace monograph::ops::lookup
