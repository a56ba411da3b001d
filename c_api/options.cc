#include "c_api/options.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

#include "graph/placement_log.h"
#include "tools/task_flags.h"

namespace monograph::c_api {
namespace {

constexpr int kMostThreads = 4096, kMostDevices = 1024;
constexpr double kLongest = 1e7;  // seconds

using Setter = std::function<Status(const std::string& value)>;
using Setters = std::map<std::string_view, Setter>;

Status SetByName(const Setters& setters, std::string_view name, const std::string& value) {
  if (const auto found = setters.find(name); found != setters.end())
    return found->second(value).WithContext("option '" + std::string(name) + "'");
  std::string known;
  for (const auto& [option, setter] : setters)
    known += (known.empty() ? "" : ", ") + std::string(option);
  return InvalidArgument("there is no option '" + std::string(name) + "'; there are " + known);
}

Setter Text(std::string* text) {
  return [text](const std::string& value) {
    *text = value;
    return Status();
  };
}

Setter Bool(bool* flag) {
  return [flag](const std::string& value) {
    if (value != "true" && value != "false")
      return InvalidArgument("'" + value + "' is neither true nor false");
    *flag = value == "true";
    return Status();
  };
}

Setter Number(int* number, int least, int most) {
  return [=](const std::string& value) {
    int parsed = 0;
    const char* const last = value.data() + value.size();
    const auto [end, error] = std::from_chars(value.data(), last, parsed);
    if (error != std::errc() || end != last || parsed < least || parsed > most) {
      return InvalidArgument("'" + value + "' is no whole number from " + std::to_string(least) +
                             " to " + std::to_string(most));
    }
    *number = parsed;
    return Status();
  };
}

Setter Seconds(std::chrono::milliseconds* time) {
  return [time](const std::string& value) {
    double seconds = -1;
    const char* const last = value.data() + value.size();
    const auto [end, error] = std::from_chars(value.data(), last, seconds);
    if (error != std::errc() || end != last || !(seconds >= 0) || seconds > kLongest)
      return InvalidArgument("'" + value + "' is no number of seconds from 0 to 10000000");
    *time = std::chrono::milliseconds(std::llround(std::ceil(seconds * 1000)));
    return Status();
  };
}

Setter List(std::vector<std::string>* list) {
  return [list](const std::string& value) {
    list->clear();
    std::istringstream words(value);
    for (std::string word; std::getline(words, word, ',');) {
      if (!word.empty()) list->push_back(word);
    }
    return Status();
  };
}

// What sessions and servers have in common.
template <typename Options>
void AddTaskSetters(Options* options, Setters* setters) {
  (*setters)["inter_op_parallelism_threads"] =
      Number(&options->inter_op_parallelism_threads, 0, kMostThreads);
  (*setters)["intra_op_parallelism_threads"] =
      Number(&options->intra_op_parallelism_threads, 0, kMostThreads);
  (*setters)["gpu_devices"] = Number(&options->gpu.device_count, -1, kMostDevices);
  (*setters)["lanes"] = Text(&options->transport.lanes);
  (*setters)["trusted_network"] = List(&options->transport.trusted_network);
}

Status SetPlacementLog(SessionOptions* options, const std::string& value) {
  MG_ASSIGN_OR_RETURN(options->log_device_placement, ParsePlacementLog(value));
  options->placement_sink = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  };
  return Status();
}

}  // namespace

Status SessionSettings::Set(std::string_view name, const std::string& value) {
  Setters setters = {
      {"target", Text(&target)},
      {"cluster", Text(&cluster)},
      {"key_file", Text(&key_file)},
      {"start_timeout", Seconds(&options.start_timeout)},
      {"operation_timeout", Seconds(&options.operation_timeout)},
      {"allow_soft_placement", Bool(&options.allow_soft_placement)},
      {"log_device_placement",
       [this](const std::string& text) { return SetPlacementLog(&options, text); }},
      {"device_filters", List(&options.device_filters)},
      {"cpu_devices", Number(&cpu_devices, 1, kMostDevices)},
      {"optimizer_level", Number(&options.optimizer.level, 0, 1)},
      {"tensorflow_random_streams", Bool(&options.tensorflow_random_streams)},
      {"container", Text(&options.container)},
  };
  AddTaskSetters(&options, &setters);
  return SetByName(setters, name, value);
}

Status ServerSettings::Set(std::string_view name, const std::string& value) {
  Setters setters = {
      {"bind", Text(&options.bind)},
      {"key_file", Text(&key_file)},
      {"cpu_devices", Number(&options.cpu_devices, 1, kMostDevices)},
  };
  AddTaskSetters(&options, &setters);
  return SetByName(setters, name, value);
}

Result<std::optional<control::KeyRing>> ReadKey(const std::string& file) {
  return KeyFlag{file}.Read();
}

}  // namespace monograph::c_api
