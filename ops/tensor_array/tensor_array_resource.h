// TensorArrayResource: the elements of one TensorArray, or of its gradients. Thread-safe.
//
// Rules and the words of errors are those of TensorFlow's class TensorArray. Elements share the
// memory of what was written; only the sum of several writes, and zeros that are read, have memory
// of their own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "ops/tensor_array/element_memory.h"

namespace monograph::ops::tensor_array {

struct ArraySpec {
  std::string name;
  DType dtype = DT_INVALID;
  PartialShape element_shape;
  bool dynamic_size = false;
  bool clear_after_read = true;
  bool identical_element_shapes = false;
  bool is_gradient = false;  // what is written to an element is added up
  // How many elements Concat takes of gradients: as many as the array had when rows were last
  // scattered or split into it. -1: they never were.
  int32_t marked_size = -1;
  const ElementMemory* memory = nullptr;  // which outlives the array
};

class TensorArrayResource : public Resource {
 public:
  // Takes no memory for elements that nobody has written or read. REQUIRES: size >= 0.
  TensorArrayResource(ArraySpec spec, int32_t size);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const ElementMemory& memory() const { return memory_; }
  std::string DebugString() const override { return "TensorArray " + name_; }

  // values[i] becomes element indices[i], or is added to it.
  Status Write(KernelContext& c, std::span<const int32_t> indices, std::span<const Tensor> values);
  Result<std::vector<Tensor>> Read(KernelContext& c, std::span<const int32_t> indices);

  Result<int32_t> Size() const;
  Result<int32_t> ConcatSize() const;
  bool dynamic_size() const;
  Status Mark(int32_t size);                            // ArraySpec::marked_size
  Status NarrowElementShape(const PartialShape& with);  // what later writes and zeros must be

  // The array of this one's gradients for `source`, the same in every call, whose elements have the
  // dimensions `prepended` in front. This one does not grow any more.
  Result<std::shared_ptr<TensorArrayResource>> Gradient(const KernelContext& c,
                                                        const std::string& source,
                                                        const Shape& prepended);
  std::vector<std::string> GradientNames() const;

  void Close();  // drops the elements; whatever is asked for after it fails

 private:
  struct Element {
    Tensor tensor;  // not valid, but written: zeros of `shape`
    Shape shape;
    bool written = false, read = false, cleared = false;
    bool own = false;  // a sum, in memory that only the array has
  };

  Status Wrong(const std::string& what) const;
  Status CheckOpen() const MG_REQUIRES(mutex_);
  // Makes elements_ at least that long.
  Status Lengthen(const KernelContext& c, size_t elements) MG_REQUIRES(mutex_);
  Status WriteElement(KernelContext& c, int32_t index, const Tensor& value) MG_REQUIRES(mutex_);
  // Of plain data zeros, else empty strings or variants without values.
  Result<Tensor> Zeros(KernelContext& c, const Shape& shape) const;
  Status AddTo(KernelContext& c, Element* element, const Tensor& value) MG_REQUIRES(mutex_);
  // `zeros`: what the last element that was zero gave; others of its shape share it.
  Result<Tensor> ReadElement(KernelContext& c, int32_t index, Tensor* zeros) MG_REQUIRES(mutex_);

  const std::string name_;
  const DType dtype_;
  const ElementMemory& memory_;
  const bool clear_after_read_, identical_element_shapes_, is_gradient_;
  mutable Mutex mutex_;
  PartialShape element_shape_ MG_GUARDED_BY(mutex_);
  bool dynamic_size_ MG_GUARDED_BY(mutex_);
  int32_t marked_size_ MG_GUARDED_BY(mutex_);
  size_t size_ MG_GUARDED_BY(mutex_);
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  // The first of the `size_` elements, up to the last one that was written or read.
  std::vector<Element> elements_ MG_GUARDED_BY(mutex_);
  std::shared_ptr<void> room_ MG_GUARDED_BY(mutex_);  // for elements_, within the memory limit
  std::map<std::string, std::shared_ptr<TensorArrayResource>> gradients_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::ops::tensor_array
