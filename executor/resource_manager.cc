#include "executor/resource_manager.h"

namespace monograph {
namespace {

std::string FullName(std::string_view container, std::string_view name) {
  return std::string(container) + "/" + std::string(name);
}

// What a resource holds may be the last handle of another one, as a stack in a stack, and so on:
// those wait their turn here, so that a long chain needs no deep stack.
void LetGo(std::shared_ptr<Resource> resource) {
  thread_local std::vector<std::shared_ptr<Resource>>* waiting = nullptr;
  if (waiting != nullptr) return waiting->push_back(std::move(resource));
  std::vector<std::shared_ptr<Resource>> resources;
  waiting = &resources;
  resources.push_back(std::move(resource));
  while (!resources.empty()) {
    resource = std::move(resources.back());
    resources.pop_back();
    resource = nullptr;
  }
  waiting = nullptr;
}

}  // namespace

void ResourceManager::Delete(std::string_view container, std::string_view name) {
  std::shared_ptr<Resource> dropped;  // destroyed outside the lock
  {
    MutexLock lock(mutex_);
    const auto in = containers_.find(container);
    if (in == containers_.end()) return;
    const auto found = in->second.find(name);
    if (found == in->second.end()) return;
    dropped = std::move(found->second);
    in->second.erase(found);
  }
  dropped->OnRemoved();
  LetGo(std::move(dropped));
}

void ResourceManager::Clear(const std::vector<std::string>& containers) {
  decltype(containers_) dropped;  // destroyed outside the lock
  {
    MutexLock lock(mutex_);
    if (containers.empty()) {
      dropped.swap(containers_);
    } else {
      for (const std::string& container : containers) {
        if (auto node = containers_.extract(container)) dropped.insert(std::move(node));
      }
    }
  }
  for (const auto& [container, resources] : dropped) {
    for (const auto& [name, resource] : resources) {
      if (resource != nullptr) resource->OnRemoved();
    }
  }
}

std::vector<std::pair<std::string, std::shared_ptr<Resource>>> ResourceManager::All() const {
  std::vector<std::pair<std::string, std::shared_ptr<Resource>>> all;
  MutexLock lock(mutex_);
  for (const auto& [container, resources] : containers_) {
    for (const auto& [name, resource] : resources)
      all.emplace_back(FullName(container, name), resource);
  }
  return all;
}

int64_t ResourceManager::bytes() const {
  int64_t total = 0;
  for (const auto& [name, resource] : All()) total += resource->bytes();
  return total;
}

Result<std::shared_ptr<Resource>> ResourceManager::FindAny(std::string_view container,
                                                           std::string_view name) const {
  MutexLock lock(mutex_);
  if (const auto in = containers_.find(container); in != containers_.end()) {
    if (const auto found = in->second.find(name); found != in->second.end()) return found->second;
  }
  return NotFound("resource '" + FullName(container, name) + "' does not exist");
}

Status ResourceManager::WrongClass(std::string_view container, std::string_view name,
                                   const Resource& found) {
  return InvalidArgument("resource '" + FullName(container, name) +
                         "' is of another class: " + found.DebugString());
}

}  // namespace monograph
