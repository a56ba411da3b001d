// Thompson's construction: an expression becomes a program of states, each of which takes a byte of
// a set, or splits, or asks where in the text it stands. A text is matched by the set of all states
// that the program may be in after each byte, so that no text makes it go back. To find a match,
// the states stand in the order in which they are preferred, each with the places that its way has
// passed (Pike's machine).
#include "ops/string/regex_cpu.h"

#include <algorithm>
#include <bitset>
#include <cctype>
#include <functional>
#include <utility>
#include <vector>

namespace monograph::ops::string {
namespace {

constexpr size_t kMostStates = 10'000;
constexpr int kMostParts = 100'000;  // repeated ones as often, also those without a state
constexpr int kMostRepeats = 1000;   // RE2's
constexpr int kMostDepth = 200;

using Bytes = std::bitset<256>;

Bytes Range(unsigned from, unsigned to) {
  Bytes bytes;
  for (unsigned byte = from; byte <= to; ++byte) bytes.set(byte);
  return bytes;
}

// The class of an escape, \d for instance; none if it is a literal.
bool ClassOf(char letter, Bytes* bytes) {
  switch (std::tolower(letter)) {
    case 'd':
      *bytes = Range('0', '9');
      break;
    case 'w':
      *bytes = Range('0', '9') | Range('a', 'z') | Range('A', 'Z') | Range('_', '_');
      break;
    case 's':
      *bytes = Range('\t', '\n') | Range('\f', '\r') | Range(' ', ' ');
      break;
    default:
      return false;
  }
  if (std::isupper(letter) != 0) *bytes = ~*bytes;
  return true;
}

struct State {
  enum class Kind : uint8_t { kByte, kSplit, kBegin, kEnd, kPlace, kMatch };
  Kind kind = Kind::kMatch;
  int next = -1, other = -1;  // of kSplit, `next` is preferred
  int place = -1;             // of kPlace: 2 * group where it begins, one more where it ends
  Bytes bytes = {};           // of kByte
};

// An expression, as a tree.
struct Node {
  enum class Kind : uint8_t { kNothing, kByte, kBegin, kEnd, kSequence, kChoice, kRepeat, kGroup };
  Kind kind = Kind::kNothing;
  Bytes bytes = {};
  int least = 0, most = 0;  // of kRepeat; most -1: any number
  bool lazy = false;        // of kRepeat
  int group = 0;            // of kGroup, from 1 on
  std::vector<Node> parts = {};
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Node> Parse() {
    if (Take("(?i)")) ignore_case_ = true;
    if (Take("(?s)")) dot_is_all_ = true;
    MG_ASSIGN_OR_RETURN(Node node, Choice(0));
    if (!AtEnd()) return Wrong("')' without '('");
    return node;
  }
  int groups() const { return groups_; }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  bool Take(std::string_view words) {
    if (text_.substr(at_, words.size()) != words) return false;
    at_ += words.size();
    return true;
  }
  Status Wrong(const std::string& what) const {
    return InvalidArgument("invalid pattern '" + std::string(text_) + "': " + what +
                           " at character " + std::to_string(at_));
  }

  Result<Node> Choice(int depth) {
    if (depth > kMostDepth) return Wrong("groups are nested too deeply");
    Node choice{.kind = Node::Kind::kChoice};
    do {
      if (++parts_ > kMostParts) return Wrong("it has too many parts");
      MG_ASSIGN_OR_RETURN(Node part, Sequence(depth));
      choice.parts.push_back(std::move(part));
    } while (Take("|"));
    return choice;
  }

  Result<Node> Sequence(int depth) {
    Node sequence{.kind = Node::Kind::kSequence};
    while (!AtEnd() && text_[at_] != '|' && text_[at_] != ')') {
      if (++parts_ > kMostParts) return Wrong("it has too many parts");
      MG_ASSIGN_OR_RETURN(Node part, One(depth));
      MG_ASSIGN_OR_RETURN(part, Repeated(std::move(part)));
      sequence.parts.push_back(std::move(part));
    }
    return sequence;
  }

  // The number at this place, if there is one.
  bool Number(int* number) {
    const size_t begin = at_;
    *number = 0;
    while (!AtEnd() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 && at_ < begin + 6)
      *number = *number * 10 + (text_[at_++] - '0');
    return at_ > begin;
  }

