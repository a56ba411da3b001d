// Keys as text and in files, and a cluster whose key is changed while it runs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/transport/control_testing.h"
#include "transport/control/key_ring.h"
#include "transport/control/tls.h"

namespace monograph::control {
namespace {

class KeyFileTest : public ::testing::Test {
 protected:
  KeyFileTest() {
    char name[] = "/tmp/mg-key-XXXXXX";
    directory_ = mkdtemp(name);
    path_ = directory_ + "/key";
  }
  ~KeyFileTest() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  // As somebody changes a key file: a new one in its place.
  void Hold(const Keys& keys) { ASSERT_TRUE(ReplaceKeyFile(path_, keys).ok()); }
  void ExpectNone(Code code, const std::string& part) {
    const Status status = ReadKeyFile(path_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(Contains(status, path_) && Contains(status, part)) << status;
  }
  std::string directory_, path_;
};

TEST_F(KeyFileTest, AKeyComesBackFromItsFileWhichOnlyTheOwnerMayRead) {
  const Key key = GenerateKey().value();
  EXPECT_FALSE(key == GenerateKey().value());
  ASSERT_TRUE(WriteKeyFile(path_, key).ok());
  struct stat info {};
  ASSERT_EQ(0, stat(path_.c_str(), &info));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(ReadKeyFile(path_).value() == Keys(key));
  EXPECT_TRUE(ParseKey(" " + FormatKey(key) + "\r\n").value() == key);
  EXPECT_EQ(KeyId(key).size(), 8u);
}

TEST_F(KeyFileTest, AnExistingFileIsNotOverwritten) {
  Write("precious");
  const Status status = WriteKeyFile(path_, KeyOf(1));
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(KeyFileTest, AFileThatOthersMayReadIsRefusedSayingWhatToDo) {
  for (const mode_t mode : {0640, 0604, 0660, 0620, 0601}) {
    Write(FormatKey(KeyOf(1)) + "\n", mode);
    ExpectNone(Code::kFailedPrecondition, "chmod 600 " + path_);
  }
}

TEST_F(KeyFileTest, AFileThatHoldsNoKeyIsExplained) {
  EXPECT_EQ(ReadKeyFile(path_).status().code(), Code::kNotFound);
  const std::string good = FormatKey(KeyOf(1));
  for (const std::string& text :
       {std::string(), std::string("\n\n"), std::string("abc\n"), std::string(63, 'a'),
        std::string(65, 'a'), std::string(64, 'x'), std::string(100000, 'a'),
        std::string("\xff\xfe") + good, good + " " + FormatKey(KeyOf(2)), good + "\nabc\n",
        good + std::string(1, '\0'), good + "\n" + FormatKey(KeyOf(2)) + "\n" + good}) {
    Write(text);
    ExpectNone(Code::kInvalidArgument, "64 hexadecimal digits");
  }
  Write(good + "\n" + good);
  ExpectNone(Code::kInvalidArgument, "same key twice");
}

TEST_F(KeyFileTest, LinesMayEndAsOnWindowsAndBeginWithAByteOrderMark) {
  const std::string one = FormatKey(KeyOf(1)), two = FormatKey(KeyOf(2));
  for (const std::string& text :
       {one, one + "\r\n", "\xef\xbb\xbf" + one + "\r\n", "\n " + one + " \n\n"}) {
    Write(text);
    EXPECT_EQ(ReadKeyFile(path_).status(), Status()) << text;
  }
  Write("\xef\xbb\xbf" + one + "\r\n\r\n" + two + "\r\n");
  EXPECT_TRUE(ReadKeyFile(path_).value() == Keys(KeyOf(1), KeyOf(2)));
}

// Zeros, and whatever else somebody types instead of making a key.
TEST_F(KeyFileTest, AKeyThatIsNoRandomOneIsRefused) {
  std::string counting, down, words;
  for (int i = 0; i < 32; ++i) {
    char text[3];
    counting += (std::snprintf(text, sizeof text, "%02x", i), text);
    down += (std::snprintf(text, sizeof text, "%02x", (255 - 3 * i) & 255), text);
  }
  for (int i = 0; i < 4; ++i) words += "0123456789abcdef";
  for (const std::string& text : {std::string(64, '0'), std::string(64, 'f'), std::string(64, '7'),
                                  counting, down, words, std::string(62, '0') + "01"}) {
    Write(text + "\n");
    ExpectNone(Code::kInvalidArgument, "no random one");
    Write(FormatKey(KeyOf(1)) + "\n" + text + "\n");
    ExpectNone(Code::kInvalidArgument, "no random one");
  }
  // Nor does a program get one past by making it itself.
  EXPECT_EQ(TlsContext::Make(Key(), /*server=*/true).status().code(), Code::kInvalidArgument);
  ServerOptions options;
  options.key = Keys(KeyOf(1), Key());
  EXPECT_EQ(Server::Start(options, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Channel::Connect("127.0.0.1:1", ClientOptions(Key())).status().code(),
            Code::kInvalidArgument);
}

TEST_F(KeyFileTest, OnlyARegularFileOfThisUserOrRootIsRead) {
  ASSERT_EQ(0, mkfifo(path_.c_str(), 0600));  // nobody writes: reading would wait for ever
  ExpectNone(Code::kFailedPrecondition, "pipe");
  unlink(path_.c_str());
  EXPECT_FALSE(ReadKeyFile(directory_).ok());
  EXPECT_FALSE(ReadKeyFile("/dev/zero").ok());
  // A link counts as what it leads to.
  Write(FormatKey(KeyOf(1)), 0644);
  const std::string link = directory_ + "/link";
  ASSERT_EQ(0, symlink(path_.c_str(), link.c_str()));
  EXPECT_EQ(ReadKeyFile(link).status().code(), Code::kFailedPrecondition);
  chmod(path_.c_str(), 0600);
  EXPECT_TRUE(ReadKeyFile(link).ok());
  ASSERT_EQ(0, symlink(link.c_str(), (directory_ + "/a").c_str()));
  ASSERT_EQ(0, symlink((directory_ + "/c").c_str(), (directory_ + "/b").c_str()));
  ASSERT_EQ(0, symlink((directory_ + "/b").c_str(), (directory_ + "/c").c_str()));
  EXPECT_TRUE(ReadKeyFile(directory_ + "/a").ok());
  EXPECT_FALSE(ReadKeyFile(directory_ + "/b").ok());
}

TEST_F(KeyFileTest, AFileOfAnotherUserIsRefusedNamingBoth) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  Write(FormatKey(KeyOf(1)) + "\n");
  ASSERT_EQ(0, chown(path_.c_str(), 54321, 54321));
  ExpectNone(Code::kFailedPrecondition,
             "belongs to user 54321, who so knows the key, and not to user 0");
}

TEST_F(KeyFileTest, AKeyIsReadFromADescriptorAndWhatFollowsItStays) {
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  const std::string text = FormatKey(KeyOf(3)) + "\nrest";
  ASSERT_EQ(static_cast<ssize_t>(text.size()), write(ends[1], text.data(), text.size()));
  EXPECT_TRUE(ReadKeyFrom(ends[0]).value() == KeyOf(3));
  char rest[8];
  EXPECT_EQ(4, read(ends[0], rest, sizeof rest));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(KeyFileTest, AFileIsReplacedInOneStepAndStaysTheOwners) {
  EXPECT_FALSE(ReplaceKeyFile(directory_ + "/none/key", KeyOf(1)).ok());
  Hold(KeyOf(1));
  const Keys two(KeyOf(1), KeyOf(2));
  Hold(two);
  EXPECT_TRUE(ReadKeyFile(path_).value() == two);
  struct stat info {};
  ASSERT_EQ(0, stat(path_.c_str(), &info));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto entries = std::filesystem::directory_iterator(directory_);
  EXPECT_EQ(1, std::distance(begin(entries), end(entries)));  // nothing else is left
}

TEST_F(KeyFileTest, ARingFollowsItsFileAndKeepsItsKeysWhileThatIsBroken) {
  EXPECT_EQ(KeyRing::FromFile(path_).status().code(), Code::kNotFound);
  Hold(KeyOf(1));
  const KeyRing ring = KeyRing::FromFile(path_).value();
  const std::shared_ptr<const Keys> first = ring.Current();
  EXPECT_TRUE(*first == Keys(KeyOf(1)));
  EXPECT_EQ(ring.Current(), first);
  for (const char* broken : {"", "abc", "half a ke"}) {
    Write(broken);
    EXPECT_EQ(ring.Current(), first);
  }
  unlink(path_.c_str());
  EXPECT_EQ(ring.Current(), first);
  Hold({KeyOf(2), KeyOf(1)});
  EXPECT_TRUE(*ring.Current() == Keys(KeyOf(2), KeyOf(1)));
  EXPECT_TRUE(*first == Keys(KeyOf(1)));
}

// The three steps of docs/programs.md, each taken by one of two nodes before the other: whoever
// dials, in whatever state, gets in, and a channel that was open stays so.
TEST_F(KeyFileTest, TheKeyOfARunningClusterIsChangedWithoutAStop) {
  const Keys states[] = {KeyOf(1), {KeyOf(1), KeyOf(2)}, {KeyOf(2), KeyOf(1)}, KeyOf(2)};
  const std::string other_path = directory_ + "/other";
  Hold(states[0]);
  ASSERT_TRUE(ReplaceKeyFile(other_path, states[0]).ok());
  const KeyRing here = KeyRing::FromFile(path_).value();
  const KeyRing there = KeyRing::FromFile(other_path).value();
  ServerOptions options;
  options.key = here;
  TestServer server(options);
  options.key = there;
  TestServer other(options);
  const auto connect = [](const TestServer& to, const KeyRing& ring) {
    ChannelOptions client = ClientOptions();
    client.key = ring;
    return MustConnect(to, client);
  };
  const auto old = connect(server, here);
  for (size_t step = 1; step < std::size(states); ++step) {
    Hold(states[step]);
    for (const auto& ring : {here, there}) {
      for (const TestServer* to : {&server, &other})
        EXPECT_EQ(connect(*to, ring)->Call("Echo", "x", 5s).value(), "x") << step;
    }
    ASSERT_TRUE(ReplaceKeyFile(other_path, states[step]).ok());
  }
  EXPECT_EQ(old->Call("Echo", "still here", 5s).value(), "still here");
  EXPECT_TRUE(server.refused.Get().empty() && other.refused.Get().empty());

  // The old key is worth nothing now; nor was the new one before it was added.
  const Status refused =
      Channel::Connect(server.server->address(), ClientOptions(KeyOf(1))).status();
  EXPECT_EQ(refused.code(), Code::kUnauthenticated) << refused;
  EXPECT_TRUE(Contains(server.WaitForRefusal(), KeyId(KeyOf(2))));
  Hold(KeyOf(1));
  EXPECT_EQ(Channel::Connect(server.server->address(), ClientOptions(KeyOf(2))).status().code(),
            Code::kUnauthenticated);
}

// Two keys open nothing more than two keys: a third one, named as either, is refused.
TEST_F(KeyFileTest, AServerWithTwoKeysNamesBothWhereAThirdIsUsed) {
  ServerOptions options;
  options.key = Keys(KeyOf(1), KeyOf(2));
  TestServer server(options);
  for (const uint8_t number : {1, 2})
    EXPECT_TRUE(MustConnect(server, ClientOptions(KeyOf(number)))->Call("Echo", "", 5s).ok());
  EXPECT_EQ(Channel::Connect(server.server->address(), ClientOptions(KeyOf(3))).status().code(),
            Code::kUnauthenticated);
  const Status refused = server.WaitForRefusal();
  EXPECT_TRUE(Contains(refused, "ids " + KeyId(KeyOf(1)) + " and " + KeyId(KeyOf(2)))) << refused;
}

}  // namespace
}  // namespace monograph::control
