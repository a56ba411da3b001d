#include "ops/gpu/found_algorithms.h"

#include <fstream>
#include <sstream>

#include "base/input_file.h"
#include "base/log.h"

namespace monograph::ops {
namespace {

constexpr char kVersion[] = " 1";

}  // namespace

FoundAlgorithms& FoundAlgorithms::Global() {
  static FoundAlgorithms* const found = new FoundAlgorithms;
  return *found;
}

std::optional<std::string> FoundAlgorithms::Look(const std::string& file, const std::string& family,
                                                 const std::string& what) {
  MutexLock lock(mutex_);
  const Choices& choices = Of(file);
  const auto it = choices.find({family, what});
  if (it == choices.end()) return std::nullopt;
  return it->second;
}

void FoundAlgorithms::Keep(const std::string& file, const std::string& family,
                           const std::string& what, const std::string& choice) {
  MutexLock lock(mutex_);
  Of(file)[{family, what}] = choice;
  if (file.empty()) return;
  std::ofstream out(file, std::ios::app);
  out << (family + kVersion + "\t" + what + "\t" + choice + "\n") << std::flush;
  if (!out) LogWarning("cannot write the algorithm cache " + file);
}

FoundAlgorithms::Choices& FoundAlgorithms::Of(const std::string& file) {
  const auto [it, is_new] = files_.try_emplace(file);
  Choices& choices = it->second;
  if (!is_new || file.empty()) return choices;
  const Result<std::string> text = ReadInputFile("algorithm cache", file, kMostTableBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) LogWarning(text.status().message());
  std::istringstream in(text.ok() ? *text : std::string());
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find('\t'), last = line.rfind('\t');
    if (first == std::string::npos || first == last) continue;
    std::string family = line.substr(0, first);
    if (!family.ends_with(kVersion)) continue;
    family.resize(family.size() - (sizeof kVersion - 1));
    choices[{std::move(family), line.substr(first + 1, last - first - 1)}] = line.substr(last + 1);
  }
  return choices;
}

}  // namespace monograph::ops
