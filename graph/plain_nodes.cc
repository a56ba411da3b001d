// Reads NodeDefs as views into their bytes and adds them to the graph, without messages in between.
// Attributes that are equal byte by byte are read once and shared, as nodes of one kind have the
// same. Whatever is not as SerializeGraph writes it is left to GraphFromDef.
#include "graph/plain_nodes.h"

#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "graph/attr_proto.h"
#include "graph/function.h"
#include "graph/graph.pb.h"
#include "graph/wire.h"

namespace monograph {
namespace {

using wire_format::Reader;

constexpr uint32_t Tag(int field, int type) { return static_cast<uint32_t>(field << 3 | type); }
constexpr int kVarint = 0, kBytes = 2, kFixed32 = 5;

// A NodeDef, as views into its bytes.
struct PlainNode {
  std::string_view name, op, device;
  std::vector<std::string_view> inputs;
  std::string_view attrs;  // all entries with their tags
};

bool Split(std::string_view bytes, PlainNode* node) {
  node->name = node->op = node->device = node->attrs = {};
  node->inputs.clear();
  Reader in(bytes);
  while (!in.done()) {
    const char* start = in.at();
    std::string_view value;
    const uint64_t tag = in.Tag();
    if ((tag & 7) != kBytes || !in.Bytes(&value)) return false;
    switch (tag >> 3) {
      case 1:
        node->name = value;
        break;
      case 2:
        node->op = value;
        break;
      case 3:
        node->inputs.push_back(value);
        break;
      case 4:
        node->device = value;
        break;
      case 5:
        if (node->attrs.empty()) {
          node->attrs = {start, static_cast<size_t>(in.at() - start)};
        } else if (node->attrs.data() + node->attrs.size() == start) {
          node->attrs = {node->attrs.data(), static_cast<size_t>(in.at() - node->attrs.data())};
        } else {
          return false;
        }
        break;
      default:
        break;  // what newer TensorFlows write
    }
  }
  // Strings of messages are UTF-8. Names are checked by the graph, which allows even less.
  return in.ok() && IsUtf8(node->device);
}

// The value of an AttrValue. False: not understood, or none.
bool ReadValue(std::string_view bytes, uint64_t* expandable, AttrValue* value) {
  if (bytes.size() > INT32_MAX) return false;  // no message is larger
  Reader in(bytes);
  const uint64_t tag = in.Tag();
  std::string_view text;
  switch (tag) {
    case Tag(2, kBytes):
      if (!in.Bytes(&text)) return false;
      *value = std::string(text);
      break;
    case Tag(3, kVarint):
      *value = static_cast<int64_t>(in.Varint());
      break;
    case Tag(4, kFixed32): {
      float number;
      if (!in.Fixed32(&number)) return false;
      *value = number;
      break;
    }
    case Tag(5, kVarint):
      *value = in.Varint() != 0;
      break;
    case Tag(6, kVarint): {
      const auto type = static_cast<int32_t>(in.Varint());
      if (!IsTypeNumber(type)) return false;
      *value = static_cast<DType>(type > 100 ? type - 100 : type);  // references count as values
      break;
    }
    default:
      in.Fail();
      break;
  }
  if (in.ok() && in.done()) return true;
  pb::AttrValue proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  if (!CheckHasValue(proto).ok()) return false;
  auto read = AttrFromProto(proto, expandable);
  if (!read.ok() || std::holds_alternative<std::monostate>(*read)) return false;
  *value = std::move(*read);
  return true;
}

// As NodeLoader::ReadAttrs, graph_def_import.cc.
bool ReadAttrs(std::string_view bytes, const OpDef& op, uint64_t* expandable, Attrs* attrs) {
  Reader in(bytes);
  while (!in.done()) {
    std::string_view entry, name, value;
    if (in.Tag() != Tag(5, kBytes) || !in.Bytes(&entry)) return false;
    Reader fields(entry);
    while (!fields.done()) {
      std::string_view field;
      const uint64_t tag = fields.Tag();
      if (!fields.Bytes(&field)) return false;
      if (tag == Tag(1, kBytes) && name.empty()) {
        name = field;
      } else if (tag == Tag(2, kBytes) && value.empty()) {
        value = field;
      } else {
        return false;
      }
    }
    if (!IsUtf8(name)) return false;
    if (op.FindAttr(name) == nullptr && !IsKeptAttr(name) &&
        !(op.name() == "_Arg" && name == "_output_shapes")) {
      if (value.size() > INT32_MAX) return false;
      // It is not used; that it is no message has to be told all the same.
      pb::AttrValue unused;
      if (!unused.ParseFromArray(value.data(), static_cast<int>(value.size()))) return false;
      continue;
    }
    AttrValue read;
    if (!ReadValue(value, expandable, &read) || !CheckKeptAttr(name, read).ok()) return false;
    attrs->Set(name, std::move(read));
  }
  SetDefaults(op, attrs);
  return in.ok();
}

class PlainLoader {
 public:
  PlainLoader(uint64_t expandable, Graph* graph) : expandable_(expandable), graph_(graph) {}

