// Bytes: arguments between line feeds, a zero byte, a file of flags.
#include "tools/flags.h"

#include <sstream>

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {

void flags(std::string_view bytes) {
  const size_t zero = bytes.find('\0');
  static MemoryFile file;
  std::vector<std::string> arguments;
  if (zero != std::string_view::npos)
    arguments.push_back("--config=" + file.Fill(bytes.substr(zero + 1)));
  std::istringstream lines(std::string(bytes.substr(0, zero)));
  for (std::string line; std::getline(lines, line);)
    // Other files, and folders to be made, are no part of this.
    if (!line.starts_with("--config") && !line.starts_with("--out")) arguments.push_back(line);

  Flags all("program", "A program.");
  std::string text, word = "one";
  int small = 1;
  int64_t large = 1;
  double real = 1;
  bool yes = false;
  std::optional<int> maybe;
  std::vector<std::string> words, files, command;
  std::chrono::milliseconds time(1);
  all.Add("text", &text, "a text");
  all.Add("small", &small, "a number", 0, 1000);
  all.Add("large", &large, "a number");
  all.Add("real", &real, "a number");
  all.Add("yes", &yes, "a boolean");
  all.Add("maybe", &maybe, "a number or none");
  all.Add("words", &words, "words");
  all.Add("time", &time, "a time");
  all.AddChoice("word", &word, {"one", "two"}, "a word", "two", "one");
  all.AddRepeated("file", &files, "files");
  all.AddCommand(&command, "what runs");
  const std::optional<int> code = all.Parse(arguments);
  MG_CHECK(!code || *code == 0 || *code == 2);
  if (!code) MG_CHECK(small >= 0 && small <= 1000 && (word == "one" || word == "two"));
}

}  // namespace monograph::fuzz
