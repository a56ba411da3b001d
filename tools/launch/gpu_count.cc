#include "tools/launch/gpu_count.h"

#include <cstdio>
#include <memory>

namespace monograph {

std::string ShellWord(const std::string& word) {
  if (word.find_first_of(" \t\n'\"\\&|;<>()*?[]#`") == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

int CountGpus(const LaunchOptions& options, const std::string& host) {
  std::string command = "timeout 30 ";
  if (host.empty()) {
    command += ShellWord(options.executor) + " --count_gpus";
  } else {
    command += "ssh -n -o BatchMode=yes " + ShellWord(host) + " " +
               ShellWord("exec " + ShellWord(options.remote_executor) + " --count_gpus");
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> said(popen((command + " 2>/dev/null").c_str(), "r"),
                                                   &pclose);
  int count = 0;
  if (said == nullptr || std::fscanf(said.get(), "%d", &count) != 1) return 0;
  return count;
}

}  // namespace monograph
