#include "ops/matmul/equation.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "ops/dims.h"

namespace monograph::ops::matmul {
namespace {

// One operand's labels, "..." as '.'.
Result<std::string> ParseLabels(const std::string& text, std::string_view part) {
  std::string labels;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == ' ') continue;
    if (part.substr(i, 3) == "..." && labels.find('.') == std::string::npos) {
      labels += '.';
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(part[i])) != 0) {
      labels += part[i];
    } else {
      return InvalidArgument("equation '" + text + "' has '" + std::string(1, part[i]) +
                             "' where a letter or one '...' may stand");
    }
  }
  return labels;
}

}  // namespace

Result<Equation> Equation::Parse(const std::string& text, int operands) {
  Equation equation;
  equation.text_ = text;
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos)
    return InvalidArgument("equation '" + text + "' has no '->' before the result's labels");
  std::string_view rest = std::string_view(text).substr(0, arrow);
  while (true) {
    const size_t comma = rest.find(',');
    MG_ASSIGN_OR_RETURN(std::string labels, ParseLabels(text, rest.substr(0, comma)));
    equation.inputs_.push_back(std::move(labels));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  MG_ASSIGN_OR_RETURN(equation.output_,
                      ParseLabels(text, std::string_view(text).substr(arrow + 2)));
  if (operands > 2 || static_cast<int>(equation.inputs_.size()) != operands) {
    return InvalidArgument("equation '" + text + "' is of " +
                           std::to_string(equation.inputs_.size()) + " operands; there are " +
                           std::to_string(operands) + ", and 1 or 2 are computed");
  }
  for (char label : equation.output_) {
    const auto has = [&](const std::string& in) { return in.find(label) != std::string::npos; };
    const bool known = std::any_of(equation.inputs_.begin(), equation.inputs_.end(), has);
    if (label != '.' && !known) {
      return InvalidArgument("equation '" + text + "': no operand has the result's label '" +
                             std::string(1, label) + "'");
    }
    if (std::count(equation.output_.begin(), equation.output_.end(), label) > 1) {
      return InvalidArgument("equation '" + text + "': the result has the label '" +
                             std::string(1, label) + "' twice");
    }
  }
  return equation;
}

Result<std::string> Equation::Labels(int i, int rank) const {
  const std::string& labels = input(i);
  const size_t dots = labels.find('.');
  const int named = static_cast<int>(labels.size()) - (dots == std::string::npos ? 0 : 1);
  const int more = rank - named;
  if (more < 0 || more > kMostDots || (more > 0 && dots == std::string::npos)) {
    return InvalidArgument("operand " + std::to_string(i) + " has " + std::to_string(rank) +
                           " dimensions, equation '" + text_ + "' gives it " +
                           std::to_string(named));
  }
  if (dots == std::string::npos) return labels;
  std::string spread;
  for (int d = more - 1; d >= 0; --d) spread += static_cast<char>('0' + d);
  return labels.substr(0, dots) + spread + labels.substr(dots + 1);
}

std::string Equation::OutputLabels(int dots) const {
  std::string labels;
  for (char label : output_) {
    if (label != '.') {
      labels += label;
      continue;
    }
    for (int d = dots - 1; d >= 0; --d) labels += static_cast<char>('0' + d);
  }
  return labels;
}

Result<PartialShape> Equation::OutputShape(std::span<const PartialShape> inputs) const {
  std::map<char, int64_t> sizes;  // -1: unknown
  bool known = true;
  int dots = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PartialShape& shape = inputs[i];
    if (!shape.known_rank()) {
      known = known && input(static_cast<int>(i)).find('.') == std::string::npos;
      continue;
    }
    MG_ASSIGN_OR_RETURN(const std::string labels, Labels(static_cast<int>(i), shape.rank()));
    for (int d = 0; d < shape.rank(); ++d) {
      const char label = labels[static_cast<size_t>(d)];
      const int64_t size = shape.dim(d);
      const bool dot = std::isdigit(static_cast<unsigned char>(label)) != 0;
      if (dot) dots = std::max(dots, label - '0' + 1);
      const auto [at, first] = sizes.emplace(label, size);
      if (first || at->second == size) continue;
      if (at->second < 0 || size < 0) {
        // A dimension that may broadcast is known only where it is larger than 1.
        const int64_t other = std::max(at->second, size);
        at->second = dot && other <= 1 ? -1 : other;
      } else if (dot && (size == 1 || at->second == 1)) {
        at->second = size == 1 ? at->second : size;
      } else {
        return InvalidArgument("equation '" + text_ + "': label '" + std::string(1, label) +
                               "' has sizes " + std::to_string(at->second) + " and " +
                               std::to_string(size));
      }
    }
  }
  if (!known && output_.find('.') != std::string::npos) return PartialShape();
  const std::string labels = OutputLabels(dots);
  if (labels.size() > static_cast<size_t>(kMaxRank)) return TooManyDimensions();
  PartialShape out = PartialShape::Scalar();
  for (char label : labels) {
    const auto at = sizes.find(label);
    out.AddDim(at == sizes.end() ? -1 : at->second);
  }
  return out;
}

Status Equation::CheckGradient(std::string_view node) const {
  for (const std::string& labels : inputs_) {
    for (char label : labels) {
      if (label != '.' && std::count(labels.begin(), labels.end(), label) == 1) continue;
      return Unimplemented("node '" + std::string(node) + "': the gradient of equation '" + text_ +
                           "', with '...' or with one label twice in an operand");
    }
  }
  return Status();
}

}  // namespace monograph::ops::matmul
