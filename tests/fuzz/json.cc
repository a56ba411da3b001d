// JSON of clusters, scripts and values, whose type follows from the number of bytes.
#include "base/json.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json_value.h"
#include "client/cluster.h"
#include "tests/fuzz/targets.h"
#include "tools/tensor_text.h"

namespace monograph::fuzz {

void json(std::string_view bytes) {
  const Result<nlohmann::json> value = ParseJson(bytes, "x.json");
  if (value.ok()) {
    const std::string text = JsonText(*value);
    const Result<nlohmann::json> again = ParseJson(text, "again");
    MG_CHECK(again.ok() && JsonText(*again) == text);
    MG_CHECK(IsUtf8(text) && IsUtf8(JsonExcerpt(*value)));
  } else {
    MG_CHECK(value.status().code() == Code::kInvalidArgument);
  }
  if (const Result<ClusterSpec> cluster = ClusterSpec::FromJson(bytes, "x.json"); cluster.ok())
    MG_CHECK(ClusterSpec::FromJson(cluster->ToJson(), "again").ok());
  constexpr DType kTypes[] = {DT_FLOAT, DT_HALF, DT_INT32, DT_UINT8, DT_UINT64, DT_BOOL, DT_STRING};
  const DType dtype = kTypes[bytes.size() % std::size(kTypes)];
  if (const Result<Tensor> tensor = ParseValues(std::string(bytes), dtype); tensor.ok())
    (void)FormatValues(*tensor, 100);
}

}  // namespace monograph::fuzz
