// The text of --help.
#pragma once

#include <string>
#include <vector>

namespace monograph {

// One flag or one positional word.
struct HelpEntry {
  std::string section;
  std::string label;  // "--batch_size=N", "--[no]sync"
  std::string help;
};

// Words of `text` in lines of at most `width` columns, each begun by `indent` spaces but for the
// first. Spaces inside a line stay.
std::string Wrapped(const std::string& text, int indent, int width);

// A description: lines that begin with two spaces are examples, whose continuation is indented;
// others are paragraphs.
std::string WrappedDescription(const std::string& text, int width);

// The entries under their headings, in order of first use: labels in one column, help in another.
std::string HelpOfEntries(const std::vector<HelpEntry>& entries, int width);

}  // namespace monograph
