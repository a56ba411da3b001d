#include "bench/daemons.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "client/launch.h"

namespace monograph::bench {

Daemons::Daemons(int count) {
  int task = 0;
  for (const int port : Check(FreePorts(count))) {
    Check(cluster_.AddTask("worker", task++, "127.0.0.1:" + std::to_string(port)));
  }
}

Daemons::~Daemons() { Stop(); }

void Daemons::Start(const std::vector<std::string>& flags, bool pinned) {
  const std::string executor =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "monograph-executor";
  const int count = cluster_.num_tasks("worker");
  for (int task = 0; task < count; ++task) {
    std::vector<std::string> words = {executor,
                                      "--cluster=" + cluster_.ToJson(),
                                      "--job=worker",
                                      "--task=" + std::to_string(task),
                                      "--log_level=error",
                                      "--exit_with_parent"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid < 0) Die("cannot fork");
    if (pid == 0) {
      if (pinned) PinTo(task);
      execv(argv[0], argv.data());
      _exit(127);
    }
    running_.push_back(pid);
  }
}

void Daemons::Stop() {
  for (const pid_t pid : running_) kill(pid, SIGTERM);
  for (const pid_t pid : running_) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) Die("cannot start monograph-executor");
  }
  running_.clear();
}

}  // namespace monograph::bench
