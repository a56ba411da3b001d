// The other process of ucx_process_test, tls_process_test and references_test: a transport that
// answers every message with its header (echo), keeps what comes by reference, too (keep), or sends
// payloads of 8 MiB for ever (send).
//
//   transport_peer echo|send ucx LANES|-
//   transport_peer keep|send reference LANES|-
//   transport_peer echo|send tls KEY_FILE|- [USER]
//
// "-": the default lanes; without a key. USER: the number of the user as whom it runs.
//
// Writes its address in hex and a newline to standard output, reads the tester's from standard
// input, connects, writes "ready". Each further line is the tester's new address, by which it
// connects anew and writes "ready". Ends when standard input ends.
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "tests/transport/hex.h"
#include "transport/tls/tls_transport.h"
#include "transport/ucx/ucx_transport.h"

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
  void OnDelivered(std::string_view header, Payload payload) override {
    if (keep) kept.push_back(std::move(payload));
    Answer(header);
  }

  bool keep = false;
  std::vector<Payload> kept;
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

Result<std::unique_ptr<Transport>> MakeUcx(const std::string& lanes, bool by_reference,
                                           MessageHandler* handler) {
  TransportOptions options{.net_devices = "lo"};
  if (lanes != "-") options.lanes = lanes;
  if (options.lanes == "tcp") options.trusted_network = {"127.0.0.0/8"};
  return MakeUcxTransport(options, handler, by_reference);
}

Result<std::unique_ptr<Transport>> MakeTls(const std::string& key_file, MessageHandler* handler) {
  TlsListenerOptions options;
  if (key_file != "-") {
    MG_ASSIGN_OR_RETURN(options.key, control::KeyRing::FromFile(key_file));
  }
  MG_ASSIGN_OR_RETURN(auto listener, TlsListener::Start(options));
  return MakeTlsTransport(std::move(listener), {}, handler);
}

int Fail(const Status& status) {
  std::cerr << status << "\n";
  return 1;
}

int Main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const std::string mode = argv[1], kind = argv[2], how = argv[3];
  if (argc == 5) {
    const auto user = static_cast<uid_t>(std::atoi(argv[4]));
    if (setresuid(user, user, user) != 0) return 1;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Echo echo;
  echo.keep = mode == "keep";
  auto made = kind == "tls" ? MakeTls(how, &echo) : MakeUcx(how, kind == "reference", &echo);
  if (!made.ok()) return Fail(made.status());
  echo.transport = std::move(made).value();
  std::cout << ToHex(echo.transport->address()) << std::endl;
  std::string line;
  std::getline(std::cin, line);
  const auto peer = echo.transport->Connect(FromHex(line), "tester");
  if (!peer.ok()) return Fail(peer.status());
  echo.connected = true;
  std::cout << "ready" << std::endl;
  Payload payload{Buffer::Allocate(HostAllocator(), 8 << 20), 0, 8 << 20};
  std::memset(payload.buffer.data(), 1, payload.bytes);
  if (mode == "send") {
    for (int i = 0; i < 4; ++i) SendForEver(echo, payload);
  }
  while (std::getline(std::cin, line)) {
    const Status anew = echo.transport->Reconnect(*peer, FromHex(line));
    if (!anew.ok()) return Fail(anew);
    std::cout << "ready" << std::endl;
  }
  echo.transport->Close();
  echo.transport->Join();
  return 0;
}

}  // namespace
}  // namespace monograph

int main(int argc, char** argv) { return monograph::Main(argc, argv); }
