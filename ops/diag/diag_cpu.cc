// Diagonals on CPUs. The kernels move elements of 1, 2, 4 or 8 bytes, whatever their type; threads
// share out the matrices.
#include <algorithm>
#include <cstring>
#include <functional>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/diag/band.h"
#include "ops/dims.h"
#include "ops/gpu/moves.h"
#include "ops/words.h"

namespace monograph::ops::diag {
namespace {

// The band that input `k_input` and the attributes say; the main diagonal if there is no such
// input.
Result<Band> BandOf(const KernelContext& c, const Attrs& attrs, int k_input) {
  SmallInts k;
  if (k_input < c.num_inputs()) {
    MG_ASSIGN_OR_RETURN(k, IntsOf(c.input(k_input), "k"));
  } else {
    k.push_back(0);
  }
  return ParseBand(attrs, k.span());
}

// The matrices of a tensor, and their band.
Status PlaceIn(const Shape& shape, Band* band) {
  if (shape.rank() < 2)
    return InvalidArgument("the input must have at least 2 dimensions, got shape " +
                           shape.ToString());
  band->rows = shape[shape.rank() - 2], band->columns = shape[shape.rank() - 1];
  return CheckBand(*band);
}

Shape DiagonalsOf(const Shape& matrices, const Band& band) {
  Shape shape(matrices.dims().first(static_cast<size_t>(matrices.rank() - 2)));
  if (band.count() > 1) shape.AddDim(band.count());
  shape.AddDim(band.longest());
  return shape;
}

// A scalar as its bytes; 0 for input `i` that the op does not have.
template <typename T>
T ValueOf(const KernelContext& c, int i) {
  T value{};
  if (i < c.num_inputs()) std::memcpy(&value, c.input(i).raw(), sizeof(T));
  return value;
}

Status CheckScalar(const KernelContext& c, int i, const char* what) {
  if (i >= c.num_inputs() || c.input(i).elements() == 1) return Status();
  return InvalidArgument(std::string(what) + " must be a scalar, got shape " +
                         c.input(i).shape().ToString());
}

// Each diagonal from a matrix to its band, and back.
template <typename T>
void ToBand(const KernelContext& c, const Band& band, const T* matrix, T* diagonals) {
  band.ForDiagonals([&](int64_t in_matrix, int64_t in_band, int64_t length) {
    InPieces(c, c.cancelled() ? 0 : length, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        diagonals[in_band + i] = matrix[in_matrix + i * (band.columns + 1)];
    });
  });
}
template <typename T>
void FromBand(const KernelContext& c, const Band& band, const T* diagonals, T* matrix) {
  band.ForDiagonals([&](int64_t in_matrix, int64_t in_band, int64_t length) {
    InPieces(c, c.cancelled() ? 0 : length, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        matrix[in_matrix + i * (band.columns + 1)] = diagonals[in_band + i];
    });
  });
}
// n elements of a matrix.
template <typename T>
void FillAll(const KernelContext& c, T* to, int64_t n, T value) {
  InPieces(c, n, [=](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
}
template <typename T>
void CopyAll(const KernelContext& c, const T* from, T* to, int64_t n) {
  InPieces(c, n,
           [=](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
}

class PartKernel : public Kernel {
 public:
  explicit PartKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Band band, BandOf(c, attrs_, 1));
    const Shape shape = c.input(0).shape();
    MG_RETURN_IF_ERROR(PlaceIn(shape, &band));
    MG_RETURN_IF_ERROR(CheckScalar(c, 2, "padding_value"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, DiagonalsOf(shape, band)));
    if (out->elements() == 0) return Status();
    const int64_t size = band.rows * band.columns, taken = band.count() * band.longest();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using T = decltype(word);
      const T padding = ValueOf<T>(c, 2);
      const T* from = static_cast<const T*>(c.input(0).raw());
      T* to = static_cast<T*>(out->raw());
      const auto body = [=, &c](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          FillAll(c, to + i * taken, taken, padding);
          ToBand(c, band, from + i * size, to + i * taken);
        }
      };
      c.ParallelFor(out->elements() / taken, 1 + taken, std::ref(body));
      return Status();
    });
  }

 private:
  const Attrs attrs_;
};

class DiagKernel : public Kernel {
 public:
  explicit DiagKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Band band, BandOf(c, attrs_, 1));
    const Shape in = c.input(0).shape();
    const int own = band.count() > 1 ? 2 : 1;
    if (in.rank() < own || (own == 2 && in[in.rank() - 2] != band.count())) {
      return InvalidArgument("a band of " + std::to_string(band.count()) +
                             " diagonals cannot have the shape " + in.ToString());
    }
    int64_t rows = -1, columns = -1;
    if (c.num_inputs() > 2) {
      MG_ASSIGN_OR_RETURN(rows, IntOf(c.input(2), "num_rows"));
      MG_ASSIGN_OR_RETURN(columns, IntOf(c.input(3), "num_cols"));
    }
    MG_RETURN_IF_ERROR(CheckScalar(c, 4, "padding_value"));
    MG_RETURN_IF_ERROR(SizeMatrix(&band, in[in.rank() - 1], rows, columns));
    if (in.rank() - own + 2 > kMaxRank) return TooManyDimensions();
    Shape shape(in.dims().first(static_cast<size_t>(in.rank() - own)));
    shape.AddDim(band.rows);
    shape.AddDim(band.columns);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    const int64_t size = band.rows * band.columns, given = band.count() * band.longest();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using T = decltype(word);
      const T padding = ValueOf<T>(c, 4);
      const T* from = static_cast<const T*>(c.input(0).raw());
      T* to = static_cast<T*>(out->raw());
      const auto body = [=, &c](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          FillAll(c, to + i * size, size, padding);
          FromBand(c, band, from + i * given, to + i * size);
        }
      };
      c.ParallelFor(out->elements() / size, 1 + size / 8, std::ref(body));
      return Status();
    });
  }

 private:
  const Attrs attrs_;
};

