// Flags over CLI11: what the command line, the environment and a file say becomes one list of
// arguments, weaker sources first, which CLI11 parses. Names that a stronger source gives are left
// out of the weaker ones, so that their values are not even checked. Texts of errors and of --help
// are our own: CLI11's do not wrap, and show a boolean's default as that of its negation.
#include "tools/flags.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/terminal.h"
#include "graph/names.h"
#include "tools/flags/help.h"
#include "tools/flags/sources.h"
#include "tools/output_path.h"
#include "transport/control/hello.h"
#include "transport/transports.h"

namespace monograph {
namespace {

constexpr char kSeeHelp[] = " (see --help)";
constexpr char kNeedsValue[] = "needs a value";
constexpr size_t kAnyNumber = static_cast<size_t>(-1);

using Check = std::function<std::string(const std::string&)>;

// A whole number within limits.
Check Within(int64_t at_least, int64_t at_most) {
  return [=](const std::string& text) -> std::string {
    if (text.empty()) return kNeedsValue;
    int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (stop != end || error == std::errc::invalid_argument)
      return "'" + text + "' is not a whole number";
    const bool too_large = error == std::errc::result_out_of_range && text[0] != '-';
    const bool too_small = error == std::errc::result_out_of_range && text[0] == '-';
    if (too_small || (!too_large && value < at_least))
      return "must be at least " + std::to_string(at_least) + ", not " + text;
    if (too_large || value > at_most)
      return "must be at most " + std::to_string(at_most) + ", not " + text;
    return "";
  };
}

std::string IsNumber(const std::string& text) {
  if (text.empty()) return kNeedsValue;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || std::isnan(value)) return "'" + text + "' is not a number";
  return std::isinf(value) ? "'" + text + "' is not finite" : "";
}

// TensorFlow's words and CLI11's, in any case.
std::optional<bool> BooleanOf(const std::string& text) {
  static const std::set<std::string> yes = {"true", "t", "1", "yes", "y", "on"},
                                     no = {"false", "f", "0", "no", "n", "off"};
  const std::string lower = CLI::detail::to_lower(text);
  if (yes.contains(lower)) return true;
  if (no.contains(lower)) return false;
  return std::nullopt;
}

std::string IsBoolean(const std::string& text) {
  return BooleanOf(text) ? "" : "'" + text + "' is neither true nor false";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

Check OneOf(std::vector<std::string> choices) {
  return [choices = std::move(choices)](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    return text.empty() ? kNeedsValue : "must be " + Joined(choices) + ", not '" + text + "'";
  };
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// A choice that is a boolean, too.
struct Switch {
  std::vector<std::string> choices;
  std::string on, off;
};

// Standard streams that the caller has closed lead nowhere; else the next file or connection would
// take their numbers, and what is printed would go there.
void OpenStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDWR) != stream) return;
  }
}

}  // namespace

struct Flags::Impl {
  Impl(const std::string& name, const std::string& its_description)
      : app("", name), program(name), description(its_description) {}

  CLI::Option* Finish(CLI::Option* option, const std::string& name, const std::string& metavar,
                      const std::string& help, const std::string& standard);
  template <typename T>
  void KeepDefault(T* value) {
    defaults.push_back([value, standard = *value] { *value = standard; });
  }
  void AddSwitches(std::vector<std::string>* arguments) const;
  std::set<std::string> NamesIn(const std::vector<std::string>& arguments) const;
  bool IsFlag(const std::string& word) const;  // "--name", or "--noname" of a boolean
  bool Taken(const std::string& name, const std::set<std::string>& given) const;
  Result<std::vector<FlagValue>> Weaker(const std::vector<std::string>& own);
  std::string Explained(const CLI::ParseError& error) const;
  std::string WrongPositionals() const;
  std::string Help() const;
  // Both print the one line of an error and return 2; the first also says where a value was given.
  int RefuseValue(const std::string& message, const std::vector<FlagValue>& weaker) const;
  int Refuse(const std::string& message) const;
  void WarnOfVariables() const;

