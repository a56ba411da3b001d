// What a training step costs in cuDNN's and cuBLASLt's calls alone: those that the graph's nodes
// ask for, one after the other, captured and replayed as one CUDA graph. What has no call there
// (optimizers, casts, the loss) is left out, which is in the reference's favour. Also a bare kernel
// launch, copies, how much memory of the device is free, and the times of cuBLASLt's algorithms.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace monograph {
class Graph;
}

namespace monograph::bench {

struct FloorOptions {
  bool allow_tf32 = true;
  std::string only = {};  // nodes of this op; empty: all
};

enum class CopyKind { kToDevice, kToHost, kOnDevice };  // host memory is pinned

inline constexpr int kMostAlgorithms = 8;  // of cuBLASLt's for a product
// Products of one shape in a graph.
struct ProductTimes {
  std::string what;  // sizes, type, and what is transposed
  int count = 0;     // in the graph
  // Of the algorithms in the order of cuBLASLt's ranking: microseconds of a call; what a call
  // refuses is left out.
  std::vector<double> us;
};

class CudaFloor {
 public:
  virtual ~CudaFloor() = default;
  // Seconds of one replay, device time.
  virtual double Step() = 0;
  // How many calls it makes.
  virtual int calls() const = 0;
  // Nodes that should have a call and that the library refuses, by reason: "conv1 and 2 more (why);
  // ...".
  virtual const std::string& refused() const = 0;
};

// The functions of a library of its own, libmonograph_gpu_floor.so, so that the program starts
// where CUDA's libraries are absent. Errors end the program.
class CudaFloors {
 public:
  virtual ~CudaFloors() = default;
  virtual std::string why_none() = 0;  // empty if there is a GPU
  // Of the nodes of `graph`, whose shapes must be known.
  virtual std::unique_ptr<CudaFloor> Make(const Graph& graph, const FloorOptions& options) = 0;
  // Seconds per launch of a kernel that moves 32 numbers, in a row of `launches`: launched one by
  // one, or replayed as one CUDA graph.
  virtual double LaunchSeconds(int launches, bool replayed) = 0;
  virtual int64_t FreeBytes() = 0;
  // Seconds of one cudaMemcpyAsync.
  virtual double CopySeconds(int64_t bytes, CopyKind kind) = 0;
  // Of each shape among the graph's MatMul nodes and convolutions of one pixel, forward and for the
  // input's gradient, which are products, too: the first kMostAlgorithms.
  virtual std::vector<ProductTimes> TimeProducts(const Graph& graph,
                                                 const FloorOptions& options) = 0;
};

// The library beside this program, or nullptr and why there is none.
CudaFloors* OpenCudaFloors(std::string* why);

}  // namespace monograph::bench