  Result<Node> Repeated(Node part) {
    Node repeat{.kind = Node::Kind::kRepeat};
    const size_t before = at_;
    if (Take("*")) {
      repeat.most = -1;
    } else if (Take("+")) {
      repeat.least = 1;
      repeat.most = -1;
    } else if (Take("?")) {
      repeat.most = 1;
    } else if (Take("{")) {
      const bool counted = Number(&repeat.least);
      repeat.most = repeat.least;
      if (counted && Take(",") && !Number(&repeat.most)) repeat.most = -1;
      if (!counted || !Take("}")) {  // a brace by itself
        at_ = before;
        return part;
      }
      if (repeat.least > kMostRepeats || repeat.most > kMostRepeats ||
          (repeat.most >= 0 && repeat.most < repeat.least))
        return Wrong("a repetition that cannot be");
    } else {
      return part;
    }
    repeat.lazy = Take("?");
    if (!AtEnd() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?'))
      return Wrong("a repetition of a repetition");
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  Node OfBytes(const Bytes& bytes) const {
    Node node{.kind = Node::Kind::kByte, .bytes = bytes};
    if (!ignore_case_) return node;
    for (unsigned letter = 'a'; letter <= 'z'; ++letter) {
      const unsigned upper = letter - 'a' + 'A';
      if (bytes[letter] || bytes[upper]) node.bytes.set(letter).set(upper);
    }
    return node;
  }

  // A character of UTF-8.
  Node AnyCharacter() const {
    Bytes ascii = Range(0, 0x7f);
    if (!dot_is_all_) ascii.reset('\n');
    const Bytes rest = Range(0x80, 0xbf);
    Node any{.kind = Node::Kind::kChoice};
    any.parts.push_back(Node{.kind = Node::Kind::kByte, .bytes = ascii});
    const std::pair<unsigned, unsigned> first[] = {{0xc2, 0xdf}, {0xe0, 0xef}, {0xf0, 0xf4}};
    for (size_t more = 0; more < 3; ++more) {
      Node sequence{.kind = Node::Kind::kSequence};
      sequence.parts.push_back(
          Node{.kind = Node::Kind::kByte, .bytes = Range(first[more].first, first[more].second)});
      for (size_t i = 0; i <= more; ++i)
        sequence.parts.push_back(Node{.kind = Node::Kind::kByte, .bytes = rest});
      any.parts.push_back(std::move(sequence));
    }
    return any;
  }

  Result<Node> One(int depth) {
    const auto letter = static_cast<unsigned char>(text_[at_]);
    if (Take("(")) {
      const bool plain = Take("?:");
      if (!plain && !AtEnd() && text_[at_] == '?') return Wrong("a group with '?'");
      Node group{.kind = Node::Kind::kGroup, .group = plain ? 0 : ++groups_};
      MG_ASSIGN_OR_RETURN(Node inner, Choice(depth + 1));
      if (!Take(")")) return Wrong("'(' without ')'");
      if (plain) return inner;
      group.parts.push_back(std::move(inner));
      return group;
    }
    if (letter == '*' || letter == '+' || letter == '?') return Wrong("nothing to repeat");
    if (Take("[")) return Class();
    if (Take(".")) return AnyCharacter();
    if (Take("^") || Take("\\A")) return Node{.kind = Node::Kind::kBegin};
    if (Take("$") || Take("\\z")) return Node{.kind = Node::Kind::kEnd};
    if (letter == '\\') {
      MG_ASSIGN_OR_RETURN(const Bytes bytes, Escape());
      return OfBytes(bytes);
    }
    ++at_;
    return OfBytes(Range(letter, letter));
  }

  // What an escape, at whose backslash the parser stands, means.
  Result<Bytes> Escape() {
    ++at_;
    if (AtEnd()) return Wrong("a backslash at the end");
    const char letter = text_[at_];
    Bytes bytes;
    if (ClassOf(letter, &bytes)) {
      ++at_;
      return bytes;
    }
    static constexpr std::string_view kNames = "nrtfva", kMeant = "\n\r\t\f\v\a";
    const size_t named = kNames.find(letter);
    if (named == std::string_view::npos && std::isalnum(static_cast<unsigned char>(letter)) != 0)
      return Wrong("an escape that is not known");
    ++at_;
    const auto byte =
        static_cast<unsigned char>(named == std::string_view::npos ? letter : kMeant[named]);
    return Range(byte, byte);
  }

  Result<Node> Class() {
    const bool negated = Take("^");
    Bytes all;
    for (bool first = true; first || AtEnd() || text_[at_] != ']'; first = false) {
      if (AtEnd()) return Wrong("'[' without ']'");
      if (text_.substr(at_, 2) == "[:") return Wrong("a class by name");
      const auto from = static_cast<unsigned char>(text_[at_]);
      Bytes bytes = Range(from, from);
      if (from == '\\') {
        MG_ASSIGN_OR_RETURN(bytes, Escape());
      } else {
        ++at_;
      }
      if (from >= 0x80) return Wrong("a character that is not of ASCII, in a class,");
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        const auto to = static_cast<unsigned char>(text_[at_]);
        if (to == '\\' || to < from || bytes.count() != 1 || to >= 0x80)
          return Wrong("a range that cannot be");
        bytes = Range(from, to);
        ++at_;
      }
      all |= bytes;
    }
    ++at_;
    if (!negated) return OfBytes(all);
    Node any = AnyCharacter();
    Bytes& ascii = any.parts[0].bytes;
    ascii = Range(0, 0x7f) & ~OfBytes(all).bytes;
    return any;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int parts_ = 0, groups_ = 0;  // so far
  bool ignore_case_ = false, dot_is_all_ = false;
};

}  // namespace

struct Regex::Program {
  std::vector<State> states;
  int first = 0;
  int parts = 0;  // that were compiled
  int groups = 0;