  CLI::App app;
  std::string program, description, section = "Flags";
  std::vector<HelpEntry> entries, positional_entries, common_entries;
  std::vector<std::string> names;                  // of all flags
  std::vector<std::string> settable;               // by the environment and by a file
  std::map<std::string, std::string> short_names;  // "-H": "hosts"
  std::set<std::string> valued;                    // "--name=" of flags that are no booleans
  std::map<std::string, std::string> negations;    // "--nosync": "--sync"
  std::set<std::string> given;                     // on the command line
  std::map<std::string, Switch> switches;
  std::vector<std::vector<std::string>> together;
  std::vector<std::function<Status()>> checks;
  std::vector<std::function<void()>> defaults;  // each sets one target to its default
  std::vector<std::string>* command = nullptr;
  std::string command_help;
  std::vector<std::string>* positionals = nullptr;
  size_t positional_count = 0;  // or kAnyNumber
  const bool* shared = nullptr;
  bool parsed = false;
  std::string config, log_level = "info";
};

// `name` is "hosts" or "hosts,-H"; an empty metavar is that of a boolean.
CLI::Option* Flags::Impl::Finish(CLI::Option* option, const std::string& name,
                                 const std::string& metavar, const std::string& help,
                                 const std::string& standard) {
  const size_t comma = name.find(',');
  const std::string own = name.substr(0, comma);
  names.push_back(own);
  settable.push_back(own);
  std::string label = metavar.empty() ? "--[no]" + own : "--" + own + "=" + metavar;
  if (!metavar.empty()) valued.insert("--" + own + "=");
  if (comma != std::string::npos) {
    short_names[name.substr(comma + 1)] = own;
    label = name.substr(comma + 1) + ", " + label;
  }
  entries.push_back({section, label, standard.empty() ? help : help + " (" + standard + ")"});
  return option->take_last();
}

Flags::Flags(std::string program, std::string description)
    : impl_(std::make_unique<Impl>(program, description)) {
  impl_->app.set_help_flag("--help,-h", "");
  impl_->app.set_version_flag("--version", program + " " + control::SoftwareVersion(), "");
  impl_->names = {"help", "version"};
  impl_->section = "Every program";
  Add("config", &impl_->config,
      "file of flags, TOML or INI: lines name = value, before any section or in [" +
          impl_->program +
          "]; weaker than the environment's MONOGRAPH_NAME, which is weaker than "
          "the command line");
  impl_->entries.back().label = "--config=FILE";
  AddChoice("log_level", &impl_->log_level, {"debug", "info", "warning", "error", "off"},
            "what to log on standard error");
  impl_->entries.push_back({"Every program", "--version", "show the version and exit"});
  impl_->entries.push_back({"Every program", "--help, -h", "show this text and exit"});
  impl_->common_entries = std::move(impl_->entries);
  impl_->entries.clear();
  impl_->section = "Flags";
}
Flags::~Flags() = default;

