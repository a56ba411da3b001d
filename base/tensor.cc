// Allocating, viewing, copying, printing and comparing tensors. A tensor of plain data is a view of
// bytes (buffer and offset); the buffer of a tensor of strings, resource handles or variants wraps
// an array of C++ objects. So each function that touches elements treats these types apart: their
// memory may be neither copied nor compared as bytes.
#include "base/tensor.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>

#include "base/pool_allocator.h"

namespace monograph {
namespace {

// From here on an array of objects counts against the limit of the host's pool.
constexpr size_t kReserved = size_t{1} << 20;

// The bytes of so many elements of a size; nothing if no memory can hold them.
std::optional<size_t> BytesOf(const Shape& shape, size_t element) {
  const std::span<const int64_t> dims = shape.dims();
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t bytes = static_cast<int64_t>(element);
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return static_cast<size_t>(bytes);
}

Status NoMemory(DType dtype, const Shape& shape, const std::optional<size_t>& bytes,
                const std::string& where) {
  return ResourceExhausted("no memory for " + std::string(DTypeName(dtype)) + shape.ToString() +
                           " (" + (bytes ? std::to_string(*bytes) : "more than 2^63") + " bytes)" +
                           where);
}

template <typename T>
Result<Tensor> AllocateObjects(DType dtype, const Shape& shape) {
  const std::optional<size_t> bytes = BytesOf(shape, sizeof(T));
  const bool counts = bytes && *bytes >= kReserved;
  std::shared_ptr<void> room = counts ? HostPool().Reserve(*bytes) : nullptr;
  if (!bytes || (counts && room == nullptr))
    return NoMemory(dtype, shape, bytes, ": " + HostPool().Explain(bytes.value_or(SIZE_MAX)));
  T* const objects = new (std::nothrow) T[*bytes / sizeof(T)];
  if (objects == nullptr) return NoMemory(dtype, shape, bytes, "");
  return Tensor(dtype, shape,
                Buffer::Wrap(objects, *bytes, [objects, room = std::move(room)]() mutable {
                  delete[] objects;
                  room = nullptr;
                }));
}

// Up to so many bytes of strings are never refused.
constexpr size_t kUnasked = 4096;

template <typename T>
void AppendValues(const Tensor& tensor, int64_t count, std::string* text) {
  for (int64_t i = 0; i < count; ++i) {
    char number[32];  // the shortest text that reads back as the same value
    char* end;
    if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, half>) {
      const auto value = static_cast<float>(tensor.data<T>()[i]);
      end = std::to_chars(number, std::end(number), value).ptr;
    } else if constexpr (std::is_same_v<T, bool>) {
      end = std::to_chars(number, std::end(number), static_cast<int>(tensor.data<T>()[i])).ptr;
    } else {
      end = std::to_chars(number, std::end(number), tensor.data<T>()[i]).ptr;
    }
    text->append(" ").append(number, end);
  }
}

// As TensorFlow writes them: (1,-2).
template <typename T>
void AppendComplex(const Tensor& tensor, int64_t count, std::string* text) {
  for (int64_t i = 0; i < count; ++i) {
    char number[64];
    *text += " (";
    text->append(number, std::to_chars(number, std::end(number), tensor.data<T>()[2 * i]).ptr);
    *text += ',';
    text->append(number, std::to_chars(number, std::end(number), tensor.data<T>()[2 * i + 1]).ptr);
    *text += ')';
  }
}

}  // namespace

Result<Tensor> Tensor::Allocate(DType dtype, const Shape& shape, Allocator* allocator) {
  static_assert(sizeof(ResourceHandle) == 3 * sizeof(std::string));
  if (dtype == DT_STRING) return AllocateObjects<std::string>(dtype, shape);
  if (dtype == DT_RESOURCE) return AllocateObjects<ResourceHandle>(dtype, shape);
  if (dtype == DT_VARIANT) return AllocateObjects<Variant>(dtype, shape);
  const size_t element = DTypeSize(dtype);
  if (element == 0)
    return Unimplemented("tensors of type " + std::string(DTypeName(dtype)) + " are not supported");
  const std::optional<size_t> bytes = BytesOf(shape, element);
  Buffer buffer = bytes ? Buffer::Allocate(allocator, *bytes) : Buffer();
  if (!buffer) {
    const bool pool = allocator == HostAllocator();
    return NoMemory(dtype, shape, bytes,
                    pool ? ": " + HostPool().Explain(bytes.value_or(SIZE_MAX))
                         : " in allocator '" + allocator->name() + "'");
  }
  return Tensor(dtype, shape, std::move(buffer));
}

Tensor::Tensor(DType dtype, const Shape& shape, Buffer buffer, size_t offset)
    : buffer_(std::move(buffer)), offset_(offset), dtype_(dtype), shape_(shape) {
  MG_CHECK(offset_ + bytes() <= buffer_.size());
}

Tensor Tensor::String(std::string value) {
  Tensor tensor = Allocate(DT_STRING, Shape()).value();
  *tensor.strings() = std::move(value);
  return tensor;
}

Tensor Tensor::Slice(int64_t begin, int64_t end) const {
  MG_CHECK(shape_.rank() >= 1 && begin >= 0 && begin <= end && end <= shape_.dim(0));
  const size_t row = shape_.dim(0) == 0 ? 0 : bytes() / static_cast<size_t>(shape_.dim(0));
  Tensor slice = *this;
  slice.shape_.set_dim(0, end - begin);
  slice.offset_ += row * static_cast<size_t>(begin);
  return slice;
}