  int Add(State state) {
    states.push_back(state);
    return static_cast<int>(states.size()) - 1;
  }

  // States for `node` before the state `next`; the first of them. -1: they are too many.
  int Compile(const Node& node, int next) {
    if (next < 0 || states.size() > kMostStates || ++parts > kMostParts) return -1;
    switch (node.kind) {
      case Node::Kind::kNothing:
        return next;
      case Node::Kind::kByte:
        return Add({.kind = State::Kind::kByte, .next = next, .bytes = node.bytes});
      case Node::Kind::kBegin:
        return Add({.kind = State::Kind::kBegin, .next = next});
      case Node::Kind::kEnd:
        return Add({.kind = State::Kind::kEnd, .next = next});
      case Node::Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) next = Compile(node.parts[i], next);
        return next;
      case Node::Kind::kChoice: {
        int choice = Compile(node.parts.back(), next);
        for (size_t i = node.parts.size() - 1; i-- > 0 && choice >= 0;) {
          const int part = Compile(node.parts[i], next);
          if (part < 0) return -1;
          choice = Add({.kind = State::Kind::kSplit, .next = part, .other = choice});
        }
        return choice;
      }
      case Node::Kind::kRepeat:
        return CompileRepeat(node, next);
      case Node::Kind::kGroup: {
        const int end =
            Add({.kind = State::Kind::kPlace, .next = next, .place = 2 * node.group + 1});
        const int inner = Compile(node.parts[0], end);
        if (inner < 0) return -1;
        return Add({.kind = State::Kind::kPlace, .next = inner, .place = 2 * node.group});
      }
    }
    return -1;
  }

  int CompileRepeat(const Node& node, int next) {
    const Node& part = node.parts[0];
    if (node.most < 0) {
      const int loop = Add(Split(node, -1, next));
      const int body = Compile(part, loop);
      if (body < 0) return -1;
      states[static_cast<size_t>(loop)] = Split(node, body, next);
      next = loop;
    }
    for (int i = node.least; i < node.most; ++i) {
      const int body = Compile(part, next);
      if (body < 0) return -1;
      next = Add(Split(node, body, next));
    }
    for (int i = 0; i < node.least; ++i) next = Compile(part, next);
    return next;
  }

