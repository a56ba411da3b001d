// SaverNodes: how values get from variables into the files of a checkpoint and back. Nodes are
// added to the graph when one is made.
#pragma once

#include <memory>
#include <string>

#include "client/session.h"
#include "train/saver/variables.h"

namespace monograph {

class SaverNodes {
 public:
  virtual ~SaverNodes() = default;
  // Writes the checkpoint `prefix`, durable, in place of one of that name. At any moment the old
  // one is there or the new one, whole. `scratch`: a folder that may be made, and is gone
  // afterwards.
  virtual Status Save(Session* session, const std::string& prefix, const std::string& scratch) = 0;
  // Assigns all or nothing. REQUIRES: CheckHasAll.
  virtual Status Restore(Session* session, const std::string& prefix,
                         CheckpointReader* reader) const = 0;
};

// Values pass through the client, which writes and reads one file.
std::unique_ptr<SaverNodes> MakeClientNodes(const Scope& scope, const SavedTensors& tensors);
// The tasks that hold variables write a shard each, and read what they need.
std::unique_ptr<SaverNodes> MakeShardedNodes(const Scope& scope, const SavedTensors& tensors);

}  // namespace monograph
