// CPU kernels. Each is some strided copies (StridedCopy) that only differ in sizes and strides;
// only MirrorPadGrad, which adds, is compiled for each type of element.
#include <algorithm>
#include <array>

#include "ops/cpu/element_types_cpu.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::rearrange {
namespace {

// Copies a block: `from_first` and `to_first` are the elements where it begins.
void CopyBlock(KernelContext& c, const void* from, int64_t from_first, void* to, int64_t to_first,
               size_t bytes, const StridedSpace& space) {
  for (int i = 0; i < space.rank; ++i) {
    if (space.size[static_cast<size_t>(i)] <= 0) return;
  }
  StridedCopy(c, bytes, static_cast<const char*>(from) + from_first * static_cast<int64_t>(bytes),
              static_cast<char*>(to) + to_first * static_cast<int64_t>(bytes), space);
}

// A matrix of two columns, row by row.
Result<SmallInts> EdgesOf(const Tensor& edges, int64_t rows, const char* name) {
  if (!(edges.shape() == Shape{rows, 2})) {
    return InvalidArgument(std::string(name) + " must have shape [" + std::to_string(rows) +
                           ",2], not " + edges.shape().ToString());
  }
  MG_ASSIGN_OR_RETURN(const SmallInts ints, IntsOf(edges.Reshaped(Shape{2 * rows}), name));
  for (int64_t edge : ints.span()) {
    if (edge < 0) return InvalidArgument(std::string(name) + " must not be negative");
  }
  return ints;
}

class RollKernel : public Kernel {
 public:
  explicit RollKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    if (shape.rank() < 1) return InvalidArgument("input must be 1-D or higher");
    if (c.input(1).shape() != c.input(2).shape())
      return InvalidArgument("shift and axis must have the same size");
    MG_ASSIGN_OR_RETURN(const SmallInts shifts, IntsOf(c.input(1), "shift"));
    MG_ASSIGN_OR_RETURN(const SmallInts axes, IntsOf(c.input(2), "axis"));
    std::array<int64_t, kMaxRank> shift{};  // in [0, dim)
    for (int i = 0; i < axes.size(); ++i) {
      const int64_t axis = axes[i] < 0 ? axes[i] + shape.rank() : axes[i];
      if (axis < 0 || axis >= shape.rank())
        return InvalidArgument("axis " + std::to_string(axes[i]) + " is out of range");
      const int64_t dim = std::max<int64_t>(1, shape[static_cast<int>(axis)]);
      int64_t& sum = shift[static_cast<size_t>(axis)];
      sum = ((sum + shifts[i] % dim) % dim + dim) % dim;
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    // Each rolled dimension has two parts that change places; blocks are all combinations.
    const auto strides = StridesOf(shape);
    for (uint32_t block = 0; block < (1u << shape.rank()); ++block) {
      StridedSpace space;
      int64_t from = 0, to = 0;
      bool there = true;
      for (int i = 0; i < shape.rank(); ++i) {
        const auto k = static_cast<size_t>(i);
        const bool wraps = ((block >> i) & 1) != 0;
        const int64_t n = wraps ? shift[k] : shape[i] - shift[k];
        there = there && n > 0;
        (wraps ? from : to) += (wraps ? shape[i] - shift[k] : shift[k]) * strides[k];
        space.Add(n, strides[k], strides[k]);
      }
      if (there)
        CopyBlock(c, c.input(0).raw(), from, out->raw(), to, DTypeSize(out->dtype()), space);
    }
    return Status();
  }
};

class ReverseSequenceKernel : public Kernel {
 public:
  explicit ReverseSequenceKernel(const KernelConstruction& k)
      : seq_(static_cast<int>(k.attr<int64_t>("seq_dim"))),
        batch_(static_cast<int>(k.attr<int64_t>("batch_dim"))) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    if (std::min(seq_, batch_) < 0 || std::max(seq_, batch_) >= shape.rank() || seq_ == batch_) {
      return InvalidArgument("seq_dim " + std::to_string(seq_) + " and batch_dim " +
                             std::to_string(batch_) + " must be two dimensions of " +
                             shape.ToString());
    }
    const Tensor& lengths = c.input(1);
    if (!(lengths.shape() == Shape{shape[batch_]}))
      return InvalidArgument("Length of seq_lengths != input.dims(" + std::to_string(batch_) + ")");
    for (int64_t b = 0; b < shape[batch_]; ++b) {
      const int64_t length = IndexAt(lengths, b);
      if (length < 0 || length > shape[seq_]) {
        return InvalidArgument("seq_lengths(" + std::to_string(b) +
                               ") = " + std::to_string(length) + " is not in [0, " +
                               std::to_string(shape[seq_]) + "]");
      }
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const auto strides = StridesOf(shape);
    const int64_t step = strides[static_cast<size_t>(seq_)];
    for (int64_t b = 0; b < shape[batch_] && !c.cancelled(); ++b) {
      const int64_t length = IndexAt(lengths, b), first = b * strides[static_cast<size_t>(batch_)];
      StridedSpace turned, kept;
      for (int i = 0; i < shape.rank(); ++i) {
        const int64_t stride = strides[static_cast<size_t>(i)];
        if (i == batch_) continue;
        turned.Add(i == seq_ ? length : shape[i], i == seq_ ? -stride : stride, stride);
        kept.Add(i == seq_ ? shape[i] - length : shape[i], stride, stride);
      }
      const size_t bytes = DTypeSize(out->dtype());
      CopyBlock(c, c.input(0).raw(), first + (length - 1) * step, out->raw(), first, bytes, turned);
      CopyBlock(c, c.input(0).raw(), first + length * step, out->raw(), first + length * step,
                bytes, kept);
    }
    return Status();
  }

