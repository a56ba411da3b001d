// Tables and their kernels. Keys and values are held as bytes, those of strings as they are, so
// that one class serves all types and shapes. A call takes the table's lock once, for all of its
// keys. A dense table is one whose export shows buckets: they are laid out then, and nothing is
// kept of them but their number.
//
// What fills a table is put together apart, so that an error or an aborted step leaves the table as
// it was. An insertion has its room before the first key goes in, and so cannot run out of memory
// half-way; where its step is aborted, or that of a removal, the keys up to there are done.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/mutex.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/gpu/moves.h"
#include "ops/string/hash_cpu.h"
#include "ops/string/parse_number.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::lookup {
namespace {

using variable::FindResource;

// The keys or the values of a table.
struct Part {
  DType dtype = DT_INVALID;
  Shape shape;  // of one: a scalar or a vector

  size_t width() const { return static_cast<size_t>(shape.elements()); }
  std::string ToString() const {
    return std::string(DTypeName(dtype)) + (shape.rank() > 0 ? shape.ToString() : "");
  }
};

enum class Kind : uint8_t { kFilledOnce, kMutable, kOfTensors, kDense };

struct TableSpec {
  static constexpr const char* kNoun = "table";
  Kind kind = Kind::kFilledOnce;
  std::string name;
  Part key, value;

  // Of a dense table alone: the keys that stand for no entry, as bytes; how many buckets an export
  // has, and which part of them may be in use.
  std::string empty_key;
  std::optional<std::string> deleted_key;
  int64_t buckets = 0;
  float max_load_factor = 0;

  bool is_mutable() const { return kind != Kind::kFilledOnce; }
  std::string ToString() const {
    static constexpr const char* kNames[] = {"HashTable", "MutableHashTable",
                                             "MutableHashTableOfTensors", "MutableDenseHashTable"};
    return std::string(kNames[static_cast<size_t>(kind)]) + "(" + key.ToString() + " to " +
           value.ToString() + ")";
  }
};

// A vector of strings as bytes: of each its size, and its text.
bool IsPacked(const Part& part) { return part.dtype == DT_STRING && part.shape.rank() > 0; }

std::string BytesAt(const Tensor& tensor, const Part& part, int64_t i) {
  if (!IsPacked(part) && part.dtype == DT_STRING) return tensor.strings()[i];
  const size_t first = static_cast<size_t>(i) * part.width();
  if (!IsPacked(part)) {
    const size_t bytes = DTypeSize(part.dtype);
    return {static_cast<const char*>(tensor.raw()) + first * bytes, part.width() * bytes};
  }
  std::string packed;
  for (size_t k = first; k < first + part.width(); ++k) {
    const std::string& text = tensor.strings()[k];
    const uint64_t size = text.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  }
  return packed;
}
size_t SizeAt(const Tensor& tensor, const Part& part, int64_t i) {
  if (part.dtype != DT_STRING) return part.width() * DTypeSize(part.dtype);
  const size_t first = static_cast<size_t>(i) * part.width();
  size_t total = IsPacked(part) ? part.width() * sizeof(uint64_t) : 0;
  for (size_t k = first; k < first + part.width(); ++k) total += tensor.strings()[k].size();
  return total;
}
// fn(text) for each string of the bytes of a part of strings.
template <typename Fn>
void ForStrings(const Part& part, std::string_view bytes, const Fn& fn) {
  if (!IsPacked(part)) return fn(bytes);
  while (!bytes.empty()) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    fn(bytes.substr(sizeof size, size));
    bytes.remove_prefix(sizeof size + size);
  }
}
void SetBytes(const std::string& bytes, const Part& part, Tensor* tensor, int64_t i) {
  if (part.dtype == DT_STRING) {
    std::string* to = tensor->strings() + static_cast<size_t>(i) * part.width();
    ForStrings(part, bytes, [&to](std::string_view text) { *to++ = text; });
  } else if (!bytes.empty()) {
    std::memcpy(static_cast<char*>(tensor->raw()) + static_cast<size_t>(i) * bytes.size(),
                bytes.data(), bytes.size());
  }
}