void Flags::Add(const std::string& name, std::string* value, const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value), name, "TEXT", help,
                value->empty() ? "" : "default: " + *value);
}
void Flags::Add(const std::string& name, double* value, const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value)->check(IsNumber), name, "NUMBER", help,
                "default: " + NumberText(*value));
}
void Flags::Add(const std::string& name, int* value, const std::string& help, int64_t at_least,
                int64_t at_most) {
  impl_->KeepDefault(value);
  using Limits = std::numeric_limits<int>;
  const auto check =
      Within(std::max<int64_t>(at_least, Limits::min()), std::min<int64_t>(at_most, Limits::max()));
  impl_->Finish(impl_->app.add_option("--" + name, *value)->check(check), name, "N", help,
                "default: " + std::to_string(*value));
}
void Flags::Add(const std::string& name, int64_t* value, const std::string& help, int64_t at_least,
                int64_t at_most) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value)->check(Within(at_least, at_most)), name,
                "N", help, "default: " + std::to_string(*value));
}
void Flags::Add(const std::string& name, std::optional<int>* value, const std::string& help,
                int64_t at_least, int64_t at_most) {
  impl_->KeepDefault(value);
  using Limits = std::numeric_limits<int>;
  const auto check =
      Within(std::max<int64_t>(at_least, Limits::min()), std::min<int64_t>(at_most, Limits::max()));
  CLI::Option* const option = impl_->app.add_option_function<int>(
      "--" + name, [value](const int& given) { *value = given; });
  impl_->Finish(option->check(check), name, "N", help, "");
}
void Flags::Add(const std::string& name, bool* value, const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_flag("--" + name + ",!--no" + name, *value)->check(IsBoolean), name,
                "", help, *value ? "default: on" : "default: off");
  impl_->negations["--no" + name] = "--" + name;
}
void Flags::AddParsed(const std::string& name, std::function<Status(const std::string& text)> parse,
                      const std::string& help) {
  const auto text = std::make_shared<std::string>();
  Add(name, text.get(), help);
  AddCheck([text, parse = std::move(parse)] { return text->empty() ? Status() : parse(*text); });
}
void Flags::Add(const std::string& name, std::vector<std::string>* value, const std::string& help) {
  const auto list = std::make_shared<std::string>();
  for (const std::string& word : *value) *list += (list->empty() ? "" : ",") + word;
  Add(name, list.get(), help);
  AddCheck([=] {
    value->clear();
    std::istringstream words(*list);
    for (std::string word; std::getline(words, word, ',');)
      if (!word.empty()) value->push_back(word);
    return Status();
  });
}
void Flags::Add(const std::string& name, std::chrono::milliseconds* value,
                const std::string& help) {
  const auto seconds = std::make_shared<double>(std::chrono::duration<double>(*value).count());
  Add(name, seconds.get(), help);
  AddCheck([=]() -> Status {
    if (!(*seconds >= 0 && *seconds <= 1e9))
      return InvalidArgument("--" + name + " is a number of seconds, 0 to 1e9");
    *value = std::chrono::milliseconds(std::llround(*seconds * 1000));
    return Status();
  });
}
void Flags::Add(const std::string& name, std::chrono::microseconds* value,
                const std::string& help) {
  const auto count = std::make_shared<int64_t>(value->count());
  Add(name, count.get(), help, 0, std::numeric_limits<int>::max());
  AddCheck([=] {
    *value = std::chrono::microseconds(*count);
    return Status();
  });
}
void Flags::AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                      const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value)->check(OneOf(choices)), name, "WORD",
                help, Joined(choices) + "; default: " + *value);
}
void Flags::AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                      const std::string& help, const std::string& on, const std::string& off) {
  impl_->KeepDefault(value);
  const auto word = [=](const std::string& text) {
    const std::optional<bool> boolean = BooleanOf(text);
    return !boolean ? text : *boolean ? on : off;
  };
  impl_->Finish(
      impl_->app.add_option("--" + name, *value)->check(OneOf(choices))->transform(word), name,
      "WORD", help,
      Joined(choices) + "; alone or true: " + on + ", false: " + off + "; default: " + *value);
  impl_->entries.back().label = "--" + name + "[=WORD]";
  impl_->switches[name] = {std::move(choices), on, off};
}
void Flags::AddOutputFile(const std::string& name, std::string* value, const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value), name, "FILE", help,
                value->empty() ? "" : "default: " + *value);
  AddCheck(
      [=] { return value->empty() ? Status() : CheckOutputFile(*value).WithContext("--" + name); });
}
void Flags::AddOutputFolder(const std::string& name, std::string* value, const std::string& help) {
  impl_->KeepDefault(value);
  impl_->Finish(impl_->app.add_option("--" + name, *value), name, "FOLDER", help,
                value->empty() ? "" : "default: " + *value);
  AddCheck([=] {
    return value->empty() ? Status() : CheckOutputFolder(*value).WithContext("--" + name);
  });
}
void Flags::AddRepeated(const std::string& name, std::vector<std::string>* values,
                        const std::string& help) {
  impl_->KeepDefault(values);
  CLI::Option* const option = impl_->app.add_option("--" + name, *values);
  impl_->Finish(option, name, "TEXT", help, "")->take_all()->allow_extra_args(false);
}
void Flags::AddPositional(const std::string& name, std::vector<std::string>* values, int count,
                          const std::string& help) {
  impl_->KeepDefault(values);
  impl_->app.add_option(name, *values);
  impl_->positional_entries.push_back({"Arguments", name, help});
  impl_->positionals = values;
  impl_->positional_count = static_cast<size_t>(count);
}
void Flags::AddCommand(std::vector<std::string>* command, const std::string& help) {
  impl_->KeepDefault(command);
  impl_->command = command;
  impl_->command_help = help;
}
void Flags::Section(const std::string& title) { impl_->section = title; }
void Flags::Together(std::vector<std::string> names) {
  impl_->together.push_back(std::move(names));
}
void Flags::AddCheck(std::function<Status()> check) { impl_->checks.push_back(std::move(check)); }
void Flags::SharesEnvironment(const bool* shared) { impl_->shared = shared; }

