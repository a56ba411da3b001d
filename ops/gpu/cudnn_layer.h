// CudnnLayer: cuDNN beside our own kernel for a layer; which one computes a shape.
//
// With GpuOptions::deterministic that is fixed (UntimedWay). Without it the first run of a shape
// that is new to the process times our own kernel and cuDNN's ways on the device and takes the
// fastest from then on; GpuOptions::algorithm_cache keeps what was found on disk. There the line
// `family " 1" TAB "*" TAB way` takes `way` for all shapes of the family that have it, untimed.
//
// A kernel keeps one for all its runs:
//
//   return layer_.Run(c, call, [&] { return OwnKernel(c, ...); });
#pragma once

#include <functional>
#include <memory>

#include "executor/kernel.h"
#include "ops/gpu/layer.h"
#include "ops/plan_cache.h"

namespace monograph::ops {

class CudnnLayer {
 public:
  // Whether cuDNN may compute this layer. Then no output may lie where an input does: a search runs
  // all ways several times. The call's memory need not be there yet.
  static bool Considered(KernelContext& c, const LayerCall& call);

  // Enqueues. own() enqueues our own kernel; library(run) calls run(), which enqueues cuDNN's, and
  // may enqueue what belongs before and after it.
  template <typename Own, typename Library>
  Status Run(KernelContext& c, const LayerCall& call, const Own& own, const Library& library) {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Plan> plan, plans_.Get(call.key(), [&] {
      return Make(c, call, own,
                  [&](const Plan& way) { return library([&] { return Enqueue(c, way, call); }); });
    }));
    if (plan == nullptr) return own();
    const Status status = library([&] { return Enqueue(c, *plan, call); });
    // A way that was not tried before may be one that cuDNN refuses when it is called.
    return status.code() == Code::kUnimplemented ? own() : status;
  }
  template <typename Own>
  Status Run(KernelContext& c, const LayerCall& call, const Own& own) {
    return Run(c, call, own, [](const auto& run) { return run(); });
  }

 private:
  struct Plan;  // cuDNN's descriptors for a shape

  // nullptr: our own kernel.
  static Result<std::shared_ptr<Plan>> Make(KernelContext& c, const LayerCall& call,
                                            const std::function<Status()>& own,
                                            const std::function<Status(const Plan&)>& library);
  static Status Enqueue(KernelContext& c, const Plan& plan, const LayerCall& call);

  PlanCache<LayerCall::Key, Plan> plans_;
};

}  // namespace monograph::ops