 private:
  const int seq_, batch_;
};

// What MirrorPad and MirrorPadGrad ask of the shape without padding.
Status CheckMirror(const Shape& inner, const SmallInts& pads, int64_t offset) {
  for (int i = 0; i < inner.rank(); ++i) {
    if (std::max(pads[2 * i], pads[2 * i + 1]) <= std::max<int64_t>(0, inner[i] - offset)) continue;
    return InvalidArgument("paddings must be no greater than the dimension size" +
                           std::string(offset == 1 ? " less one" : "") + ": " +
                           std::to_string(pads[2 * i]) + ", " + std::to_string(pads[2 * i + 1]) +
                           " for dimension " + std::to_string(i) + " of " + inner.ToString());
  }
  return Status();
}

class MirrorPadKernel : public Kernel {
 public:
  explicit MirrorPadKernel(const KernelConstruction& k)
      : offset_(k.attr<std::string>("mode") == "REFLECT" ? 1 : 0) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const SmallInts pads, EdgesOf(c.input(1), in.rank(), "paddings"));
    MG_RETURN_IF_ERROR(CheckMirror(in, pads, offset_));
    SmallInts dims;
    for (int i = 0; i < in.rank(); ++i) {
      int64_t dim = 0;
      if (__builtin_add_overflow(pads[2 * i], pads[2 * i + 1], &dim) ||
          __builtin_add_overflow(dim, in[i], &dim)) {
        return InvalidArgument("the result is too large");
      }
      dims.push_back(dim);
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const auto from = StridesOf(in), to = StridesOf(shape);
    const size_t bytes = DTypeSize(out->dtype());
    StridedSpace inner;
    int64_t first = 0;
    for (int i = 0; i < in.rank(); ++i) {
      first += pads[2 * i] * to[static_cast<size_t>(i)];
      inner.Add(in[i], from[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
    }
    CopyBlock(c, c.input(0).raw(), 0, out->raw(), first, bytes, inner);
    // From the last dimension on: inner dimensions are already padded.
    for (int d = in.rank() - 1; d >= 0; --d) {
      const int64_t stride = to[static_cast<size_t>(d)], before = pads[2 * d],
                    after = pads[2 * d + 1];
      int64_t origin = 0;
      StridedSpace left, right;
      for (int i = 0; i < in.rank(); ++i) {
        const int64_t step = to[static_cast<size_t>(i)];
        if (i < d) origin += pads[2 * i] * step;
        left.Add(i == d ? before : i < d ? in[i] : shape[i], i == d ? -step : step, step);
        right.Add(i == d ? after : i < d ? in[i] : shape[i], i == d ? -step : step, step);
      }
      CopyBlock(c, out->raw(), origin + (2 * before - 1 + offset_) * stride, out->raw(), origin,
                bytes, left);
      CopyBlock(c, out->raw(), origin + (before + in[d] - 1 - offset_) * stride, out->raw(),
                origin + (before + in[d]) * stride, bytes, right);
    }
    return Status();
  }

 private:
  const int64_t offset_;
};

// Every element of the padded tensor is added to the one that it mirrors.
class MirrorPadGradKernel : public Kernel {
 public:
  explicit MirrorPadGradKernel(const KernelConstruction& k)
      : offset_(k.attr<std::string>("mode") == "REFLECT" ? 1 : 0) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const SmallInts pads, EdgesOf(c.input(1), in.rank(), "paddings"));
    Shape shape;
    for (int i = 0; i < in.rank(); ++i) {
      const int64_t dim = in[i] - pads[2 * i] - pads[2 * i + 1];
      if (pads[2 * i] > in[i] || dim < 0)
        return InvalidArgument("paddings are larger than the input");
      shape.AddDim(dim);
    }
    MG_RETURN_IF_ERROR(CheckMirror(shape, pads, offset_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    if (shape.elements() == 0 || in.elements() == 0) return Status();
    const auto strides = StridesOf(shape);
    const auto place = [&](int d, int64_t at) {  // that element `at` of dimension d mirrors
      at -= pads[2 * d];
      if (at < 0) at = -at - 1 + offset_;
      if (at >= shape[d]) at = 2 * shape[d] - 1 - at - offset_;
      return at * strides[static_cast<size_t>(d)];
    };
    return WithRealType(out->dtype(), [&](auto t) {
      using T = decltype(t);
      const T* from = c.input(0).data<T>();
      T* to = out->data<T>();
      const int last = in.rank() - 1;
      const int64_t row = in.rank() == 0 ? 1 : in[last];
      std::array<int64_t, kMaxRank> at{};
      for (int64_t i = 0; i < in.elements(); i += row) {
        if (c.cancelled()) break;
        int64_t base = 0;
        for (int d = 0; d < last; ++d) base += place(d, at[static_cast<size_t>(d)]);
        InPieces(c, row, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            T& sum = to[base + (in.rank() == 0 ? 0 : place(last, k))];
            sum = T(sum + from[i + k]);
          }
        });
        for (int d = last - 1; d >= 0; --d) {
          if (++at[static_cast<size_t>(d)] < in[d]) break;
          at[static_cast<size_t>(d)] = 0;
        }
      }
      return Status();
    });
  }

