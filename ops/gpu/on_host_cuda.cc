#include "ops/gpu/on_host_cuda.h"

#include <algorithm>

namespace monograph::ops {

void AddOnHost(KernelRegistry* gpu, const KernelRegistry& cpu, std::string_view op,
               const std::vector<std::string>& host_args, const std::string& type_attr,
               std::span<const DType> types) {
  int added = 0;
  for (const KernelRegistry::Entry* entry : cpu.All()) {
    if (entry->def.op != op || entry->def.device != kCpu) continue;
    // What no GPU has tensors of needs no kernel there.
    const auto only_on_cpus = [](const auto& type) {
      return IsComplex(type.second) || StoredAs(type.second) != type.second;
    };
    if (std::ranges::any_of(entry->def.types, only_on_cpus)) continue;
    KernelDef def = entry->def;
    def.device = kGpu;
    for (const std::string& arg : host_args) {
      if (std::find(def.host_args.begin(), def.host_args.end(), arg) == def.host_args.end())
        def.host_args.push_back(arg);
    }
    if (type_attr.empty()) {
      gpu->Add(std::move(def), entry->factory);
      ++added;
      continue;
    }
    const auto has = std::find_if(def.types.begin(), def.types.end(),
                                  [&](const auto& type) { return type.first == type_attr; });
    for (DType dtype : types) {
      if (has != def.types.end() && has->second != dtype) continue;
      KernelDef typed = def;
      if (has == def.types.end()) {
        typed.types.emplace_back(type_attr, dtype);
        typed.priority = 1;
      }
      gpu->Add(std::move(typed), entry->factory);
      ++added;
    }
  }
  MG_CHECK(added > 0);
}

}  // namespace monograph::ops
