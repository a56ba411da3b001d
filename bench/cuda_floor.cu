// Floor's constructor goes over the graph's nodes in their order, makes the descriptors and memory
// of each node that cuDNN or cuBLASLt has a call for, and keeps the call; then all calls are
// captured as one CUDA graph. A step replays it, timed by events on the stream. Products are
// described and asked of cuBLASLt in one place (Products), for Floor and for the times of all
// algorithms.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/cuda_floor.h"
#include "executor/gpu/cuda/error.h"
#include "graph/graph.h"
#include "ops/conv/cudnn_graph.h"
#include "ops/conv/geometry.h"
#include "ops/pool/geometry.h"

namespace monograph::bench {
namespace {

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "gpu_bench: %s\n", message.c_str());
  std::exit(1);
}
void Check(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T Check(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}
void Cuda(cudaError_t code, const char* call) { Check(cuda::CudaStatus(code, call)); }
void Cudnn(cudnnStatus_t code, const char* call) { Check(cuda::CudnnStatus(code, call)); }
void Cublas(cublasStatus_t code, const char* call) { Check(cuda::CublasStatus(code, call)); }
#define CUDA(call) Cuda(call, #call)
#define CUDNN(call) Cudnn(call, #call)
#define CUBLAS(call) Cublas(call, #call)

// The least that a kernel can do: one warp reads a number each, and writes it.
constexpr int kFew = 32;
__global__ void MoveFew(const float* from, float* to) { to[threadIdx.x] = from[threadIdx.x]; }

// 16-bit words that are small numbers of either sign, whether they are taken for floats, halfs or
// bfloat16s. Zeros would cost the card less power, so that it would run faster than on a model's
// numbers.
__global__ void Noise(uint4* to, int64_t n) {
  const auto word = [](uint32_t of) {
    of = (of ^ (of >> 16)) * 0x85ebca6bu;
    of = (of ^ (of >> 13)) * 0xc2b2ae35u;
    return (of & 0x83ff83ffu) | 0x38003800u;
  };
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const auto seed = static_cast<uint32_t>(4 * i);
    to[i] = {word(seed + 1), word(seed + 2), word(seed + 3), word(seed + 4)};
  }
}

// Device memory. What is computed does not matter, but its traffic does, so that each operand has a
// place of its own, as long as there is memory: then earlier places are used again, in turn.
class Memory {
 public:
  ~Memory() {
    for (const Block& block : blocks_) cudaFree(block.data);
  }
  // Filled on `stream`.
  void* Take(size_t wanted, cudaStream_t stream) {
    const size_t bytes = (std::max<size_t>(wanted, 256) + 15) / 16 * 16;
    Block block{nullptr, bytes};
    const cudaError_t code = cudaMalloc(&block.data, bytes);
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is dealt with
      for (size_t i = 0; i < blocks_.size(); ++i) {
        next_ = (next_ + 1) % blocks_.size();
        if (blocks_[next_].bytes >= bytes) return blocks_[next_].data;
      }
    }
    Cuda(code, "cudaMalloc");
    const auto words = static_cast<int64_t>(bytes / sizeof(uint4));
    const auto grid = static_cast<unsigned>(std::min<int64_t>((words + 255) / 256, 4096));
    Noise<<<grid, 256, 0, stream>>>(static_cast<uint4*>(block.data), words);
    CUDA(cudaGetLastError());
    blocks_.push_back(block);
    return block.data;
  }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

