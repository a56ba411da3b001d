#include "bench/daemons.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tools/free_ports.h"

namespace monograph::bench {

pid_t Spawn(std::vector<std::string> words, const std::function<void()>& in_child) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) Die("cannot fork");
  if (pid != 0) return pid;
  in_child();
  execv(argv[0], argv.data());
  _exit(127);
}

Daemons::Daemons(int count, int ps) {
  int task = 0;
  for (const int port : Check(FreePorts(count + ps))) {
    const std::string address = "127.0.0.1:" + std::to_string(port);
    Check(task < count ? cluster_.AddTask("worker", task, address)
                       : cluster_.AddTask("ps", task - count, address));
    ++task;
  }
}

Daemons::~Daemons() { Stop(); }

void Daemons::Start(const std::vector<std::string>& flags, bool pinned) {
  for (const auto& [job, tasks] : cluster_.jobs()) {
    for (const auto& [task, address] : tasks)
      StartTask(job, task, flags, pinned && job == "worker" ? task : -1);
  }
}

void Daemons::StartTask(const std::string& job, int task, const std::vector<std::string>& flags,
                        int core) {
  const std::string executor =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "monograph-executor";
  std::vector<std::string> words = {executor,
                                    "--cluster=" + cluster_.ToJson(),
                                    "--job=" + job,
                                    "--task=" + std::to_string(task),
                                    "--log_level=error",
                                    "--exit_with_parent"};
  words.insert(words.end(), flags.begin(), flags.end());
  running_.push_back(Spawn(std::move(words), [core] {
    if (core >= 0) PinTo(core);
  }));
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
