// Values of attributes to and from GraphDef's messages, and with them shapes and tensors. A message
// is checked as it is read: a tensor's values may come as content or as a list, in which the last
// one stands for all that follow, and none may ask for more memory than kMaxExpandedBytes.
#include "graph/attr_proto.h"

#include <fmt/core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "graph/graph.pb.h"

namespace monograph {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor_content is copied as it lies in memory");

// A few bytes may stand for many equal elements; this bounds what they may ask for.
constexpr uint64_t kMaxExpandedBytes = uint64_t{2} << 30;

constexpr int kReference = 100;  // a reference to a type has the type's number plus this

DType TypeFromProto(int type) {
  return static_cast<DType>(type > kReference ? type - kReference : type);
}

Result<PartialShape> ShapeFromProto(const pb::TensorShapeProto& proto) {
  if (proto.unknown_rank()) return PartialShape();
  if (proto.dim_size() > kMaxRank) {
    return InvalidArgument(fmt::format("a shape has {} dimensions; at most {} are supported",
                                       proto.dim_size(), kMaxRank));
  }
  PartialShape shape = PartialShape::Scalar();
  int64_t elements = 1;
  for (const auto& dim : proto.dim()) {
    if (dim.size() < -1)
      return InvalidArgument(fmt::format("a shape has dimension {}", dim.size()));
    if (dim.size() > 0 && __builtin_mul_overflow(elements, dim.size(), &elements)) {
      return InvalidArgument("a shape has more than 2^63 elements");
    }
    shape.AddDim(dim.size());
  }
  return shape;
}

void ShapeToProto(const PartialShape& shape, pb::TensorShapeProto* proto) {
  proto->set_unknown_rank(!shape.known_rank());
  for (int64_t dim : shape.dims()) proto->add_dim()->set_size(dim);
}

template <typename T, typename Values>
void FillValues(const Values& values, Tensor* tensor) {
  T* out = tensor->data<T>();
  const int64_t total = tensor->elements(), given = std::min<int64_t>(values.size(), total);
  for (int64_t i = 0; i < given; ++i) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
      out[i].bits = static_cast<uint16_t>(values.Get(static_cast<int>(i)));
    } else {
      out[i] = static_cast<T>(values.Get(static_cast<int>(i)));
    }
  }
  std::fill(out + given, out + total, given > 0 ? out[given - 1] : T());
}

// Complex numbers are pairs in the list.
template <typename T, typename Values>
void FillPairs(const Values& values, Tensor* tensor) {
  T* out = tensor->data<T>();
  const int64_t total = 2 * tensor->elements();
  const int64_t given = std::min<int64_t>(values.size() / 2 * 2, total);
  std::copy_n(values.data(), given, out);
  for (int64_t i = given; i < total; ++i) out[i] = given > 0 ? out[i - 2] : T();
}

struct ValueCount {
  const char* field;
  int count;
};

ValueCount CountValues(const TensorProto& proto, DType dtype) {
  switch (StoredAs(dtype)) {
    case DT_FLOAT:
      return {"float_val", proto.float_val_size()};
    case DT_DOUBLE:
      return {"double_val", proto.double_val_size()};
    case DT_COMPLEX64:
      return {"scomplex_val", proto.scomplex_val_size() / 2};
    case DT_COMPLEX128:
      return {"dcomplex_val", proto.dcomplex_val_size() / 2};
    case DT_INT32:
    case DT_INT16:
    case DT_UINT16:
    case DT_INT8:
    case DT_UINT8:
      return {"int_val", proto.int_val_size()};
    case DT_INT64:
      return {"int64_val", proto.int64_val_size()};
    case DT_BOOL:
      return {"bool_val", proto.bool_val_size()};
    case DT_HALF:
    case DT_BFLOAT16:
      return {"half_val", proto.half_val_size()};
    case DT_UINT32:
      return {"uint32_val", proto.uint32_val_size()};
    case DT_UINT64:
      return {"uint64_val", proto.uint64_val_size()};
    case DT_STRING:
      return {"string_val", proto.string_val_size()};
    case DT_RESOURCE:
      return {"resource_handle_val", proto.resource_handle_val_size()};
    default:
      return {"", 0};
  }
}

bool AllElementsEqual(const Tensor& tensor) {
  const size_t element = DTypeSize(tensor.dtype());
  const char* data = static_cast<const char*>(tensor.raw());
  // Equal to itself one element further on.
  return tensor.bytes() <= element ||
         std::memcmp(data, data + element, tensor.bytes() - element) == 0;
}

