// FoundAlgorithms: what searches on GPUs found to be the fastest, for the process and on disk.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace monograph::ops {

// Thread-safe. One line of a file:
//
//   family " 1" TAB what TAB choice
//
// `family` says whose words `choice` is in ("conv", "pool"); `what` names device, versions and
// shape. Of lines of the same family and `what` the last one counts. Lines that are no such lines,
// or of another version, are left alone. What has no file (the name is empty) is kept for the
// process.
class FoundAlgorithms {
 public:
  static FoundAlgorithms& Global();

  std::optional<std::string> Look(const std::string& file, const std::string& family,
                                  const std::string& what);
  // Appends a line. A file that cannot be written costs a warning.
  void Keep(const std::string& file, const std::string& family, const std::string& what,
            const std::string& choice);

 private:
  using Choices = std::map<std::pair<std::string, std::string>, std::string>;
  Choices& Of(const std::string& file) MG_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, Choices> files_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::ops
