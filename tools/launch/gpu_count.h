// How many GPUs a machine has, for a launch that gives each a process.
#pragma once

#include <string>

#include "tools/launch.h"

namespace monograph {

// Asks the executor of this machine (`host` is empty) or of another one, by ssh, for at most half a
// minute. 0 if it says nothing: what is wrong there is told when its daemons are started.
int CountGpus(const LaunchOptions& options, const std::string& host);

// The word as a shell takes it for one; "~/" and variables keep their meaning where nothing else
// needs quotes.
std::string ShellWord(const std::string& word);

}  // namespace monograph
