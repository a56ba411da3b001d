// CollectiveKernel: what the kernel of a collective op (ops/collective/) shows to those who find a
// way for it without host memory (executor/gpu/members.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "executor/collective/collective.h"
#include "executor/kernel.h"

namespace monograph {

class CollectiveKernel : public AsyncKernel {
 public:
  // nullptr: they are found at run time.
  virtual const std::shared_ptr<const CollectiveMembers>& members() const = 0;
  virtual CollectiveManager* manager() const = 0;  // nullptr: it runs by itself
  // The elementwise op that merges all members' tensors, if it takes any number, or two of them;
  // empty: none are merged.
  virtual std::string merge_op() const = 0;
  // Names of the arguments whose tensors are exchanged; the others are read on the host.
  virtual std::span<const std::string_view> exchanged_args() const = 0;
  virtual bool divides() const = 0;  // by the number of members, at the end
  // Everything of the request but `done`. Takes the inputs from the context.
  virtual Status Fill(KernelContext& context, CollectiveRequest* request) = 0;
};

}  // namespace monograph