class Timer {
 public:
  Timer() {
    CUDA(cudaEventCreate(&start_));
    CUDA(cudaEventCreate(&stop_));
  }
  ~Timer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  template <typename Fn>
  double Seconds(cudaStream_t stream, const Fn& fn) {
    CUDA(cudaEventRecord(start_, stream));
    fn();
    CUDA(cudaEventRecord(stop_, stream));
    CUDA(cudaEventSynchronize(stop_));
    float ms = 0;
    CUDA(cudaEventElapsedTime(&ms, start_, stop_));
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

cudnnDataType_t DnnType(DType dtype) {
  return dtype == DT_FLOAT  ? CUDNN_DATA_FLOAT
         : dtype == DT_HALF ? CUDNN_DATA_HALF
                            : CUDNN_DATA_BFLOAT16;
}

Shape ShapeOf(const Graph& graph, Endpoint e) {
  if (!graph.shape(e).fully_known()) Die("the shape of " + graph.TensorName(e) + " is not known");
  return graph.shape(e).AsShape();
}

// out [m, n] = op(a) op(b), row-major; op transposes or does nothing.
struct Product {
  int64_t m, n, k;
  bool ta, tb;
  DType dtype;
  bool operator<(const Product& o) const {
    return std::tie(m, n, k, ta, tb, dtype) < std::tie(o.m, o.n, o.k, o.ta, o.tb, o.dtype);
  }

  std::string Text() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + ", " +
           std::string(DTypeName(dtype)) + (ta ? ", a transposed" : "") +
           (tb ? ", b transposed" : "");
  }
};

// What a node multiplies; nothing if it is no product.
std::optional<Product> ProductOf(const Graph& graph, NodeId id) {
  const auto in = graph.inputs(id);
  const DType dtype = graph.dtype({id, 0});
  if (graph.is(id, "MatMul")) {
    const bool ta = graph.attrs(id).Get<bool>("transpose_a"),
               tb = graph.attrs(id).Get<bool>("transpose_b");
    const Shape a = ShapeOf(graph, in[0]), out = ShapeOf(graph, {id, 0});
    return Product{out[0], out[1], a[ta ? 0 : 1], ta, tb, dtype};
  }
  const bool forward = graph.is(id, "Conv2D");
  if (!forward && !graph.is(id, "Conv2DBackpropInput")) return std::nullopt;
  const auto g = Check(ops::conv::MakeGeometry(
      graph.attrs(id), ShapeOf(graph, forward ? in[0] : Endpoint{id, 0}), ShapeOf(graph, in[1])));
  const auto single = [](const auto& window) { return window.size == 1 && window.stride == 1; };
  if (!single(g.rows) || !single(g.columns) || g.groups != 1 || g.nchw) return std::nullopt;
  const int64_t pixels = g.n * g.rows.out * g.columns.out;
  return forward ? Product{pixels, g.oc, g.ic, false, false, dtype}
                 : Product{pixels, g.ic, g.oc, false, true, dtype};
}

// cuBLASLt's calls, on a stream with memory of its own. Descriptors live as long as the program.
class Products {
 public:
  Products() {
    CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUBLAS(cublasLtCreate(&cublas_));
    CUDA(cudaMalloc(&workspace_, kWorkspace));
  }
  ~Products() { cudaFree(workspace_); }
  Products(const Products&) = delete;

  std::vector<ProductTimes> Time(const Graph& graph, bool allow_tf32) {
    std::map<Product, int> counts;
    for (NodeId id : Check(graph.TopologicalOrder())) {
      if (const auto product = ProductOf(graph, id)) ++counts[*product];
    }
    std::vector<ProductTimes> all;
    for (const auto& [product, count] : counts) {
      ProductTimes times{.what = product.Text(), .count = count};
      for (const auto& call : Calls(product, allow_tf32, kMostAlgorithms)) {
        if (!call().ok()) continue;
        constexpr int kCalls = 10;
        const double seconds = timer_.Seconds(stream_, [&] {
          for (int i = 0; i < kCalls; ++i) Check(call());
        });
        times.us.push_back(1e6 * seconds / kCalls);
      }
      all.push_back(std::move(times));
    }
    return all;
  }

 protected:
  using Call = std::function<Status()>;
  static constexpr size_t kWorkspace = size_t{1} << 30;

  void* Take(size_t bytes) { return memory_.Take(bytes, stream_); }

