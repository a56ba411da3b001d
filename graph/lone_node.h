// A node that is being added to a graph, in a graph of its own: for who infers shapes elsewhere.
#pragma once

#include <string>

namespace monograph {

class ShapeContext;  // graph/shape_inference.h

// A serialised GraphDef with that node alone, under another name, and with what is known of its
// inputs: constants where they are known and small, else placeholders of their shapes.
std::string AloneInGraph(const ShapeContext& context, const std::string& name);

}  // namespace monograph
