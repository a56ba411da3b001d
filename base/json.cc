#include "base/json.h"

#include <nlohmann/json.hpp>

namespace monograph {

std::string JsonQuoted(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace monograph