class SetKernel : public Kernel {
 public:
  explicit SetKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Band band, BandOf(c, attrs_, 2));
    const Shape shape = c.input(0).shape();
    MG_RETURN_IF_ERROR(PlaceIn(shape, &band));
    const Shape expected = DiagonalsOf(shape, band);
    if (!(c.input(1).shape() == expected)) {
      return InvalidArgument("the diagonals have shape " + c.input(1).shape().ToString() +
                             "; those of the input have " + expected.ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    const int64_t size = band.rows * band.columns, given = band.count() * band.longest();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using T = decltype(word);
      const T *from = static_cast<const T*>(c.input(0).raw()),
              *diagonals = static_cast<const T*>(c.input(1).raw());
      T* to = static_cast<T*>(out->raw());
      const auto body = [=, &c](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          CopyAll(c, from + i * size, to + i * size, size);
          FromBand(c, band, diagonals + i * given, to + i * size);
        }
      };
      c.ParallelFor(out->elements() / size, 1 + size / 8, std::ref(body));
      return Status();
    });
  }

 private:
  const Attrs attrs_;
};

class BandPartKernel : public Kernel {
 public:
  explicit BandPartKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    Band matrix;
    MG_RETURN_IF_ERROR(PlaceIn(shape, &matrix));
    const int64_t rows = matrix.rows, columns = matrix.columns;
    MG_ASSIGN_OR_RETURN(int64_t lower, IntOf(c.input(1), "num_lower"));
    MG_ASSIGN_OR_RETURN(int64_t upper, IntOf(c.input(2), "num_upper"));
    if (lower > rows || upper > columns) {
      return InvalidArgument("num_lower " + std::to_string(lower) + " and num_upper " +
                             std::to_string(upper) + " must not exceed the " +
                             std::to_string(rows) + " rows and " + std::to_string(columns) +
                             " columns");
    }
    if (lower < 0) lower = rows;
    if (upper < 0) upper = columns;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    if (out->elements() == 0) return Status();
    return DispatchWord(DTypeSize(out->dtype()), [&](auto word) {
      using T = decltype(word);
      const T* from = static_cast<const T*>(c.input(0).raw());
      T* to = static_cast<T*>(out->raw());
      const auto body = [=, &c](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line) {
          const int64_t row = line % rows;
          const int64_t first = std::clamp<int64_t>(row - lower, 0, columns),
                        last = std::clamp<int64_t>(row + upper + 1, first, columns);
          const T* x = from + line * columns;
          T* y = to + line * columns;
          FillAll(c, y, first, T{});
          if (x != y) CopyAll(c, x + first, y + first, last - first);
          FillAll(c, y + last, columns - last, T{});
        }
      };
      c.ParallelFor(out->elements() / columns, 1 + columns / 8, std::ref(body));
      return Status();
    });
  }
};

// A square matrix of n * n elements, of which the diagonal counts.
Status TensorDiagOf(KernelContext& c, const Attrs&) {
  const Shape in = c.input(0).shape();
  if (in.rank() < 1 || 2 * in.rank() > kMaxRank)
    return InvalidArgument("Input must be at least rank 1 and at most rank 4");
  SmallInts dims;
  for (int twice = 0; twice < 2; ++twice) {
    for (int64_t dim : in.dims()) dims.push_back(dim);
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  if (in.elements() == 0) return Status();
  StridedSpace space;
  space.Add(in.elements(), 1, in.elements() + 1);
  StridedCopy(c, DTypeSize(out->dtype()), c.input(0).raw(), out->raw(), space);
  return Status();
}

Status TensorDiagPartOf(KernelContext& c, const Attrs&) {
  const Shape in = c.input(0).shape();
  const int half = in.rank() / 2;
  bool square = in.rank() >= 2 && in.rank() % 2 == 0;
  Shape shape;
  for (int i = 0; square && i < half; ++i) {
    square = in[i] == in[i + half];
    shape.AddDim(in[i]);
  }
  if (!square) {
    return InvalidArgument("Invalid shape " + in.ToString() +
                           ": the second half of the dimensions must equal the first");
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (shape.elements() == 0) return Status();
  StridedSpace space;
  space.Add(shape.elements(), shape.elements() + 1, 1);
  StridedCopy(c, DTypeSize(out->dtype()), c.input(0).raw(), out->raw(), space);
  return Status();
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  for (const char* suffix : {"", "V2", "V3"}) {
    const bool first = *suffix == 0;
    const auto def = [&](const char* op, std::vector<std::string> host) {
      return KernelDef{.op = std::string(op) + suffix,
                       .host_args = first ? std::vector<std::string>() : std::move(host)};
    };
    AddForPlainTypes<DiagKernel>(registry,
                                 def("MatrixDiag", {"k", "num_rows", "num_cols", "padding_value"}));
    AddForPlainTypes<PartKernel>(registry, def("MatrixDiagPart", {"k", "padding_value"}));
    AddForPlainTypes<SetKernel>(registry, def("MatrixSetDiag", {"k"}));
  }
  AddForPlainTypes<BandPartKernel>(
      registry, {.op = "MatrixBandPart", .host_args = {"num_lower", "num_upper"}});
  AddForTypes<FunctionKernel<TensorDiagOf>>(registry, {.op = "Diag"}, "T", kRealTypes);
  AddForTypes<FunctionKernel<TensorDiagPartOf>>(registry, {.op = "DiagPart"}, "T", kRealTypes);
}

}  // namespace monograph::ops::diag
