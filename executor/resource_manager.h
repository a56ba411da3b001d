// ResourceManager: what lives in a task beyond a step: variables, queues, by (container, name).
// Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/pool_allocator.h"
#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

class Resource {
 public:
  virtual ~Resource() = default;
  virtual std::string DebugString() const = 0;
  virtual int64_t bytes() const { return 0; }
  // It was taken out of its manager: nobody finds it any more, and who waits for it must wait no
  // longer. Called without the manager's lock.
  virtual void OnRemoved() {}
};

// A variable's value. Readers share the tensor; writers replace it or, holding the lock and the
// only reference, write in place.
class Variable : public Resource {
 public:
  // `by_reference`: the graph that made it has it by reference, and errors say so.
  Variable(std::string name, DType dtype, PartialShape shape, bool by_reference = false)
      : name_(std::move(name)),
        dtype_(dtype),
        shape_(std::move(shape)),
        by_reference_(by_reference),
        memory_(std::make_shared<MemoryHolder>("variable '" + name_ + "'")) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const PartialShape& shape() const { return shape_; }
  bool by_reference() const { return by_reference_; }

  mutable SharedMutex mutex;
  Tensor value MG_GUARDED_BY(mutex);  // !valid(): uninitialised

  // Says that the variable, and no session any more, holds the memory of its value.
  void HoldValue() MG_REQUIRES(mutex) {
    if (value.valid() && value.bytes() > PoolAllocator::kLarge)
      HostPool().SetHolder(value.raw(), memory_);
  }

  std::string DebugString() const override {
    return "variable " + name_ + " " + std::string(DTypeName(dtype_)) + shape_.ToString();
  }
  int64_t bytes() const override {  // waits for an update that is under way
    ReaderLock lock(mutex);
    return value.valid() ? static_cast<int64_t>(value.bytes()) : 0;
  }

 private:
  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  const bool by_reference_;
  const std::shared_ptr<MemoryHolder> memory_;
};

class ResourceManager {
 public:
  ResourceManager() = default;
  // What it holds may ask it for others as it goes, as a handle in a queue does: it is empty then.
  ~ResourceManager() { Clear({}); }
  ResourceManager(const ResourceManager&) = delete;
  ResourceManager& operator=(const ResourceManager&) = delete;

  // NotFound "resource 'localhost/w' does not exist"; InvalidArgument if it is of another class.
  template <typename T>
  Result<std::shared_ptr<T>> Find(std::string_view container, std::string_view name) const {
    MG_ASSIGN_OR_RETURN(std::shared_ptr<Resource> found, FindAny(container, name));
    auto typed = std::dynamic_pointer_cast<T>(found);
    if (typed == nullptr) return WrongClass(container, name, *found);
    return typed;
  }
  // The one that is there, or what `make` returns.
  template <typename T, typename Make>
  Result<std::shared_ptr<T>> FindOrCreate(std::string_view container, std::string_view name,
                                          Make make) {
    MutexLock lock(mutex_);
    std::shared_ptr<Resource>& slot = containers_[std::string(container)][std::string(name)];
    if (slot == nullptr) slot = make();
    auto typed = std::dynamic_pointer_cast<T>(slot);
    if (typed == nullptr) return WrongClass(container, name, *slot);
    return typed;
  }
  void Delete(std::string_view container, std::string_view name);
  // Drops everything in the containers; all of them if the list is empty.
  void Clear(const std::vector<std::string>& containers);
  std::vector<std::pair<std::string, std::shared_ptr<Resource>>> All() const;  // "container/name"
  int64_t bytes() const;

 private:
  Result<std::shared_ptr<Resource>> FindAny(std::string_view container,
                                            std::string_view name) const;
  static Status WrongClass(std::string_view container, std::string_view name,
                           const Resource& found);

  mutable Mutex mutex_;
  std::map<std::string, std::map<std::string, std::shared_ptr<Resource>, std::less<>>, std::less<>>
      containers_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph
