// Tensors and attribute values as protocol messages of TensorFlow.
#pragma once

#include <string>

#include "base/tensor.h"
#include "graph/attr.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace monograph {

namespace pb {  // graph/graph.proto
class AttrValue;
class TensorProto;
}  // namespace pb
using pb::TensorProto;

// Nothing in a tensor or attribute that somebody sent is trusted: sizes are checked before memory
// is taken. `expandable` is how many bytes tensors may still take whose elements are not all
// written; theirs are taken off it.
Result<Tensor> TensorFromProto(const TensorProto& proto, uint64_t* expandable);
Result<Tensor> TensorFromProto(const TensorProto& proto);  // one of at most 2 GiB
void TensorToProto(const Tensor& tensor, TensorProto* proto);
// std::monostate for an attribute that we have no value for (a list of tensors, none at all).
// Unimplemented for a placeholder.
Result<AttrValue> AttrFromProto(const pb::AttrValue& proto, uint64_t* expandable);
Result<AttrValue> AttrFromProto(const pb::AttrValue& proto);
void AttrToProto(const AttrValue& value, pb::AttrValue* proto);

// InvalidArgument for what an attribute that an op declares cannot be: no value, or a type that is
// none.
Status CheckHasValue(const pb::AttrValue& proto);
// InvalidArgument for what no attribute can be, whether its op is known or not: a type, or one of a
// list, whose number is neither 0 to 99 nor that of a reference, 101 to 199. TensorFlow has some
// types that graph.proto does not name; they are within these.
Status CheckTypeNumbers(const pb::AttrValue& proto);
// Whether the number is one of a type (DataType in graph/graph.proto).
bool IsTypeNumber(int number);

// The same bytes for the same message, also where it has maps.
std::string BytesOf(const google::protobuf::MessageLite& message);

}  // namespace monograph