  bool Add(std::string_view bytes) {
    if (!Split(bytes, &node_)) return false;
    data_.clear();
    control_.clear();
    for (const std::string_view input : node_.inputs) {
      if (!AddInput(input)) return false;
    }
    NodeSpec spec{node_.name, node_.op, data_, control_, nullptr, node_.device};
    if (!FindAttrs(&spec.attrs)) return false;
    return graph_->AddNode(spec).ok();
  }

 private:
  struct Known {
    std::string_view op, bytes;
    std::shared_ptr<const Attrs> attrs;
  };

  bool AddInput(std::string_view text) {
    if (text.starts_with('^')) {
      control_.push_back(graph_->Find(text.substr(1)));
      return control_.back() >= 0;
    }
    if (!control_.empty()) return false;  // control inputs come last
    Endpoint source;
    if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, source.index);
      if (error != std::errc() || stop != end || source.index < 0) return false;
      text = text.substr(0, colon);
    }
    source.node = graph_->Find(text);
    data_.push_back(source);
    return source.node >= 0;
  }

  // Nodes of one op with the same bytes share their attributes.
  bool FindAttrs(std::shared_ptr<const Attrs>* attrs) {
    const std::hash<std::string_view> hash;
    // Transfers differ from node to node: remembering them would only fill memory.
    const bool shared = !node_.op.starts_with('_') && node_.attrs.size() < 1024;
    const uint64_t key = hash(node_.attrs) * 31 + hash(node_.op);
    if (shared) {
      const auto [begin, end] = known_.equal_range(key);
      for (auto it = begin; it != end; ++it) {
        if (it->second.op != node_.op || it->second.bytes != node_.attrs) continue;
        *attrs = it->second.attrs;
        return true;
      }
    }
    const bool call = graph_->functions().Find(node_.op) != nullptr;
    const OpDef* op = call ? nullptr : graph_->registry().Find(node_.op);
    Attrs read;
    if (op == nullptr || !ReadAttrs(node_.attrs, *op, &expandable_, &read)) return false;
    if (!read.empty()) *attrs = std::make_shared<const Attrs>(std::move(read));
    if (shared) known_.emplace(key, Known{node_.op, node_.attrs, *attrs});
    return true;
  }

  uint64_t expandable_;
  Graph* const graph_;
  PlainNode node_;
  std::vector<Endpoint> data_;
  std::vector<NodeId> control_;
  std::unordered_multimap<uint64_t, Known> known_;
};

}  // namespace

bool IsKeptAttr(std::string_view name) {
  return name == "_class" || name == "_replica" || name.starts_with("_mg_");
}

Status CheckKeptAttr(std::string_view name, const AttrValue& value) {
  const bool texts = std::holds_alternative<std::vector<std::string>>(value) ||
                     std::holds_alternative<EmptyList>(value);
  return name != "_class" || texts ? Status()
                                   : InvalidArgument("it is no list of texts, as in loc:@NODE");
}

void SetDefaults(const OpDef& op, Attrs* attrs) {
  for (const AttrDef& def : op.attrs()) {
    if (def.default_value && attrs->Find(def.name) == nullptr)
      attrs->Set(def.name, *def.default_value);
  }
}

std::optional<GraphDefFields> SplitGraphDef(std::string_view bytes) {
  GraphDefFields fields;
  Reader in(bytes);
  while (!in.done()) {
    const uint64_t tag = in.Tag();
    std::string_view value;
    if (tag == Tag(3, kVarint)) {  // an old field: a version
      in.Varint();
      continue;
    }
    if ((tag & 7) != kBytes || !in.Bytes(&value)) return std::nullopt;
    if (tag >> 3 == 1) fields.nodes.push_back(value);
    if (tag >> 3 == 2) {
      if (!fields.library.empty()) return std::nullopt;
      fields.library = value;
    }
    if (tag >> 3 == 4) {
      for (Reader versions(value); !versions.done();) {
        const uint64_t field = versions.Tag(), number = versions.Varint();
        if (!versions.ok() || (field & 7) != kVarint) return std::nullopt;
        if (field == Tag(1, kVarint)) fields.producer = static_cast<int>(number);
      }
    }
  }
  if (!in.ok()) return std::nullopt;
  return fields;
}

bool AddPlainNodes(const std::vector<std::string_view>& nodes, uint64_t expandable, Graph* graph) {
  graph->Reserve(static_cast<int>(nodes.size()) + graph->num_nodes());
  PlainLoader loader(expandable, graph);
  for (const std::string_view node : nodes) {
    if (!loader.Add(node)) return false;
  }
  return true;
}

}  // namespace monograph
