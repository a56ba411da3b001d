// Both sides ask the kernel for the other's user before a byte is read or sent. Packets have a
// fixed size and come whole (SOCK_SEQPACKET), so that there is nothing to parse. The arena of a
// maker is mapped only if it is sealed against shrinking and as large as the welcome says.
#include "transport/reference/introduction.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/codec.h"
#include "base/random.h"
#include "base/shared_arena.h"

namespace monograph {
namespace {

constexpr std::string_view kReferenceMagic = "MGRF";
constexpr uint8_t kReferenceVersion = 1;
constexpr size_t kHelloBytes = 32, kWelcomeBytes = 24;
constexpr int kMostWaiting = 64;
constexpr time_t kMeetSeconds = 2;  // seconds

// The name in the abstract name space, and its length with the family.
socklen_t SocketName(const ReferenceAddress& address, sockaddr_un* name) {
  name->sun_family = AF_UNIX;
  name->sun_path[0] = 0;
  const int length = std::snprintf(name->sun_path + 1, sizeof name->sun_path - 1,
                                   "monograph-%016lx", static_cast<unsigned long>(address.process));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

bool IsOwnUsers(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

void PutPrefix(Encoder* encoder) {
  for (const char c : kReferenceMagic) encoder->Put(c);
  encoder->Put(kReferenceVersion);
  for (int i = 0; i < 3; ++i) encoder->Put(uint8_t{0});
}

// What follows the prefix; empty if that is not ours.
std::string_view AfterPrefix(std::string_view packet) {
  constexpr size_t kPrefix = 8;
  if (packet.size() < kPrefix || !packet.starts_with(kReferenceMagic) ||
      packet[kReferenceMagic.size()] != static_cast<char>(kReferenceVersion))
    return {};
  return packet.substr(kPrefix);
}

}  // namespace

ReferenceAddress ReferenceAddress::Random() {
  return {RandomNonZero(), {RandomNonZero(), RandomNonZero()}};
}

std::string EncodeReferenceAddress(const ReferenceAddress& address) {
  Encoder encoder;
  encoder.Put(address.process);
  for (const uint64_t word : address.token) encoder.Put(word);
  return encoder.Take();
}

std::optional<ReferenceAddress> DecodeReferenceAddress(std::string_view bytes) {
  Decoder decoder(bytes);
  ReferenceAddress address;
  address.process = decoder.Get<uint64_t>();
  for (uint64_t& word : address.token) word = decoder.Get<uint64_t>();
  if (!decoder.ok() || !decoder.rest().empty() || address.process == 0) return std::nullopt;
  return address;
}

Descriptor ListenForReaders(const ReferenceAddress& address) {
  Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  const socklen_t bytes = SocketName(address, &name);
  if (listener.get() < 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0 ||
      listen(listener.get(), kMostWaiting) != 0)
    return Descriptor();
  return listener;
}

Descriptor AcceptReader(int listener) {
  Descriptor reader(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return reader.get() >= 0 && IsOwnUsers(reader.get()) ? std::move(reader) : Descriptor();
}

uint64_t ReadHello(int socket, const ReferenceAddress& own) {
  std::array<char, kHelloBytes + 1> packet;
  const ssize_t got = recv(socket, packet.data(), packet.size(), MSG_DONTWAIT);
  if (got != static_cast<ssize_t>(kHelloBytes)) return 0;
  Decoder decoder(AfterPrefix({packet.data(), kHelloBytes}));
  uint64_t differs = 0;
  for (const uint64_t word : own.token) differs |= word ^ decoder.Get<uint64_t>();
  const auto reader = decoder.Get<uint64_t>();
  return decoder.ok() && differs == 0 ? reader : 0;
}

bool SendWelcome(int socket, const ReferenceAddress& own, int arena, size_t arena_bytes,
                 int leases) {
  Encoder encoder;
  PutPrefix(&encoder);
  encoder.Put(own.process);
  encoder.Put(static_cast<uint64_t>(arena_bytes));
  std::string bytes = encoder.Take();
  const int files[] = {arena, leases};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(head), files, sizeof files);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::optional<MetMaker> MeetMaker(const ReferenceAddress& maker, uint64_t reader) {
  MetMaker met;
  met.socket = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int fd = met.socket.get();
  const timeval limit{kMeetSeconds, 0};
  sockaddr_un name{};
  const socklen_t name_bytes = SocketName(maker, &name);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&name), name_bytes) != 0 || !IsOwnUsers(fd))
    return std::nullopt;
  Encoder hello;
  PutPrefix(&hello);
  for (const uint64_t word : maker.token) hello.Put(word);
  hello.Put(reader);
  if (send(fd, hello.bytes().data(), hello.bytes().size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kHelloBytes))
    return std::nullopt;

  std::array<char, kWelcomeBytes + 1> packet;
  iovec part{packet.data(), packet.size()};
  int files[2] = {-1, -1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const head = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof files))
    std::memcpy(files, CMSG_DATA(head), sizeof files);
  Descriptor arena(files[0]), leases(files[1]);
  if (got != static_cast<ssize_t>(kWelcomeBytes) || arena.get() < 0) return std::nullopt;
  Decoder decoder(AfterPrefix({packet.data(), kWelcomeBytes}));
  const auto process = decoder.Get<uint64_t>();
  const auto bytes = decoder.Get<uint64_t>();
  struct stat info {};
  const int seals = fcntl(arena.get(), F_GET_SEALS);
  // A file that could shrink would end this process when it reads there.
  if (!decoder.ok() || process != maker.process || bytes == 0 || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0 || fstat(arena.get(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) < bytes)
    return std::nullopt;
  met.leases = LeaseTable::Open(std::move(leases));
  if (met.leases == nullptr) return std::nullopt;
  met.bytes = bytes;
  met.memory = MapArena(arena.get(), bytes, false);
  if (met.memory == nullptr) return std::nullopt;
  return met;
}

}  // namespace monograph
