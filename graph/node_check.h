// CheckNode: whether a node fits its op: attributes, number and types of inputs; and what follows
// from them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace monograph {

struct CheckedNode {
  std::shared_ptr<const Attrs> attrs;  // with defaults and what follows from the inputs
  std::vector<DType> outputs;
};

// InvalidArgument names the attribute: `value` has another kind than `def` says, or is none of
// those that it allows.
Status CheckAttr(const AttrDef& def, const AttrValue& value);

// `given` may be null. DT_INVALID inputs come from nodes of unknown ops and fit anywhere. Errors do
// not name the node.
Status CheckNode(const OpDef& op, const std::shared_ptr<const Attrs>& given,
                 std::span<const DType> inputs, CheckedNode* checked);

}  // namespace monograph