// The first element in the list that belongs to the type.
void AddFirstElement(const Tensor& tensor, TensorProto* proto) {
  switch (StoredAs(tensor.dtype())) {
    case DT_FLOAT:
      proto->add_float_val(tensor.scalar<float>());
      break;
    case DT_DOUBLE:
      proto->add_double_val(tensor.scalar<double>());
      break;
    case DT_COMPLEX64:
      for (int part = 0; part < 2; ++part) proto->add_scomplex_val(tensor.data<float>()[part]);
      break;
    case DT_COMPLEX128:
      for (int part = 0; part < 2; ++part) proto->add_dcomplex_val(tensor.data<double>()[part]);
      break;
    case DT_INT32:
      proto->add_int_val(tensor.scalar<int32_t>());
      break;
    case DT_INT16:
      proto->add_int_val(tensor.scalar<int16_t>());
      break;
    case DT_UINT16:
      proto->add_int_val(tensor.scalar<uint16_t>());
      break;
    case DT_INT8:
      proto->add_int_val(tensor.scalar<int8_t>());
      break;
    case DT_UINT8:
      proto->add_int_val(tensor.scalar<uint8_t>());
      break;
    case DT_INT64:
      proto->add_int64_val(tensor.scalar<int64_t>());
      break;
    case DT_BOOL:
      proto->add_bool_val(tensor.scalar<bool>());
      break;
    case DT_HALF:
      proto->add_half_val(tensor.scalar<half>().bits);
      break;
    case DT_BFLOAT16:
      proto->add_half_val(tensor.scalar<bfloat16>().bits);
      break;
    case DT_UINT32:
      proto->add_uint32_val(tensor.scalar<uint32_t>());
      break;
    case DT_UINT64:
      proto->add_uint64_val(tensor.scalar<uint64_t>());
      break;
    default:
      break;
  }
}

Result<AttrValue> ListFromProto(const pb::AttrValue::ListValue& list) {
  if (list.s_size() > 0)
    return AttrValue(std::vector<std::string>(list.s().begin(), list.s().end()));
  if (list.i_size() > 0) return AttrValue(std::vector<int64_t>(list.i().begin(), list.i().end()));
  if (list.f_size() > 0) return AttrValue(std::vector<float>(list.f().begin(), list.f().end()));
  if (list.b_size() > 0) return AttrValue(std::vector<bool>(list.b().begin(), list.b().end()));
  if (list.type_size() > 0) {
    std::vector<DType> types;
    for (int type : list.type()) types.push_back(TypeFromProto(type));
    return AttrValue(std::move(types));
  }
  if (list.shape_size() > 0) {
    std::vector<PartialShape> shapes;
    for (const auto& proto : list.shape()) {
      MG_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromProto(proto));
      shapes.push_back(shape);
    }
    return AttrValue(std::move(shapes));
  }
  if (list.func_size() > 0) {
    std::vector<FunctionName> names;
    for (const auto& func : list.func()) names.push_back({func.name()});
    return AttrValue(std::move(names));
  }
  if (list.tensor_size() > 0) return AttrValue();
  return AttrValue(EmptyList());
}

Status CheckTypes(const pb::AttrValue& proto, bool (*is_type)(int number)) {
  std::vector<int> types(proto.list().type().begin(), proto.list().type().end());
  if (proto.value_case() == pb::AttrValue::kType) types.push_back(proto.type());
  for (const int type : types) {
    if (!is_type(type)) return InvalidArgument(fmt::format("there is no type {}", type));
  }
  return Status();
}

struct AttrWriter {
  pb::AttrValue* proto;

