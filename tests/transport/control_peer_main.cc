// The other process of control_test: a server or a client that the test kills, stops and restarts.
//
//   control_peer server
//     prints its port, serves Echo and Later (which never answers) until its standard input ends
//   control_peer client PORT [KEY]
//     connects, watches the server by heartbeats, prints "ready", waits until its standard input
//     ends
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "transport/control/channel.h"
#include "transport/control/heartbeat.h"
#include "transport/control/server.h"

namespace monograph::control {
namespace {

void WaitForEndOfInput() {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

int ServeUntilEnd() {
  std::vector<Reply> kept;
  ServerHandlers handlers;
  handlers.methods["Echo"] = {
      [](const CallContext&, std::string request, Reply reply) { reply(std::move(request)); }};
  handlers.methods["Later"] = {
      [&kept](const CallContext&, std::string, Reply reply) { kept.push_back(std::move(reply)); },
      Method::Run::kInline};
  ServerOptions options;
  options.hello.task_name = "/job:worker/replica:0/task:3";
  auto server = Server::Start(std::move(options), std::move(handlers));
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("%d\n", server.value()->port());
  std::fflush(stdout);
  WaitForEndOfInput();
  return 0;
}

int WatchUntilEnd(const std::string& port, const char* key) {
  ChannelOptions options;
  if (key != nullptr) options.key = ParseKey(key).value();
  options.hello.task_name = "/job:client/replica:0/task:9";
  auto channel = Channel::Connect("127.0.0.1:" + port, std::move(options));
  if (!channel.ok()) {
    std::fprintf(stderr, "%s\n", channel.status().ToString().c_str());
    return 1;
  }
  HeartbeatOptions heartbeats;
  heartbeats.interval = std::chrono::milliseconds(50);
  auto monitor = HeartbeatMonitor::Start(heartbeats);
  const uint64_t watch = monitor->Watch(*channel.value(), nullptr);
  for (auto health = monitor->Health(watch); health && health->answers == 0;
       health = monitor->Health(watch))
    usleep(1000);
  std::printf("ready\n");
  std::fflush(stdout);
  WaitForEndOfInput();
  return 0;
}

}  // namespace
}  // namespace monograph::control

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "server") return monograph::control::ServeUntilEnd();
  if (role == "client" && argc > 2) return monograph::control::WatchUntilEnd(argv[2], argv[3]);
  std::fprintf(stderr, "usage: control_peer server | client PORT [KEY]\n");
  return 2;
}
