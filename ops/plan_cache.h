// PlanCache: what a kernel prepared for the shapes that it has met.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace monograph::ops {

// Plans by key, the few that were asked for last. Thread-safe; a plan in use stays alive through
// its shared_ptr.
template <typename Key, typename Plan>
class PlanCache {
 public:
  template <typename Make>
  Result<std::shared_ptr<Plan>> Get(const Key& key, Make make) {
    MutexLock lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if (!(it->first == key)) continue;
      std::rotate(it, it + 1, plans_.end());
      return plans_.back().second;
    }
    MG_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, make());
    if (plans_.size() >= kCapacity) plans_.erase(plans_.begin());
    plans_.emplace_back(key, plan);
    return plan;
  }

 private:
  static constexpr size_t kCapacity = 16;
  Mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<Plan>>> plans_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::ops