  // The product by each of the first `most` algorithms (at most kMostAlgorithms), on the same
  // operands.
  std::vector<Call> Calls(const Product& p, bool allow_tf32, int most) {
    const cudaDataType_t type = p.dtype == DT_FLOAT  ? CUDA_R_32F
                                : p.dtype == DT_HALF ? CUDA_R_16F
                                                     : CUDA_R_16BF;
    cublasLtMatmulDesc_t operation = nullptr;
    CUBLAS(cublasLtMatmulDescCreate(
        &operation,
        p.dtype == DT_FLOAT && allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    const cublasOperation_t first = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                          sizeof first));
    CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                          sizeof second));
    cublasLtMatrixLayout_t lb = nullptr, la = nullptr, lc = nullptr;
    const auto layout = [&](cublasLtMatrixLayout_t* made, int64_t rows, int64_t columns) {
      CUBLAS(cublasLtMatrixLayoutCreate(made, type, static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), columns));
      return Take(static_cast<size_t>(rows * columns) * DTypeSize(p.dtype));
    };
    void* const pa = layout(&la, p.ta ? p.k : p.m, p.ta ? p.m : p.k);
    void* const pb = layout(&lb, p.tb ? p.n : p.k, p.tb ? p.k : p.n);
    void* const pc = layout(&lc, p.m, p.n);
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    const size_t bytes = size_t{32} << 20;
    CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    cublasLtMatmulHeuristicResult_t results[kMostAlgorithms];
    int count = 0;
    CUBLAS(cublasLtMatmulAlgoGetHeuristic(cublas_, operation, lb, la, lc, lc, preference, most,
                                          results, &count));
    std::vector<Call> calls;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t algorithm = results[i].algo;
      calls.push_back([=, this] {
        const float one = 1, zero = 0;
        MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmul(cublas_, operation, &one, pb, lb, pa, la, &zero,
                                                 pc, lc, pc, lc, &algorithm, workspace_, bytes,
                                                 stream_));
        return Status();
      });
    }
    return calls;
  }

  Memory memory_;
  Timer timer_;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  void* workspace_ = nullptr;
};

class Floor : public CudaFloor, private Products {
 public:
  Floor(const Graph& graph, const FloorOptions& options) : graph_(graph), options_(options) {
    CUDNN(cudnnCreate(&cudnn_));
    CUDNN(cudnnSetStream(cudnn_, stream_));
    for (NodeId id : Check(graph.TopologicalOrder())) Add(id);
    CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (const auto& call : calls_) Check(call());
    cudaGraph_t captured = nullptr;
    CUDA(cudaStreamEndCapture(stream_, &captured));
    CUDA(cudaGraphInstantiate(&replay_, captured, 0));
    CUDA(cudaGraphDestroy(captured));
  }
  double Step() override {
    return timer_.Seconds(stream_, [&] { CUDA(cudaGraphLaunch(replay_, stream_)); });
  }
  int calls() const override { return static_cast<int>(calls_.size()); }
  const std::string& refused() const override { return refused_; }

 private:
  Shape ShapeOf(Endpoint e) const { return bench::ShapeOf(graph_, e); }
  void* Room(Endpoint e) {
    return Take(static_cast<size_t>(ShapeOf(e).elements()) * DTypeSize(graph_.dtype(e)));
  }

  void Add(NodeId id) {
    if (!options_.only.empty() && !graph_.is(id, options_.only)) return;
    if (graph_.is(id, "Conv2D")) return AddConv(id, ops::conv::Mode::kForward);
    if (graph_.is(id, "Conv2DBackpropInput")) return AddConv(id, ops::conv::Mode::kBackpropInput);
    if (graph_.is(id, "Conv2DBackpropFilter")) return AddConv(id, ops::conv::Mode::kBackpropFilter);
    if (graph_.is(id, "MatMul")) return AddMatMul(id);
    if (graph_.is(id, "FusedBatchNormV3") || graph_.is(id, "FusedBatchNormGradV3"))
      return AddNorm(id);
    if (graph_.is(id, "Relu") || graph_.is(id, "ReluGrad")) return AddRelu(id);
    if (graph_.is(id, "MaxPool") || graph_.is(id, "MaxPoolGrad")) return AddPool(id);
    if (graph_.is(id, "Softmax")) return AddSoftmax(id);
    if (graph_.is(id, "_FusedAttention") || graph_.is(id, "_FusedAttentionGrad")) {
      why_ = "the reference has no attention";
      Refuse(id);
    }
  }

  // Runs it once, which loads what is loaded late. False if the library refuses it.
  bool Keep(Call call) {
    const Status status = call();
    if (!status.ok()) why_ = status.ToString();
    if (!status.ok()) return false;
    CUDA(cudaStreamSynchronize(stream_));
    calls_.push_back(std::move(call));
    return true;
  }
  void Refuse(NodeId id) {
    auto& [count, first] = refusals_[why_];
    if (++count == 1) first = graph_.name(id);
    refused_.clear();
    for (const auto& [why, nodes] : refusals_) {
      refused_ += (refused_.empty() ? "" : "; ") + nodes.second +
                  (nodes.first == 1 ? "" : " and " + std::to_string(nodes.first - 1) + " more") +
                  " (" + why + ")";
    }
  }
  // Some of cuDNN's calls know no bfloat16: half moves as many bytes.
  void KeepAs(NodeId id, DType dtype, const std::function<Call(cudnnDataType_t)>& make) {
    if (Keep(make(DnnType(dtype)))) return;
    if (dtype != DT_BFLOAT16 || !Keep(make(CUDNN_DATA_HALF))) Refuse(id);
  }