 private:
  const int64_t offset_;
};

// Space holds elements b, x_1 .. x_m, rest; batch has those with equal x_i % block_i (counted from
// the edge) in a batch of their own. One strided copy for each offset within a block.
Status MoveBlocks(KernelContext& c, bool to_batch, std::span<const int64_t> blocks,
                  const SmallInts& edges) {
  const Tensor& in = c.input(0);
  const auto dims = static_cast<int>(blocks.size());
  if (in.shape().rank() < dims + 1) {
    return InvalidArgument("input rank must be >= " + std::to_string(dims + 1) + " instead of " +
                           std::to_string(in.shape().rank()));
  }
  int64_t product = 1;
  for (int64_t block : blocks) {
    if (block < 1 || __builtin_mul_overflow(product, block, &product))
      return InvalidArgument("block_shape must be positive, and its product less than 2^63");
  }
  SmallInts sizes;
  for (int i = 0; i < in.shape().rank(); ++i) {
    int64_t size = in.shape()[i];
    if (i == 0 && to_batch) {
      if (__builtin_mul_overflow(size, product, &size))
        return InvalidArgument("the result is too large");
    } else if (i == 0) {
      if (size % product != 0) {
        return InvalidArgument("Input batch dimension (" + std::to_string(size) +
                               ") is not divisible by product of block sizes (" +
                               std::to_string(product) + ")");
      }
      size /= product;
    } else if (i <= dims) {
      const int64_t block = blocks[static_cast<size_t>(i - 1)];
      int64_t edge = 0;
      if (__builtin_add_overflow(edges[2 * i - 2], edges[2 * i - 1], &edge) ||
          (to_batch && __builtin_add_overflow(size, edge, &size))) {
        return InvalidArgument("the edges of dimension " + std::to_string(i) +
                               " do not fit in 63 bits");
      }
      if (to_batch) {
        if (size % block != 0) {
          return InvalidArgument("padded_shape[" + std::to_string(i - 1) +
                                 "]=" + std::to_string(size) + " is not divisible by block_shape[" +
                                 std::to_string(i - 1) + "]=" + std::to_string(block));
        }
        size /= block;
      } else if (__builtin_mul_overflow(size, block, &size) || (size -= edge) < 0) {
        return InvalidArgument("crops are larger than dimension " + std::to_string(i) + " of " +
                               in.shape().ToString());
      }
    }
    sizes.push_back(size);
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(sizes.span()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (shape.elements() == 0) return Status();
  if (to_batch) MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  const Shape &space = to_batch ? in.shape() : shape, &batch = to_batch ? shape : in.shape();
  const auto space_strides = StridesOf(space), batch_strides = StridesOf(batch);
  for (int64_t offset = 0; offset < product && !c.cancelled(); ++offset) {
    StridedSpace copy;
    int64_t in_space = 0, in_batch = offset * space[0] * batch_strides[0];
    const auto add = [&](int64_t n, int64_t s, int64_t b) {
      copy.Add(n, to_batch ? s : b, to_batch ? b : s);
    };
    add(space[0], space_strides[0], batch_strides[0]);
    int64_t rest = offset, below = product;
    for (int i = 1; i < space.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      if (i > dims) {
        add(space[i], space_strides[k], batch_strides[k]);
        continue;
      }
      const int64_t block = blocks[k - 1];
      below /= block;
      const int64_t at = rest / below - edges[2 * i - 2];  // of element 0 of the batch, in space
      rest %= below;
      const int64_t first = at >= 0 ? 0 : (-at + block - 1) / block;
      const int64_t end =
          std::min(batch[i], space[i] > at ? (space[i] - at + block - 1) / block : 0);
      in_space += (at + first * block) * space_strides[k];
      in_batch += first * batch_strides[k];
      add(end - first, block * space_strides[k], batch_strides[k]);
    }
    CopyBlock(c, in.raw(), to_batch ? in_space : in_batch, out->raw(),
              to_batch ? in_batch : in_space, DTypeSize(in.dtype()), copy);
  }
  return Status();
}

template <bool kToBatch>
class BatchNdKernel : public Kernel {
 public:
  explicit BatchNdKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const SmallInts blocks, IntsOf(c.input(1), "block_shape"));
    MG_ASSIGN_OR_RETURN(const SmallInts edges,
                        EdgesOf(c.input(2), blocks.size(), kToBatch ? "paddings" : "crops"));
    return MoveBlocks(c, kToBatch, blocks.span(), edges);
  }
};