// "--log_device_placement" alone and "--nolog_device_placement" get the values that they stand for.
void Flags::Impl::AddSwitches(std::vector<std::string>* arguments) const {
  for (size_t i = 0; i < arguments->size(); ++i) {
    std::string& word = (*arguments)[i];
    for (const auto& [name, one] : switches) {
      if (word == "--no" + name) word = "--" + name + "=" + one.off;
      if (word != "--" + name) continue;
      const std::string next = i + 1 < arguments->size() ? (*arguments)[i + 1] : "";
      const bool has_value = BooleanOf(next) || std::find(one.choices.begin(), one.choices.end(),
                                                          next) != one.choices.end();
      if (!has_value) word += "=" + one.on;
    }
  }
}

std::set<std::string> Flags::Impl::NamesIn(const std::vector<std::string>& arguments) const {
  std::set<std::string> found;
  for (const std::string& word : arguments) {
    if (const auto it = short_names.find(word.substr(0, 2)); it != short_names.end())
      found.insert(it->second);
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(2, word.find('=') - 2);
    found.insert(name);
    if (name.starts_with("no")) found.insert(name.substr(2));
  }
  return found;
}

bool Flags::Impl::IsFlag(const std::string& word) const {
  return app.get_option_no_throw(word) != nullptr;
}

bool Flags::Impl::Taken(const std::string& name, const std::set<std::string>& by) const {
  if (by.contains(name)) return true;
  return std::any_of(together.begin(), together.end(), [&](const auto& group) {
    return std::find(group.begin(), group.end(), name) != group.end() &&
           std::any_of(group.begin(), group.end(),
                       [&](const std::string& other) { return by.contains(other); });
  });
}

// What the file and the environment say, and the command line `own` does not.
Result<std::vector<FlagValue>> Flags::Impl::Weaker(const std::vector<std::string>& own) {
  given = NamesIn(own);
  std::set<std::string> stronger = given;
  std::vector<FlagValue> environment = FlagsInEnvironment(settable);
  std::erase_if(environment, [&](const FlagValue& value) { return Taken(value.name, given); });
  for (const FlagValue& value : environment) {
    stronger.insert(value.name);
    if (value.name == "config") config = value.value;
  }
  std::erase_if(environment, [](const FlagValue& value) { return IsReadElsewhere(value.name); });
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] == "--config" && i + 1 < own.size()) config = own[i + 1];
    if (own[i].starts_with("--config=")) config = own[i].substr(own[i].find('=') + 1);
  }
  std::vector<FlagValue> values;
  if (!config.empty()) {
    std::vector<std::string> in_file = settable;
    std::erase(in_file, "config");
    Result<std::vector<FlagValue>> found = FlagsInFile(config, program, in_file);
    if (!found.ok()) {
      const bool variable = !given.contains("config");
      return found.status().WithContext(variable ? VariableOf("config") : "--config");
    }
    values = std::move(found).value();
    std::erase_if(values, [&](const FlagValue& value) { return Taken(value.name, stronger); });
  }
  values.insert(values.end(), environment.begin(), environment.end());
  return values;
}

