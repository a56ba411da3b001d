// How a process that wants to read another one's memory where it lies gets there: a socket in the
// abstract name space, to which the kernel takes the memory's descriptors.
//
//   address  = process:u64 token:u64{2}                          told over the control plane
//   hello    = "MGRF" version:u8 0:u8{3} token:u64{2} reader:u64       reader to maker, one packet
//   welcome  = "MGRF" version:u8 0:u8{3} maker:u64 bytes:u64           maker to reader, one packet,
//              with two descriptors: the arena (base/shared_arena.h), to be read alone; the table
//              of leases
//   version  = 1
//
// `process`, `reader` and `maker` are random numbers of processes; the socket's name follows from
// that of the maker. Each side asks the kernel whose the other end is: another user's gets nothing.
// The token keeps out who has not been told it by a task of the cluster. After the welcome nothing
// is said; the connection is there so that each end learns, from the kernel, when the other ends.
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "transport/reference/lease_table.h"

namespace monograph {

struct ReferenceAddress {
  uint64_t process = 0;
  uint64_t token[2] = {0, 0};

  static ReferenceAddress Random();
};

std::string EncodeReferenceAddress(const ReferenceAddress& address);
// Nothing for bytes that are none.
std::optional<ReferenceAddress> DecodeReferenceAddress(std::string_view bytes);

// A socket that listens there; negative if there can be none.
Descriptor ListenForReaders(const ReferenceAddress& address);

// Takes a connection that has come; negative if none has, or one of another user.
Descriptor AcceptReader(int listener);
// The reader that has said hello there, once that has come; 0 if it is not what it should be.
uint64_t ReadHello(int socket, const ReferenceAddress& own);
bool SendWelcome(int socket, const ReferenceAddress& own, int arena, size_t arena_bytes,
                 int leases);

// What a reader has of a maker.
struct MetMaker {
  Descriptor socket;
  const char* memory = nullptr;
  size_t bytes = 0;
  std::unique_ptr<LeaseTable> leases;
};

// Waits, at most 2 s. Nothing if the maker does not let this process read.
std::optional<MetMaker> MeetMaker(const ReferenceAddress& maker, uint64_t reader);

}  // namespace monograph
