#include "tools/flags/help.h"

#include <algorithm>
#include <sstream>

namespace monograph {
namespace {

constexpr int kLabels = 34;  // columns of the labels; help begins behind them

std::string Entry(const HelpEntry& entry, int width) {
  std::string line = "  " + entry.label;
  if (line.size() + 2 > kLabels) {
    line += "\n" + std::string(kLabels, ' ');
  } else {
    line.append(kLabels - line.size(), ' ');
  }
  return line + Wrapped(entry.help, kLabels, width - kLabels) + "\n";
}

}  // namespace

std::string Wrapped(const std::string& text, int indent, int width) {
  const auto columns = static_cast<size_t>(std::max(width, 20));
  std::string wrapped;
  size_t begin = 0;
  while (text.size() - begin > columns) {
    // The last space that fits; a longer word stays whole.
    size_t space = text.rfind(' ', begin + columns);
    if (space == std::string::npos || space <= begin) space = text.find(' ', begin + columns);
    if (space == std::string::npos) break;
    size_t end = space;
    while (end > begin && text[end - 1] == ' ') --end;
    wrapped.append(text, begin, end - begin);
    wrapped += "\n" + std::string(static_cast<size_t>(indent), ' ');
    begin = text.find_first_not_of(' ', space);
    if (begin == std::string::npos) return wrapped;
  }
  return wrapped.append(text, begin, std::string::npos);
}

std::string WrappedDescription(const std::string& text, int width) {
  constexpr int kContinued = 6;
  std::string wrapped, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) wrapped += Wrapped(paragraph, 0, width) + "\n";
    paragraph.clear();
  };
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != ' ') {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      continue;
    }
    end_paragraph();
    wrapped += Wrapped(line, kContinued, width - kContinued) + "\n";  // the same for all its lines
  }
  end_paragraph();
  return wrapped;
}

std::string HelpOfEntries(const std::vector<HelpEntry>& entries, int width) {
  std::vector<std::string> sections;
  for (const HelpEntry& entry : entries) {
    if (std::find(sections.begin(), sections.end(), entry.section) == sections.end())
      sections.push_back(entry.section);
  }
  std::string text;
  for (const std::string& section : sections) {
    text += "\n" + section + ":\n";
    for (const HelpEntry& entry : entries) {
      if (entry.section == section) text += Entry(entry, width);
    }
  }
  return text;
}

}  // namespace monograph