std::string Flags::Impl::Explained(const CLI::ParseError& error) const {
  const std::string text = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch))
    return text.substr(0, text.find(':')) + ": " + kNeedsValue;
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return text;
  for (const std::string& word : app.remaining()) {
    if (word == "--") continue;
    if (!word.starts_with("--") || word.starts_with("--="))
      return "unexpected argument '" + word + "'";
    const std::string name = word.substr(2, word.find('=') - 2);
    const std::string near = NearestName(name, names);
    return "unknown flag --" + name + (near.empty() ? "" : "; did you mean --" + near + "?");
  }
  return text;
}

std::string Flags::Impl::WrongPositionals() const {
  if (positionals == nullptr || positional_count == kAnyNumber) return "";
  if (positionals->size() > positional_count)
    return "unexpected argument '" + (*positionals)[positional_count] + "'";
  if (positionals->size() == positional_count) return "";
  const HelpEntry& missing = positional_entries[0];
  return "the argument " + missing.label + " is missing: " + missing.help;
}

std::string Flags::Impl::Help() const {
  constexpr int kWidth = 100, kNarrowest = 60;
  const int width = std::clamp(TerminalColumns(STDOUT_FILENO, kWidth), kNarrowest, kWidth);
  std::string usage = "Usage: " + program + " [FLAGS]";
  for (const HelpEntry& entry : positional_entries) usage += " " + entry.label;
  if (command != nullptr) usage += " -- COMMAND...";
  std::string text = WrappedDescription(description, width) + "\n" + usage + "\n";
  text += HelpOfEntries(positional_entries, width) + HelpOfEntries(entries, width) +
          HelpOfEntries(common_entries, width);
  if (command != nullptr)
    text += "\n" + Wrapped("Everything after -- is the command: " + command_help, 0, width) + "\n";
  return text;
}

int Flags::Impl::RefuseValue(const std::string& message,
                             const std::vector<FlagValue>& weaker) const {
  for (const FlagValue& value : weaker) {
    const size_t found = message.find("--" + value.name);
    if (found == std::string::npos) continue;
    const size_t end = found + 2 + value.name.size();
    const bool longer =
        end < message.size() && (std::isalnum(message[end]) != 0 || message[end] == '_');
    if (!longer) return Refuse(message + " (from " + value.source + ")" + kSeeHelp);
  }
  return Refuse(message + kSeeHelp);
}

int Flags::Impl::Refuse(const std::string& message) const {
  const bool colour = UsesColour(STDERR_FILENO);
  std::fprintf(stderr, "%s%s:%s %s\n", colour ? "\x1b[1;31m" : "", program.c_str(),
               colour ? "\x1b[0m" : "", Printable(message).c_str());
  return 2;
}

void Flags::Impl::WarnOfVariables() const {
  if (command != nullptr || (shared != nullptr && *shared)) return;
  for (const std::string& variable : StrangeVariables(settable)) {
    const std::string near = NearestName(FlagOf(variable), settable);
    LogWarning(variable + " is set, but " + program + " has no flag of this name" +
               (near.empty() ? "" : "; did you mean " + VariableOf(near) + "?"));
  }
}

