// Regex: whether a text matches a regular expression as a whole, in time that grows with the length
// of the text times that of the expression.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::ops::string {

// RE2's syntax, as TensorFlow has it, of bytes: literals, '.', classes [a-z] [^...], \d \w \s and
// their opposites, ( ) (?: ), |, * + ? {m,n} and their lazy forms, ^ $ \A \z, (?i) and (?s) at the
// beginning. Not: classes by name ([[:alpha:]], \pL), flags elsewhere, word boundaries.
class Regex {
 public:
  // InvalidArgument says what in `pattern` cannot be read, and where.
  static Result<Regex> Parse(std::string_view pattern);
  // `go_on`, if any, is asked every some thousand states; once it says no, the answer is false.
  bool FullMatch(std::string_view text, const std::function<bool()>& go_on = nullptr) const;

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace monograph::ops::string