  void AddConv(NodeId id, ops::conv::Mode mode) {
    const auto in = graph_.inputs(id);
    const bool forward = mode == ops::conv::Mode::kForward;
    const Shape image = ShapeOf(mode == ops::conv::Mode::kBackpropInput ? Endpoint{id, 0} : in[0]);
    const Shape filter =
        ShapeOf(mode == ops::conv::Mode::kBackpropFilter ? Endpoint{id, 0} : in[1]);
    ops::conv::CudnnCall call{
        .mode = mode,
        .dtype = graph_.dtype({id, 0}),
        .geometry = Check(ops::conv::MakeGeometry(graph_.attrs(id), image, filter))};
    const size_t element = DTypeSize(call.dtype);
    call.input = Take(static_cast<size_t>(image.elements()) * element);
    call.filter = Take(static_cast<size_t>(filter.elements()) * element);
    call.output = forward ? Room({id, 0}) : Room(in[2]);
    const std::vector<int64_t> ids{ops::conv::kInput, ops::conv::kFilter, ops::conv::kOutput};
    const std::vector<void*> pointers{call.input, call.filter, call.output};
    std::shared_ptr<ops::cudnn::Plan>& best =
        plans_[{static_cast<int>(mode), call.dtype, call.geometry.key()}];
    if (best == nullptr) best = Fastest(call, ids, pointers);
    why_ = "cuDNN has no engine";
    if (!best->plan.valid() || !Keep([this, best, ids, pointers] {
          return ops::cudnn::Execute(cudnn_, *best, ids, pointers, workspace_);
        }))
      Refuse(id);
  }

  // Of cuDNN's first engines; no plan if it has none.
  std::shared_ptr<ops::cudnn::Plan> Fastest(const ops::conv::CudnnCall& call,
                                            const std::vector<int64_t>& ids,
                                            const std::vector<void*>& pointers) {
    const auto operations = Check(ops::conv::Describe(cudnn_, call, 16));
    const auto configs = Check(ops::cudnn::Configs(
        operations.graph, {.tensor_cores = options_.allow_tf32 || call.dtype != DT_FLOAT}));
    auto best = std::make_shared<ops::cudnn::Plan>();
    double best_seconds = std::numeric_limits<double>::infinity();
    int tried = 0;
    for (const auto& config : configs) {
      auto plan = ops::cudnn::MakePlan(cudnn_, config);
      if (!plan.ok() || static_cast<size_t>(plan->workspace_bytes) > kWorkspace) continue;
      const auto run = [&] {
        return ops::cudnn::Execute(cudnn_, *plan, ids, pointers, workspace_);
      };
      if (!run().ok()) continue;
      const double seconds = timer_.Seconds(stream_, [&] {
        for (int i = 0; i < 3; ++i) Check(run());
      });
      if (seconds < best_seconds) {
        best_seconds = seconds;
        *best = std::move(plan).value();
      }
      if (++tried >= 8) break;
    }
    return best;
  }

  void AddMatMul(NodeId id) {
    why_ = "cuBLASLt has no algorithm";
    const auto calls = Calls(*ProductOf(graph_, id), options_.allow_tf32, 1);
    if (calls.empty() || !Keep(calls[0])) Refuse(id);
  }

