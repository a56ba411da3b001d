#include "base/device_name.h"

#include <cctype>
#include <charconv>

namespace monograph {
namespace {

bool IsName(std::string_view text) {
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  for (char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

bool ParseIndex(std::string_view text, int* out) {
  if (text == "*") {
    *out = -1;
    return true;
  }
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

// One part without its leading '/'.
bool ParsePart(std::string_view part, DeviceName* name) {
  const size_t colon = part.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view key = part.substr(0, colon), value = part.substr(colon + 1);
  if (key == "job") {
    if (value == "*") {
      name->job.clear();
      return true;
    }
    if (!IsName(value)) return false;
    name->job = value;
    return true;
  }
  if (key == "replica") return ParseIndex(value, &name->replica);
  if (key == "task") return ParseIndex(value, &name->task);
  if (key == "device") {
    const size_t second = value.find(':');
    const std::string_view type = value.substr(0, second);
    Result<DeviceType> parsed = type == "*" ? DeviceType() : DeviceType::Parse(type);
    if (!parsed.ok()) return false;
    name->type = *parsed;
    name->id = -1;
    return second == std::string_view::npos || ParseIndex(value.substr(second + 1), &name->id);
  }
  const DeviceType type = DeviceType::FromShortForm(key);
  if (type.empty()) return false;
  name->type = type;
  return ParseIndex(value, &name->id);
}

template <typename T>
Status MergePart(const char* what, bool droppable, const DeviceName& a, const DeviceName& b,
                 const T& open, const T& in_a, const T& in_b, T* out) {
  if (in_a == open || in_a == in_b) {
    *out = in_b;
  } else if (in_b == open) {
    *out = in_a;
  } else if (droppable) {
    *out = open;
  } else {
    return InvalidArgument(std::string("Cannot merge devices with incompatible ") + what + ": '" +
                           a.ToString() + "' and '" + b.ToString() + "'");
  }
  return Status();
}

}  // namespace

Result<DeviceName> DeviceName::Parse(std::string_view text) {
  DeviceName name;
  std::string_view rest = text;
  if (rest == "/") return name;
  while (!rest.empty()) {
    const size_t end = rest.find('/', 1);
    const std::string_view part = rest.substr(1, end == std::string_view::npos ? end : end - 1);
    if (rest[0] != '/' || !ParsePart(part, &name)) {
      return InvalidArgument("Malformed device specification '" + std::string(text) + "' at '" +
                             std::string(rest.substr(0, end)) +
                             "'; expected parts of /job:NAME/replica:N/task:N/device:TYPE:N");
    }
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  }
  return name;
}

std::string DeviceName::TaskName() const {
  std::string text;
  if (!job.empty()) text += "/job:" + job;
  if (replica >= 0) text += "/replica:" + std::to_string(replica);
  if (task >= 0) text += "/task:" + std::to_string(task);
  return text;
}

std::string DeviceName::ToString() const {
  std::string text = TaskName();
  if (!type.empty() || id >= 0) {
    text += "/device:" + (type.empty() ? "*" : type.ToString()) + ":" +
            (id >= 0 ? std::to_string(id) : "*");
  }
  return text;
}

bool DeviceName::Matches(const DeviceName& full) const {
  return (job.empty() || job == full.job) && (replica < 0 || replica == full.replica) &&
         (task < 0 || task == full.task) && (type.empty() || type == full.type) &&
         (id < 0 || id == full.id);
}

DeviceName MergeScope(const DeviceName& inner, const DeviceName& outer) {
  DeviceName merged = inner;
  if (merged.job.empty()) merged.job = outer.job;
  if (merged.replica < 0) merged.replica = outer.replica;
  if (merged.task < 0) merged.task = outer.task;
  if (merged.type.empty()) {
    merged.type = outer.type;
    if (merged.id < 0) merged.id = outer.id;
  } else if (merged.id < 0 && merged.type == outer.type) {
    merged.id = outer.id;
  }
  return merged;
}

DeviceName HostOf(const DeviceName& device) {
  DeviceName host = device;
  if (!device.type.empty() && device.type != kCpu) {
    host.type = kCpu;
    host.id = 0;
  }
  return host;
}

Result<DeviceName> MergeConstraints(const DeviceName& a, const DeviceName& b, bool soft) {
  DeviceName merged;
  MG_RETURN_IF_ERROR(MergePart("jobs", false, a, b, std::string(), a.job, b.job, &merged.job));
  MG_RETURN_IF_ERROR(MergePart("replicas", false, a, b, -1, a.replica, b.replica, &merged.replica));
  MG_RETURN_IF_ERROR(MergePart("tasks", false, a, b, -1, a.task, b.task, &merged.task));
  MG_RETURN_IF_ERROR(MergePart("types", soft, a, b, DeviceType(), a.type, b.type, &merged.type));
  const bool types_differ = !a.type.empty() && !b.type.empty() && a.type != b.type;
  if (!types_differ) MG_RETURN_IF_ERROR(MergePart("ids", soft, a, b, -1, a.id, b.id, &merged.id));
  return merged;
}

}  // namespace monograph
