#include "executor/random_streams.h"

namespace monograph {

std::shared_ptr<RandomStreams::Taken> RandomStreams::Of(std::string_view node) {
  MutexLock lock(mutex_);
  auto found = taken_.find(node);
  if (found == taken_.end())
    found = taken_.emplace(std::string(node), std::make_shared<Taken>(0)).first;
  return found->second;
}

bool HasSeeds(const Attrs& attrs) {
  return attrs.GetOr<int64_t>("seed", 0) != 0 || attrs.GetOr<int64_t>("seed2", 0) != 0;
}

std::shared_ptr<RandomStreams::Taken> TakenOf(const KernelConstruction& construction) {
  const auto* offers = dynamic_cast<const RandomStreamsConstruction*>(&construction);
  if (offers == nullptr || offers->random_streams() == nullptr || !HasSeeds(construction.attrs()))
    return nullptr;
  return offers->random_streams()->Of(construction.node_name());
}

}  // namespace monograph