Tensor Tensor::Reshaped(const Shape& shape) const {
  MG_CHECK(shape.elements() == elements());
  Tensor reshaped = *this;
  reshaped.shape_ = shape;
  return reshaped;
}

size_t StringBytes(size_t capacity) {
  static const size_t inside = std::string().capacity();
  // The terminating zero, and the allocator's own word for each block.
  return capacity <= inside ? 0 : (capacity + 1 + 8 + 15) / 16 * 16;
}

Status Tensor::CountStrings() const {
  if (dtype_ != DT_STRING || buffer_.keeps()) return Status();
  size_t bytes = 0;
  const auto* const first = static_cast<const std::string*>(buffer_.data());
  for (const std::string& text : std::span(first, buffer_.size() / sizeof(std::string)))
    bytes += StringBytes(text.capacity());
  return CountStrings(bytes);
}

Status Tensor::CountStrings(size_t bytes) const {
  std::shared_ptr<void> room;
  if (bytes > 0) room = HostPool().Reserve(bytes, /*always=*/bytes <= kUnasked);
  if (bytes > 0 && room == nullptr) {
    return ResourceExhausted("no memory for what " + std::string(DTypeName(dtype_)) +
                             shape_.ToString() + " holds (" + std::to_string(bytes) +
                             " bytes): " + HostPool().Explain(bytes));
  }
  buffer_.Keep(std::move(room));  // unless another thread has counted them, too
  return Status();
}

Result<Tensor> Tensor::Clone(Allocator* allocator) const {
  MG_ASSIGN_OR_RETURN(Tensor copy, Allocate(dtype_, shape_, allocator));
  const auto count = static_cast<size_t>(elements());
  if (dtype_ == DT_STRING) {
    size_t bytes = 0;  // before they are there
    for (const std::string& text : values<std::string>()) bytes += StringBytes(text.size());
    MG_RETURN_IF_ERROR(copy.CountStrings(bytes));
    std::copy_n(strings(), count, copy.strings());
  } else if (dtype_ == DT_RESOURCE) {
    std::copy_n(handles(), count, copy.handles());
  } else if (dtype_ == DT_VARIANT) {
    std::copy_n(variants(), count, copy.variants());
  } else if (bytes() > 0) {
    std::memcpy(copy.raw(), raw(), bytes());
  }
  return copy;
}

std::string Tensor::ToString(int limit) const {
  std::string text = std::string(DTypeName(dtype_)) + shape_.ToString() + " =";
  const int64_t count = std::min<int64_t>(limit, elements());
  switch (StoredAs(dtype_)) {
    case DT_FLOAT:
      AppendValues<float>(*this, count, &text);
      break;
    case DT_DOUBLE:
      AppendValues<double>(*this, count, &text);
      break;
    case DT_INT32:
      AppendValues<int32_t>(*this, count, &text);
      break;
    case DT_INT64:
      AppendValues<int64_t>(*this, count, &text);
      break;
    case DT_BOOL:
      AppendValues<bool>(*this, count, &text);
      break;
    case DT_UINT8:
      AppendValues<uint8_t>(*this, count, &text);
      break;
    case DT_INT8:
      AppendValues<int8_t>(*this, count, &text);
      break;
    case DT_INT16:
      AppendValues<int16_t>(*this, count, &text);
      break;
    case DT_UINT16:
      AppendValues<uint16_t>(*this, count, &text);
      break;
    case DT_UINT32:
      AppendValues<uint32_t>(*this, count, &text);
      break;
    case DT_UINT64:
      AppendValues<uint64_t>(*this, count, &text);
      break;
    case DT_BFLOAT16:
      AppendValues<bfloat16>(*this, count, &text);
      break;
    case DT_HALF:
      AppendValues<half>(*this, count, &text);
      break;
    case DT_COMPLEX64:
      AppendComplex<float>(*this, count, &text);
      break;
    case DT_COMPLEX128:
      AppendComplex<double>(*this, count, &text);
      break;
    case DT_STRING:
      for (int64_t i = 0; i < count; ++i) text += " \"" + strings()[i] + "\"";
      break;
    case DT_RESOURCE:
      for (int64_t i = 0; i < count; ++i)
        text += " " + handles()[i].container + "/" + handles()[i].name;
      break;
    case DT_VARIANT:
      for (int64_t i = 0; i < count; ++i)
        text += " <" + (variants()[i] ? std::string(variants()[i]->type_name()) : "empty") + ">";
      break;
    default:
      break;
  }
  if (count < elements()) text += " ...";
  return text;
}

bool BitEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() == DT_STRING)
    return std::equal(a.strings(), a.strings() + a.elements(), b.strings());
  if (a.dtype() == DT_RESOURCE) {
    for (int64_t i = 0; i < a.elements(); ++i) {
      const ResourceHandle &x = a.handles()[i], &y = b.handles()[i];
      if (x.device != y.device || x.container != y.container || x.name != y.name) return false;
    }
    return true;
  }
  if (a.dtype() == DT_VARIANT)
    return std::equal(a.variants(), a.variants() + a.elements(), b.variants());
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace monograph
