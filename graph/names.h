// Names: which are allowed for nodes, and which known one somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace monograph {

// TensorFlow's rule for nodes, [A-Za-z0-9.][A-Za-z0-9_.\-/>]*; names that begin with '_' are for
// our own nodes.
bool IsNodeName(std::string_view name);
// As above, but may begin with any of those characters: a prefix.
bool IsScopeName(std::string_view name);

// Number of insertions, deletions, replacements and swaps of neighbours from a to b; `limit` + 1 if
// more than `limit`.
int EditDistance(std::string_view a, std::string_view b, int limit);

// Collects the names nearest to `wanted`.
class NearNames {
 public:
  explicit NearNames(std::string_view wanted, size_t count = 3);
  void Offer(std::string_view name);
  // "; did you mean 'a', 'b'?" or "".
  std::string Hint() const;

 private:
  std::string wanted_;
  size_t count_;
  int limit_;
  std::vector<std::pair<int, std::string>> best_;  // by distance
};

}  // namespace monograph
