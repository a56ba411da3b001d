// Nodes that give out the handle of a resource: one that steps share (queues, accumulators, step
// gates), or one of a single run (stacks, temporary variables).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "executor/kernel.h"
#include "executor/resource_manager.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::variable {

// The resource of class R behind the handle at input 0.
template <typename R>
Result<std::shared_ptr<R>> FindResource(const KernelContext& c) {
  MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, HandleOf(c, 0));
  return c.resources().Find<R>(handle->container, handle->name);
}

// Makes the resource at its first step, from what `kSpecOf` reads in the node: Result<R::Spec>
// (const KernelConstruction&, const std::string& name). Where a Spec has words for itself
// (ToString, and kNoun: "queue"), a node that finds the resource with another one fails.
template <typename R, auto kSpecOf>
class HandleKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    return MakeAs<HandleKernel>(k);
  }

  Status Compute(KernelContext& c) override { return Give(c, spec_); }

 protected:
  // For classes that derive from this one.
  template <typename Self>
  static Result<std::unique_ptr<Kernel>> MakeAs(const KernelConstruction& k) {
    auto kernel = std::make_unique<Self>();
    MG_ASSIGN_OR_RETURN(kernel->handle_, MakeHandle(k));
    kernel->node_ = k.node_name();
    MG_ASSIGN_OR_RETURN(kernel->spec_, kSpecOf(k, std::as_const(kernel->handle_).handles()->name));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  const typename R::Spec& spec_of_node() const { return spec_; }

  // The handle of the resource, made from `spec` if it is not there.
  Status Give(KernelContext& c, const typename R::Spec& spec) {
    const ResourceHandle& handle = *std::as_const(handle_).handles();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<R> resource,
                        c.resources().FindOrCreate<R>(handle.container, handle.name,
                                                      [&] { return std::make_shared<R>(spec); }));
    if constexpr (requires { spec.ToString(); }) {
      const std::string mine = spec.ToString(), its = resource->spec().ToString();
      if (mine != its) {
        return FailedPrecondition("node '" + node_ + "' defines " + R::Spec::kNoun + " '" +
                                  handle.container + "/" + handle.name + "' as " + mine +
                                  ", but it exists as " + its +
                                  "; give one of them another shared_name or container, or clear "
                                  "the container");
      }
    }
    c.set_output(0, handle_);
    return Status();
  }

 private:
  std::string node_;
  typename R::Spec spec_;
  Tensor handle_;
};

// The handle of container/name; `release`, a function of the handle, runs when the last tensor that
// shares it goes.
template <typename Release>
Tensor HandleThatReleases(std::string_view device, const char* container, const std::string& name,
                          Release release) {
  auto* const handle = new ResourceHandle{std::string(device), container, name};
  return Tensor(DT_RESOURCE, Shape(),
                Buffer::Wrap(handle, sizeof(ResourceHandle),
                             [handle, release = std::move(release)]() mutable {
                               release(*handle);
                               delete handle;
                             }));
}

// A name for a resource of a single run of a node of `device`: no other one has it.
inline std::string NameOfRun(const std::string& prefix, std::string_view device) {
  static std::atomic<uint64_t> count{0};
  // Kernels of GPUs come from a plug-in, which counts for itself.
  const bool plugin = device.find("/device:GPU:") != std::string_view::npos;
  // Relaxed: only the number matters.
  return prefix + "_" + std::to_string(count.fetch_add(1, std::memory_order_relaxed)) +
         (plugin ? "_on_gpu" : "");
}

// Output 0 becomes the handle of `resource`, under a name of its own, which begins with `prefix`.
// The memory of the handle takes the resource away when the last tensor that shares it goes: at the
// end of the step at the latest.
template <typename R>
Status SetHandleOfRun(KernelContext& c, const std::string& device, const char* container,
                      const std::string& prefix, const std::shared_ptr<R>& resource) {
  const std::string name = NameOfRun(prefix, device);
  ResourceManager& resources = c.resources();
  MG_RETURN_IF_ERROR(resources.FindOrCreate<R>(container, name, [&] { return resource; }).status());
  c.set_output(
      0, HandleThatReleases(device, container, name, [&resources](const ResourceHandle& handle) {
        resources.Delete(handle.container, handle.name);
      }));
  return Status();
}

// Such a kernel changes what the host holds, so that no graph of a GPU may stand for it.
template <typename K>
void AddHandleKernel(KernelRegistry* registry, const char* op,
                     KernelCost cost = KernelCost::kCheap) {
  registry->Add<K>({.op = op, .host_args = {"handle"}, .cost = cost, .replayable = false});
}

}  // namespace monograph::ops::variable
