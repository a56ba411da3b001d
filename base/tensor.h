// Tensor: a typed, shaped, shared view of a Buffer. Row-major (C order), dense.
//
// A value type: copying shares the buffer. Writing through a tensor that others share is the
// caller's bug; kernels write only to outputs that they allocated or took over (executor/kernel.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "base/variant.h"

namespace monograph {

// What a DT_RESOURCE element holds: the name of something that lives in a task's resource manager.
struct ResourceHandle {
  std::string device;     // full device name of the owner
  std::string container;  // "localhost" unless the user chose one
  std::string name;
};

class Tensor {
 public:
  Tensor() = default;  // DT_INVALID: no tensor

  // ResourceExhausted, naming size and allocator, if there is no memory; Unimplemented for a type
  // without kernels. Plain data is left undefined; strings, resource handles and variants are
  // constructed empty.
  static Result<Tensor> Allocate(DType dtype, const Shape& shape,
                                 Allocator* allocator = HostAllocator());
  // A view of `buffer` from `offset` bytes on. REQUIRES: plain data that fits.
  Tensor(DType dtype, const Shape& shape, Buffer buffer, size_t offset = 0);

  template <typename T>
  static Tensor Scalar(T value) {
    Tensor tensor = Allocate(kDTypeOf<T>, Shape()).value();
    *tensor.data<T>() = value;
    return tensor;
  }
  template <typename T>
  static Tensor FromValues(const Shape& shape, std::span<const T> values) {
    MG_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
    Tensor tensor = Allocate(kDTypeOf<T>, shape).value();
    T* out = tensor.data<T>();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return tensor;
  }
  template <typename T>
  static Tensor FromValues(const Shape& shape, std::initializer_list<T> values) {
    return FromValues<T>(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor Vector(std::initializer_list<T> values) {
    return FromValues<T>(Shape{static_cast<int64_t>(values.size())}, values);
  }
  static Tensor String(std::string value);

  bool valid() const { return dtype_ != DT_INVALID; }
  // Releases the buffer: !valid() afterwards.
  void Reset() {
    buffer_ = Buffer();
    dtype_ = DT_INVALID;
  }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  size_t bytes() const { return static_cast<size_t>(shape_.elements()) * DTypeSize(dtype_); }

  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(raw());
  }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(raw());
  }
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(elements())};
  }
  template <typename T>
  T scalar() const {
    return *data<T>();
  }
  void* raw() { return static_cast<char*>(buffer_.data()) + offset_; }
  const void* raw() const { return static_cast<const char*>(buffer_.data()) + offset_; }
  std::string* strings() { return data<std::string>(); }
  const std::string* strings() const { return data<std::string>(); }
  ResourceHandle* handles() { return data<ResourceHandle>(); }
  const ResourceHandle* handles() const { return data<ResourceHandle>(); }
  Variant* variants() { return data<Variant>(); }
  const Variant* variants() const { return data<Variant>(); }

  // Rows [begin, end) of the first dimension, sharing the buffer. REQUIRES: rank >= 1, 0 <= begin
  // <= end <= dim(0).
  Tensor Slice(int64_t begin, int64_t end) const;
  // The same elements under another shape, sharing the buffer. REQUIRES: as many elements.
  Tensor Reshaped(const Shape& shape) const;
  // Of strings: takes room in the host pool's limit (base/pool_allocator.h) for what all strings of
  // the buffer own outside of it, once for a buffer, which keeps it. Nothing for other types. Up to
  // 4 KiB are never refused. ResourceExhausted says who has the memory; the tensor is then to be
  // dropped.
  Status CountStrings() const;
  // The same for strings, or handles, that are yet to be written and will own so many bytes.
  Status CountStrings(size_t bytes) const;
  // A deep copy, in a buffer of its own, with room for its strings; of variants, the same values.
  Result<Tensor> Clone(Allocator* allocator = HostAllocator()) const;

  const Buffer& buffer() const { return buffer_; }
  size_t offset() const { return offset_; }
  // True if nobody else holds the buffer.
  bool unique() const { return buffer_.unique(); }

  // Type, shape and at most `limit` elements: "float[2,2] = 1 2 3 4".
  std::string ToString(int limit = 8) const;

 private:
  Buffer buffer_;
  size_t offset_ = 0;
  DType dtype_ = DT_INVALID;
  Shape shape_;
};

// Same type, shape and bits (strings and handles by value, variants if they are the same value).
bool BitEqual(const Tensor& a, const Tensor& b);

// What a string of such a capacity owns outside of itself, as the system's allocator rounds it.
size_t StringBytes(size_t capacity);

}  // namespace monograph
