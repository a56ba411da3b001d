// What ops there are, ours and borrowed: the text of `monograph ops`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "executor/kernel.h"
#include "graph/op_def.h"

namespace monograph {

// A document in Markdown: words on how to read it, and a table with a row for each op, by family
// (folder of ops/): its types, devices, gradient and whose it is. Where TensorFlow lends some
// (executor/borrowed.h) these follow, and those that neither has. Ops whose names begin with '_'
// are made by passes only, and left out. It is the same on every machine, but for what TensorFlow
// has.
std::string OpTable();
// The definition of one op and the types of its kernels for CPUs. Unimplemented gives near names.
Result<std::string> DescribeOp(const std::string& name);

// "T: floats int32; Tidx: int32 int64": for each attribute that is a type, what the kernels for
// `device` take, in the table's words; "fixed" where an op has no such attribute.
std::string KernelTypes(const OpDef& op, const KernelRegistry& kernels, DeviceType device,
                        std::string_view separator = "; ");
// KernelTypes of the kernels for GPUs, which are in a library of their own that programs do not
// link; nullptr if there is none. A test compares it with that library.
const char* GpuTypes(std::string_view op);

}  // namespace monograph
