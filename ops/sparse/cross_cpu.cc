// SparseCross, SparseCrossV2 and SparseCrossHashed: for each row of a batch all combinations of one
// element from each column. A column is a sparse matrix, of which a row has any number of elements,
// or a dense one. A combination becomes a text, or a number by hashes that are mixed one after the
// other.
//
// The rows are gone through twice: once to count, then to write. Only rows that the first sparse
// column has are looked at, so that a batch that says to be huge takes no time.
#include <farmhash.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/sparse/sparse_cpu.h"
#include "ops/string/siphash_cpu.h"

namespace monograph::ops::sparse {
namespace {

using string::SipHash;

class Column {
 public:
  // `indices`: nullptr for a dense column.
  Column(const Tensor* indices, const Tensor* values)
      : indices_(indices),
        values_(values),
        size_(indices != nullptr ? values->elements() : values->shape()[1]) {}

  bool sparse() const { return indices_ != nullptr; }
  const Tensor& values() const { return *values_; }
  int64_t size() const { return size_; }  // elements, or those of a row of a dense column
  void Rewind() { next_ = 0, last_ = -1; }
  // The row of the next element; as TensorFlow does, what is behind a row that should have come
  // earlier is left out.
  std::optional<int64_t> NextRow() {
    if (next_ < size_ && RowOf(next_) < last_) next_ = size_;
    if (next_ == size_) return std::nullopt;
    return RowOf(next_);
  }
  // Goes to this row. REQUIRES: a later one than before. False: the step is aborted.
  bool GoTo(int64_t row, Looks* looks) {
    if (!sparse()) {
      first = row * size_;
      count = size_;
      return true;
    }
    for (auto next = NextRow(); next && *next < row; next = NextRow()) {
      if (!looks->GoOn(3)) return false;
      last_ = *next;
      ++next_;
    }
    first = next_;
    for (; next_ < size_ && RowOf(next_) == row; ++next_) {
      if (!looks->GoOn(3)) return false;
    }
    count = next_ - first;
    if (count > 0) last_ = row;
    return true;
  }

  int64_t first = 0, count = 0;  // the elements of the row

 private:
  int64_t RowOf(int64_t i) const { return indices_->data<int64_t>()[2 * i]; }

  const Tensor* indices_;
  const Tensor* values_;
  int64_t size_, next_ = 0, last_ = -1;
};

class Columns {
 public:
  // From n indices, n tensors of values, n shapes and the dense columns up to `inputs`.
  static Result<Columns> Make(const KernelContext& c, int n, int inputs) {
    Columns made;
    for (int i = 0; i < n; ++i) {
      MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2 * n + i), "a shape"));
      if (dims.size() != 2) {
        return InvalidArgument("shape should imply a 2D tensor, but got " +
                               std::to_string(dims.size()) + " dimensions at position " +
                               std::to_string(i));
      }
      MG_RETURN_IF_ERROR(CheckSparse(c, c.input(i), &c.input(n + i), dims));
      MG_RETURN_IF_ERROR(made.CheckBatch(dims[0]));
      made.columns_.emplace_back(&c.input(i), &c.input(n + i));
    }
    for (int i = 3 * n; i < inputs; ++i) {
      if (c.input(i).shape().rank() != 2) {
        return InvalidArgument("Dense inputs should be a matrix but received shape " +
                               c.input(i).shape().ToString());
      }
      MG_RETURN_IF_ERROR(made.CheckBatch(c.input(i).shape()[0]));
      made.columns_.emplace_back(nullptr, &c.input(i));
    }
    return made;
  }

  std::vector<Column>& all() { return columns_; }
  int64_t batch() const { return std::max<int64_t>(0, batch_); }

  // Calls fn(row, crosses), which may fail, for rows that have crosses. Cancelled once the step is
  // aborted.
  template <typename Fn>
  Status ForRows(Looks* looks, const Fn& fn) {
    for (Column& column : columns_) {
      column.Rewind();
      if (column.size() == 0) return Status();
    }
    if (columns_.empty()) return Status();
    for (int64_t row = 0;; ++row) {
      if (Column& first = columns_.front(); first.sparse()) {
        const auto next = first.NextRow();
        if (!next) return Status();
        row = *next;
      } else if (row >= batch_) {
        return Status();
      }
      int64_t crosses = 1;
      for (Column& column : columns_) {
        if (!looks->GoOn(10) || !column.GoTo(row, looks)) return StepAborted();
        if (__builtin_mul_overflow(crosses, column.count, &crosses))
          return InvalidArgument("row " + std::to_string(row) + " has too many crosses");
      }
      if (crosses > 0) MG_RETURN_IF_ERROR(fn(row, crosses));
    }
  }

 private:
  Status CheckBatch(int64_t rows) {
    if (batch_ < 0) batch_ = rows;
    if (rows == batch_) return Status();
    return InvalidArgument("Expected batch size " + std::to_string(batch_) + " got " +
                           std::to_string(rows));
  }

  std::vector<Column> columns_;
  int64_t batch_ = -1;
};

