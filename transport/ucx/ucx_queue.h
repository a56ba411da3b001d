// The queue in shared memory by which a UCX worker receives what other processes of its host send
// (lanes posix and sysv), and how it gets going again when a sender died in the middle of a write.
//
// The queue is a ring. A sender takes the next place by adding 1 to `head`, writes its message
// there, and then sets the place's owner bit to the parity of the round; the reader takes places in
// order, and waits at one that is taken and not written. A sender that is killed in between leaves
// a gap, behind which everything that anybody sends waits for ever. UCX does not notice.
//
//   memory = head:u64 address_bytes:u32 address:byte[110] 0:byte[6] tail:u64 reader:i32 0:byte[52]
//            place[n]
//   place  = flags:u8 message:u8 length:u16 segment:u64 segment_bytes:u32 offset:u32 receiver:u64
//            data:byte[100]
//   head     where the next sender writes; its highest bit: the reader sleeps, wake it up
//   address  of the socket that wakes the reader up
//   tail     up to where the reader has released places; it has read some more
//   flags    1 = owner, 2 = the message is in `data`; otherwise in the segment's memory
//   n        a power of two: 64 unless UCX's environment says otherwise
//
// This is the inside of UCX 1.13, which no interface of UCX shows. So all of it is checked first;
// of another version, or where anything looks different, nothing is touched.
#pragma once

namespace monograph {

// Whether UCX is 1.13. Of another version the functions below find no queue.
bool QueueIsKnown();

// Writes an active message `id` without header and data into the first gap of the queue of the
// worker with this event descriptor. False: there is none, or no queue that is known. REQUIRES: the
// worker is not in progress, and whoever left the gap has ended. Only a few system calls: for the
// thread that drives the worker.
bool FillGap(int event_fd, unsigned id);

// For tests: takes a place of every queue that this process writes to, and never writes there.
// Returns how many there are.
int LeaveGaps();

}  // namespace monograph
