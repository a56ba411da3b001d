// RegexReplace and StaticRegexReplace: RE2's Replace and GlobalReplace over our Regex.
#include <algorithm>
#include <memory>
#include <utility>

#include "ops/cpu/looks_cpu.h"
#include "ops/string/regex_cpu.h"
#include "ops/string/string_cpu.h"

namespace monograph::ops::string {
namespace {

// What stands in a match's place: literal texts and, behind each, what a group has matched.
class Rewrite {
 public:
  static Result<Rewrite> Parse(std::string_view text, int groups) {
    Rewrite rewrite;
    rewrite.parts_.push_back({});
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        rewrite.parts_.back().text += text[i];
        continue;
      }
      const char letter = ++i < text.size() ? text[i] : '\0';
      if (letter == '\\') {
        rewrite.parts_.back().text += letter;
      } else if (letter >= '0' && letter <= '9') {
        rewrite.parts_.back().group = letter - '0';
        rewrite.groups_ = std::max(rewrite.groups_, letter - '0');
        rewrite.parts_.push_back({});
      } else {
        return InvalidArgument("invalid rewrite '" + std::string(text) +
                               "': a backslash stands before a digit or a backslash");
      }
    }
    if (rewrite.groups_ > groups) {
      return InvalidArgument(
          "invalid rewrite '" + std::string(text) + "': \\" + std::to_string(rewrite.groups_) +
          " is asked for, but the pattern has " + std::to_string(groups) + " groups");
    }
    return rewrite;
  }

  int groups() const { return groups_; }  // the last that it asks for

  bool Append(std::string_view text, const std::vector<Regex::Span>& spans, Looks* looks,
              std::string* to) const {
    for (const Part& part : parts_) {
      if (!AppendText(looks, part.text, to)) return false;
      if (part.group < 0) continue;
      const Regex::Span& span = spans[static_cast<size_t>(part.group)];
      if (span.begin < 0 || span.end < span.begin) continue;
      if (!AppendText(looks, PartOf(text, span), to)) return false;
    }
    return true;
  }

  static std::string_view PartOf(std::string_view text, const Regex::Span& span) {
    return text.substr(static_cast<size_t>(span.begin), static_cast<size_t>(span.end - span.begin));
  }

 private:
  struct Part {
    std::string text = {};
    int group = -1;
  };
  std::vector<Part> parts_;
  int groups_ = 0;
};

// Bytes of the character of UTF-8 that begins at `at`; 1 for what is none.
size_t CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  const size_t length = first >= 0xf0 && first <= 0xf4   ? 4
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xc2 && first <= 0xdf ? 2
                                                         : 1;
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 1;
  }
  return length;
}

struct Replacement {
  Regex regex;
  Rewrite rewrite;

  static Result<Replacement> Of(std::string_view pattern, std::string_view rewrite) {
    MG_ASSIGN_OR_RETURN(Regex regex, Regex::Parse(pattern));
    MG_ASSIGN_OR_RETURN(Rewrite parsed, Rewrite::Parse(rewrite, regex.groups()));
    return Replacement{std::move(regex), std::move(parsed)};
  }

  // An empty match right behind another one is none.
  void Replace(const KernelContext& c, std::string_view text, bool all, Looks* looks,
               std::string* to) const {
    const auto go_on = [&c] { return !c.cancelled(); };
    std::vector<Regex::Span> spans(static_cast<size_t>(rewrite.groups()) + 1);
    size_t at = 0;
    int64_t last_end = -1;
    while (at <= text.size() && regex.Find(text, at, &spans, go_on)) {
      const Regex::Span match = spans[0];
      const auto begin = static_cast<size_t>(match.begin);
      if (!AppendText(looks, text.substr(at, begin - at), to)) return;
      if (match.begin == match.end && match.begin == last_end) {
        const size_t skipped = begin < text.size() ? CharacterAt(text, begin) : 1;
        to->append(text.substr(begin, skipped));
        at = begin + skipped;
        continue;
      }
      if (!rewrite.Append(text, spans, looks, to)) return;
      last_end = match.end;
      at = static_cast<size_t>(match.end);
      if (!all) break;
    }
    if (at < text.size()) AppendText(looks, text.substr(at), to);
  }
};

Status ReplaceAll(KernelContext& c, const Replacement& replacement, bool all) {
  const Tensor& input = c.input(0);
  MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  c.ParallelFor(input.elements(), 2000, [&](int64_t begin, int64_t end) {
    Looks looks(c);
    for (int64_t i = begin; i < end && looks.GoOn(1); ++i)
      replacement.Replace(c, input.strings()[i], all, &looks, &output->strings()[i]);
  });
  return Status();
}

class StaticRegexReplaceKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& c) {
    MG_ASSIGN_OR_RETURN(Replacement replacement, Replacement::Of(c.attr<std::string>("pattern"),
                                                                 c.attr<std::string>("rewrite")));
    return std::unique_ptr<Kernel>(
        new StaticRegexReplaceKernel(std::move(replacement), c.attr<bool>("replace_global")));
  }

  Status Compute(KernelContext& c) override { return ReplaceAll(c, replacement_, all_); }

 private:
  StaticRegexReplaceKernel(Replacement replacement, bool all)
      : replacement_(std::move(replacement)), all_(all) {}

  const Replacement replacement_;
  const bool all_;
};

class RegexReplaceKernel : public Kernel {
 public:
  explicit RegexReplaceKernel(const KernelConstruction& c) : all_(c.attr<bool>("replace_global")) {}

  Status Compute(KernelContext& c) override {
    for (const auto& [i, what] : {std::pair(1, "Pattern"), std::pair(2, "Rewrite")}) {
      if (c.input(i).shape().rank() != 0) {
        return InvalidArgument(std::string(what) + " must be scalar, but received " +
                               c.input(i).shape().ToString());
      }
    }
    MG_ASSIGN_OR_RETURN(const Replacement replacement,
                        Replacement::Of(c.input(1).strings()[0], c.input(2).strings()[0]));
    return ReplaceAll(c, replacement, all_);
  }

 private:
  const bool all_;
};

}  // namespace

void RegisterReplacements(KernelRegistry* registry) {
  registry->Add<StaticRegexReplaceKernel>({.op = "StaticRegexReplace"});
  registry->Add<RegexReplaceKernel>({.op = "RegexReplace"});
}

}  // namespace monograph::ops::string
