#include <cstdint>

#include "ops/gpu/launch.h"
#include "ops/gpu/square.h"
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
// transposed, a square.
struct Body {
  using Shared = Square<float>;
  static constexpr int kThreads = Shared::kThreads, kPhases = 2, kResident = 4, kMost = 128;
  static constexpr int kPack = 8, kRun = kThreads * kPack, kSide = Shared::kSide;

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
      const auto in = LoadPack<float, kPack>(piece.from + first);
      ElementPack<To, kPack> out;
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) out.values[k] = Narrow<To>(in.values[k]);
      StorePack<To, kPack>(to + first, out);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < n; ++i) to[i] = Narrow<To>(piece.from[i]);
  }

  template <typename To>
  MG_HD void Turn(const Piece& piece, To* to, int64_t block, int phase, int thread,
                  Shared& shared) const {
    const int64_t across = (piece.columns + kSide - 1) / kSide, down = block / across;
    const int64_t column = (block - down * across) * kSide, row = down * kSide;
    const int64_t rows = piece.rows - row, columns = piece.columns - column;
    if (phase == 0) {
      shared.Read(piece.from + row * piece.columns + column, piece.columns, rows, columns,
                  packs && piece.columns % kWidth<float> == 0, thread);
    } else {
      shared.Write(to + column * piece.rows + row, piece.rows, rows, columns,
                   packs && piece.rows % kWidth<To> == 0, thread,
                   [](float x) { return Narrow<To>(x); });
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
