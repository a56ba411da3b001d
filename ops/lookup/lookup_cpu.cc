// Tables and their kernels. Keys and values are held as bytes, those of strings as they are, so
// that one class serves all types. A call takes the table's lock once, for all of its keys.
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
#include "ops/cpu/room_cpu.h"
#include "ops/text/parse_number.h"
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
void SetBytes(const std::string& bytes, Tensor* tensor, int64_t i) {
  if (tensor->dtype() == DT_STRING) {
    tensor->strings()[i] = bytes;
  } else {
    std::memcpy(static_cast<char*>(tensor->raw()) + static_cast<size_t>(i) * bytes.size(),
                bytes.data(), bytes.size());
  }
}

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
  Status Initialize(const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    if (spec_.is_mutable)
      return InvalidArgument("table '" + spec_.name + "' is mutable and is not initialized");
    if (keys.shape().rank() != 1 || values.shape() != keys.shape()) {
      return InvalidArgument("keys and values must be vectors of one length, got " +
                             keys.shape().ToString() + " and " + values.shape().ToString());
    }
    Entries entries;
    size_t used = 0;
    Room room;
    for (int64_t i = 0; i < keys.elements(); ++i) {
      std::string value = BytesAt(values, i);
      const auto [at, fresh] = entries.emplace(BytesAt(keys, i), value);
      if (fresh) used += SizeOf(at->first, at->second);
      MG_RETURN_IF_ERROR(room.Hold(used, named_));
      if (!fresh && at->second != value) {
        return FailedPrecondition("table '" + spec_.name + "' gets different values for key " +
                                  std::to_string(i));
      }
    }
    MutexLock lock(mutex_);
    if (initialized_ && entries != entries_) {
      return FailedPrecondition("Table '" + spec_.name +
                                "' was already initialized with different data.");
    }
    entries_ = std::move(entries);
    used_ = used;
    room_ = std::move(room);
    initialized_ = true;
    return Status();
  }

  Status Find(const Tensor& keys, const Tensor& fallback, Tensor* values) const {
    const std::string otherwise = BytesAt(fallback, 0);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    for (int64_t i = 0; i < keys.elements(); ++i) {
      const auto at = entries_.find(BytesAt(keys, i));
      SetBytes(at == entries_.end() ? otherwise : at->second, values, i);
    }
    return Status();
  }

  // `anew`: what was there goes.
  Status Insert(const Tensor& keys, const Tensor& values, bool anew) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    MG_RETURN_IF_ERROR(RequireMutable());
    if (keys.shape() != values.shape()) {
      return InvalidArgument("keys of shape " + keys.shape().ToString() + " and values of shape " +
                             values.shape().ToString() + " differ");
    }
    MutexLock lock(mutex_);
    if (anew) {
      entries_.clear();
      used_ = 0;
    }
    for (int64_t i = 0; i < keys.elements(); ++i) {
      const std::string key = BytesAt(keys, i), value = BytesAt(values, i);
      const auto at = entries_.find(key);
      const size_t used =
          used_ - (at == entries_.end() ? 0 : SizeOf(key, at->second)) + SizeOf(key, value);
      MG_RETURN_IF_ERROR(room_.Hold(used, named_));
      used_ = used;
      if (at == entries_.end()) {
        entries_.emplace(key, value);
      } else {
        at->second = value;
      }
    }
    return Status();
  }
  Status Remove(const Tensor& keys) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), spec_.value));
    MG_RETURN_IF_ERROR(RequireMutable());
    MutexLock lock(mutex_);
    for (int64_t i = 0; i < keys.elements(); ++i) {
      const auto at = entries_.find(BytesAt(keys, i));
      if (at == entries_.end()) continue;
      used_ -= SizeOf(at->first, at->second);
      entries_.erase(at);
    }
    return room_.Hold(used_, named_);
  }

  // With room for them.
  Result<std::vector<std::pair<std::string, std::string>>> All(Room* room) const {
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    MG_RETURN_IF_ERROR(room->Hold(used_, named_));
    return std::vector<std::pair<std::string, std::string>>(entries_.begin(), entries_.end());
  }
  int64_t size() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }

  std::string DebugString() const override { return spec_.ToString() + " " + spec_.name; }
  int64_t bytes() const override {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(used_);
  }

 private:
  using Entries = std::unordered_map<std::string, std::string>;

  // In memory, with the node and its place in the table.
  static size_t SizeOf(const std::string& key, const std::string& value) {
    constexpr size_t kNode = 40;
    return kNode + 2 * sizeof(std::string) + key.size() + value.size();
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
  Entries entries_ MG_GUARDED_BY(mutex_);
  size_t used_ MG_GUARDED_BY(mutex_) = 0;  // bytes, for which there is room
  Room room_ MG_GUARDED_BY(mutex_);
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
    return table->Find(c.input(1), c.input(2), values);
  }
};

class InitializeKernel : public Kernel {
 public:
  explicit InitializeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    return table->Initialize(c.input(1), c.input(2));
  }
};

// What a table that is filled once imports fills it.
template <bool kAnew>
class InsertKernel : public Kernel {
 public:
  explicit InsertKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    if (kAnew && !table->spec().is_mutable) return table->Initialize(c.input(1), c.input(2));
    return table->Insert(c.input(1), c.input(2), kAnew);
  }
};

class RemoveKernel : public Kernel {
 public:
  explicit RemoveKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    return table->Remove(c.input(1));
  }
};

class ExportKernel : public Kernel {
 public:
  explicit ExportKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    MG_RETURN_IF_ERROR(table->CheckTypes(c.output_dtype(0), c.output_dtype(1)));
    Room room;
    MG_ASSIGN_OR_RETURN(auto entries, table->All(&room));
    std::sort(entries.begin(), entries.end());  // the same order each time
    const Shape shape{static_cast<int64_t>(entries.size())};
    MG_ASSIGN_OR_RETURN(Tensor * keys, c.AllocateOutput(0, shape));
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, shape));
    for (size_t i = 0; i < entries.size(); ++i) {
      SetBytes(entries[i].first, keys, static_cast<int64_t>(i));
      SetBytes(entries[i].second, values, static_cast<int64_t>(i));
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
    const std::string& path = *c.input(1).strings();
    Room room;  // for the file and its lines, until they are in the table
    std::error_code error;
    if (const uintmax_t size = std::filesystem::file_size(path, error); !error)
      MG_RETURN_IF_ERROR(room.Hold(size, "'" + path + "'"));
    MG_ASSIGN_OR_RETURN(const std::string text, ReadInputFile("vocabulary", path, kMostDataBytes));
    const auto most = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    MG_RETURN_IF_ERROR(
        room.Hold(text.size() + 2 * most * sizeof(std::string_view), "'" + path + "'"));
    std::vector<std::string_view> lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = std::string_view(text).substr(begin, end - begin);
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
      MG_RETURN_IF_ERROR(Put(path, line, i, key_, &keys));
      MG_RETURN_IF_ERROR(Put(path, line, i, value_, &values));
    }
    return table->Initialize(keys, values);
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
        if (text::ParseNumber(line, to->data<T>() + number)) return Status();
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