  void operator()(std::monostate) const {}
  void operator()(EmptyList) const { proto->mutable_list(); }
  void operator()(const std::string& value) const { proto->set_s(value); }
  void operator()(int64_t value) const { proto->set_i(value); }
  void operator()(float value) const { proto->set_f(value); }
  void operator()(bool value) const { proto->set_b(value); }
  void operator()(DType value) const { proto->set_type(static_cast<pb::DataType>(value)); }
  void operator()(const PartialShape& value) const { ShapeToProto(value, proto->mutable_shape()); }
  void operator()(const Tensor& value) const { TensorToProto(value, proto->mutable_tensor()); }
  void operator()(const FunctionName& value) const { proto->mutable_func()->set_name(value.name); }
  void operator()(const std::vector<std::string>& values) const {
    auto* list = proto->mutable_list();
    for (const std::string& value : values) list->add_s(value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    proto->mutable_list()->mutable_i()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<float>& values) const {
    proto->mutable_list()->mutable_f()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<bool>& values) const {
    auto* list = proto->mutable_list();
    for (bool value : values) list->add_b(value);
  }
  void operator()(const std::vector<DType>& values) const {
    auto* list = proto->mutable_list();
    for (DType value : values) list->add_type(static_cast<pb::DataType>(value));
  }
  void operator()(const std::vector<PartialShape>& values) const {
    auto* list = proto->mutable_list();
    for (const PartialShape& value : values) ShapeToProto(value, list->add_shape());
  }
  void operator()(const std::vector<FunctionName>& values) const {
    auto* list = proto->mutable_list();
    for (const FunctionName& value : values) list->add_func()->set_name(value.name);
  }
};

// The last of `count` values stands for all that follow.
Result<Tensor> StringsFromProto(const TensorProto& proto, int count, Tensor tensor) {
  const auto text = [&](int64_t i) -> const std::string& {
    return proto.string_val(static_cast<int>(std::min<int64_t>(i, count - 1)));
  };
  const int64_t n = count > 0 ? tensor.elements() : 0;
  size_t bytes = 0;
  for (int64_t i = 0; i < n; ++i) bytes += StringBytes(text(i).size());
  MG_RETURN_IF_ERROR(tensor.CountStrings(bytes));
  for (int64_t i = 0; i < n; ++i) tensor.strings()[i] = text(i);
  return tensor;
}

}  // namespace

Result<Tensor> TensorFromProto(const TensorProto& proto) {
  uint64_t expandable = kMaxExpandedBytes;
  return TensorFromProto(proto, &expandable);
}

Result<Tensor> TensorFromProto(const TensorProto& proto, uint64_t* expandable) {
  const DType dtype = TypeFromProto(proto.dtype());
  const std::string type(DTypeName(dtype));
  MG_ASSIGN_OR_RETURN(const PartialShape partial, ShapeFromProto(proto.tensor_shape()));
  if (!partial.fully_known()) {
    return InvalidArgument("a tensor's shape must be fully known, but is " + partial.ToString());
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(partial.dims()));
  const size_t element = DTypeSize(dtype);
  if (element == 0) return Unimplemented("tensors of type " + type + " are not supported");
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(shape.elements()), element, &bytes)) {
    return InvalidArgument("a tensor of shape " + shape.ToString() + " is too large");
  }
  const std::string& content = proto.tensor_content();
  const ValueCount values = CountValues(proto, dtype);
  if (!content.empty()) {
    if (!IsPlainData(dtype))
      return InvalidArgument("a tensor of type " + type + " has tensor_content");
    if (content.size() != bytes) {
      return InvalidArgument(
          fmt::format("a tensor of type {} and shape {} has {} bytes of tensor_content, not {}",
                      type, shape.ToString(), content.size(), bytes));
    }
  } else if (values.count > shape.elements()) {
    return InvalidArgument(fmt::format("a tensor of shape {} has {} elements in {}",
                                       shape.ToString(), values.count, values.field));
  } else if (values.count < shape.elements()) {
    if (values.count > 0 && dtype == DT_STRING) {  // the last one is copied
      const auto copies = static_cast<uint64_t>(shape.elements() - values.count);
      const uint64_t each = proto.string_val(values.count - 1).size();
      uint64_t texts = 0;
      if (__builtin_mul_overflow(copies, each, &texts) ||
          __builtin_add_overflow(bytes, texts, &bytes))
        bytes = std::numeric_limits<uint64_t>::max();
    }
    if (bytes > *expandable) {
      return InvalidArgument(fmt::format(
          "a tensor of type {} and shape {} has only {} elements in {}; at most {} more "
          "bytes may be written that way",
          type, shape.ToString(), values.count, values.field, *expandable));
    }
    *expandable -= bytes;
  }
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  if (!content.empty()) {
    std::memcpy(tensor.raw(), content.data(), content.size());
    if (dtype == DT_BOOL) {  // any other byte would be no bool
      for (auto* b = static_cast<unsigned char*>(tensor.raw());
           b < static_cast<unsigned char*>(tensor.raw()) + bytes; ++b) {
        *b = *b != 0;
      }
    }
    return tensor;
  }
  switch (StoredAs(dtype)) {
    case DT_FLOAT:
      FillValues<float>(proto.float_val(), &tensor);
      break;
    case DT_DOUBLE:
      FillValues<double>(proto.double_val(), &tensor);
      break;
    case DT_COMPLEX64:
      FillPairs<float>(proto.scomplex_val(), &tensor);
      break;
    case DT_COMPLEX128:
      FillPairs<double>(proto.dcomplex_val(), &tensor);
      break;
    case DT_INT32:
      FillValues<int32_t>(proto.int_val(), &tensor);
      break;
    case DT_INT16:
      FillValues<int16_t>(proto.int_val(), &tensor);
      break;
    case DT_UINT16:
      FillValues<uint16_t>(proto.int_val(), &tensor);
      break;
    case DT_INT8:
      FillValues<int8_t>(proto.int_val(), &tensor);
      break;
    case DT_UINT8:
      FillValues<uint8_t>(proto.int_val(), &tensor);
      break;
    case DT_INT64:
      FillValues<int64_t>(proto.int64_val(), &tensor);
      break;
    case DT_BOOL:
      FillValues<bool>(proto.bool_val(), &tensor);
      break;
    case DT_HALF:
      FillValues<half>(proto.half_val(), &tensor);
      break;
    case DT_BFLOAT16:
      FillValues<bfloat16>(proto.half_val(), &tensor);
      break;
    case DT_UINT32:
      FillValues<uint32_t>(proto.uint32_val(), &tensor);
      break;
    case DT_UINT64:
      FillValues<uint64_t>(proto.uint64_val(), &tensor);
      break;
    case DT_STRING:
      return StringsFromProto(proto, values.count, std::move(tensor));
    case DT_RESOURCE:
      for (int i = 0; i < values.count; ++i) {
        const auto& handle = proto.resource_handle_val(i);
        tensor.handles()[i] = {handle.device(), handle.container(), handle.name()};
      }
      break;
    default:
      return Unimplemented("tensors of type " + type + " are not supported");
  }
  return tensor;
}