  // A descriptor that lives as long as the program.
  cudnnTensorDescriptor_t Describe(const Shape& s, cudnnDataType_t type) {
    cudnnTensorDescriptor_t made = nullptr;
    CUDNN(cudnnCreateTensorDescriptor(&made));
    const auto dim = [&](int i) { return static_cast<int>(i < s.rank() ? s[i] : 1); };
    if (s.rank() == 4) {
      CUDNN(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, type, dim(0), dim(3), dim(1),
                                       dim(2)));
    } else {
      CUDNN(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, type, dim(0), dim(1), 1, 1));
    }
    return made;
  }

  void AddNorm(NodeId id) {
    const bool forward = graph_.is(id, "FusedBatchNormV3");
    const Shape shape = ShapeOf({id, 0});
    const size_t channels = sizeof(float) * static_cast<size_t>(shape[3]);
    std::vector<void*> images, vectors;
    for (int i = 0; i < 3; ++i) images.push_back(Room({id, 0}));
    for (int i = 0; i < 6; ++i) vectors.push_back(Take(channels));
    KeepAs(id, graph_.dtype({id, 0}), [=, this](cudnnDataType_t type) -> Call {
      const auto x = Describe(shape, type);
      cudnnTensorDescriptor_t vector = nullptr;
      CUDNN(cudnnCreateTensorDescriptor(&vector));
      constexpr auto kMode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
      CUDNN(cudnnDeriveBNTensorDescriptor(vector, x, kMode));
      return [=, this] {
        const float one = 1, zero = 0;
        if (forward) {
          MG_CUDNN_RETURN_IF_ERROR(cudnnBatchNormalizationForwardTraining(
              cudnn_, kMode, &one, &zero, x, images[0], x, images[1], vector, vectors[0],
              vectors[1], 1.0, vectors[2], vectors[3], 1e-5, vectors[4], vectors[5]));
        } else {
          MG_CUDNN_RETURN_IF_ERROR(cudnnBatchNormalizationBackward(
              cudnn_, kMode, &one, &zero, &one, &zero, x, images[0], x, images[1], x, images[2],
              vector, vectors[0], vectors[1], vectors[2], 1e-5, vectors[4], vectors[5]));
        }
        return Status();
      };
    });
  }

  void AddRelu(NodeId id) {
    const bool forward = graph_.is(id, "Relu");
    const Shape shape = ShapeOf({id, 0});
    cudnnActivationDescriptor_t relu = nullptr;
    CUDNN(cudnnCreateActivationDescriptor(&relu));
    CUDNN(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    void *a = Room({id, 0}), *b = Room({id, 0}), *c = forward ? nullptr : Room({id, 0});
    KeepAs(id, graph_.dtype({id, 0}), [=, this](cudnnDataType_t type) -> Call {
      const auto x = Describe(shape, type);
      return [=, this] {
        const float one = 1, zero = 0;
        if (forward) {
          MG_CUDNN_RETURN_IF_ERROR(cudnnActivationForward(cudnn_, relu, &one, x, a, &zero, x, b));
        } else {
          MG_CUDNN_RETURN_IF_ERROR(
              cudnnActivationBackward(cudnn_, relu, &one, x, a, x, b, x, a, &zero, x, c));
        }
        return Status();
      };
    });
  }

  void AddPool(NodeId id) {
    const bool forward = graph_.is(id, "MaxPool");
    const Endpoint image = graph_.inputs(id)[0];
    const Shape shape = ShapeOf(image);
    const auto g = Check(ops::pool::Place(graph_.attrs(id), shape));
    cudnnPoolingDescriptor_t pool = nullptr;
    CUDNN(cudnnCreatePoolingDescriptor(&pool));
    const auto n = [](int64_t value) { return static_cast<int>(value); };
    // cuDNN pads alike on both sides: after the image as TensorFlow does, or one more.
    CUDNN(cudnnSetPooling2dDescriptor(
        pool, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, n(g.rows.size), n(g.columns.size),
        n(g.rows.pad_after), n(g.columns.pad_after), n(g.rows.stride), n(g.columns.stride)));
    void *px = Room(image), *dx = Room(image);
    const size_t bytes =
        static_cast<size_t>(g.pooled_shape.elements()) * DTypeSize(graph_.dtype(image));
    void *py = Take(2 * bytes), *dy = Take(2 * bytes);
    KeepAs(id, graph_.dtype(image), [=, this](cudnnDataType_t type) -> Call {
      const auto x = Describe(shape, type), y = Describe(g.pooled_shape, type);
      return [=, this] {
        const float one = 1, zero = 0;
        if (forward) {
          MG_CUDNN_RETURN_IF_ERROR(cudnnPoolingForward(cudnn_, pool, &one, x, px, &zero, y, py));
        } else {
          MG_CUDNN_RETURN_IF_ERROR(
              cudnnPoolingBackward(cudnn_, pool, &one, y, py, y, dy, x, px, &zero, x, dx));
        }
        return Status();
      };
    });
  }

  void AddSoftmax(NodeId id) {
    const Shape shape = ShapeOf({id, 0});
    void *from = Room({id, 0}), *to = Room({id, 0});
    KeepAs(id, graph_.dtype({id, 0}), [=, this](cudnnDataType_t type) -> Call {
      const auto x = Describe(shape, type);
      return [=, this] {
        const float one = 1, zero = 0;
        MG_CUDNN_RETURN_IF_ERROR(cudnnSoftmaxForward(cudnn_, CUDNN_SOFTMAX_ACCURATE,
                                                     CUDNN_SOFTMAX_MODE_INSTANCE, &one, x, from,
                                                     &zero, x, to));
        return Status();
      };
    });
  }

  const Graph& graph_;
  const FloorOptions options_;
  cudnnHandle_t cudnn_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
  // By mode, type and shape: a model has many alike.
  std::map<std::tuple<int, DType, ops::conv::Geometry::Key>, std::shared_ptr<ops::cudnn::Plan>>
      plans_;
  std::vector<Call> calls_;
  std::string why_;                                              // of what was refused last
  std::map<std::string, std::pair<int, std::string>> refusals_;  // by reason: nodes, the first
  std::string refused_;
};