// The shape of n keys or values one of which has shape `one`.
Result<Shape> ShapeOf(int64_t n, const Shape& one) {
  SmallInts dims;
  dims.push_back(n);
  for (const int64_t dim : one.dims()) dims.push_back(dim);
  return Shape::Make(dims.span());
}

constexpr int64_t kMostBuckets = int64_t{1} << 62;  // far more than an export can have

// What one key costs, in units of Looks, beside the bytes of its text.
constexpr int64_t kPerKey = 150;

class Table : public Resource {
 public:
  using Spec = TableSpec;
  explicit Table(TableSpec spec) : spec_(std::move(spec)) {}
  const TableSpec& spec() const { return spec_; }

  Status CheckTypes(DType key, DType value) const {
    if (key == spec_.key.dtype && value == spec_.value.dtype) return Status();
    return InvalidArgument("table '" + spec_.name + "' maps " + spec_.key.ToString() + " to " +
                           spec_.value.ToString() + ", not " + std::string(DTypeName(key)) +
                           " to " + std::string(DTypeName(value)));
  }

  // How many keys the tensor has. To a dense table it gives one in each row.
  Result<int64_t> CountKeys(const Tensor& keys) const {
    if (spec_.kind != Kind::kDense) return keys.elements();
    const Shape &shape = keys.shape(), &one = spec_.key.shape;
    const int64_t n = shape.rank() > 0 ? shape[0] : 1;
    const bool ends_with_one =
        one.rank() == 0 || (shape.rank() > 0 && shape[shape.rank() - 1] == one[0]);
    if (ends_with_one && (n == 0 || shape.elements() / n == one.elements())) return n;
    MG_ASSIGN_OR_RETURN(const Shape expected, ShapeOf(n, one));
    return InvalidArgument("Expected key shape " + expected.ToString() + " got " +
                           shape.ToString());
  }
  // The shape of the values of these keys.
  Result<Shape> ShapeOfValues(const Tensor& keys) const {
    SmallInts dims;
    const int rank = keys.shape().rank() - spec_.key.shape.rank();
    for (int d = 0; d < rank; ++d) dims.push_back(keys.shape()[d]);
    for (const int64_t dim : spec_.value.shape.dims()) dims.push_back(dim);
    return Shape::Make(dims.span());
  }

