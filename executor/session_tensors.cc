#include "executor/session_tensors.h"

#include <fmt/core.h>

#include <utility>

namespace monograph {
namespace {

Status Unknown(std::string_view handle) {
  return InvalidArgument(fmt::format(
      "this session keeps no tensor with the handle '{}' at this task; it is another session's, or "
      "deleted",
      handle));
}

}  // namespace

std::string SessionTensors::Keep(std::string_view node, std::string_view device, Tensor tensor) {
  MutexLock lock(mutex_);
  std::string handle = fmt::format("{};{};{}", node, ++last_, device);
  tensors_.emplace(handle, std::move(tensor));
  return handle;
}

Result<Tensor> SessionTensors::Find(std::string_view handle) const {
  MutexLock lock(mutex_);
  const auto found = tensors_.find(handle);
  if (found == tensors_.end()) return Unknown(handle);
  return found->second;
}

Status SessionTensors::Delete(std::string_view handle) {
  MutexLock lock(mutex_);
  const auto found = tensors_.find(handle);
  if (found == tensors_.end()) return Unknown(handle);
  tensors_.erase(found);
  return Status();
}

}  // namespace monograph
