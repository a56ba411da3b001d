// Four parts. Args reads the words that all benchmarks know. Report interleaves: after one
// repetition that is not counted, each runs ours, every reference, and ours again, in another order
// of references each time, and a row is made of the ratios within the repetitions. Child is a
// process that is told and asked lines through two pipes. Peer is such a process that runs another
// framework's side; it is started early, because importing one takes long.
#include "bench/harness.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace monograph::bench {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void Die(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

Args Args::Parse(int argc, char** argv, const char* what) {
  Args args;
  args.program = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&](const char* flag) -> std::optional<std::string> {
      const std::string start = std::string("--") + flag + "=";
      if (!arg.starts_with(start)) return std::nullopt;
      return arg.substr(start.size());
    };
    if (arg == "--quick") {
      args.quick = true;
    } else if (arg == "--profile") {
      args.profile = true;
    } else if (arg == "--plan") {
      args.plan = true;
    } else if (arg == "--small") {
      args.small = true;
    } else if (arg == "--list") {
      args.list = true;
    } else if (const auto json = value("json")) {
      args.json = *json;
    } else if (const auto repetitions = value("repetitions")) {
      args.repetitions = std::max(1, std::atoi(repetitions->c_str()));
    } else if (const auto only = value("case")) {
      args.only = *only;
    } else if (const auto tensorflow = value("tensorflow")) {
      args.tensorflow = *tensorflow;
    } else if (const auto ray = value("ray")) {
      args.ray = *ray;
    } else if (const auto torch = value("torch")) {
      args.torch = *torch;
    } else {
      std::FILE* out = arg == "--help" ? stdout : stderr;
      if (out == stderr) std::fprintf(stderr, "unknown argument '%s'\n\n", argv[i]);
      std::fprintf(
          out,
          "%s\n\n"
          "  --json=FILE          append one JSON row per line\n"
          "  --quick              a third of the repetitions\n"
          "  --repetitions=N      repetitions of every case\n"
          "  --case=TEXT          only cases whose names contain TEXT\n"
          "  --list               only the names of the cases\n"
          "  --tensorflow=PYTHON  interpreter that has TensorFlow: run it in turn with ours\n"
          "  --ray=PYTHON         the same for Ray\n"
          "  --torch=PYTHON       the same for torch\n"
          "  --profile            show where the time goes, where the benchmark can\n"
          "  --plan               of gpu_bench: what each node of a step moves, without a GPU\n"
          "  --small              of gpu_bench: sizes that an emulated GPU computes in seconds, "
          "where "
          "numbers count\n",
          what);
      std::exit(out == stdout ? 0 : 2);
    }
  }
  return args;
}

bool Args::Wants(const std::string& name) const {
  const bool wanted = name.find(only) != std::string::npos;
  if (wanted && list) std::printf("%s\n", name.c_str());
  return wanted && !list;
}

int Args::Repetitions(int standard) const {
  if (repetitions > 0) return repetitions;
  return quick ? std::max(3, standard / 3) : standard;
}

Side Side::Of(std::string name, std::function<double()> repetition) {
  return {std::move(name), [repetition = std::move(repetition)] {
            return std::optional(std::vector<double>{repetition()});
          }};
}

Report::Report(const Args& args) : args_(args) {
  if (args.json.empty()) return;
  json_ = std::fopen(args.json.c_str(), "a");
  if (json_ == nullptr) Die("cannot write '" + args.json + "'");
}

Report::~Report() {
  if (json_ != nullptr) std::fclose(json_);
}

