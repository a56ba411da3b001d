// _MultiCast on GPUs: many tensors are cast, or transposed as matrices, or both, by one launch for
// up to 128 of them, because a launch for each takes longer than moving its bytes. The pieces lie
// in the launch's parameters, and a block finds its own by a search among their first blocks.
#include <cstdint>
#include <utility>

#include "ops/gpu/launch.h"
#include "ops/gpu/square.h"
#include "ops/multi_cast/casts.h"

namespace monograph::ops::multi_cast {
namespace {

// A matrix; what becomes of it is of another type, or transposed, or both.
struct Piece {
  const void* from;
  void* to;
  int64_t rows, columns;
  bool transposed;
  bool words;  // of 16 bits, which keep their type; else floats
};

// Several in one launch. A block handles so many consecutive elements of one, or, of one that is
// transposed, a square.
struct Body {
  union Shared {
    Square<float> floats;
    Square<uint16_t> words;
  };
  static constexpr int kThreads = Square<float>::kThreads, kPhases = 2, kResident = 4, kMost = 128;
  static constexpr int kPack = 8, kRun = kThreads * kPack, kSide = Square<float>::kSide;

  int count;
  bool packs;  // all may be read and written kPack elements at a time
  Piece pieces[kMost];
  uint8_t types[kMost];      // DType of each
  int64_t begin[kMost + 1];  // of each, in blocks

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    int low = 0, high = count;  // begin[low] <= block < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= block ? low : high) = middle;
    }
    const Piece& piece = pieces[low];
    const int64_t at = block - begin[low];
    if (piece.words)
      return Run<uint16_t, uint16_t>(piece, at, phase, thread, shared.words,
                                     [](uint16_t x) { return x; });
    switch (types[low]) {
      case DT_HALF:
        return Cast<half>(piece, at, phase, thread, shared);
      case DT_BFLOAT16:
        return Cast<bfloat16>(piece, at, phase, thread, shared);
      default:
        return Cast<float>(piece, at, phase, thread, shared);
    }
  }

  template <typename To>
  MG_HD void Cast(const Piece& piece, int64_t block, int phase, int thread, Shared& shared) const {
    Run<float, To>(piece, block, phase, thread, shared.floats,
                   [](float x) { return Narrow<To>(x); });
  }

  template <typename From, typename To, typename Convert>
  MG_HD void Run(const Piece& piece, int64_t block, int phase, int thread, Square<From>& shared,
                 const Convert& convert) const {
    const auto* const from = static_cast<const From*>(piece.from);
    auto* const to = static_cast<To*>(piece.to);
    if (piece.transposed) return Turn(piece, from, to, block, phase, thread, shared, convert);
    if (phase > 0) return;
    const int64_t n = piece.rows * piece.columns, first = block * kRun + thread * kPack;
    if (packs && first + kPack <= n) {
      const auto in = LoadPack<From, kPack>(from + first);
      ElementPack<To, kPack> out;
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) out.values[k] = convert(in.values[k]);
      StorePack<To, kPack>(to + first, out);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < n; ++i) to[i] = convert(from[i]);
  }

  template <typename From, typename To, typename Convert>
  MG_HD void Turn(const Piece& piece, const From* from, To* to, int64_t block, int phase,
                  int thread, Square<From>& shared, const Convert& convert) const {
    const int64_t across = (piece.columns + kSide - 1) / kSide, down = block / across;
    const int64_t column = (block - down * across) * kSide, row = down * kSide;
    const int64_t rows = piece.rows - row, columns = piece.columns - column;
    if (phase == 0) {
      shared.Read(from + row * piece.columns + column, piece.columns, rows, columns,
                  packs && piece.columns % kWidth<From> == 0, thread);
    } else {
      shared.Write(to + column * piece.rows + row, piece.rows, rows, columns,
                   packs && piece.rows % kWidth<To> == 0, thread, convert);
    }
  }

  void Add(const Piece& piece, DType type) {
    if (count == 0) begin[0] = 0, packs = true;
    pieces[count] = piece;
    types[count] = static_cast<uint8_t>(type);
    packs = packs && Aligned({piece.from, piece.to});
    const auto over = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    begin[count + 1] =
        begin[count] + (piece.transposed ? over(piece.rows, kSide) * over(piece.columns, kSide)
                                         : over(piece.rows * piece.columns, kRun));
    ++count;
  }
  // Launches what was added, and forgets it.
  Status Flush(KernelContext& c) {
    const int64_t blocks = count == 0 ? 0 : begin[count];
    const Status status = ForBlocks(c, blocks, *this);
    count = 0;
    return status;
  }
};

class DeviceMultiCastKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<DeviceMultiCastKernel>();
    MG_ASSIGN_OR_RETURN(kernel->casts_, Casts::Of(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    Body body{};
    for (int i = 0; i < c.num_inputs(); ++i) {
      const Tensor& in = c.input(i);
      const Shape& shape = in.shape();
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, casts_.OutputShape(i, shape)));
      if (in.elements() == 0) continue;
      const bool moves = casts_.moves(i, shape);
      const int64_t columns = moves ? casts_.Columns(shape) : 1;
      if (body.count == Body::kMost) MG_RETURN_IF_ERROR(body.Flush(c));
      body.Add({std::as_const(in).raw(), out->raw(), in.elements() / columns, columns, moves,
                in.dtype() != DT_FLOAT},
               casts_.types[static_cast<size_t>(i)]);
    }
    return body.Flush(c);
  }

 private:
  Casts casts_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  registry->Add<DeviceMultiCastKernel>({.op = "_MultiCast", .device = kGpu});
}

}  // namespace monograph::ops::multi_cast
