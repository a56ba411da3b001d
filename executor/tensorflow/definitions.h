// The definitions of TensorFlow's ops.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "graph/op_source.h"

namespace monograph::tensorflow {

// What the library demands of an op and its definition does not say.
struct Trait {
  bool waits = false;          // it may take long because it waits for something
  bool takes_no_name = false;  // the library refuses a shared_name: it needs a container of its own
  bool wants_no_name = false;  // the library does less where there is a shared_name
};
Trait TraitOf(const OpDef& op);

class Definitions : public OpSource {
 public:
  // The process's only ones. They never die.
  static Definitions& Get();

  const OpDef* Find(std::string_view name) override;
  std::string Remedy(std::string_view name) override;
  ShapeFn shape() const override;
  // OK if `name` can be borrowed; else the reason, with an empty message if nothing would help.
  Status Require(std::string_view name);
  std::vector<const OpDef*> All();
  // What the kernels of an op for CPUs take: the types of each attribute that they ask for.
  using TypesOfAttrs = std::map<std::string, std::set<DType>>;
  TypesOfAttrs KernelTypes(const std::string& op);
  // What TensorFlow knows and cannot lend, and why.
  std::map<std::string, std::string, std::less<>> Refused();

 private:
  Status Load() MG_REQUIRES(mutex_);

  Mutex mutex_;
  bool loaded_ MG_GUARDED_BY(mutex_) = false;
  Status why_not_ MG_GUARDED_BY(mutex_);
  std::map<std::string, OpDef, std::less<>> ops_ MG_GUARDED_BY(mutex_);
  std::map<std::string, TypesOfAttrs, std::less<>> kernels_ MG_GUARDED_BY(mutex_);
  std::map<std::string, std::string, std::less<>> refused_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::tensorflow
