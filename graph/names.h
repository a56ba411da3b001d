// Names: which are allowed for nodes, which are free, and which known one somebody may have meant.
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

// In functions, outputs of ops that we do not know are written by this name, with their numbers.
inline constexpr std::string_view kUnknownOutput = "output";

// "'name'", for messages.
inline std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// `prefix`, or `prefix_1`, `prefix_2`, ...: the first that is not taken.
template <typename Taken>
std::string FreeName(std::string_view prefix, const Taken& taken) {
  std::string name(prefix);
  for (int i = 1; taken(name); ++i) name = std::string(prefix) + "_" + std::to_string(i);
  return name;
}

// Collects the names that are near enough to `wanted` for a slip, in letters of either case, or
// that end with it behind a '/'.
class NearNames {
 public:
  explicit NearNames(std::string_view wanted, size_t count = 3);
  void Offer(std::string_view name);
  // "; did you mean 'a', 'b'?" or "".
  std::string Hint() const;
  // The nearest of all; "" if none is near.
  std::string nearest() const { return best_.empty() ? "" : best_[0].second; }

 private:
  std::string wanted_;
  size_t count_;
  int limit_;
  std::vector<std::pair<int, std::string>> best_;  // by distance
};

// The nearest of the candidates; "" if none is near.
std::string NearestName(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace monograph
