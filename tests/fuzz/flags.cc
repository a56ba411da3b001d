// Bytes: arguments between line feeds, a zero byte, a file of flags. The parser is made once, since
// that takes several times as long as to parse. That it keeps nothing of what it has parsed is
// checked by a new one, which has to say the same, for one input in 256.
#include "tools/flags.h"

#include <functional>
#include <sstream>

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace monograph::fuzz {
namespace {

struct Values {
  std::string text, word = "one";
  int small = 1;
  int64_t large = 1;
  double real = 1;
  bool yes = false;
  std::optional<int> maybe;
  std::vector<std::string> words, files, command;
  std::chrono::milliseconds time{1};
  bool operator==(const Values&) const = default;
};

class Program {
 public:
  Program() {
    flags_.Add("text", &values_.text, "a text");
    flags_.Add("small", &values_.small, "a number", 0, 1000);
    flags_.Add("large", &values_.large, "a number");
    flags_.Add("real", &values_.real, "a number");
    flags_.Add("yes", &values_.yes, "a boolean");
    flags_.Add("maybe", &values_.maybe, "a number or none");
    flags_.Add("words", &values_.words, "words");
    flags_.Add("time", &values_.time, "a time");
    flags_.AddChoice("word", &values_.word, {"one", "two"}, "a word", "two", "one");
    flags_.AddRepeated("file", &values_.files, "files");
    flags_.AddCommand(&values_.command, "what runs");
  }

  std::optional<int> Parse(const std::vector<std::string>& arguments) {
    return flags_.Parse(arguments);
  }
  const Values& values() const { return values_; }

 private:
  Values values_;
  Flags flags_{"program", "A program."};
};

}  // namespace

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

  static Program program;
  const std::optional<int> code = program.Parse(arguments);
  const Values& values = program.values();
  MG_CHECK(!code || *code == 0 || *code == 2);
  if (!code)
    MG_CHECK(values.small >= 0 && values.small <= 1000 &&
             (values.word == "one" || values.word == "two"));
  if (std::hash<std::string_view>()(bytes) % 256 == 0) {
    Program anew;
    MG_CHECK(anew.Parse(arguments) == code);
    if (!code) MG_CHECK(anew.values() == values);
  }
}

}  // namespace monograph::fuzz