  // Once more, or what comes behind.
  static State Split(const Node& repeat, int body, int next) {
    return {.kind = State::Kind::kSplit,
            .next = repeat.lazy ? next : body,
            .other = repeat.lazy ? body : next};
  }
};

Regex::Regex(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Parse(std::string_view pattern) {
  Parser parser(pattern);
  MG_ASSIGN_OR_RETURN(const Node node, parser.Parse());
  auto program = std::make_unique<Program>();
  program->groups = parser.groups();
  program->first = program->Compile(node, program->Add({}));
  if (program->first < 0 || program->states.size() > kMostStates) {
    return InvalidArgument("invalid pattern '" + std::string(pattern) +
                           "': its repetitions are too many");
  }
  return Regex(std::move(program));
}

bool Regex::FullMatch(std::string_view text, const std::function<bool()>& go_on) const {
  constexpr size_t kStatesToALook = 8192;
  size_t visited = 0;
  const std::vector<State>& states = program_->states;
  std::vector<int> now, later, open;
  std::vector<size_t> seen(states.size(), 0);  // one more than the place of the last visit
  // Adds what can be reached from `state` without a byte.
  const auto add = [&](int first, size_t at, std::vector<int>* reached) {
    open.push_back(first);
    while (!open.empty()) {
      const int id = open.back();
      open.pop_back();
      if (std::exchange(seen[static_cast<size_t>(id)], at + 1) == at + 1) continue;
      const State& state = states[static_cast<size_t>(id)];
      switch (state.kind) {
        case State::Kind::kByte:
        case State::Kind::kMatch:
          reached->push_back(id);
          break;
        case State::Kind::kSplit:
          open.push_back(state.other);
          open.push_back(state.next);
          break;
        case State::Kind::kPlace:
          open.push_back(state.next);
          break;
        case State::Kind::kBegin:
          if (at == 0) open.push_back(state.next);
          break;
        case State::Kind::kEnd:
          if (at == text.size()) open.push_back(state.next);
          break;
      }
    }
  };
  add(program_->first, 0, &now);
  for (size_t at = 0; at < text.size() && !now.empty(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    later.clear();
    visited += now.size() + 1;
    if (visited >= kStatesToALook) {
      if (go_on != nullptr && !go_on()) return false;
      visited = 0;
    }
    for (const int id : now) {
      const State& state = states[static_cast<size_t>(id)];
      if (state.kind == State::Kind::kByte && state.bytes[byte]) add(state.next, at + 1, &later);
    }
    now.swap(later);
  }
  for (const int id : now) {
    if (states[static_cast<size_t>(id)].kind == State::Kind::kMatch) return true;
  }
  return false;
}

namespace {

// The states that a search may be in, the preferred ones first, each with `places` of the text.
struct Ways {
  std::vector<int> states;
  std::vector<int64_t> places;  // a row for each state

  void Clear() {
    states.clear();
    places.clear();
  }
};

}  // namespace

int Regex::groups() const { return program_->groups; }

bool Regex::Find(std::string_view text, size_t from, std::vector<Span>* spans,
                 const std::function<bool()>& go_on) const {
  constexpr size_t kStatesToALook = 8192;
  const std::vector<State>& states = program_->states;
  const size_t width = 2 * std::max<size_t>(1, spans->size());
  std::vector<int64_t> way(width), best;
  std::vector<size_t> seen(states.size(), 0);  // one more than the place of the last visit
  // What is open: a state; or, where it is -1, the place that a way gets back.
  struct Open {
    int state = -1;
    size_t place = 0;
    int64_t value = -1;
  };
  std::vector<Open> open;
  Ways now, later;
  size_t visited = 0;
  // Adds what can be reached from `first` without a byte; the places passed so far are in `way`.
  const auto add = [&](int first, size_t at, Ways* reached) {
    open.push_back({.state = first});
    while (!open.empty()) {
      const Open next = open.back();
      open.pop_back();
      if (next.state < 0) {
        way[next.place] = next.value;
        continue;
      }
      if (std::exchange(seen[static_cast<size_t>(next.state)], at + 1) == at + 1) continue;
      ++visited;
      const State& state = states[static_cast<size_t>(next.state)];
      switch (state.kind) {
        case State::Kind::kByte:
        case State::Kind::kMatch:
          reached->states.push_back(next.state);
          reached->places.insert(reached->places.end(), way.begin(), way.end());
          break;
        case State::Kind::kSplit:
          open.push_back({.state = state.other});
          open.push_back({.state = state.next});
          break;
        case State::Kind::kPlace:
          if (const auto place = static_cast<size_t>(state.place); place < width) {
            open.push_back({.place = place, .value = way[place]});
            way[place] = static_cast<int64_t>(at);
          }
          open.push_back({.state = state.next});
          break;
        case State::Kind::kBegin:
          if (at == 0) open.push_back({.state = state.next});
          break;
        case State::Kind::kEnd:
          if (at == text.size()) open.push_back({.state = state.next});
          break;
      }
    }
  };
  for (size_t at = from; at <= text.size(); ++at) {
    if (best.empty()) {  // a match may begin here, less preferred than those that began before
      std::fill(way.begin(), way.end(), -1);
      way[0] = static_cast<int64_t>(at);
      add(program_->first, at, &now);
    } else if (now.states.empty()) {
      break;
    }
    if (++visited >= kStatesToALook) {
      if (go_on != nullptr && !go_on()) return false;
      visited = 0;
    }
    later.Clear();
    for (size_t i = 0; i < now.states.size(); ++i) {
      const State& state = states[static_cast<size_t>(now.states[i])];
      const auto row = now.places.begin() + static_cast<int64_t>(i * width);
      if (state.kind == State::Kind::kMatch) {  // better than all behind it
        best.assign(row, row + static_cast<int64_t>(width));
        best[1] = static_cast<int64_t>(at);
        break;
      }
      if (at < text.size() && state.bytes[static_cast<unsigned char>(text[at])]) {
        std::copy_n(row, width, way.begin());
        add(state.next, at + 1, &later);
      }
    }
    std::swap(now, later);
  }
  if (best.empty()) return false;
  for (size_t i = 0; i < spans->size(); ++i) (*spans)[i] = {best[2 * i], best[2 * i + 1]};
  return true;
}

}  // namespace monograph::ops::string
