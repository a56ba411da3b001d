#include "client/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>

#include "transport/control/hello.h"

namespace monograph {

std::string NearestName(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

namespace {

// A check of an option's text, which is a number already or will be refused as none.
std::function<std::string(const std::string&)> AtLeast(int64_t limit) {
  return [limit](const std::string& text) {
    int64_t value = limit;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value >= limit ? std::string()
                          : "must be at least " + std::to_string(limit) + ", not " + text;
  };
}

}  // namespace

struct Flags::Impl {
  Impl(const std::string& name, const std::string& description)
      : app(description, name), program(name) {}
  CLI::App app;
  std::string program;
  std::string section = "Flags";
  std::vector<std::string> names;
  std::set<std::string> texts;  // "--name=" of flags that may be empty
  std::vector<std::string>* command = nullptr;
  std::vector<std::function<Status()>> checks;

  CLI::Option* Finish(CLI::Option* option, const std::string& name) {
    names.push_back(name.substr(0, name.find(',')));
    return option->group(section)->take_last()->capture_default_str();
  }
};

Flags::Flags(std::string program, std::string description)
    : impl_(std::make_unique<Impl>(program, description)) {
  impl_->app.set_help_flag("--help,-h", "show this text and exit");
  impl_->app.set_version_flag("--version", program + " " + control::SoftwareVersion(),
                              "show the version and exit");
  impl_->names = {"help", "version"};
}
Flags::~Flags() = default;

void Flags::Add(const std::string& name, std::string* value, const std::string& help) {
  impl_->texts.insert("--" + name.substr(0, name.find(',')) + "=");
  impl_->Finish(impl_->app.add_option("--" + name, *value, help), name);
}
void Flags::Add(const std::string& name, int* value, const std::string& help) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help), name);
}
void Flags::Add(const std::string& name, int64_t* value, const std::string& help) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help), name);
}
void Flags::Add(const std::string& name, double* value, const std::string& help) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help), name);
}
void Flags::Add(const std::string& name, int* value, const std::string& help, int64_t at_least) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help)->check(AtLeast(at_least)), name);
}
void Flags::Add(const std::string& name, int64_t* value, const std::string& help,
                int64_t at_least) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help)->check(AtLeast(at_least)), name);
}
void Flags::Add(const std::string& name, bool* value, const std::string& help) {
  impl_->Finish(impl_->app.add_flag("--" + name + ",!--no" + name, *value, help), name);
}
void Flags::Add(const std::string& name, std::optional<int>* value, const std::string& help) {
  impl_->Finish(impl_->app.add_option_function<int>(
                    "--" + name, [value](int given) { *value = given; }, help),
                name);
}
void Flags::AddChoice(const std::string& name, std::string* value, std::vector<std::string> choices,
                      const std::string& help) {
  impl_->Finish(impl_->app.add_option("--" + name, *value, help)->check(CLI::IsMember(choices)),
                name);
}
void Flags::AddPositional(const std::string& name, std::vector<std::string>* values, int count,
                          const std::string& help) {
  CLI::Option* option = impl_->app.add_option(name, *values, help);
  if (count > 0) option->expected(count)->required();
}
void Flags::AddCommand(std::vector<std::string>* command, const std::string& help) {
  impl_->command = command;
  impl_->app.footer("Everything after -- is the command: " + help);
}
void Flags::AddCheck(std::function<Status()> check) { impl_->checks.push_back(std::move(check)); }
void Flags::Section(const std::string& title) { impl_->section = title; }

std::optional<int> Flags::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> own = arguments;
  if (impl_->command != nullptr) {
    // The command begins after "--".
    auto split = std::find(own.begin(), own.end(), "--");
    if (split != own.end()) {
      impl_->command->assign(split + 1, own.end());
      own.erase(split, own.end());
    }
  }
  // CLI11 takes "--name=" for a flag whose value is the next argument.
  for (size_t i = 0; i < own.size(); ++i) {
    if (!impl_->texts.contains(own[i])) continue;
    own[i].pop_back();
    own.insert(own.begin() + static_cast<std::ptrdiff_t>(++i), "");
  }
  std::reverse(own.begin(), own.end());  // CLI11 takes them last first
  try {
    impl_->app.parse(own);
  } catch (const CLI::Success& success) {  // --help, --version
    impl_->app.exit(success);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      for (const std::string& word : impl_->app.remaining()) {
        if (word.rfind("--", 0) != 0) {
          message = "unexpected argument '" + word + "'";
          break;
        }
        const std::string name = word.substr(2, word.find('=') - 2);
        message = "unknown flag --" + name;
        if (std::string near = NearestName(name, impl_->names); !near.empty())
          message += "; did you mean --" + near + "?";
        break;
      }
    }
    std::fprintf(stderr, "%s: %s (see --help)\n", impl_->program.c_str(), message.c_str());
    return 2;
  }
  for (const std::function<Status()>& check : impl_->checks) {
    if (const Status status = check(); !status.ok()) return Refuse(status);
  }
  return std::nullopt;
}

std::optional<int> Flags::Parse(int argc, const char* const* argv) {
  return Parse(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}

int Flags::Exit(const Status& status) const {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", impl_->program.c_str(), status.ToString().c_str());
  return 1;
}

int Flags::Refuse(const Status& status) const {
  std::fprintf(stderr, "%s: %s (see --help)\n", impl_->program.c_str(), status.message().c_str());
  return 2;
}

bool Flags::given(const std::string& name) const {
  return impl_->app.get_option("--" + name)->count() > 0;
}

}  // namespace monograph
