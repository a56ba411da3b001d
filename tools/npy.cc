// Reading and writing .npy files. A file is a magic number, a header and the raw elements. The
// header is a Python dictionary with three known keys, so Field finds each by its name and there is
// no parser for Python. What is written is format 1.0, with the header padded so that the data
// begins at a multiple of 64 bytes, as NumPy does.
#include "tools/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/input_file.h"

namespace monograph {
namespace {

struct TypeCode {
  DType dtype;
  const char* code;
};
constexpr TypeCode kCodes[] = {
    {DT_FLOAT, "<f4"},  {DT_DOUBLE, "<f8"},    {DT_HALF, "<f2"},        {DT_BFLOAT16, "<V2"},
    {DT_INT32, "<i4"},  {DT_INT64, "<i8"},     {DT_BOOL, "|b1"},        {DT_UINT8, "|u1"},
    {DT_INT8, "|i1"},   {DT_INT16, "<i2"},     {DT_UINT16, "<u2"},      {DT_UINT32, "<u4"},
    {DT_UINT64, "<u8"}, {DT_COMPLEX64, "<c8"}, {DT_COMPLEX128, "<c16"}, {DT_QINT8, "|i1"},
    {DT_QUINT8, "|u1"}, {DT_QINT16, "<i2"},    {DT_QUINT16, "<u2"},     {DT_QINT32, "<i4"}};

// The text after "'key':" in the header's dictionary, up to the end of its value.
Result<std::string> Field(const std::string& header, const std::string& key,
                          const std::string& path) {
  size_t begin = header.find("'" + key + "':");
  if (begin == std::string::npos)
    return InvalidArgument(path + ": the .npy header has no '" + key + "'");
  begin = header.find_first_not_of(' ', begin + key.size() + 3);
  if (begin == std::string::npos)
    return InvalidArgument(path + ": the .npy header ends after '" + key + "'");
  const char open = header[begin];
  if (open == '\'' || open == '(') {
    const size_t end = header.find(open == '(' ? ')' : '\'', begin + 1);
    if (end == std::string::npos) return InvalidArgument(path + ": the .npy header is cut off");
    return header.substr(begin + 1, end - begin - 1);
  }
  return header.substr(begin, header.find_first_of(",}", begin) - begin);
}

// A number of digits alone.
std::optional<uint64_t> Digits(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<Tensor> ReadNpy(const std::string& path, DType wanted) {
  MG_ASSIGN_OR_RETURN(const std::string bytes, ReadInputFile(".npy file", path, kMostDataBytes));
  return ParseNpy(bytes, path, wanted);
}

Result<Tensor> ParseNpy(std::string_view bytes, const std::string& path, DType wanted) {
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0)
    return InvalidArgument(path + " is not a .npy file");
  const int major = bytes[6];
  uint32_t header_size = 0;
  size_t header_begin = 10;
  if (major == 1) {
    uint16_t size = 0;
    std::memcpy(&size, bytes.data() + 8, 2);
    header_size = size;
  } else if (major == 2 || major == 3) {
    std::memcpy(&header_size, bytes.data() + 8, 4);
    header_begin = 12;
  } else {
    return InvalidArgument(path + ": .npy format version " + std::to_string(major) +
                           " is not supported");
  }
  if (header_begin + header_size > bytes.size())
    return DataLoss(path + " is truncated in its header");
  const std::string header(bytes.substr(header_begin, header_size));
  MG_ASSIGN_OR_RETURN(std::string code, Field(header, "descr", path));
  MG_ASSIGN_OR_RETURN(const std::string fortran, Field(header, "fortran_order", path));
  MG_ASSIGN_OR_RETURN(const std::string dims_text, Field(header, "shape", path));

  std::vector<int64_t> dims;
  for (size_t at = 0; at < dims_text.size();) {
    const size_t digit = dims_text.find_first_of("0123456789", at);
    if (digit == std::string::npos) break;
    const size_t end = std::min(dims_text.find_first_not_of("0123456789", digit), dims_text.size());
    const std::optional<uint64_t> dim =
        Digits(std::string_view(dims_text).substr(digit, end - digit));
    if (!dim || *dim > INT64_MAX || dims.size() == kMaxRank)
      return InvalidArgument(path + ": a tensor cannot have the shape (" +
                             dims_text.substr(0, 100) + ")");
    dims.push_back(static_cast<int64_t>(*dim));
    at = end;
  }
  Result<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return shape.status().WithContext(path);
  if (fortran.find("True") != std::string::npos && shape->rank() > 1) {
    return InvalidArgument(path + " is in Fortran order; save it with numpy.ascontiguousarray");
  }
  const std::string_view data = bytes.substr(header_begin + header_size);
  if (code.rfind("|S", 0) == 0) {
    const std::optional<uint64_t> width = Digits(std::string_view(code).substr(2));
    if (!width || *width == 0)
      return InvalidArgument(path + " has type '" + code + "', which is no byte string");
    if (data.size() % *width != 0 ||
        data.size() / *width != static_cast<uint64_t>(shape->elements()))
      return DataLoss(path + " does not hold the bytes of its shape " + shape->ToString());
    MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DT_STRING, shape.value()));
    for (int64_t i = 0; i < shape->elements(); ++i) {
      std::string_view text = data.substr(*width * static_cast<size_t>(i), *width);
      tensor.strings()[i] = text.substr(0, text.find_last_not_of('\0') + 1);
    }
    return tensor;
  }
  DType dtype = DT_INVALID;
  if (code == "|V2") code = "<V2";
  for (const TypeCode& known : kCodes) {
    // Several types may lie in a file alike: the one that is wanted, else the first.
    if (code == known.code && (dtype == DT_INVALID || known.dtype == wanted)) dtype = known.dtype;
  }
  if (code == "<V2" && wanted == DT_HALF) dtype = DT_HALF;
  if (dtype == DT_INVALID)
    return InvalidArgument(
        path + " has type '" + code +
        "', which is not supported (little-endian numbers, bool and byte strings are)");
  const size_t element = DTypeSize(dtype);
  if (data.size() % element != 0 ||
      data.size() / element != static_cast<uint64_t>(shape->elements())) {
    return DataLoss(path + " has " + std::to_string(data.size()) + " bytes of data where shape " +
                    shape->ToString() + " needs " + std::to_string(shape->elements()) + " of " +
                    std::to_string(element) + " bytes");
  }
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape.value()));
  if (!data.empty()) std::memcpy(tensor.raw(), data.data(), data.size());
  return tensor;
}