void TensorToProto(const Tensor& tensor, TensorProto* proto) {
  proto->set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  ShapeToProto(tensor.shape(), proto->mutable_tensor_shape());
  if (!tensor.valid() || tensor.elements() == 0) return;
  if (tensor.dtype() == DT_STRING) {
    for (int64_t i = 0; i < tensor.elements(); ++i) proto->add_string_val(tensor.strings()[i]);
  } else if (tensor.dtype() == DT_RESOURCE) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const ResourceHandle& handle = tensor.handles()[i];
      auto* out = proto->add_resource_handle_val();
      out->set_device(handle.device);
      out->set_container(handle.container);
      out->set_name(handle.name);
    }
  } else if (tensor.bytes() <= kMaxExpandedBytes && AllElementsEqual(tensor)) {
    AddFirstElement(tensor, proto);
  } else {
    proto->set_tensor_content(tensor.raw(), tensor.bytes());
  }
}

Result<AttrValue> AttrFromProto(const pb::AttrValue& proto) {
  uint64_t expandable = kMaxExpandedBytes;
  return AttrFromProto(proto, &expandable);
}

Result<AttrValue> AttrFromProto(const pb::AttrValue& proto, uint64_t* expandable) {
  switch (proto.value_case()) {
    case pb::AttrValue::kS:
      return AttrValue(proto.s());
    case pb::AttrValue::kI:
      return AttrValue(int64_t{proto.i()});
    case pb::AttrValue::kF:
      return AttrValue(proto.f());
    case pb::AttrValue::kB:
      return AttrValue(proto.b());
    case pb::AttrValue::kType:
      return AttrValue(TypeFromProto(proto.type()));
    case pb::AttrValue::kShape: {
      MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeFromProto(proto.shape()));
      return AttrValue(shape);
    }
    case pb::AttrValue::kTensor: {
      MG_ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(proto.tensor(), expandable));
      return AttrValue(std::move(tensor));
    }
    case pb::AttrValue::kList:
      return ListFromProto(proto.list());
    case pb::AttrValue::kFunc:
      return AttrValue(FunctionName{proto.func().name()});
    case pb::AttrValue::kPlaceholder:
      return Unimplemented("the placeholder '" + proto.placeholder() +
                           "' stands for a value; functions with parameters are not supported");
    case pb::AttrValue::VALUE_NOT_SET:
      break;
  }
  return AttrValue();
}

Status CheckHasValue(const pb::AttrValue& proto) {
  if (proto.value_case() == pb::AttrValue::VALUE_NOT_SET) return InvalidArgument("it has no value");
  return CheckTypes(proto, IsTypeNumber);
}

Status CheckTypeNumbers(const pb::AttrValue& proto) {
  return CheckTypes(proto, [](int number) {
    return (number >= 0 && number < kReference) || (number > kReference && number < 2 * kReference);
  });
}

std::string BytesOf(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

bool IsTypeNumber(int number) { return number != pb::DT_INVALID && pb::DataType_IsValid(number); }

void AttrToProto(const AttrValue& value, pb::AttrValue* proto) {
  std::visit(AttrWriter{proto}, value);
}

}  // namespace monograph