std::optional<int> Flags::Parse(const std::vector<std::string>& arguments) {
  OpenStandardStreams();
  if (std::exchange(impl_->parsed, true)) {
    for (const std::function<void()>& set_default : impl_->defaults) set_default();
    impl_->given.clear();
  }
  std::vector<std::string> own = arguments;
  if (impl_->command != nullptr) {
    // The command begins after "--".
    auto split = std::find(own.begin(), own.end(), "--");
    if (split != own.end()) {
      impl_->command->assign(split + 1, own.end());
      own.erase(split, own.end());
    }
  }
  impl_->AddSwitches(&own);
  std::vector<FlagValue> weaker;
  const bool asks = std::any_of(own.begin(), own.end(), [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "--version";
  });
  if (!asks) {
    Result<std::vector<FlagValue>> found = impl_->Weaker(own);
    if (!found.ok()) return Refuse(found.status());
    weaker = std::move(found).value();
  }
  std::vector<std::string> all;
  for (const FlagValue& value : weaker) all.push_back("--" + value.name + "=" + value.value);
  all.insert(all.end(), own.begin(), own.end());
  for (size_t i = 0; i < all.size() && all[i] != "--"; ++i) {
    const size_t equals = all[i].find('=');
    if (!all[i].starts_with("--") || equals == std::string::npos) continue;
    const std::string flag = all[i].substr(0, equals), value = all[i].substr(equals + 1);
    // CLI11 takes what is no word for a number, of which it has only 64 bits.
    if (const auto negated = impl_->negations.find(flag); negated != impl_->negations.end()) {
      const std::optional<bool> boolean = BooleanOf(value);
      if (!boolean) return impl_->RefuseValue(flag + ": " + IsBoolean(value), weaker);
      all[i] = negated->second + (*boolean ? "=false" : "=true");
      continue;
    }
    // And "--name=" for a flag whose value is the next argument.
    if (!all[i].ends_with('=')) continue;
    if (!impl_->valued.contains(all[i])) {
      if (!impl_->IsFlag(all[i].substr(0, all[i].size() - 1))) continue;
      return impl_->RefuseValue(flag + ": " + IsBoolean(value), weaker);
    }
    all[i].pop_back();
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(++i), "");
  }
  std::reverse(all.begin(), all.end());  // CLI11 takes them last first
  try {
    impl_->app.parse(all);
  } catch (const CLI::CallForHelp&) {
    std::fputs(impl_->Help().c_str(), stdout);
    return Exit(Status());
  } catch (const CLI::Success& success) {  // --version
    impl_->app.exit(success);
    return Exit(Status());
  } catch (const CLI::ParseError& error) {
    return impl_->RefuseValue(impl_->Explained(error), weaker);
  } catch (const std::out_of_range&) {  // CLI11's own: "-h-noname=N", which it takes apart
    return impl_->RefuseValue("a boolean has a number of more than 64 bits", weaker);
  }
  if (const std::string wrong = impl_->WrongPositionals(); !wrong.empty())
    return impl_->Refuse(wrong + kSeeHelp);
  SetLogLevel(ParseLogLevel(impl_->log_level).value());
  ReleaseUcxSignals();
  // A pipe or a file has each line when it is said, also those of a program that is then ended.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  impl_->WarnOfVariables();
  for (const std::function<Status()>& check : impl_->checks) {
    if (const Status status = check(); !status.ok())
      return impl_->RefuseValue(status.message(), weaker);
  }
  return std::nullopt;
}

std::optional<int> Flags::Parse(int argc, const char* const* argv) {
  return Parse(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

int Flags::Exit(const Status& status) const {
  if (!status.ok()) {
    impl_->Refuse(status.ToString());
    return 1;
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  impl_->Refuse("standard output could not be written to its end");
  return 1;
}

int Flags::Refuse(const Status& status) const { return impl_->Refuse(status.message() + kSeeHelp); }

bool Flags::given(const std::string& name) const { return impl_->given.contains(name); }

}  // namespace monograph