Status WriteNpy(const std::string& path, const Tensor& tensor) {
  std::string code;
  size_t width = DTypeSize(tensor.dtype());
  if (tensor.dtype() == DT_STRING) {
    width = 1;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      width = std::max(width, tensor.strings()[i].size());
    code = "|S" + std::to_string(width);
  }
  for (const TypeCode& known : kCodes) {
    if (tensor.dtype() == known.dtype) code = known.code;
  }
  if (code.empty())
    return Unimplemented("cannot write a tensor of type " + std::string(DTypeName(tensor.dtype())) +
                         " to " + path);
  std::string header = "{'descr': '" + code + "', 'fortran_order': False, 'shape': (";
  for (int64_t dim : tensor.shape().dims()) header += std::to_string(dim) + ",";
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  const auto size = static_cast<uint16_t>(header.size());
  file.write("\x93NUMPY\x01\x00", 8).write(reinterpret_cast<const char*>(&size), 2);
  file << header;
  if (tensor.dtype() == DT_STRING) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      std::string padded = tensor.strings()[i];
      padded.resize(width, '\0');
      file << padded;
    }
  } else {
    file.write(static_cast<const char*>(tensor.raw()),
               static_cast<std::streamsize>(tensor.bytes()));
  }
  file.close();
  if (!file) return ResourceExhausted("cannot write '" + path + "'");
  return Status();
}

}  // namespace monograph