template <bool kToBatch>
class Batch2dKernel : public Kernel {
 public:
  explicit Batch2dKernel(const KernelConstruction& k)
      : blocks_{k.attr<int64_t>("block_size"), k.attr<int64_t>("block_size")} {}
  Status Compute(KernelContext& c) override {
    if (c.input(0).shape().rank() != 4) return InvalidArgument("input rank should be: 4");
    MG_ASSIGN_OR_RETURN(const SmallInts edges,
                        EdgesOf(c.input(1), 2, kToBatch ? "paddings" : "crops"));
    return MoveBlocks(c, kToBatch, blocks_, edges);
  }

 private:
  const std::array<int64_t, 2> blocks_;
};

// Between [b, h, w, c] and [b, h / block, w / block, block, block, c].
template <bool kToDepth>
class DepthKernel : public Kernel {
 public:
  explicit DepthKernel(const KernelConstruction& k)
      : block_(k.attr<int64_t>("block_size")),
        channels_first_(k.attr<std::string>("data_format") == "NCHW") {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    if (in.rank() != 4)
      return InvalidArgument("input rank should be: 4 instead of: " + std::to_string(in.rank()));
    const int depth = channels_first_ ? 1 : 3, height = channels_first_ ? 2 : 1;
    Shape shape = in;
    int64_t square = 0;
    if (__builtin_mul_overflow(block_, block_, &square))
      return InvalidArgument("block_size " + std::to_string(block_) + " is too large");
    for (int i : {depth, height, height + 1}) {
      const bool grows = (i == depth) == kToDepth;
      const int64_t factor = i == depth ? square : block_;
      if (!grows && in[i] % factor != 0) {
        return InvalidArgument("dimension " + std::to_string(i) + " of " + in.ToString() +
                               " is no multiple of " + std::to_string(factor));
      }
      int64_t size = in[i] / factor;
      if (grows && __builtin_mul_overflow(in[i], factor, &size))
        return InvalidArgument("the result is too large");
      shape.set_dim(i, size);
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const Shape &space = kToDepth ? in : shape, &deep = kToDepth ? shape : in;
    const auto s = StridesOf(space), d = StridesOf(deep);
    const auto h = static_cast<size_t>(height), w = h + 1, ch = static_cast<size_t>(depth);
    const int64_t channels = space[depth];
    StridedSpace copy;
    const auto add = [&](int64_t n, int64_t in_space, int64_t in_deep) {
      copy.Add(n, kToDepth ? in_space : in_deep, kToDepth ? in_deep : in_space);
    };
    add(space[0], s[0], d[0]);
    add(deep[height], block_ * s[h], d[h]);
    add(deep[height + 1], block_ * s[w], d[w]);
    add(block_, s[h], block_ * channels * d[ch]);
    add(block_, s[w], channels * d[ch]);
    add(channels, s[ch], d[ch]);
    StridedCopy(c, DTypeSize(out->dtype()), c.input(0).raw(), out->raw(), copy);
    return Status();
  }

 private:
  const int64_t block_;
  const bool channels_first_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<RollKernel>(registry, {.op = "Roll", .host_args = {"shift", "axis"}});
  AddForPlainTypes<ReverseSequenceKernel>(registry, {.op = "ReverseSequence"});
  AddForPlainTypes<MirrorPadKernel>(registry, {.op = "MirrorPad", .host_args = {"paddings"}});
  AddForTypes<MirrorPadGradKernel>(registry, {.op = "MirrorPadGrad", .host_args = {"paddings"}},
                                   "T", kRealTypes);
  AddForPlainTypes<BatchNdKernel<true>>(
      registry, {.op = "SpaceToBatchND", .host_args = {"block_shape", "paddings"}});
  AddForPlainTypes<BatchNdKernel<false>>(
      registry, {.op = "BatchToSpaceND", .host_args = {"block_shape", "crops"}});
  AddForPlainTypes<Batch2dKernel<true>>(registry,
                                        {.op = "SpaceToBatch", .host_args = {"paddings"}});
  AddForPlainTypes<Batch2dKernel<false>>(registry, {.op = "BatchToSpace", .host_args = {"crops"}});
  AddForPlainTypes<DepthKernel<true>>(registry, {.op = "SpaceToDepth"});
  AddForPlainTypes<DepthKernel<false>>(registry, {.op = "DepthToSpace"});
}

}  // namespace monograph::ops::rearrange
