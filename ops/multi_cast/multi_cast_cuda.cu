#include <cstdint>

#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"
#include "ops/multi_cast/casts.h"

namespace monograph::ops::multi_cast {
namespace {

// A float matrix; what becomes of it is of another type, or transposed, or both.
struct Piece {
  const float* from;
  void* to;
  int64_t rows, columns;
  bool transposed;
};

// Several in one launch. A block handles so many consecutive elements of one, or, of one that is
// transposed, a tile, which shared memory turns round.
struct Body {
  static constexpr int kThreads = 256, kPhases = 2, kMost = 128;
  static constexpr int kPack = 8, kRun = kThreads * kPack, kSide = 32, kRows = kThreads / kSide;
  struct Shared {
    float tile[kSide][kSide + 1];
  };

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
    switch (types[low]) {
      case DT_HALF:
        return Run(piece, static_cast<half*>(piece.to), at, phase, thread, shared);
      case DT_BFLOAT16:
        return Run(piece, static_cast<bfloat16*>(piece.to), at, phase, thread, shared);
      default:
        return Run(piece, static_cast<float*>(piece.to), at, phase, thread, shared);
    }
  }

  template <typename To>
  MG_HD void Run(const Piece& piece, To* to, int64_t block, int phase, int thread,
                 Shared& shared) const {
    if (piece.transposed) return Turn(piece, to, block, phase, thread, shared);
    if (phase > 0) return;
    const int64_t n = piece.rows * piece.columns, first = block * kRun + thread * kPack;
    if (packs && first + kPack <= n) {
      // Four floats are what one instruction moves.
      const ElementPack<float, 4> a = LoadPack<float, 4>(piece.from + first),
                                  b = LoadPack<float, 4>(piece.from + first + 4);
      ElementPack<To, 4> x, y;
      MG_UNROLL
      for (int k = 0; k < 4; ++k) {
        x.values[k] = Narrow<To>(a.values[k]);
        y.values[k] = Narrow<To>(b.values[k]);
      }
      StorePack<To, 4>(to + first, x);
      StorePack<To, 4>(to + first + 4, y);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < n; ++i) to[i] = Narrow<To>(piece.from[i]);
  }

  template <typename To>
  MG_HD void Turn(const Piece& piece, To* to, int64_t block, int phase, int thread,
                  Shared& shared) const {
    const int64_t across = (piece.columns + kSide - 1) / kSide, down = block / across;
    const int64_t column = (block - down * across) * kSide, row = down * kSide;
    const int x = thread % kSide, y = thread / kSide;
    if (phase == 0) {
      for (int r = y; r < kSide; r += kRows) {
        if (column + x < piece.columns && row + r < piece.rows)
          shared.tile[r][x] = piece.from[(row + r) * piece.columns + column + x];
      }
    } else {
      for (int r = y; r < kSide; r += kRows) {
        if (row + x < piece.rows && column + r < piece.columns)
          to[(column + r) * piece.rows + row + x] = Narrow<To>(shared.tile[x][r]);
      }
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
      const int64_t columns = moves ? shape[shape.rank() - 1] : 1;
      if (body.count == Body::kMost) MG_RETURN_IF_ERROR(body.Flush(c));
      body.Add({in.data<float>(), out->raw(), in.elements() / columns, columns, moves},
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
