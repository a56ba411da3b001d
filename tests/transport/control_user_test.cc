// Without a key a process serves, and calls, only processes of its own user. The other user is a
// process of ours that has given up being root.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "base/descriptor.h"
#include "tests/transport/control_testing.h"
#include "transport/control/peer_user.h"

namespace monograph::control {
namespace {

constexpr uid_t kStranger = 54321;

// Runs in a new process of the other user, until it ends or the object does.
class Stranger {
 public:
  // A program: its arguments after its name. The user need not be able to reach its folder.
  explicit Stranger(const std::vector<std::string>& arguments) {
    const Descriptor program(open(MG_CONTROL_PEER, O_RDONLY));  // closed by exec's end only
    std::vector<char*> words{const_cast<char*>("control_peer")};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    Start([&] { fexecve(program.get(), words.data(), environ); });
  }
  // A connection to the port that sends `bytes` and prints whatever comes.
  Stranger(uint16_t port, const std::string& bytes) {
    Start([&] {
      const int peer = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(port);
      if (connect(peer, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return;
      (void)!write(peer, bytes.data(), bytes.size());
      char buffer[4096];
      for (ssize_t got; (got = read(peer, buffer, sizeof buffer)) > 0;)
        (void)!write(STDOUT_FILENO, buffer, static_cast<size_t>(got));
      _exit(0);
    });
  }
  ~Stranger() {
    input_.Close();
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // What it prints, to its end or to the end of a line.
  std::string Read(bool line = false) {
    std::string text;
    char c = 0;
    while (read(output_.get(), &c, 1) == 1 && !(line && c == '\n')) text += c;
    return text;
  }

 private:
  template <typename Body>
  void Start(Body body) {
    std::array<int, 2> in{}, out{};
    ASSERT_EQ(0, pipe2(in.data(), O_CLOEXEC));
    ASSERT_EQ(0, pipe2(out.data(), O_CLOEXEC));
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      alarm(60);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      if (setgroups(0, nullptr) == 0 && setresgid(kStranger, kStranger, kStranger) == 0 &&
          setresuid(kStranger, kStranger, kStranger) == 0)
        body();
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    input_ = Descriptor(in[1]);
    output_ = Descriptor(out[0]);
  }

  pid_t pid_ = -1;
  Descriptor input_, output_;
};

class OtherUserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can start a process of another user";
  }
  static void ExpectBothUsers(const std::string& text) {
    for (const char* part : {"user 54321", "user 0", "monograph keygen", "--key_file"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
};

TEST_F(OtherUserTest, AClientOfAnotherUserIsRefused) {
  TestServer server;
  Stranger client({"client", std::to_string(server.server->port())});
  ExpectBothUsers(client.Read());
  const Status refused = server.WaitForRefusal();
  EXPECT_EQ(refused.code(), Code::kUnauthenticated);
  ExpectBothUsers(refused.message());
  EXPECT_TRUE(server.connected.Get().empty());
  EXPECT_EQ(MustConnect(server)->Call("Echo", "of our own", 5s).value(), "of our own");
}

// One that is no program of ours, and does not ask whose server it calls.
TEST_F(OtherUserTest, ItLearnsWhyAndNothingElseAndItsCallsAreNotRun) {
  ServerOptions options;
  options.hello.task_name = "/job:secret/replica:0/task:0";
  options.hello.fingerprint = "fingerprint-of-the-ops";
  TestServer server(options);
  Preamble preamble;
  preamble.software_version = SoftwareVersion();
  Frame hello, call;
  hello.type = FrameType::kHello;
  hello.body = EncodeHello(Hello());
  call.text = "Echo";
  call.body = "run this";
  Stranger client(server.server->port(), EncodePreamble(preamble) + EncodeHead(hello) + hello.body +
                                             EncodeHead(call) + call.body);
  const std::string said = client.Read();
  ExpectBothUsers(said);
  for (const char* part : {"secret", "fingerprint-of", "run this"})
    EXPECT_EQ(said.find(part), std::string::npos) << part;
  const std::string own = EncodeHello(Hello());  // our incarnation is in it
  EXPECT_EQ(said.find(own.substr(9, 8)), std::string::npos);
  ExpectBothUsers(server.WaitForRefusal().message());
  EXPECT_TRUE(server.connected.Get().empty());
}

TEST_F(OtherUserTest, AServerOfAnotherUserIsNotCalledNotEvenByRoot) {
  Stranger server({"server"});
  const std::string port = server.Read(/*line=*/true);
  const Status status = Channel::Connect("127.0.0.1:" + port, ClientOptions()).status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  ExpectBothUsers(status.message());
}

TEST_F(OtherUserTest, WithAKeyTheUserDoesNotMatter) {
  ServerOptions options;
  options.key = KeyOf(1);
  TestServer server(options);
  Stranger client({"client", std::to_string(server.server->port()), FormatKey(KeyOf(1))});
  EXPECT_EQ(client.Read(/*line=*/true), "ready");
  Stranger without({"client", std::to_string(server.server->port())});
  EXPECT_NE(without.Read().find("was started with a key"), std::string::npos);
}

TEST(PeerUserTest, AnswersForLoopbackAndForNothingElse) {
  TestServer server;
  auto channel = MustConnect(server);
  EXPECT_EQ(CheckPeerUser(STDERR_FILENO, "it").code(), Code::kUnauthenticated);
  int ends[2];
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  EXPECT_EQ(CheckPeerUser(ends[0], "it").code(), Code::kUnauthenticated);
  close(ends[0]);
  close(ends[1]);
  for (const int family : {AF_INET, AF_INET6}) {
    const Descriptor listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    }
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) continue;
    ASSERT_EQ(0, listen(listener.get(), 4));
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    Descriptor caller(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0, connect(caller.get(), reinterpret_cast<sockaddr*>(&address), bytes));
    // Not accepted yet: its other end is nobody's.
    EXPECT_EQ(CheckPeerUser(caller.get(), "it").code(), Code::kUnavailable);
    const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(CheckPeerUser(caller.get(), "it"), Status());
    EXPECT_EQ(CheckPeerUser(accepted.get(), "it"), Status());
    caller.Close();
    EXPECT_EQ(CheckPeerUser(accepted.get(), "it").code(), Code::kUnavailable);
    // The same where it is closed so that nothing is left of it.
    Descriptor killed(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0, connect(killed.get(), reinterpret_cast<sockaddr*>(&address), bytes));
    const Descriptor other(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger at_once{1, 0};
    setsockopt(killed.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    killed.Close();
    EXPECT_EQ(CheckPeerUser(other.get(), "it").code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace monograph::control
