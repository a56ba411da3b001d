// What MG_SetSessionOption and MG_SetServerOption set.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "client/cluster.h"
#include "client/host.h"
#include "client/session.h"

namespace monograph::c_api {

struct SessionSettings {
  std::string target, cluster, key_file;
  int cpu_devices = 1;
  SessionOptions options;

  Status Set(std::string_view name, const std::string& value);
};

struct ServerSettings {
  std::string key_file;
  HostOptions options;

  Status Set(std::string_view name, const std::string& value);
};

// The key in `file`; without one the key of the environment's MONOGRAPH_KEY_FILE, or none.
Result<std::optional<control::KeyRing>> ReadKey(const std::string& file);

}  // namespace monograph::c_api