// Fills the outputs: put(values, elements, at) writes value `at`, of these elements of the columns;
// false: the step is aborted, or there is no room.
template <typename Fn>
Status Cross(KernelContext& c, Columns* columns, const Fn& put) {
  int64_t total = 0, most = 0;
  Looks looks(c);
  MG_RETURN_IF_ERROR(columns->ForRows(&looks, [&](int64_t, int64_t crosses) {
    most = std::max(most, crosses);
    if (__builtin_add_overflow(total, crosses, &total))
      return InvalidArgument("there are too many crosses");
    return Status();
  }));
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(std::vector<int64_t>{total, 2}));
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, shape));
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, Shape{total}));
  MG_ASSIGN_OR_RETURN(Tensor * dense, c.AllocateOutput(2, Shape{2}));
  dense->data<int64_t>()[0] = columns->batch();
  dense->data<int64_t>()[1] = most;
  std::vector<int64_t> elements(columns->all().size());
  int64_t at = 0;
  return columns->ForRows(&looks, [&](int64_t row, int64_t crosses) {
    std::vector<Column>& all = columns->all();
    for (size_t i = 0; i < all.size(); ++i) elements[i] = all[i].first;
    for (int64_t cross = 0; cross < crosses; ++cross, ++at) {
      if (!looks.GoOn(10 * static_cast<int64_t>(all.size()))) return StepAborted();
      indices->data<int64_t>()[2 * at] = row;
      indices->data<int64_t>()[2 * at + 1] = cross;
      if (!put(values, elements, at)) return StepAborted();
      for (size_t i = all.size(); i-- > 0;) {  // the next combination: the last column goes first
        if (++elements[i] < all[i].first + all[i].count) break;
        elements[i] = all[i].first;
      }
    }
    return Status();
  });
}

Status CrossTexts(KernelContext& c, Columns* columns, std::string_view separator) {
  Looks looks(c);
  return Cross(c, columns, [&](Tensor* texts, const std::vector<int64_t>& elements, int64_t at) {
    std::string* const text = texts->strings() + at;
    for (size_t i = 0; i < elements.size(); ++i) {
      const Tensor& values = columns->all()[i].values();
      if (i > 0 && !AppendText(&looks, separator, text)) return false;
      const bool whole =
          values.dtype() == DT_STRING
              ? AppendText(&looks, values.strings()[elements[i]], text)
              : AppendText(&looks, std::to_string(values.data<int64_t>()[elements[i]]), text);
      if (!whole) return false;
    }
    return true;
  });
}

// Of two fingerprints one, in which their order counts (tsl::FingerprintCat64).
uint64_t Joined(uint64_t a, uint64_t b) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  const auto mixed = [](uint64_t x) { return x ^ x >> 47; };
  const uint64_t sum = (a ^ kFactor ^ mixed(b * kFactor) * kFactor) * kFactor;
  return mixed(mixed(sum) * kFactor);
}

// hash(column, element) of an element, a text or a number; `start` comes before the first column's.
template <typename Fn>
Status CrossHashes(KernelContext& c, Columns* columns, std::optional<uint64_t> start,
                   int64_t buckets, const Fn& hash) {
  std::vector<Tensor> hashes;
  Looks looks(c);
  for (const Column& column : columns->all()) {
    MG_ASSIGN_OR_RETURN(Tensor own, c.AllocateTemp(DT_UINT64, column.values().shape()));
    for (int64_t i = 0; i < own.elements(); ++i) {
      const std::optional<uint64_t> value = hash(column, i, &looks);
      if (!value) return StepAborted();
      own.data<uint64_t>()[i] = *value;
    }
    hashes.push_back(std::move(own));
  }
  const auto range =
      static_cast<uint64_t>(buckets > 0 ? buckets : std::numeric_limits<int64_t>::max());
  const bool starts = start.has_value();  // GCC 12 takes the optional for uninitialized in the loop
  const uint64_t first = start.value_or(0);
  return Cross(c, columns, [&](Tensor* values, const std::vector<int64_t>& elements, int64_t at) {
    const auto element = [&](size_t i) { return hashes[i].data<uint64_t>()[elements[i]]; };
    uint64_t mixed = starts ? Joined(first, element(0)) : element(0);
    for (size_t i = 1; i < elements.size(); ++i) mixed = Joined(mixed, element(i));
    values->data<int64_t>()[at] = static_cast<int64_t>(mixed % range);
    return true;
  });
}

