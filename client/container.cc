#include "client/container.h"

#include <memory>
#include <variant>

namespace monograph {

ContainerScope::~ContainerScope() {
  if (container_.empty()) return;
  for (NodeId node = first_; node < graph_->num_nodes(); ++node) {
    const AttrValue* value = graph_->attrs(node).Find("container");
    const auto* current = value == nullptr ? nullptr : std::get_if<std::string>(value);
    if (current == nullptr || !current->empty()) continue;
    auto attrs = std::make_shared<Attrs>(graph_->attrs(node));
    attrs->Set("container", container_);
    graph_->SetAttrs(node, std::move(attrs));
  }
}

}  // namespace monograph
