// Runs the `monograph` command, for tests of what it prints.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {

// What a program leaves that ends by itself.
struct Ran {
  int code = -1;
  std::string output, error;
};

inline Ran RunToEnd(const std::vector<std::string>& argv,
                    const ChildProcess::Environment& environment = {}) {
  ChildProcess process(argv, environment);
  const std::optional<Exit> exit = process.Wait(60s);
  EXPECT_TRUE(exit.has_value() && !exit->signalled) << process.error();
  return {exit ? exit->code : -1, process.output(), process.error()};
}

// The command `monograph`.
inline Ran RunMonograph(std::vector<std::string> words,
                        const ChildProcess::Environment& environment = {}) {
  words.insert(words.begin(), MonographPath());
  return RunToEnd(words, environment);
}

inline void ExpectText(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

}  // namespace monograph