  // Fills a table that is filled once. A second time must bring the same.
  Status Initialize(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    if (spec_.is_mutable())
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

  // `fallback` is one value, or one for each key; of these a table that is filled once and a dense
  // one take the first for all keys, as TensorFlow's do.
  Status Find(KernelContext& c, const Tensor& keys, const Tensor& fallback, Tensor* values) const {
    MG_ASSIGN_OR_RETURN(const int64_t n, CountKeys(keys));
    const bool one_for_each = fallback.shape() != spec_.value.shape &&
                              (spec_.kind == Kind::kMutable || spec_.kind == Kind::kOfTensors);
    std::string otherwise;
    if (!one_for_each && n > 0) otherwise = BytesAt(fallback, spec_.value, 0);
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    const Entries& entries = contents_.entries;
    for (int64_t i = 0; i < n; ++i) {
      const std::string key = BytesAt(keys, spec_.key, i);
      MG_RETURN_IF_ERROR(RequireAnEntry(key));
      const auto at = entries.find(key);
      if (one_for_each && at == entries.end()) otherwise = BytesAt(fallback, spec_.value, i);
      const std::string& value = at == entries.end() ? otherwise : at->second;
      if (!looks.GoOn(Work(key, value)) || !looks.RoomFor(StringBytes(value.size())))
        return StepAborted();
      SetBytes(value, spec_.value, values, i);
    }
    return Status();
  }

  Status Insert(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    MG_RETURN_IF_ERROR(RequireMutable());
    MG_ASSIGN_OR_RETURN(const int64_t n, CountKeys(keys));
    MG_ASSIGN_OR_RETURN(const Shape expected, ShapeOfValues(keys));
    MG_RETURN_IF_ERROR(RequireShape(values, expected));
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(MakeRoom(c, n, keys, values));
    GrowBuckets(n);
    Status status;
    for (int64_t i = 0; i < n; ++i) {
      std::string key = BytesAt(keys, spec_.key, i), value = BytesAt(values, spec_.value, i);
      status = looks.GoOn(Work(key, value)) ? RequireAnEntry(key) : StepAborted();
      if (!status.ok()) break;
      contents_.Set(std::move(key), std::move(value));
    }
    MG_RETURN_IF_ERROR(contents_.room.Hold(contents_.used, named_));  // no more than it has
    return status;
  }

  // Takes the place of what was there.
  Status Import(KernelContext& c, const Tensor& keys, const Tensor& values) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), values.dtype()));
    MG_RETURN_IF_ERROR(RequireMutable());
    if (spec_.kind == Kind::kDense) {
      MG_RETURN_IF_ERROR(CheckBuckets(keys, values));
    } else {
      MG_ASSIGN_OR_RETURN(const Shape expected, ShapeOfValues(keys));
      MG_RETURN_IF_ERROR(RequireShape(values, expected));
    }
    Contents made;  // then what was there, which is given back without the lock
    MG_RETURN_IF_ERROR(Make(c, keys, values, /*repeated=*/true, &made));
    MG_RETURN_IF_ERROR(c.BeginChange());
    MutexLock lock(mutex_);
    std::swap(contents_, made);
    if (spec_.kind == Kind::kDense) {
      buckets_ = 4;
      while (buckets_ < keys.shape()[0]) buckets_ *= 2;
    }
    return Status();
  }

  Status Remove(KernelContext& c, const Tensor& keys) {
    MG_RETURN_IF_ERROR(CheckTypes(keys.dtype(), spec_.value.dtype));
    MG_RETURN_IF_ERROR(RequireMutable());
    MG_ASSIGN_OR_RETURN(const int64_t n, CountKeys(keys));
    Looks looks(c);
    MutexLock lock(mutex_);
    Status status;
    for (int64_t i = 0; i < n; ++i) {
      const std::string key = BytesAt(keys, spec_.key, i);
      status = looks.GoOn(Work(key, {})) ? RequireAnEntry(key) : StepAborted();
      if (!status.ok()) break;
      const auto at = contents_.entries.find(key);
      if (at == contents_.entries.end()) continue;
      contents_.used -= SizeOf(at->first.size(), at->second.size());
      contents_.entries.erase(at);
    }
    MG_RETURN_IF_ERROR(contents_.room.Hold(contents_.used, named_));
    return status;
  }

  // With room for them. `buckets`: how many a dense table has.
  Result<std::vector<std::pair<std::string, std::string>>> All(KernelContext& c, Room* room,
                                                               int64_t* buckets) const {
    Looks looks(c);
    MutexLock lock(mutex_);
    MG_RETURN_IF_ERROR(RequireFilled());
    *buckets = buckets_;
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

  // Contents of these keys and values alone, but for keys that stand for no entry. `repeated`: a
  // key may come again with another value, of which the last one counts.
  Status Make(KernelContext& c, const Tensor& keys, const Tensor& values, bool repeated,
              Contents* made) const {
    const int64_t n = spec_.kind == Kind::kDense ? keys.shape()[0] : keys.elements();
    // All places at once: to move all keys to more places is a single, long call.
    const size_t places = static_cast<size_t>(n) * sizeof(void*);
    MG_RETURN_IF_ERROR(made->room.Hold(places, named_));
    made->entries.reserve(static_cast<size_t>(n));
    Looks looks(c);
    for (int64_t i = 0; i < n; ++i) {
      std::string key = BytesAt(keys, spec_.key, i), value = BytesAt(values, spec_.value, i);
      if (!looks.GoOn(Work(key, value))) return StepAborted();
      if (IsNoEntry(key)) continue;
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

  static Status RequireShape(const Tensor& values, const Shape& expected) {
    if (values.shape() == expected) return Status();
    return InvalidArgument("Expected shape " + expected.ToString() + " for value, got " +
                           values.shape().ToString());
  }

  // What a dense table imports is as it exports it: matrices.
  Status CheckBuckets(const Tensor& keys, const Tensor& values) const {
    const auto key = static_cast<int64_t>(spec_.key.width()),
               value = static_cast<int64_t>(spec_.value.width());
    if (keys.shape().rank() != 2 || keys.shape()[1] != key) {
      return InvalidArgument("Expected key shape [?," + std::to_string(key) + "] got " +
                             keys.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(const Shape expected, ShapeOf(keys.shape()[0], Shape{value}));
    return RequireShape(values, expected);
  }

  bool IsNoEntry(const std::string& key) const {
    return spec_.kind == Kind::kDense && (key == spec_.empty_key || key == spec_.deleted_key);
  }
  Status RequireAnEntry(const std::string& key) const {
    if (!IsNoEntry(key)) return Status();
    return InvalidArgument(std::string("Using the ") +
                           (key == spec_.empty_key ? "empty_key" : "deleted_key") +
                           " as a table key is not allowed");
  }

  // As TensorFlow's table does before an insertion of so many keys, as if all were new.
  void GrowBuckets(int64_t more) MG_REQUIRES(mutex_) {
    if (spec_.kind != Kind::kDense) return;
    const auto wanted = static_cast<float>(static_cast<int64_t>(contents_.entries.size()) + more);
    while (buckets_ < kMostBuckets && wanted > static_cast<float>(buckets_) * spec_.max_load_factor)
      buckets_ *= 2;
  }

  // Room for all keys that are to go in, as if none of them was given twice; and where there is
  // none if all were new, for those that are.
  Status MakeRoom(KernelContext& c, int64_t n, const Tensor& keys, const Tensor& values)
      MG_REQUIRES(mutex_) {
    Looks looks(c);
    size_t bytes = contents_.used;
    for (int64_t i = 0; i < n; ++i) {
      if (!looks.GoOn(5)) return StepAborted();
      bytes += SizeOf(SizeAt(keys, spec_.key, i), SizeAt(values, spec_.value, i));
    }
    if (contents_.room.Hold(bytes, named_).ok()) return Status();
    bytes = contents_.used;
    for (int64_t i = 0; i < n; ++i) {
      const std::string key = BytesAt(keys, spec_.key, i);
      if (!looks.GoOn(Work(key, {}))) return StepAborted();
      const auto at = contents_.entries.find(key);
      const size_t value = SizeAt(values, spec_.value, i);
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
    if (spec_.is_mutable() || initialized_) return Status();
    return FailedPrecondition("Table not initialized: run the initializer of table '" + spec_.name +
                              "' first");
  }
  Status RequireMutable() const {
    if (spec_.is_mutable()) return Status();
    return Unimplemented("table '" + spec_.name + "' is filled once: it cannot be changed");
  }

  const TableSpec spec_;
  const std::string named_ = "table '" + spec_.name + "'";
  mutable Mutex mutex_;
  Contents contents_ MG_GUARDED_BY(mutex_);
  bool initialized_ MG_GUARDED_BY(mutex_) = false;
  int64_t buckets_ MG_GUARDED_BY(mutex_) = spec_.buckets;
};

Status CheckSupported(const Part& part) {
  if (part.dtype == DT_STRING || IsPlainData(part.dtype)) return Status();
  return Unimplemented("a table of " + std::string(DTypeName(part.dtype)) + " is not supported");
}

template <Kind kKind>
Result<TableSpec> SpecOf(const KernelConstruction& k, const std::string& name) {
  TableSpec spec;
  spec.kind = kKind;
  spec.name = name;
  spec.key.dtype = k.attr<DType>("key_dtype");
  spec.value.dtype = k.attr<DType>("value_dtype");
  MG_RETURN_IF_ERROR(CheckSupported(spec.key));
  MG_RETURN_IF_ERROR(CheckSupported(spec.value));
  if (IsFloating(spec.key.dtype))
    return Unimplemented("a table with keys of " + spec.key.ToString() + " is not supported");
  if constexpr (kKind == Kind::kOfTensors || kKind == Kind::kDense) {
    // TensorFlow reads a shape of which nothing is known as a scalar's.
    const auto shape = k.attr<PartialShape>("value_shape");
    if (shape.known_rank() && !shape.fully_known())
      return InvalidArgument("Shape " + shape.ToString() + " is not fully defined");
    if (shape.known_rank()) {
      MG_ASSIGN_OR_RETURN(spec.value.shape, Shape::Make(shape.dims()));
    }
    const int rank = spec.value.shape.rank();
    if (kKind == Kind::kOfTensors && rank != 1) {
      return InvalidArgument("Default value must be a vector, got shape " +
                             spec.value.shape.ToString());
    }
    if (rank > 1) {
      return InvalidArgument("Empty value must be a scalar or a vector, got shape " +
                             spec.value.shape.ToString());
    }
  }
  if constexpr (kKind == Kind::kDense) {
    spec.buckets = k.attr<int64_t>("initial_num_buckets");
    if (spec.buckets < 4 || (spec.buckets & (spec.buckets - 1)) != 0) {
      return InvalidArgument("Number of buckets must be at least 4 and a power of 2, got: " +
                             std::to_string(spec.buckets));
    }
    spec.max_load_factor = k.attr<float>("max_load_factor");
    if (!(spec.max_load_factor > 0 && spec.max_load_factor < 1)) {
      return InvalidArgument("max_load_factor must be between 0 and 1, got: " +
                             std::to_string(spec.max_load_factor));
    }
  }
  return spec;
}

// The keys that a dense table's node is given.
Status SetKeys(const KernelContext& c, TableSpec* spec) {
  const Tensor& empty = c.input(0);
  spec->key.shape = empty.shape();
  if (empty.shape().rank() > 1 || empty.elements() == 0) {
    return InvalidArgument("Empty key must be a scalar or a vector, got shape " +
                           empty.shape().ToString());
  }
  spec->empty_key = BytesAt(empty, spec->key, 0);
  if (c.num_inputs() == 1) return Status();
  const Tensor& deleted = c.input(1);
  if (deleted.shape() != empty.shape()) {
    return InvalidArgument("Empty and deleted keys must have same shape, got shapes: " +
                           empty.shape().ToString() + " and " + deleted.shape().ToString());
  }
  spec->deleted_key = BytesAt(deleted, spec->key, 0);
  if (spec->deleted_key != spec->empty_key) return Status();
  return InvalidArgument("Empty and deleted keys cannot be equal");
}

class DenseTableKernel : public variable::HandleKernel<Table, SpecOf<Kind::kDense>> {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    return MakeAs<DenseTableKernel>(k);
  }
  Status Compute(KernelContext& c) override {
    TableSpec spec = spec_of_node();
    MG_RETURN_IF_ERROR(SetKeys(c, &spec));
    return Give(c, spec);
  }
};

// A table that ends when no tensor has its handle any more.
template <Kind kKind>
class AnonymousTableKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<AnonymousTableKernel>();
    kernel->device_ = k.device();
    MG_ASSIGN_OR_RETURN(kernel->spec_, SpecOf<kKind>(k, std::string(k.node_name())));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    TableSpec spec = spec_;
    if constexpr (kKind == Kind::kDense) MG_RETURN_IF_ERROR(SetKeys(c, &spec));
    return variable::SetHandleOfRun(c, device_, "_anonymous_tables", spec_.name,
                                    std::make_shared<Table>(std::move(spec)));
  }

 private:
  std::string device_;
  TableSpec spec_;
};

class FindKernel : public Kernel {
 public:
  explicit FindKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, FindResource<Table>(c));
    MG_RETURN_IF_ERROR(table->CheckTypes(c.input(1).dtype(), c.input(2).dtype()));
    MG_RETURN_IF_ERROR(table->CountKeys(c.input(1)).status());
    MG_ASSIGN_OR_RETURN(const Shape shape, table->ShapeOfValues(c.input(1)));
    if (const Shape& one = table->spec().value.shape, &its = c.input(2).shape();
        its != one && its != shape) {
      return InvalidArgument("Expected shape " + one.ToString() + " or " + shape.ToString() +
                             " for default value, got " + its.ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(0, shape));
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
    return table->spec().is_mutable() ? table->Import(c, c.input(1), c.input(2))
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
    int64_t buckets = 0;
    MG_ASSIGN_OR_RETURN(const Entries entries, table->All(c, &room, &buckets));
    std::vector<const Entry*> order;
    order.reserve(entries.size());
    for (const Entry& entry : entries) order.push_back(&entry);
    const auto less = [](const Entry* a, const Entry* b) { return a->first < b->first; };
    if (!StableSort(c, &order, less)) return StepAborted();  // the same order each time
    const TableSpec& spec = table->spec();
    if (spec.kind == Kind::kDense) return PutBuckets(c, spec, order, buckets);
    MG_ASSIGN_OR_RETURN(const Shape shape,
                        ShapeOf(static_cast<int64_t>(entries.size()), spec.value.shape));
    MG_ASSIGN_OR_RETURN(Tensor * keys,
                        c.AllocateOutput(0, Shape{static_cast<int64_t>(entries.size())}));
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, shape));
    Looks looks(c);
    for (size_t i = 0; i < order.size(); ++i) {
      if (!Put(*order[i], spec, static_cast<int64_t>(i), keys, values, &looks))
        return StepAborted();
    }
    return Status();
  }

 private:
  using Entry = std::pair<std::string, std::string>;
  using Entries = std::vector<Entry>;

  static bool Put(const Entry& entry, const TableSpec& spec, int64_t i, Tensor* keys,
                  Tensor* values, Looks* looks) {
    const auto& [key, value] = entry;
    if (!looks->GoOn(kPerKey + static_cast<int64_t>(key.size() + value.size())) ||
        !looks->RoomFor(StringBytes(key.size()) + StringBytes(value.size())))
      return false;
    SetBytes(key, spec.key, keys, i);
    SetBytes(value, spec.value, values, i);
    return true;
  }

  // All buckets, each entry in the one where TensorFlow's table, which takes over what it imports
  // as it is, looks for it; the others have the empty key.
  static Status PutBuckets(KernelContext& c, const TableSpec& spec,
                           const std::vector<const Entry*>& order, int64_t buckets) {
    const auto key_width = static_cast<int64_t>(spec.key.width()),
               value_width = static_cast<int64_t>(spec.value.width());
    MG_ASSIGN_OR_RETURN(const Shape keys_shape, ShapeOf(buckets, Shape{key_width}));
    MG_ASSIGN_OR_RETURN(const Shape values_shape, ShapeOf(buckets, Shape{value_width}));
    MG_ASSIGN_OR_RETURN(Tensor * keys, c.AllocateOutput(0, keys_shape));
    MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, values_shape));
    Room room;
    MG_RETURN_IF_ERROR(room.Hold(static_cast<size_t>(buckets) / 8, "an export"));
    std::vector<bool> taken(static_cast<size_t>(buckets));
    if (IsPlainData(values->dtype()))
      MG_RETURN_IF_ERROR(HostMoves::Zero(c, values->raw(), values->bytes()));
    Looks looks(c);
    for (int64_t i = 0; i < buckets; ++i) {
      if (!looks.GoOn(5 + static_cast<int64_t>(spec.empty_key.size())) ||
          !looks.RoomFor(StringBytes(spec.empty_key.size())))
        return StepAborted();
      SetBytes(spec.empty_key, spec.key, keys, i);
    }
    const uint64_t mask = static_cast<uint64_t>(buckets) - 1;
    for (const Entry* entry : order) {
      uint64_t at = HashOf(spec.key, entry->first) & mask;
      for (uint64_t step = 1; taken[at]; ++step) {
        if (!looks.GoOn(5)) return StepAborted();
        at = (at + step) & mask;
      }
      taken[at] = true;
      if (!Put(*entry, spec, static_cast<int64_t>(at), keys, values, &looks)) return StepAborted();
    }
    return Status();
  }

  // TensorFlow's hash of a key.
  static uint64_t HashOf(const Part& part, const std::string& key) {
    std::vector<uint64_t> hashes;
    if (part.dtype == DT_STRING) {
      ForStrings(part, key, [&](std::string_view text) { hashes.push_back(string::Murmur(text)); });
    } else {
      const size_t bytes = DTypeSize(part.dtype);
      const bool has_sign = part.dtype == DT_INT8 || part.dtype == DT_INT16 ||
                            part.dtype == DT_INT32 || part.dtype == DT_INT64;
      for (size_t i = 0; i < part.width(); ++i) {
        const char* const element = key.data() + i * bytes;
        uint64_t number = 0;
        if (has_sign && static_cast<signed char>(element[bytes - 1]) < 0) number = ~number;
        std::memcpy(&number, element, bytes);
        hashes.push_back(number);
      }
    }
    if (hashes.size() == 1) return hashes[0];
    uint64_t all = 0;
    for (const uint64_t hash : hashes) all ^= hash + 0x9e3779b97f4a7800 + (all << 10) + (all >> 4);
    return all;
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
    // The file, and once more for each column of strings.
    const TableSpec& spec = table->spec();
    const size_t texts =
        1 + (spec.key.dtype == DT_STRING ? 1 : 0) + (spec.value.dtype == DT_STRING ? 1 : 0);
    MG_RETURN_IF_ERROR(
        room.Hold(texts * text.size() + 2 * most * sizeof(std::string_view), "'" + path + "'"));
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
    MG_ASSIGN_OR_RETURN(Tensor keys, Tensor::Allocate(spec.key.dtype, Shape{n}));
    MG_ASSIGN_OR_RETURN(Tensor values, Tensor::Allocate(spec.value.dtype, Shape{n}));
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
  add.operator()<HandleKernel<Table, SpecOf<Kind::kFilledOnce>>>("HashTableV2");
  add.operator()<HandleKernel<Table, SpecOf<Kind::kMutable>>>("MutableHashTableV2");
  add.operator()<HandleKernel<Table, SpecOf<Kind::kOfTensors>>>("MutableHashTableOfTensorsV2");
  add.operator()<DenseTableKernel>("MutableDenseHashTableV2");
  add.operator()<DenseTableKernel>("_MutableDenseHashTable");
  add.operator()<AnonymousTableKernel<Kind::kFilledOnce>>("AnonymousHashTable");
  add.operator()<AnonymousTableKernel<Kind::kMutable>>("AnonymousMutableHashTable");
  add.operator()<AnonymousTableKernel<Kind::kOfTensors>>("AnonymousMutableHashTableOfTensors");
  add.operator()<AnonymousTableKernel<Kind::kDense>>("AnonymousMutableDenseHashTable");
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