void Report::Compare(const std::string& bench, const std::string& unit,
                     const std::vector<Subject>& subjects, const Side& ours,
                     const std::vector<Side>& references, int repetitions) {
  struct Values {
    bool alive = true;
    std::vector<std::vector<double>> of_repetition;  // empty where it did not run
  };
  Values first, second;
  std::vector<Values> theirs(references.size());
  const auto run = [&](const Side& side, Values* values, int repetition) {
    std::vector<double> result;
    if (values->alive && (repetition < 0 || repetition % side.every == 0)) {
      const std::optional<std::vector<double>> got = side.repetition();
      values->alive = got && got->size() == subjects.size();
      if (values->alive) result = *got;
    }
    if (repetition >= 0) values->of_repetition.push_back(result);
  };
  for (int r = -1; r < repetitions; ++r) {
    run(ours, &first, r);
    for (size_t i = 0; i < references.size(); ++i) {
      // In another order every time: whoever follows a heavy one may find the machine in another
      // state.
      const size_t k = (i + static_cast<size_t>(r + 1)) % references.size();
      run(references[k], &theirs[k], r);
    }
    run(ours, &second, r);
  }
  if (!first.alive || !second.alive) Die(bench + ": our own side failed");
  for (size_t s = 0; s < subjects.size(); ++s) {
    for (size_t k = 0; k < references.size(); ++k) {
      if (!theirs[k].alive) continue;
      std::vector<double> a, b, c;
      for (size_t r = 0; r < theirs[k].of_repetition.size(); ++r) {
        if (theirs[k].of_repetition[r].empty()) continue;
        a.push_back(first.of_repetition[r][s]);
        b.push_back(second.of_repetition[r][s]);
        c.push_back(theirs[k].of_repetition[r][s]);
      }
      Add(bench, unit, subjects[s].name, k == 0 ? subjects[s].goal : references[k].goal,
          references[k], a, b, c);
    }
  }
}

void Report::Add(const std::string& bench, const std::string& unit, const std::string& name,
                 const std::optional<Goal>& goal, const Side& reference,
                 const std::vector<double>& first, const std::vector<double>& second,
                 const std::vector<double>& theirs) {
  std::vector<double> a, b, ratios, ours;
  for (size_t r = 0; r < theirs.size(); ++r) {
    a.push_back(first[r] / theirs[r]);
    b.push_back(second[r] / theirs[r]);
    ratios.push_back((a.back() + b.back()) / 2);
    ours.push_back((first[r] + second[r]) / 2);
  }
  const double value = Median(ours), reference_value = Median(theirs), ratio = Median(ratios);
  const double spread = ratio == 0 ? 0 : std::abs(Median(a) - Median(b)) / ratio;
  std::sort(ratios.begin(), ratios.end());
  const size_t tenth = ratios.size() / 10;
  const double low = ratios[tenth], high = ratios[ratios.size() - 1 - tenth];
  std::string verdict;
  if (goal) {
    const bool met = goal->is == Goal::kMin ? ratio >= goal->value : ratio <= goal->value;
    char text[64];
    std::snprintf(text, sizeof text, "%s %.4g: %s", goal->is == Goal::kMin ? "at least" : "at most",
                  goal->value, met ? "met" : "MISSED");
    verdict = text;
  }
  const std::string against =
      reference.name + (reference.version.empty() ? "" : " (" + reference.version + ")");
  std::printf("%-10s %-28s %10.4g %-8s %-28s %10.4g  ratio %7.3f [%.3f .. %.3f] +-%.1f %%  %s\n",
              bench.c_str(), name.c_str(), value, unit.c_str(), against.c_str(), reference_value,
              ratio, low, high, spread * 100, verdict.c_str());
  std::fflush(stdout);
  if (json_ == nullptr) return;
  const auto rounded = [](double number) {  // six digits: more only looks exact
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", number);
    return std::atof(text);
  };
  nlohmann::ordered_json row;
  row["bench"] = bench;
  row["case"] = name;
  row["value"] = rounded(value);
  row["unit"] = unit;
  row["reference"] = reference.name;
  row["reference_version"] = nullptr;
  if (!reference.version.empty()) row["reference_version"] = reference.version;
  row["reference_value"] = rounded(reference_value);
  row["ratio"] = rounded(ratio);
  row["goal"] = nullptr;
  row["goal_is"] = nullptr;
  if (goal) {
    row["goal"] = goal->value;
    row["goal_is"] = goal->is == Goal::kMin ? "min" : "max";
  }
  row["low"] = rounded(low);
  row["high"] = rounded(high);
  row["repetitions"] = theirs.size();
  row["spread"] = rounded(spread);
  std::fprintf(json_, "%s\n", row.dump().c_str());
  std::fflush(json_);
}

// ---- children
// ------------------------------------------------------------------------------------------------------

