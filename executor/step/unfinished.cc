#include "executor/step/unfinished.h"

#include <algorithm>

namespace monograph {
namespace {

constexpr size_t kMostNamed = 3;
constexpr size_t kMostOfName = 100, kMostOfReason = 160;

// One line of at most so many bytes.
std::string Cut(std::string_view text, size_t most) {
  std::string cut(text.substr(0, most));
  if (text.size() > most) cut += "...";
  std::replace(cut.begin(), cut.end(), '\n', ' ');
  return cut;
}

std::string List(const std::vector<std::string>& listed, size_t count, const char* separator,
                 const char* noun) {
  std::string text;
  for (const std::string& entry : listed) text += (text.empty() ? "" : separator) + entry;
  if (count == listed.size()) return text;
  const size_t more = count - listed.size();
  return text + separator + "and " + std::to_string(more) + " more " + noun + (more > 1 ? "s" : "");
}

}  // namespace

void Unfinished::Began(std::string_view node, std::string_view op, const Status& why) {
  if (++num_nodes_ > kMostNamed) return;
  std::string text = "node '" + Cut(node, kMostOfName) + "' (" + Cut(op, kMostOfName) + ")";
  if (!why.ok()) text += ": " + Cut(why.message(), kMostOfReason);
  nodes_.push_back(std::move(text));
}

void Unfinished::Awaits(std::string_view tensor, std::string_view device) {
  if (++num_tensors_ > kMostNamed) return;
  tensors_.push_back("'" + Cut(tensor, kMostOfName) + "' from " + Cut(device, kMostOfName));
}

std::string Unfinished::ToString() const {
  if (num_nodes_ > 0) return List(nodes_, num_nodes_, "; ", "node");
  if (num_tensors_ > 0) return std::string(kAwaits) + List(tensors_, num_tensors_, ", ", "tensor");
  return std::string();
}

}  // namespace monograph
