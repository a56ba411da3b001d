// The other process of tls_process_test: a TLS transport that answers every message with its header
// (echo) or sends payloads of 8 MiB for ever (send).
//
//   tls_peer echo|send KEY_FILE|- [USER]
//
// "-": without a key. USER: the number of the user as whom it runs.
//
// Writes its address in hex and a newline to standard output, reads the tester's from standard
// input, connects, writes "ready". Ends when standard input ends.
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "tests/transport/hex.h"
#include "transport/tls/tls_transport.h"

namespace monograph {
namespace {

class Echo : public MessageHandler {
 public:
  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override {
    Buffer buffer = Buffer::Allocate(HostAllocator(), payload_bytes);
    void* data = buffer.data();
    return {data,
            [this, name = std::string(header)](const Status& status) {
              if (status.ok()) Answer(name);
            },
            buffer};
  }
  void OnDelivered(std::string_view header, Payload) override { Answer(header); }

  std::unique_ptr<Transport> transport;
  std::atomic<bool> connected{false};

 private:
  void Answer(std::string_view header) {
    if (connected) transport->Send(0, header, {}, nullptr);
  }
};

void SendForEver(Echo& echo, const Payload& payload) {
  echo.transport->Send(0, "data", payload, [&echo, &payload](const Status& status) {
    if (status.ok()) SendForEver(echo, payload);
  });
}

int Main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  if (argc == 4 && setresuid(static_cast<uid_t>(atoi(argv[3])), static_cast<uid_t>(atoi(argv[3])),
                             static_cast<uid_t>(atoi(argv[3]))) != 0)
    return 1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TlsListenerOptions options;
  if (strcmp(argv[2], "-") != 0) {
    const auto keys = control::KeyRing::FromFile(argv[2]);
    if (!keys.ok()) {
      std::cerr << keys.status() << "\n";
      return 1;
    }
    options.key = *keys;
  }
  Echo echo;
  auto listener = TlsListener::Start(options);
  if (!listener.ok()) {
    std::cerr << listener.status() << "\n";
    return 1;
  }
  echo.transport = MakeTlsTransport(*listener, {}, &echo).value();
  std::cout << ToHex(echo.transport->address()) << std::endl;
  std::string line;
  std::getline(std::cin, line);
  auto peer = echo.transport->Connect(FromHex(line), "tester");
  if (!peer.ok()) {
    std::cerr << peer.status() << "\n";
    return 1;
  }
  echo.connected = true;
  std::cout << "ready" << std::endl;
  Payload payload{Buffer::Allocate(HostAllocator(), 8 << 20), 0, 8 << 20};
  memset(payload.buffer.data(), 1, payload.bytes);
  if (strcmp(argv[1], "send") == 0) {
    for (int i = 0; i < 4; ++i) SendForEver(echo, payload);
  }
  std::getline(std::cin, line);
  echo.transport->Close();
  echo.transport->Join();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