std::optional<std::string> Child::Channel::TryReadLine() {
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char bytes[4096];
    const ssize_t n = read(in_.get(), bytes, sizeof bytes);
    if (n <= 0) return std::nullopt;
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

std::string Child::Channel::ReadLine() {
  std::optional<std::string> line = TryReadLine();
  if (!line) _exit(0);
  return *line;
}

void Child::Channel::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(out_.get(), text.data() + sent, text.size() - sent);
    if (n <= 0) return;  // it has ended: the next Hear tells
    sent += static_cast<size_t>(n);
  }
}

namespace {

struct Pipe {
  Descriptor read, write;
};

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("cannot make a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

std::unique_ptr<Child> Child::Fork(const std::function<void(Channel&)>& body, int core) {
  signal(SIGPIPE, SIG_IGN);
  Pipe to = MakePipe(), from = MakePipe();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) Die("cannot fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    to.write.Close();
    from.read.Close();
    if (core >= 0) PinTo(core);
    Channel channel(std::move(to.read), std::move(from.write));
    body(channel);
    _exit(0);
  }
  return std::unique_ptr<Child>(new Child(pid, std::move(from.read), std::move(to.write)));
}

std::unique_ptr<Child> Child::Start(const std::vector<std::string>& command) {
  signal(SIGPIPE, SIG_IGN);
  Pipe to = MakePipe(), from = MakePipe();
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) Die("cannot fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(to.read.get(), STDIN_FILENO);
    dup2(from.write.get(), STDOUT_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  return std::unique_ptr<Child>(new Child(pid, std::move(from.read), std::move(to.write)));
}

Child::~Child() {
  channel_.out_.Close();  // the end of its input ends it
  for (int i = 0; i < 300; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(10'000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Child::Ask(const std::string& line) {
  Tell(line);
  std::optional<std::string> answer = Hear();
  if (!answer) Die("a child process has ended at '" + line.substr(0, 40) + "'");
  return *answer;
}

// ---- peers
// ---------------------------------------------------------------------------------------------------------

std::unique_ptr<Peer> Peer::Start(const std::string& python, const std::string& script,
                                  const std::vector<std::string>& arguments, bool on_monograph) {
  if (python.empty()) return nullptr;
  // The package `monograph` of the same build is there for programs that use it.
  const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::vector<std::string> command = {"env", "PYTHONPATH=" + (build / "python").string(), python};
  if (on_monograph) command.insert(command.end(), {"-m", "monograph.tensorflow"});
  command.insert(command.end(), {std::string(MG_BENCH_PEERS) + "/" + script, "--serve"});
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto peer = std::make_unique<Peer>();
  peer->script_ = script;
  peer->child_ = Child::Start(command);
  return peer;
}

bool Peer::WaitReady() {
  const std::optional<std::string> line = child_->Hear();
  const auto answer = nlohmann::json::parse(line.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("ready")) {
    version_ = answer.value("version", "");
    return true;
  }
  std::fprintf(stderr, "%s did not start: its rows are left out\n", script_.c_str());
  return false;
}

Side Peer::AsSide(const std::string& system, const std::string& name, int every,
                  const std::vector<std::string>& more) {
  std::vector<std::string> keys{"value"};
  keys.insert(keys.end(), more.begin(), more.end());
  return {system,
          [this, name, keys]() -> std::optional<std::vector<double>> {
            child_->Tell(name);
            const std::optional<std::string> line = child_->Hear();
            if (!line) {
              std::fprintf(stderr, "%s has ended: its rows are left out\n", script_.c_str());
              return std::nullopt;
            }
            const auto answer = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
            std::vector<double> values;
            for (const std::string& key : keys) {
              if (!answer.is_object() || !answer.contains(key) || !answer[key].is_number()) {
                std::fprintf(stderr, "%s: %s\n", script_.c_str(), line->c_str());
                return std::nullopt;
              }
              values.push_back(answer[key].get<double>());
            }
            return values;
          },
          every,
          /*goal=*/{}, version_};
}

void PinTo(int core) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int wanted = core % CPU_COUNT(&all);
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && seen++ == wanted) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace monograph::bench
