// cuDNN's backend descriptors as values, and engines by name: what cudnn_conv_cuda.cc builds its
// plans of.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/conv/cudnn_conv.h"

namespace monograph::ops::cudnn {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptor_t handle) : handle_(handle) {}
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }

  static Result<Descriptor> Create(cudnnBackendDescriptorType_t type);
  bool valid() const { return handle_ != nullptr; }
  cudnnBackendDescriptor_t handle() const { return handle_; }

  Result<int64_t> Int(cudnnBackendAttributeName_t name) const;
  // Descriptors of `type` that are this one's attribute `name`, the first `most` of them.
  Result<std::vector<Descriptor>> Children(cudnnBackendAttributeName_t name,
                                           cudnnBackendDescriptorType_t type, int64_t most) const;

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// Sets attributes one after the other; Finish gives the finalised descriptor or the first error.
class Builder {
 public:
  explicit Builder(cudnnBackendDescriptorType_t type);

  Builder& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void* values);
  Builder& Ints(cudnnBackendAttributeName_t name, std::initializer_list<int64_t> values) {
    return Set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.begin());
  }
  Builder& Float(cudnnBackendAttributeName_t name, float value) {
    return Set(name, CUDNN_TYPE_FLOAT, 1, &value);
  }
  Builder& Type(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Builder& Of(cudnnBackendAttributeName_t name, const Descriptor& value);
  Builder& Of(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);
  Builder& Handle(cudnnBackendAttributeName_t name, cudnnHandle_t handle) {
    return Set(name, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  Result<Descriptor> Finish();

 private:
  Descriptor descriptor_;
  Status status_;
};

// An engine and its knobs, as they can be written down: "12;3=4,7=1". kNone: there is no engine.
struct Choice {
  static constexpr int64_t kNone = -1;
  int64_t engine = kNone;
  std::vector<std::pair<int32_t, int64_t>> knobs;

  std::string ToString() const;
  static Result<Choice> Parse(const std::string& text);
};
Result<Choice> ChoiceOf(const Descriptor& config);

// The functions below are about the GPU of their handle, or of the graph's. With `gpu`, a
// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, they are about the one that it describes: neither handle nor
// driver is needed then.
//
// A configuration for `graph`; fails where this cuDNN has none of that name.
Result<Descriptor> ConfigOf(const Descriptor& graph, const Choice& choice,
                            const Descriptor* gpu = nullptr);

struct Allowed {
  bool deterministic = false;  // only engines that always give the same bits
  bool tensor_cores = true;    // false: float32 stays float32
};
// Configurations for `graph`, best first as cuDNN ranks them; those that are not allowed left out.
Result<std::vector<Descriptor>> Configs(const Descriptor& graph, const Allowed& allowed,
                                        const Descriptor* gpu = nullptr);

struct Plan {
  Descriptor plan;
  int64_t workspace_bytes = 0;
};
Result<Plan> MakePlan(cudnnHandle_t handle, const Descriptor& config,
                      const Descriptor* gpu = nullptr);
Status Execute(cudnnHandle_t handle, const Plan& plan, const std::vector<int64_t>& ids,
               const std::vector<void*>& pointers, void* workspace);

// A finished graph of operations, with what it is made of.
struct Operations {
  std::vector<Descriptor> tensors, operations;
  Descriptor graph;
};

}  // namespace monograph::ops::cudnn

namespace monograph::ops::conv {

// Names of a convolution's tensors in cuDNN's graph.
enum Id : int64_t { kInput = 1, kFilter, kOutput, kBias, kProduct, kSum };

// `alignment`: of all addresses, in bytes. Without a handle it only says what the operations are.
Result<cudnn::Operations> Describe(cudnnHandle_t handle, const CudnnCall& call, int64_t alignment);

}  // namespace monograph::ops::conv
