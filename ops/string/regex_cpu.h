// Regex: whether a text matches a regular expression as a whole, or where its first match in a text
// is, in time that grows with the length of the text times that of the expression.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

  // Where a match, or what its parentheses enclose, begins and ends; -1: it has no such part.
  struct Span {
    int64_t begin = -1, end = -1;
  };
  // The first match that begins at `from` or later; of those that begin there the one that RE2, as
  // Perl, prefers: the first choice of |, and as much, or with ? as little, as can be repeated.
  // spans[0] is the match, spans[i] that of its i-th parentheses, for the first spans->size() of
  // them. False: there is none, or go_on has said no.
  bool Find(std::string_view text, size_t from, std::vector<Span>* spans,
            const std::function<bool()>& go_on = nullptr) const;
  int groups() const;  // pairs of parentheses, but for those that begin with (?:

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace monograph::ops::string
