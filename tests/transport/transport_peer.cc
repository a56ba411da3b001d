#include "tests/transport/transport_peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace monograph {

TransportPeer::TransportPeer(std::vector<std::string> arguments) {
  int to[2], from[2];
  EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  arguments.insert(arguments.begin(), MG_TRANSPORT_PEER);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  in_ = Descriptor(to[1]);
  out_ = fdopen(from[0], "r");
}

TransportPeer::~TransportPeer() {
  Kill();
  fclose(out_);
}

std::string TransportPeer::ReadLine() {
  char line[8192];
  if (fgets(line, sizeof line, out_) == nullptr) return "";
  return std::string(line, strcspn(line, "\n"));
}

void TransportPeer::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  EXPECT_EQ(write(in_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void TransportPeer::Signal(int number) { kill(pid_, number); }

void TransportPeer::Stop() {
  Signal(SIGSTOP);
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  EXPECT_TRUE(WIFSTOPPED(status));
}

void TransportPeer::Kill() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace monograph