double Now() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

// Of a copy.
struct Ends {
  void *from = nullptr, *to = nullptr;
  int64_t bytes = 0;
};

class Floors : public CudaFloors {
 public:
  std::string why_none() override {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess) return cudaGetErrorString(code);
    return count > 0 ? "" : "the driver finds no GPU";
  }
  std::unique_ptr<CudaFloor> Make(const Graph& graph, const FloorOptions& options) override {
    return std::make_unique<Floor>(graph, options);
  }
  int64_t FreeBytes() override {
    size_t free = 0, total = 0;
    CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }
  double LaunchSeconds(int launches, bool replayed) override {
    cudaStream_t stream = nullptr;
    float* data = nullptr;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc(&data, kFew * sizeof(float)));
    const auto all = [&] {
      for (int i = 0; i < launches; ++i) MoveFew<<<1, kFew, 0, stream>>>(data, data);
      CUDA(cudaGetLastError());
    };
    all();
    CUDA(cudaStreamSynchronize(stream));
    double seconds = 0;
    if (replayed) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t replay = nullptr;
      CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      all();
      CUDA(cudaStreamEndCapture(stream, &graph));
      CUDA(cudaGraphInstantiate(&replay, graph, 0));
      CUDA(cudaGraphLaunch(replay, stream));
      CUDA(cudaStreamSynchronize(stream));
      const double start = Now();
      CUDA(cudaGraphLaunch(replay, stream));
      CUDA(cudaStreamSynchronize(stream));
      seconds = Now() - start;
      cudaGraphExecDestroy(replay);
      cudaGraphDestroy(graph);
    } else {
      const double start = Now();
      all();
      CUDA(cudaStreamSynchronize(stream));
      seconds = Now() - start;
    }
    cudaStreamDestroy(stream);
    cudaFree(data);
    return seconds / launches;
  }
  double CopySeconds(int64_t bytes, CopyKind kind) override {
    static Timer timer;
    static cudaStream_t stream = nullptr;
    static std::map<CopyKind, Ends> all;
    if (stream == nullptr) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const bool from_host = kind == CopyKind::kToDevice, to_host = kind == CopyKind::kToHost;
    Ends& ends = all[kind];
    const auto take = [&](void** data, bool host) {
      if (*data != nullptr) CUDA(host ? cudaFreeHost(*data) : cudaFree(*data));
      CUDA(host ? cudaMallocHost(data, static_cast<size_t>(bytes))
                : cudaMalloc(data, static_cast<size_t>(bytes)));
    };
    if (ends.bytes < bytes) {
      take(&ends.from, from_host);
      take(&ends.to, to_host);
      ends.bytes = bytes;
    }
    return timer.Seconds(stream, [&] {
      CUDA(cudaMemcpyAsync(ends.to, ends.from, static_cast<size_t>(bytes),
                           from_host ? cudaMemcpyHostToDevice
                           : to_host ? cudaMemcpyDeviceToHost
                                     : cudaMemcpyDeviceToDevice,
                           stream));
    });
  }
  std::vector<ProductTimes> TimeProducts(const Graph& graph, const FloorOptions& options) override {
    return Products().Time(graph, options.allow_tf32);
  }
};

}  // namespace
}  // namespace monograph::bench

// Under the one name that the linker's script lets out (ops/cuda_plugin.map).
extern "C" monograph::bench::CudaFloors* monograph_cuda_plugin() {
  static monograph::bench::Floors floors;
  return &floors;
}
