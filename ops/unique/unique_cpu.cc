#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"

namespace monograph::ops::unique {
namespace {

Status RequireVector(const Tensor& tensor, const char* name) {
  if (tensor.shape().rank() == 1) return Status();
  return InvalidArgument(std::string(name) + " must be a vector, not of shape " +
                         tensor.shape().ToString());
}

// Writes positions as int32 or int64.
Status WriteIndices(KernelContext& c, int output, const std::vector<int64_t>& indices) {
  MG_ASSIGN_OR_RETURN(Tensor * out,
                      c.AllocateOutput(output, Shape{static_cast<int64_t>(indices.size())}));
  if (out->dtype() == DT_INT32) {
    std::transform(indices.begin(), indices.end(), out->data<int32_t>(),
                   [](int64_t index) { return static_cast<int32_t>(index); });
  } else {
    std::copy(indices.begin(), indices.end(), out->data<int64_t>());
  }
  return Status();
}

template <typename T>
Status WriteValues(KernelContext& c, const std::vector<T>& values) {
  MG_ASSIGN_OR_RETURN(Tensor * out,
                      c.AllocateOutput(0, Shape{static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), out->data<T>());
  return Status();
}

template <typename T>
class UniqueKernel : public Kernel {
 public:
  explicit UniqueKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(RequireVector(c.input(0), "x"));
    std::unordered_map<T, int64_t> places;
    std::vector<T> distinct;
    std::vector<int64_t> indices;
    for (const T& value : c.input(0).values<T>()) {
      const auto [found, is_new] = places.emplace(value, static_cast<int64_t>(distinct.size()));
      if (is_new) distinct.push_back(value);
      indices.push_back(found->second);
    }
    MG_RETURN_IF_ERROR(WriteValues(c, distinct));
    return WriteIndices(c, 1, indices);
  }
};

template <typename T>
class ListDiffKernel : public Kernel {
 public:
  explicit ListDiffKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(RequireVector(c.input(0), "x"));
    MG_RETURN_IF_ERROR(RequireVector(c.input(1), "y"));
    const auto taken = c.input(1).values<T>();
    const std::unordered_set<T> out_of(taken.begin(), taken.end());
    std::vector<T> kept;
    std::vector<int64_t> indices;
    int64_t i = 0;
    for (const T& value : c.input(0).values<T>()) {
      if (!out_of.contains(value)) {
        kept.push_back(value);
        indices.push_back(i);
      }
      ++i;
    }
    MG_RETURN_IF_ERROR(WriteValues(c, kept));
    return WriteIndices(c, 1, indices);
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T)                                                                  \
  registry->Add<UniqueKernel<T>>({.op = "Unique", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<ListDiffKernel<T>>(                                                \
      {.op = "ListDiff", .types = {{"T", kDTypeOf<T>}}, .host_args = {"x", "y", "out", "idx"}});
  MG_ADD(float)
  MG_ADD(double)
  MG_ADD(int32_t)
  MG_ADD(int64_t)
#undef MG_ADD
}

}  // namespace monograph::ops::unique