// Fingerprints of texts, and of numbers themselves.
std::optional<uint64_t> Fingerprint(const Column& column, int64_t i, Looks* looks) {
  if (column.values().dtype() != DT_STRING) {
    if (!looks->GoOn(2)) return std::nullopt;
    return static_cast<uint64_t>(column.values().data<int64_t>()[i]);
  }
  const std::string& text = column.values().strings()[i];
  if (!looks->GoOn(text)) return std::nullopt;
  return util::Fingerprint64(text.data(), text.size());
}

class CrossKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    const bool texts = c.attr<DType>("internal_type") == DT_STRING;
    for (const char* name : {"sparse_types", "dense_types"}) {
      for (const DType type : c.attr<std::vector<DType>>(name)) {
        if (texts && type == DT_INT64)
          return InvalidArgument("inputs should be of internal type string, but received int64");
      }
    }
    return std::unique_ptr<Kernel>(new CrossKernel(c));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Columns columns, Columns::Make(c, sparse_, c.num_inputs()));
    return hashed_ ? CrossHashes(c, &columns, key_, buckets_, Fingerprint)
                   : CrossTexts(c, &columns, "_X_");
  }

 private:
  explicit CrossKernel(const KernelConstruction& c)
      : sparse_(static_cast<int>(c.attr<int64_t>("N"))),
        hashed_(c.attr<DType>("out_type") == DT_INT64),
        buckets_(c.attr<int64_t>("num_buckets")),
        key_(static_cast<uint64_t>(c.attr<int64_t>("hash_key"))) {}

  const int sparse_;
  const bool hashed_;
  const int64_t buckets_;
  const uint64_t key_;
};

Status CrossV2Of(KernelContext& c, const Attrs& attrs) {
  const int last = c.num_inputs() - 1;
  MG_ASSIGN_OR_RETURN(Columns columns,
                      Columns::Make(c, static_cast<int>(attrs.Get<int64_t>("N")), last));
  if (c.input(last).shape().rank() != 0)
    return InvalidArgument("Input separator should be a scalar.");
  return CrossTexts(c, &columns, *c.input(last).strings());
}

Status CrossHashedOf(KernelContext& c, const Attrs& attrs) {
  const int last = c.num_inputs() - 3;
  MG_ASSIGN_OR_RETURN(Columns columns,
                      Columns::Make(c, static_cast<int>(attrs.Get<int64_t>("N")), last));
  const Tensor &buckets = c.input(last), &strong = c.input(last + 1), &salt = c.input(last + 2);
  if (buckets.shape().rank() != 0 || strong.shape().rank() != 0)
    return InvalidArgument("num_buckets and strong_hash should be scalars");
  if (!(salt.shape() == Shape{2}))
    return InvalidArgument("salt must have shape [2], not " + salt.shape().ToString());
  const SipHash keyed(static_cast<uint64_t>(salt.data<int64_t>()[0]),
                      static_cast<uint64_t>(salt.data<int64_t>()[1]));
  const bool is_strong = strong.scalar<bool>();
  // Of numbers TensorFlow hashes the lower half.
  const auto hash = [&](const Column& column, int64_t i, Looks* looks) -> std::optional<uint64_t> {
    const Tensor& values = column.values();
    const bool text = values.dtype() == DT_STRING;
    if (!is_strong && (text || !column.sparse())) return Fingerprint(column, i, looks);
    const std::string_view bytes =
        text ? std::string_view(values.strings()[i])
             : std::string_view(reinterpret_cast<const char*>(values.data<int64_t>() + i), 4);
    if (!is_strong) {
      if (!looks->GoOn(20)) return std::nullopt;
      return util::Fingerprint64(bytes.data(), bytes.size());
    }
    SipHash of = keyed;
    if (!InParts(looks, bytes, [&of](std::string_view part) { of.Add(part); })) return std::nullopt;
    return of.End();
  };
  return CrossHashes(c, &columns, std::nullopt, buckets.scalar<int64_t>(), hash);
}

}  // namespace

void RegisterCrosses(KernelRegistry* registry) {
  registry->Add<CrossKernel>({.op = "SparseCross"});
  registry->Add<FunctionKernel<CrossV2Of>>({.op = "SparseCrossV2"});
  registry->Add<FunctionKernel<CrossHashedOf>>({.op = "SparseCrossHashed"});
}

}  // namespace monograph::ops::sparse
