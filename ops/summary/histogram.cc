#include "ops/summary/histogram.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <type_traits>

namespace monograph {
namespace {

// The upper ends of TensorFlow's buckets: 1e-12 times powers of 1.1 on both sides of zero.
const std::vector<double>& BucketLimits() {
  static const std::vector<double> limits = [] {
    std::vector<double> above;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) above.push_back(limit);
    above.push_back(DBL_MAX);
    std::vector<double> all;
    for (auto limit = above.rbegin(); limit != above.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), above.begin(), above.end());
    return all;
  }();
  return limits;
}

template <typename T>
std::vector<double> ToDoubles(const Tensor& tensor) {
  const T* const data = tensor.data<T>();
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
      values[i] = static_cast<double>(static_cast<float>(data[i]));
    } else {
      values[i] = static_cast<double>(data[i]);
    }
  }
  return values;
}

}  // namespace

Result<std::vector<double>> Numbers(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DT_FLOAT:
      return ToDoubles<float>(tensor);
    case DT_DOUBLE:
      return ToDoubles<double>(tensor);
    case DT_HALF:
      return ToDoubles<half>(tensor);
    case DT_BFLOAT16:
      return ToDoubles<bfloat16>(tensor);
    case DT_INT8:
      return ToDoubles<int8_t>(tensor);
    case DT_INT16:
      return ToDoubles<int16_t>(tensor);
    case DT_INT32:
      return ToDoubles<int32_t>(tensor);
    case DT_INT64:
      return ToDoubles<int64_t>(tensor);
    case DT_UINT8:
      return ToDoubles<uint8_t>(tensor);
    case DT_UINT16:
      return ToDoubles<uint16_t>(tensor);
    case DT_UINT32:
      return ToDoubles<uint32_t>(tensor);
    case DT_UINT64:
      return ToDoubles<uint64_t>(tensor);
    default:
      return InvalidArgument("a tensor of " + std::string(DTypeName(tensor.dtype())) +
                             " has no numbers that can be summarised; those of real types have");
  }
}

Status FillHistogram(const std::string& tag, const Tensor& values, pb::HistogramProto* histogram,
                     const std::function<bool()>& go_on) {
  const std::string what = "the histogram '" + tag + "'";
  const int64_t n = values.elements();
  const Tensor all = values.Reshaped(Shape{n});
  const std::vector<double>& limits = BucketLimits();
  std::vector<double> counts(limits.size());
  double sum = 0, squares = 0, least = DBL_MAX, most = -DBL_MAX;
  constexpr int64_t kPiece = int64_t{1} << 15;  // between two questions of `go_on`
  for (int64_t begin = 0; begin < std::max<int64_t>(1, n); begin += kPiece) {
    if (go_on != nullptr && !go_on()) return Cancelled(what + " is not complete");
    const Result<std::vector<double>> numbers =
        Numbers(all.Slice(begin, std::min(n, begin + kPiece)));
    if (!numbers.ok()) return numbers.status().WithContext(what);
    for (const double value : *numbers) {
      if (!std::isfinite(value)) return InvalidArgument(what + " has NaN or infinite values");
      const auto limit = std::upper_bound(limits.begin(), limits.end() - 1, value);
      ++counts[static_cast<size_t>(limit - limits.begin())];
      sum += value;
      squares += value * value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  histogram->set_min(least);
  histogram->set_max(most);
  histogram->set_num(static_cast<double>(n));
  histogram->set_sum(sum);
  histogram->set_sum_squares(squares);
  // Empty buckets side by side are one.
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0 && i + 1 < counts.size() && counts[i + 1] == 0) continue;
    histogram->add_bucket_limit(limits[i]);
    histogram->add_bucket(counts[i]);
  }
  return Status();
}

}  // namespace monograph
